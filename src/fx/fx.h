/* FX graphs inside: the node list and what its files share.
 *
 * graph.c   nodes, names' owner, arguments, users        text.c      print(graph)
 * names.c   names as torch.fx forms them                  readable.c  print_readable, tabular, dot
 * target.c  op calls <-> targets, args, kwargs             code.c      C text
 * trace.c   symbolic trace                                 parse.c     text in
 * run.c     interpreter                                    lint.c, edit.c, match.c
 *
 * A graph and everything in it live in one arena. Public functions guard the arena and call
 * internal ones, which never guard again: an inner guard would leave a dead escape point behind. */
#ifndef CARBIDE_FX_FX_H
#define CARBIDE_FX_FX_H

#include "base/buffer.h"
#include "base/map.h"
#include "base/vec.h"
#include "nn/module.h"

typedef struct cb_graph FxGraph;
typedef struct cb_node FxNode;

typedef struct FxKwarg {
    const char *key;
    cb_arg value;
} FxKwarg;

struct cb_node {
    FxGraph *graph; /* NULL: erased */
    FxNode *previous, *next;
    cb_opcode opcode;
    Op op;  /* what target means, OP_none when it is no op */
    bool inplace; /* the method writes its result into its first argument (relu_, copy_) */
    bool has_meta;
    int id; /* unique in the graph, never used again: index of side arrays */
    const char *name, *target;
    const char *type; /* annotation of parsed text, or NULL */
    cb_arg *args;     /* vec */
    FxKwarg *kwargs;  /* vec */
    FxNode **inputs;  /* vec: distinct nodes in args and kwargs, in order */
    FxNode **users;   /* vec: distinct nodes that have this one among their inputs */
    Meta meta;
    int64_t stride[CB_MAX_RANK];
    Site site;
};

typedef struct FxConstant {
    const char *name;
    Tensor *tensor; /* kept */
} FxConstant;

struct cb_graph {
    Tomb tomb; /* first */
    Arena *arena;
    Module *root; /* may be NULL */
    FxNode *first, *last;
    int count, next_id;
    uint64_t edits;        /* targets that were set and arguments that were changed, so far */
    Map names;             /* hash of a name -> the name: taken for ever, as in torch.fx */
    Map name_counts;       /* hash of a base -> FxNameCount */
    FxConstant *constants; /* vec */
};

/* False for NULL, and with an error for a graph that was freed. */
static inline bool fx_lives(const FxGraph *graph, const char *what) {
    return graph && tomb_lives(&graph->tomb, what);
}

/* True without a module, or a graph; false with an error when the module was freed. */
static inline bool fx_module_lives(const FxGraph *graph, const char *what) {
    return !graph || !graph->root || module_lives(graph->root, what);
}

/* ---- graph.c ---- */
#define FX_GUARD(graph, failure)                                                                   \
    do {                                                                                           \
        if (arena_guard((graph)->arena)) {                                                         \
            fail_memory(0);                                                                        \
            return failure;                                                                        \
        }                                                                                          \
    } while (0)

FxGraph *fx_graph_new(Module *root); /* NULL with an error */
/* A node that is in no list yet. name NULL: a free one made from the target. */
FxNode *fx_node_new(FxGraph *graph, cb_opcode opcode, const char *target, const char *name);
void fx_link_before(FxGraph *graph, FxNode *node, FxNode *where); /* where NULL: at the end */
void fx_unlink(FxNode *node);                                     /* takes no memory */
FxNode *fx_output_node(const FxGraph *graph);                     /* NULL when there is none */
/* A new node before where, args copied. */
FxNode *fx_create(FxGraph *graph, FxNode *where, cb_opcode opcode, const char *target,
                  const cb_arg *args, int count);
