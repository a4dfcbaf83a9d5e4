/* The structs of a compiled function: entries, guards, and the state of one call.
 *
 * Lifetimes: entries are appended, and leave the list, under the function's lock; calls read it
 * without one, between function_enter and function_leave, and none of what they find is freed
 * before they leave (retire.c). Of an entry in the list only atomic members and its job change. A
 * Call lives in its frame (tensor/frame.h). */
#ifndef CARBIDE_CAPTURE_FUNCTION_H
#define CARBIDE_CAPTURE_FUNCTION_H

#include "base/inside.h"
#include "base/reason.h"
#include "base/set.h"
#include "base/tomb.h"
#include "base/worker.h"
#include "capture/capture.h"
#include "device/device.h"
#include "eager/tape.h"
#include "report/report.h"
#include "tensor/frame.h"
#include "tensor/random.h"
#include "tensor/thread.h"
#include "trace/trace.h"

#include <assert.h>
#include <stdatomic.h>

typedef struct cb_function Function;
typedef struct Entry Entry;
typedef struct Call Call;
typedef struct Recording Recording;     /* functional.h */
typedef struct BackendCode BackendCode; /* backend.c */
typedef struct EntryTimes EntryTimes;   /* eager_time.c */
typedef struct Backward Backward;       /* joint.h */
typedef struct LeftSegment LeftSegment; /* segment.h: a segment that a call has left */

/* ---- options ------------------------------------------------------------------------------- */

typedef enum FunctionOption { /* by position */
#define OPTION(name, ...) FUNCTION_OPTION_##name,
#include "capture/options.def"
#undef OPTION
                              FUNCTION_OPTIONS
} FunctionOption;

#define OPTION(name, NAME, help, ...) typedef enum __attribute__((packed)) { __VA_ARGS__ } NAME;
#define VALUE(enumerator, word) enumerator,
#include "capture/options.def"
#undef OPTION
#undef VALUE

typedef union FunctionOptions {
    struct {
#define OPTION(name, Type, ...) Type name;
#include "capture/options.def"
#undef OPTION
    };
    uint8_t value[FUNCTION_OPTIONS]; /* the same */
} FunctionOptions;
static_assert(sizeof(FunctionOptions) == FUNCTION_OPTIONS, "an option is a byte");
bool options_parse(const char *text, FunctionOptions *out);
void options_print(const FunctionOptions *options, Buffer *out);

/* ---- guards -------------------------------------------------------------------------------- */

typedef struct Guard { /* of one input */
    cb_dtype dtype;
    uint8_t rank, device;
    HistoryKind history;
    bool contiguous; /* any strides are those that make it so */
    int64_t size[CB_MAX_RANK], stride[CB_MAX_RANK];
} Guard;
void guard_make(Guard *guard, const Tensor *x, bool grad);
bool guard_holds(const Guard *guard, const Tensor *x, bool grad); /* grad: they are wanted */
bool guard_holds_resized(const Guard *guard, const Tensor *x, bool grad); /* all but sizes */
void guard_print(const Guard *guard, Buffer *out);
int input_first(Tensor *const *input, int i);  /* the first input that is the same tensor */
int input_handle(Tensor *const *input, int i); /* and by the same handle */

/* ---- conditions: conditions.c, what a call finds around its inputs ------------------------- */

Ambient function_ambient(const Function *function); /* that a call from here begins with */
cb_dtype function_autocast(const Function *function); /* of that */
/* fullgraph, which does not run the function again: the modules and FX graphs that the trace
 * depends on. */
void objects_forget_dead(Trace *trace); /* the function made them for itself */
bool objects_hold(const Trace *trace);  /* all are as they were */
bool objects_same(const Trace *a, const Trace *b);
/* The function would be told the same of how its tensors lie; which answer differs, into out. */
bool answers_hold(const Entry *entry, Tensor *const *input);
void answers_describe(const Entry *entry, Tensor *const *input, char *out, size_t bytes);
/* Of the tracer (tensor/tracer.h). */
bool call_changes_ambient(Tracer *tracer, const char *what, AmbientChange change);
void call_meets_module(Tracer *tracer, const cb_module *module);
void call_meets_graph(Tracer *tracer, const cb_graph *graph);
void call_meets_layout(Tracer *tracer, Tensor *x, Tensor *y);
/* What of all this the entry does not hold for, into out; REASON_NONE: it holds. */
Reason conditions_differ(const Entry *entry, Ambient now, char *out, size_t bytes);

