/* Scheduling, from a graph to groups of nodes that run as one step each. Internal to sched/.
 *
 *   order.c   readers of a tensor before writes to parts of it
 *   real.c    which nodes get a value of their own (real); the others expand into their users
 *   write.c   which writes to parts of what is computed are made in place
 *   direct.c  which kernels write to parts of inputs where these lie
 *   domain.c  the iteration space of a group: dimensions in row-major order, outer or inner
 *   group.c   a group lowered over its domain: which positions it reads and computes
 *   fuse.c    merges groups, driven by the bytes that stay in registers
 *   legal.c   which merges are legal: the rules of fusion.def, each with its reason
 *   wide.c    products of half precision that stay f32 until a kernel has read them
 *   finish.c  a finished group -> kernel: axes merged, values bound
 *   form.c    how engines walk a kernel: tile or row, split
 *   plan.c    groups -> steps in order, values placed
 *   list.c    kernels along one axis that do the same to other tensors: one step
 *   memory.c  the temporaries' lifetimes, and their places in one block
 *   step.c    what a step moves
 *   cost.c    what eager does for the same graph, for comparison
 *   print.c   plans as text
 *   in_place.c  which inputs take their values while the plan runs */
#ifndef CARBIDE_SCHED_SCHEDULE_H
#define CARBIDE_SCHED_SCHEDULE_H

#include "device/device.h"
#include "graph/index_check.h"
#include "lower/lower.h"
#include "sched/plan.h"

enum { DOMAIN_AXES = 16, GROUP_NODES = 512, GROUP_MEMBERS = 96 };

typedef struct Domain {
    int count;
    int64_t size[DOMAIN_AXES]; /* row-major order of the element-level values; no 1 */
    bool inner[DOMAIN_AXES];
    bool varies[DOMAIN_AXES]; /* made of a size that does; others are asked about by their size */
} Domain;

Domain domain_of(const Node *node); /* of a real node by itself */
int64_t domain_total(const Domain *domain);
int64_t domain_outer(const Domain *domain);
bool domain_has_inner(const Domain *domain);
bool domain_equal(const Domain *a, const Domain *b);
/* Where both have inner axes, the same elements are inner. */
bool domain_same_split(const Domain *a, const Domain *b);
/* The domain in which both can run, where their splits are the same; false: of other sizes. */
bool domain_join(const Domain *a, const Domain *b, Domain *out);
/* The domain of rows with sums of another split in it, of its elements or of its rows. */
bool domain_take(const Domain *rows, const Domain *sums, Domain *out);

/* GROUP_PRODUCT: tasks that take pointwise work as their epilogue (ops of kind CONTRACT);
 * GROUP_OPAQUE: tasks that take none. */
typedef enum GroupKind {
    GROUP_LOOP,
    GROUP_PRODUCT,
    GROUP_OPAQUE,
    GROUP_SCATTER,
    GROUP_WRITE
} GroupKind;

typedef struct Group Group;
struct Group {
    GroupKind kind;
    const Node *anchor;  /* matmul, convolution, argsort, scatter...: what the step itself computes;
                          * else NULL */
    const Node **member; /* vec: real nodes computed by the group's kernel, in graph order */
    Domain domain;
    Kernel *trial;        /* members lowered over domain; NULL: to be made */
    Lowering lowering;    /* of the trial */
    Expr **value;         /* by member */
    Expr **sink;          /* by member: of a sum of rows, the element that each adds to; or NULL */
    bool reads_folds;     /* a member reads what another one has folded */
    Expr *element, *row;  /* flat position at element and at row level */
    const Node **read;    /* vec: real nodes and inputs that it reads from outside */
    const Node **operand; /* vec: what the anchor's own step reads */
    int first, last;      /* graph positions of its first and last node */
    int reach;            /* of the last node of what it needs, through all groups, and its own */
    int mark;             /* visited by search number */
    Group *forward;       /* the group that took it in */
    bool late;            /* it writes to where inputs lie, if it can (direct.c) */
    bool opened, emitted; /* its steps: what it reads is to come, then its own have */
};

typedef struct OperandStrides OperandStrides; /* real.c */

/* A scatter whose parts are written to where its base is in memory. */
typedef struct WrittenParts {
    const Node *base;
    const RegionWrite *write; /* vec */
    bool copies;              /* the base first; otherwise nobody reads that any more */
    const Node **before;      /* vec: what reads the base, to be computed before it */
} WrittenParts;

/* What an input takes when all has run, and may take from the kernel that computes it. */
typedef struct DirectWrite {
    const Node *input;
    Region region;
    bool done; /* the kernel does */
} DirectWrite;