void fx_add_kwarg(FxNode *node, const char *key, cb_arg value);
/* After any change of args or kwargs: inputs of the node and users of its inputs. */
void fx_refresh(FxNode *node);
/* A deep copy in the graph's arena, nodes mapped (map NULL: as they are). */
typedef cb_arg FxMap(void *user, FxNode *node);
cb_arg fx_copy_arg(FxGraph *graph, const cb_arg *arg, FxMap *map, void *user);
bool fx_arg_belongs(const FxGraph *graph, const cb_arg *arg); /* every node in it is the graph's */
void fx_replace_uses(FxNode *user, FxNode *node, cb_arg by);
const char *fx_constant_add(FxGraph *graph, Tensor *tensor); /* its name; NULL with an error */
Tensor *fx_constant(const FxGraph *graph, const char *name); /* NULL: no such constant */
/* Calls visit for every node that the node's arguments hold, left to right: args, then kwargs. */
typedef void FxVisit(void *user, FxNode *node);
void fx_visit_inputs(const FxNode *node, FxVisit *visit, void *user);
/* Errors of a node: "node %add (call_function operator.add): ..." */
cb_status fx_fail(cb_status status, const FxNode *node, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- names.c ---- */
const char *fx_unique_name(FxGraph *graph, const char *candidate);
const char *fx_name_hint(FxGraph *graph, cb_opcode opcode, const char *target);
bool fx_name_taken(const FxGraph *graph, const char *name);
void fx_name_take(FxGraph *graph, const char *name);
void fx_name_give_back(FxGraph *graph, const char *name); /* of a node that is gone: free again */

/* ---- text.c ---- */
typedef enum FxStyle {
    FX_STYLE_GRAPH, /* %name, strings bare: args of print(graph) */
    FX_STYLE_PYTHON /* name, strings quoted: return, tables, code */
} FxStyle;
void fx_put_arg(Buffer *out, const cb_arg *arg, FxStyle style);
void fx_put_args(Buffer *out, const FxNode *node, FxStyle style);   /* as a tuple */
void fx_put_kwargs(Buffer *out, const FxNode *node, FxStyle style); /* as a dict */
const char *fx_dtype_text(cb_dtype dtype);                          /* "torch.float32" */
/* Runs a printer over a temporary arena; the result is a text of the heap, NULL with an error. A
 * printer that returns false has recorded one. */
typedef bool FxPrinter(const FxGraph *graph, Buffer *out, const void *options);
char *fx_render(const FxGraph *graph, FxPrinter *printer, const void *options);
/* For every node by id, the inputs of which it is the last user (vec), itself when nobody uses
 * it. */
FxNode ***fx_last_uses(const FxGraph *graph, Arena *arena);

/* ---- target.c ---- */
typedef struct FxIndex {           /* one step of operator.getitem */
    Op op;                         /* OP_slice, OP_select, OP_unsqueeze */
    int64_t dim, start, end, step; /* select: start is the index */
} FxIndex;

typedef struct FxCall {
    Op op;
    bool inplace, indexing; /* indexing: steps apply one after the other */
    int operand_count, step_count;
    cb_arg operand[OP_MAX_PARAMS]; /* nodes, numbers, None */
    const cb_arg *list;            /* concat: a list or tuple of nodes */
    Attrs attrs;
    FxIndex step[2 * CB_MAX_RANK];
} FxCall;

void fx_resolve(FxNode *node); /* after a change of the target: op and inplace */
/* The op call that a call_function or call_method node stands for; false with an error that names
 * it. */
bool fx_bind(const FxNode *node, FxCall *call);
/* The node of an op call, before the output or at the end. */
FxNode *fx_record(FxGraph *graph, Op op, const cb_arg *operand, int count, const Attrs *attrs);
const char *fx_keyword(Op op, const Param *param); /* PyTorch's name of a parameter */
/* The value of a flag that PyTorch writes as a text, such as a mode; false when it is no such
 * text. */
bool fx_flag(Op op, const Param *param, const char *text, int64_t *value);
bool fx_is_number(const cb_arg *arg);
double fx_number(const cb_arg *arg);
cb_operand fx_operand(const cb_arg *arg); /* of a number */
int fx_custom(const FxNode *node); /* of an operation of the user's, OP_custom: its number */
bool fx_random(const FxNode *node);       /* takes a draw from the generator */
/* A call of a module that may do more than compute a result of its own: only our layers are known
 * not to. */
bool fx_opaque(const FxNode *node);
/* A node from first up to last, without last, may write a tensor: what last reads may have been
 * something else where first stands. */
bool fx_written_between(const FxNode *first, const FxNode *last);
/* True when the node's value is a tensor of its own that nothing else can refer to: it may be freed
 * after its last use. */
bool fx_is_temporary(const FxNode *node);

/* ---- lint.c ---- */
cb_status fx_check_order(const FxGraph *graph); /* every node stands before those that use it */

/* ---- run.c ---- */
/* cb_graph_run, inside. */
int fx_run(const FxGraph *graph, Tensor *const *inputs, int count, Tensor **outputs, int capacity);

#endif