/* ---- entries ------------------------------------------------------------------------------- */

typedef enum ResultSource {
    RESULT_NULL,  /* the function returned NULL */
    RESULT_REAL,  /* an input or captured tensor itself */
    RESULT_VIEW,  /* a view of an input or captured tensor */
    RESULT_GRAPH, /* a view of a graph output's storage */
    RESULT_VALUE  /* a graph output of its own, contiguous, although it was a view in the trace */
} ResultSource;

typedef struct EntryResult {
    ResultSource source;
    int value;  /* of the trace */
    int output; /* RESULT_GRAPH, RESULT_VALUE: graph output */
} EntryResult;

typedef struct Frozen {       /* what a frozen tensor was when the entry was compiled */
    uint64_t serial, version; /* of its storage; 0: not frozen */
    int64_t offset;
    const void *bytes; /* its elements, where they count and not the storage; or NULL */
} Frozen;

/* Ways to find one of many entries (find.c). */
typedef enum FindBy { FIND_BY_INPUTS, FIND_BY_OP, FIND_WAYS } FindBy;
enum { FIND_CHAINS = 64, FEW_ENTRIES = 8 /* are asked one by one */ };

struct Entry {
    _Atomic(Entry *) next;
    uint64_t key[FIND_WAYS];
    _Atomic(Entry *) same[FIND_WAYS]; /* the next one of its chain */
    _Atomic(Entry *) then;            /* what followed last, where the trace goes on: a guess */
    _Atomic(Entry *) after; /* what the next call began with last: a guess */
    _Atomic(Entry *) wider; /* takes its place: the same, but more values cross, or more numbers
                             * are arguments */
    bool resumes;           /* it begins after an event, not with the function */
    Function *function;
    int number; /* of its recording, and for good: by when that began */
    int input_count;
    Guard *guard; /* per input */
    int *first;   /* per input: the first one that was the same tensor, in whose name ops are */
    Trace *trace; /* owned */
    EntryResult *result; /* per output of the trace, then per escaped value */
    int *captured; /* value numbers, in order: graph inputs after the call's own. NO_VALUE: the
                     * trace's next argument */
    int captured_count;
    int *handle; /* fullgraph: per input: the first one by the same handle; else NULL */
    int *joined; /* fullgraph: per input: the captured leaf that it was as well, or NO_VALUE */
    /* By captured tensor: itself under fullgraph, or a copy of the call's own, under fullgraph or
     * where its bytes are a constant; NULL: the call has it. */
    Tensor **held;
    bool *shown; /* the call's own, and somebody sees it: fullgraph gives every call another one */
    Frozen *frozen; /* by value; NULL: none is */
    int *mutated;   /* values of inputs and captured tensors that the graph writes */
    int mutated_count;
    int graph_output_count; /* results, then what is saved for gradients */
    Backward *backward;     /* held: what leads back from the results; NULL: nothing does */
    bool *copied;       /* per graph output: it may share storage with an input or another output */
    int *shell; /* per graph output: the value whose shell is it, once that has run, or NO_VALUE */
    const Graph *graph; /* in the arena of the executable, or the code; before, the recording's */
    Executable *executable;  /* NULL: a backend of the user's made code */
    BackendCode *code;       /* NULL: the executable runs */
    Executable *oracle;      /* CARBIDE_CHECK: the same graph on the float64 VM; otherwise NULL */
    atomic_bool *told;       /* by graph output, then mutated value: that the oracle differs */
    double oracle_tolerance; /* how far apart floats may be, by the coarsest dtype on their way */
    EntryTimes *times;       /* where explain is to tell of them; otherwise NULL */
    Ambient ambient;         /* when it began */
    double start_ms, trace_ms, compile_ms; /* start: when its recording began */
    WorkerJob job;        /* later.c: its C code is made in the background */
    _Atomic bool counts;  /* for the limit, and it stays (retire.c) */
    int64_t made;         /* in which call of the function */
    _Atomic int64_t used; /* and in which one last */
    _Atomic bool gone;    /* it leaves the list, or has: none may point at it any more */
    Entry *left;          /* the one that left before */
};