typedef struct Schedule {
    Graph *graph;
    const DeviceMachine *machine; /* that the graph is to run on */
    Arena *arena; /* of the plan, inner: what is tried is many times as large as what stays */
    Plan *plan;
    Node **order;        /* vec */
    int *position;       /* by node id: place in order */
    bool *real;          /* by node id */
    Group **group;       /* by node id: the group that computes a real node; NULL for inputs */
    Group ***reader;     /* by node id: vec of groups that have read it */
    OperandStrides **operand; /* by node id: of tasks; NULL: nobody has asked */
    const Node **below;  /* by node id: what its views are of; itself, when it is no view */
    const Node **effect; /* by node id: a custom op with effects, to come before this one */
    bool *taken;         /* by node id: by an input, as a whole, when all has run */
    bool *checked;       /* by node id: index values, complete before anybody reads through them */
    CheckSet check;      /* of bases */
    Map kernel;          /* by Kernel.key: those of the plan with a body of their own */
    int *value;          /* by node id: plan value, -1: none */
    RegionWrite **write; /* by mutation: vec of the writes to parts; NULL: it is whole */
    bool *scatters;      /* by node id: one of them, or of `written`, makes it */
    WrittenParts **written;   /* by node id; NULL: it is computed otherwise */
    DirectWrite **direct; /* by node id; NULL: its value has memory of its own */
    Group **late; /* vec: groups with such, which are emitted behind all that do not need them */
    bool closing; /* only these are left */
    bool *wide; /* by node id: a product whose value is f32, whatever its dtype (wide.c) */
    const int64_t *const *input_stride;
    Group **all; /* vec; merged ones have a forward */
    int search;  /* number of the last reachability search */
    int likened; /* kernels of the plan over other sizes that have their counterpart so far */
    PlanOptions options;
} Schedule;

bool is_write(const Node *node); /* to a part of its first operand */
const Node *written_over(const Node *write); /* what that is in whatever shape */
/* Who reads each node of the order, by node id: vec, each once, as they come in it. */
Node ***order_readers(const Graph *graph, Arena *arena, Node **order);
/* The same nodes, with writes to parts behind what reads what was there, where that needs none. */
Node **order_readers_first(const Graph *graph, Arena *arena, Node **order);
/* The node whose buffer an output is: reshapes keep the flat order, so they share it. */
const Node *output_base(const Node *output);
/* What the input of mutation `number` takes, one after the other: values of parts of it, or the
 * whole one (region.c). */
void find_regions(Schedule *schedule);
/* Of the scatters that say what is written none is computed for that. */
void mark_scatters(Schedule *schedule, const RegionWrite *write);
int mutation_count(const Schedule *schedule, int number);
const Node *mutation_value(const Schedule *schedule, int number, int part);
/* Which scatters are made in place, of those that somebody needs whole (write.c). */
void find_written(Schedule *schedule);
void mark_real(Schedule *schedule);
/* How many operands of a node a task reads by strides: the first ones; 0: it is no task. */
int strided_operands(const Node *node);
/* The real node or input that an operand of views is a view of. */
const Node *buffer_below(const Schedule *schedule, const Node *operand);
/* Is the operand of a library step a strided view of the buffer? Strides and offset in elements. */
bool operand_affine(const Schedule *schedule, const Node *operand, const Node *buffer,
                    int64_t *stride, int64_t *offset, Shift *shift);

Group *group_find(Group *group); /* the live group that it has become; NULL for NULL */
Group *group_new(Schedule *schedule, GroupKind kind, const Node *node);
/* Lowers members over domain into a fresh trial; false: a leaf stands at another position. */
bool group_lower(Schedule *schedule, Group *group, const Domain *domain);
bool group_extend(Schedule *schedule, Group *group, const Node *const *member, int count);
/* The trial's axes and positions without members. */
void group_open(Schedule *schedule, Group *group, const Domain *domain);
/* Element strides of a real node or input as it lies in memory. */
void buffer_strides(const Schedule *schedule, const Node *node, int64_t *stride);

void fuse_groups(Schedule *schedule);
/* Of final groups; uses: by node id, of what reads or takes it from outside of its kernel. */
void find_direct(Schedule *schedule, const int *uses);
/* The input that takes all of node when all has run; NULL: none. */
const Node *updated_input(const Schedule *schedule, const Node *node);
/* Where a member of the group would be stored in its input, by the trial's axes; NULL: nowhere. */
Expr *direct_index(const Schedule *schedule, const Group *group, const Node *member);
/* Lets the store of the member, one of all of its kernel's, go there if it may. */
bool store_direct(Schedule *schedule, const Group *group, const Node *member, Store *store);
/* Which products keep their sums as they are. Of final groups. */
void mark_wide(Schedule *schedule);

/* Rows of a few elements that generated code walks as one run, whatever has one value for each row
 * or each column: their axis is made inner (finish.c). */
bool may_run_flat(const Schedule *schedule, Kernel *kernel, int last);
/* Makes the kernel of a group's members, bound to plan values (finish.c). stored: by member.
 * Returns its number. */
int finish_group(Schedule *schedule, Group *group, const bool *stored);
/* The two kernels of a scatter: the base copied (-1 where the updates are done in the base itself),
 * then the updates in index order. */
void finish_scatter(Schedule *schedule, Group *group, const int *uses, int kernel[2]);
Form form_of(Kernel *kernel, const DeviceMachine *machine); /* of a trial, too */
bool has_short_rows(const Kernel *kernel, const DeviceMachine *machine); /* with lanes across */
/* Form, split and costs of a complete kernel (form.c). */
void choose_form(Kernel *kernel, const DeviceMachine *machine);
int node_value(Schedule *schedule, const Node *node); /* its plan value, made when it has none */

#endif