/* A finished recording becomes an entry: one is compiled at a time, others wait for it. NULL:
 * memory ran out; the recording still holds its trace then. */
Entry *entry_make(Call *call);
Entry *entry_widest(Entry *entry); /* what has taken its place, or itself; NULL for NULL */
void entry_free(Entry *entry);
bool entry_same(const Entry *a, const Entry *b); /* inputs, modules and ops are the same */
/* entry_make's parts, which check.c does again: the entry of a recording, not yet compiled; strides
 * of the graph's inputs. NULL: memory ran out. */
Entry *entry_prepare(const Call *call, Recording *recording);
const int64_t *const *entry_strides(Recording *recording, const Entry *entry);
CompileOptions entry_compile_options(const FunctionOptions *options); /* what they say of it */
bool entry_holds(const Entry *entry, Ambient now, bool grad, Tensor *const *input, int input_count);
/* What of the inputs' identity the entry does not hold for, into out; false: it holds. */
void entry_note_handles(Entry *entry, Tensor *const *input); /* may escape through its arena */
bool entry_describe_aliases(const Entry *entry, Tensor *const *input, char *out, size_t bytes);
/* False when the entry writes to memory that another of its tensors shows, although they are not
 * one, so that the order of ops matters: REASON_written_overlap, which out tells. */
bool entry_values_apart(const Entry *entry, Tensor *const *value, char *out, size_t bytes);
/* "input 0", "fc.weight" or "captured %3". */
void entry_name_value(const Entry *entry, int v, char *out, size_t bytes);
/* Runs the executable. value[] gives inputs and captured tensors, argument[] the trace's; new ones
 * come into graph_output. False with an error: nothing has happened. */
bool entry_run(const Entry *entry, Tensor *const *value, const int64_t *argument,
               Tensor **graph_output);
/* A part of it: who computes the graph, with inputs as the graph has them. */
bool entry_compute(const Entry *entry, Tensor *const *input, Tensor **output);
const char *entry_backend(const Entry *entry); /* the name of who made its code; NULL: Carbide */
bool entry_runs_ops(const Entry *entry);       /* by backend=eager, which compiles nothing */
static inline bool entry_has_effects(const Entry *entry) { /* that a second run would do again */
    return length(entry->graph->effect) > 0;
}
/* Shells of the results get the storages of graph outputs and real tensors. */
void entry_settle(const Entry *entry, Tensor *const *value, Tensor *const *graph_output);
/* After that (done), or a failure: those that are shells' own stay. */
void entry_drop_outputs(const Entry *entry, Tensor *const *value, Tensor *const *graph_output,
                        bool done);
/* fullgraph: everything without the function. Fills output; count, or a negative status. */
int entry_call(const Entry *entry, Tensor *const *input, Tensor **output);

/* later.c: the C code of a new entry is there, or is made in the background. */
void entry_compile_later(Entry *entry);
bool entry_has_code(const Entry *entry, bool *compiled); /* compiled: none of other sizes did */
double entry_compile_ms(const Entry *entry);             /* with the compiler's in the background */
void entry_drop_job(Entry *entry);                       /* before it is freed */

/* sizes.c: which sizes of an entry, over these values, others have. Escapes through the trace's
 * arena. */
PlanSizes sizes_choose(const Entry *entry, Tensor *const *value);
/* Of an entry that begins where the call does: mostly it is the same over other sizes; or NULL. */
const Trace *sizes_find_known(const Call *call);

/* frozen.c: which captured tensors count as constants, into the entry and the options; whether x,
 * and all captured tensors, still are what they were. Escapes through the trace's arena. */
/* Value k of what is captured, which the call itself made, as it is now. False: no memory. */
bool entry_hold_own(Entry *entry, int k, Tensor *x);
/* False: no memory. */
bool frozen_choose(Entry *entry, const Call *call, CompileOptions *options);
bool frozen_holds(const Entry *entry, int v, const Tensor *x);
bool frozen_alike(const Entry *a, const Entry *b); /* of alike traces: the same are frozen, as the
                                                    * same */
bool frozen_all_hold(const Entry *entry, const Call *call); /* call NULL: of the held tensors */
bool frozen_describe(const Entry *entry, char *out, size_t bytes); /* which held one does not */

/* check.c: builds the oracle; false: no memory. Runs both and reports the outputs that differ. */
bool check_build(Entry *entry, Call *call);
bool check_run(const Entry *entry, Tensor *const *input, Tensor **output);
/* A tensor of the same strides over a copy of x's storage; NULL: out of memory. */
Tensor *tensor_shadow(const Tensor *x);

/* eager_time.c: where explain is to say it (entry->times), what eager takes for the same. */
void entry_times_begin(Entry *entry); /* may escape through the trace's arena */
void entry_time_eager(const Entry *entry, Tensor *const *value, const int64_t *argument);
void entry_ran(const Entry *entry, int64_t start); /* clock_ns */
/* Whole calls, with the function and all that is checked, are timed once the ops are. */
bool entry_times_calls(const Entry *entry);
void entry_called(const Entry *entry, int64_t start);
/* The shortest runs in milliseconds; 0: not known. */
double entry_ms(const Entry *entry, double *eager);
/* "0.004 ms at its best, eager ...", and rates behind a text; false: not known. */
bool entry_print_speed(const Entry *entry, const char *between, Buffer *out);
void entry_dump(const Entry *entry); /* guards and captured ops, to stderr */

/* ---- functions ----------------------------------------------------------------------------- */

typedef enum Callee {
    CALLEE_1,
    CALLEE_2,
    CALLEE_3,
    CALLEE_4,
    CALLEE_N,
    CALLEE_MODULE,
    CALLEE_GRAPH
} Callee;

enum { DETAIL_BYTES = 240 };
typedef struct Note { /* a reason that was given */
    Reason reason;
    Site site;
    char detail[DETAIL_BYTES];
    int64_t count;
} Note;

enum { MAX_NOTES = 32, PASSED_PLACES = 1024 };

/* Called by function_text, which enters the function; may escape through out's arena. */
typedef void FunctionPrint(Function *function, Buffer *out);

struct cb_function {
    Tomb tomb; /* first */
    Callee callee;
    union {
        cb_function_1 *one;
        cb_function_2 *two;
        cb_function_3 *three;
        cb_function_4 *four;
        cb_function_n *any;
        cb_module *module;
        cb_graph *graph;
    } target;
    void *user;
    Site made;         /* where it was compiled */
    char name[48];     /* of the module's type, which may be gone before it, or what it was compiled
                        * as; "" */
    Function *watched; /* watch.c: the one before it, when it is in that list */
    bool is_watched;
    int number; /* of those that are watched */
    FunctionOptions options;
    uint32_t making;             /* the process that compiles an entry for it; 0: none does */
    _Atomic(const void *) maker; /* and its thread: thread_state */
    _Atomic(Entry *) first;
    _Atomic(Entry *) last; /* that a call began with; NULL: none has */
    _Atomic bool joins;    /* inputs are one tensor for some entry: such calls are not guessed */
    _Atomic(Entry *) chain[FIND_WAYS][FIND_CHAINS];
    _Atomic int entry_count;
    _Atomic int begun; /* recordings that are entries, or may become some */
    _Atomic uint64_t reset;          /* the last cb_reset that it knows of */
    Inside inside;                   /* who may stand on an entry (retire.c) */
    _Atomic(Entry *) left;           /* entries that have left the list, and are not freed yet */
    _Atomic bool keeps_history;      /* a call of it ended with something to go back from: */
    char kept_history[DETAIL_BYTES]; /* of which the last one said this, under the lock */
    _Atomic bool orders;             /* its calls keep what gradients of gradients take: somebody
                                      * has asked for some, or the option backward */
    _Atomic bool breaks_again;       /* a call in a checkpoint had an event in the middle */
    _Atomic bool follows_inputs;     /* an op of one goes on from the history of an input */
    /* By one part of a hash, the other: sizes that ran op by op once (passing.c). */
    _Atomic uint32_t passed[PASSED_PLACES];
    _Atomic int eager; /* Reason: calls run eagerly from now on; REASON_NONE: they do not */
    _Atomic int64_t lost_calls; /* that went on op by op for what may make it so */
    atomic_bool timed; /* an entry has times */
    _Atomic int64_t calls, breaks, recompiles, eager_calls, cache_hits, compiled, loaded;
    _Atomic(FunctionPrint *) asked; /* what the program was told of it, itself */
    _Atomic int64_t asked_calls;    /* after so many calls */
    bool told;                      /* on stderr, why it is not compiled */
    int note_count;
    Note note[MAX_NOTES];
};

static inline void entry_use(Entry *entry) {
    int64_t now = atomic_load_explicit(&entry->function->calls, memory_order_relaxed);
    atomic_store_explicit(&entry->used, now, memory_order_relaxed);
}

/* Of its notes and of appending entries (base/lock.h). */
static inline int function_lock(const Function *function) {
    return LOCK_function + (int)(((uintptr_t)function >> 6) % LOCKS_function);
}

/* A call ended with something to go back from, as why says: those after it begin with the tape. */
void function_keep_history(Function *function, const char *why);
/* Remembers a reason once per site; the text of what happened is for explain. */
void function_note(Function *function, Reason reason, Site site, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
int function_notes(Function *function, Note note[MAX_NOTES]); /* how many */
int function_limit(void);
/* A recording begins; it has become no entry, and another one gets its number, unless one has begun
 * meanwhile. */
void call_begins_recording(Call *call);
void call_drops_number(const Call *call, int *number);
void call_drops_recording(Call *call); /* the same of its own, if it has one */
/* retire.c: around whatever looks at entries. */
void function_enter(Function *function);
void function_leave(Function *function);
/* After the newest entry has joined: it counts or not, and one may leave. The caller of this, and
 * of the next two, holds the function's lock. */
void function_retire(Function *function, Entry *newest);
void function_retire_all(Function *function);
void entry_set_wider(Entry *entry, Entry *wider); /* unless that one has left */
/* Of then, after and last: the same, without the lock. */
void entry_guess(_Atomic(Entry *) *guess, Entry *entry);
void entry_begins(Entry *entry); /* a call has begun with it, for the guess of the next one */
void entries_free(Entry *left); /* that have left, one after the other */
static inline bool entry_may_leave(const Entry *entry) { return !atomic_load(&entry->counts); }
/* Its entries that begin with it, or (resume) behind an event, without those that others replace,
 * or that may leave; some that are others over other sizes count as one. resized: those alone. */
int function_alternatives(const Function *function, bool resume, bool resized);
/* The last entry that begins with it, is one of several over other sizes and has inputs as these,
 * but for sizes; or NULL. */
Entry *function_find_resized(const Function *function, Tensor *const *input, int input_count);
/* passing.c: no entry takes these inputs, and sizes like these do not come back: the ops are to run
 * this time. */
bool function_lets_pass(Function *function, Tensor *const *input, int input_count);
/* stance.c: false: the call runs eagerly, whatever is compiled. */
bool stance_runs(const Function *function, int64_t calls_before);
bool stance_compiles(void); /* what is not compiled yet may be */
/* What speaks against one more entry, REASON_NONE: nothing. */
Reason stance_find(int alternatives, int limit);
/* Whether what speaks against it is an error; else the call is eager. */
bool stance_refuses(const Function *function, Reason reason);
bool stance_tells(Reason reason); /* on stderr */
void stance_notice(const Function *function, Reason reason, Site site, const char *detail);
/* miss.c: why the newest entry does not take these inputs. */
Reason miss_describe(const Function *function, Ambient now, Tensor *const *input, int input_count,
                     char *out, size_t bytes);
/* At the limit: what of the options of cb_compile would do, behind out. */
void miss_advise(const Function *function, char *out, size_t bytes);
void leaf_describe(const Entry *entry, int leaf, bool has, char *out, size_t bytes);
/* Behind cb_backward: the leaf, a value, that has a gradient and had none, or the other way round,
 * so that the call leaves its trace. has: it has. NO_VALUE: there is none. */
int leaves_find_departed(const Call *call, bool *has);
bool miss_describe_gradient(const Call *call, char *out, size_t bytes); /* false: there is none */
/* How this op is another one than the trace's next. */
void miss_describe_op(const Call *call, int op, const cb_operand *input, int input_count,
                      const Attrs *attrs, char *out, size_t bytes);

/* ---- for people ---------------------------------------------------------------------------- */

void explain_print(Function *function, Buffer *out);       /* explain.c: everything */
void summary_print(Function *function, Buffer *out);       /* summary.c: one screen */
void function_name(const Function *function, Buffer *out); /* "ResNet, compiled at net.c:7" */
const char *function_title(const Function *function);     /* in errors: "step", "the function" */
void function_counts(Function *function, Buffer *out);     /* "3 calls, 1 graph, ..." */
void entry_print_guards(const Entry *entry, Buffer *out);
/* Compiled now: in what the key differs of which the disk cache had the same source, if it had. */
void entry_print_miss(const Entry *entry, Buffer *out);
cb_function_stats function_stats(Function *function);
/* As text of the heap, for cb_free_text; NULL with an error: out of memory. */
char *function_text(Function *function, FunctionPrint *print);
/* page.c: the head of a summary, with the counts of all functions, a line of it, a section. */
typedef struct Totals {
    int64_t functions, calls, graphs, breaks, recompiles, compiled, loaded, eager_calls;
    int64_t steps, steps_eager, bytes, bytes_eager; /* of one run of each graph */
    int timed, timed_eager;                         /* graphs whose time is known */
    double ms, ms_eager;
    RoofTimes roof;
} Totals;
void totals_add(Totals *totals, Function *function);
void totals_print(const Totals *totals, Buffer *out);
void function_row(Function *function, Buffer *out);
void function_section(Function *function, Buffer *out);
void function_page(Function *function, Buffer *out); /* of one alone */
/* watch.c: with option explain, what becomes of it is told at the end of the program. */
void watch_begin(Function *function);
void watch_name(Function *function, const char *name, size_t length); /* of which it is told */
void watch_end(Function *function); /* before it is freed */

/* ---- what entries and traces are told by --------------------------------------------------- */

/* gradient.c. What requires a gradient, and which gradients there are, is what it was before
 * (REASON_NONE); else out says what is not. */
bool leaves_hold(const Entry *entry, Tensor *const *input);
Reason leaves_describe(const Entry *entry, Tensor *const *input, char *out, size_t bytes);
Tensor *entry_captured(const Entry *entry, int k); /* as the function would find it now */
Tensor *entry_real(const Entry *entry, Tensor *const *input, int v); /* an input, or captured */
void leaves_find(const Entry *entry, Tensor **value); /* the gradients that there are */
/* After a run without the function: they are what they were then, by their results. False with an
 * error: one is missing. */
typedef Tensor *LeafResult(const Entry *entry, int value, void *made);
bool leaves_take(const Entry *entry, Tensor *const *value, LeafResult *result, void *made);
/* line.c: the trace is complete; may escape through its arena. */
void trace_make_lines(Trace *trace);
uint64_t trace_traits(const TraceValue *value, int number); /* Tensor.traits of a shell of it */
/* number.c. Whether the numbers in which traces that resemble each other differ may be. */
bool numbers_may_differ(const Trace *a, const Trace *b);

#endif
