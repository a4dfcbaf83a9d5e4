/* Results that somebody outside may go back from: joint.c, while recording and around a run;
 * backward.c, what leads back; unroll.c, the same op by op. */
#ifndef CARBIDE_CAPTURE_JOINT_H
#define CARBIDE_CAPTURE_JOINT_H

#include "capture/functional.h"
#include "graph/partition.h"

/* Of a recording, in its graph's arena, but for the first four, which stay with the trace. */
struct Joint {
    int *root;   /* vec: values of the trace that are given gradients */
    int *source; /* vec: those that get some, as graph.gradient lists them */
    bool **from;   /* vec: by source, by root: it depends on it */
    bool **behind; /* vec: by root, by another one: that was computed from it */
    JointGraph graph;
    BackwardGraph backward; /* once it is compiled; graph NULL: not, or taken over */
};

typedef struct BackwardRoot { /* a result */
    int value;
    Op op; /* that gave it */
    Site site;
    Meta meta;
    const bool *behind; /* as Joint.behind, the trace's */
} BackwardRoot;

typedef struct BackwardKept { /* read by the graph, or by the ops, to run once more */
    int value;
    bool read;   /* by the graph */
    bool copied; /* the call writes to it, and gradients go through what it was */
} BackwardKept;

/* What an entry and its calls share. Counted: calls outlive the entry. */
struct Backward {
    Arena *arena; /* owned: this lives in it */
    _Atomic int references;
    _Atomic bool called; /* the first call's results may be asked for gradients of gradients yet */
    _Atomic(Executable *) executable; /* NULL: nobody has gone back yet */
    uint32_t making;  /* the process that compiles it; 0: none does. Under lock_of (backward.c) */
    Graph *graph;     /* until it is compiled; its arena is owned */
    CompileOptions how;
    const int64_t *const *stride; /* by input of the graph */
    BackwardRead *read;           /* vec, by input of the graph */
    int *place; /* by input of the graph: which of what a call keeps, or NO_VALUE for another one */
    BackwardKept *kept; /* vec: of what is there before a call; behind them, what it saves */
    Function *function; /* it may be freed: its tomb is held */
    _Atomic int64_t unrolled; /* calls whose ops were gone over in its place */
    int saved; /* outputs of the entry's graph, behind its results, that are read */
    int64_t saved_bytes;
    int inputs;        /* of the entry's graph */
    int *input;        /* by input of the entry's graph: value, or NO_VALUE for an argument */
    Trace *trace;      /* held, of the entry */
    bool *followed;    /* by op of it: it leads to a root (trace_mark_followed) */
    cb_dtype *dtype;   /* by input of the entry's graph */
    BackwardRoot *root;
    int roots;
    int *source; /* values of the entry's trace, by result of the executable */
    const bool **from; /* by source, as Joint.from, each the trace's */
    int sources;
    Site site; /* of the function */
};

/* Of an entry that is being made, from its recording's joint; NULL: no memory. The joint's graph of
 * gradients is taken over. */
Backward *backward_new(const Entry *entry, Joint *joint, CompileOptions how);
void backward_release(Backward *backward);
/* "gradients: 3 values saved, 32.8 KB; 7 steps", for explain. */
void backward_print(const Backward *backward, Buffer *out);

/* What one call keeps, before it runs: a history of all results, which owns what is kept. NULL with
 * an error: no memory. value, argument: as the entry runs with; digest: in a checkpoint, of what it
 * does, by which another run is known to do the same. */
History *backward_keep(Backward *backward, Tensor *const *value, const int64_t *argument,
                       uint64_t digest);
/* The run is done: what it saved leaves graph_output, and each result, of root i, has its
 * history (backward_history). */
void backward_ran(History *kept, RandomState random, Tensor **saved);
int backward_root(const Backward *backward, int value); /* which it is, or -1 */
History *backward_history(History *kept, int root); /* which the caller owns */
void backward_drop(History *kept);                  /* with the histories that nobody has taken */
/* The ops have run once more, with these values (NULL: not this one), and are gone over from now on
 * in place of the graph. False with an error: no memory. */
bool backward_takes_ops(History *kept, Tensor *const *value);
void backward_mark_roots(const Backward *backward, bool *values); /* by value: true for each */

/* joint.c, around a recording. The function has returned results with a history, or kept them: what
 * leads back from them becomes part of the recording. False: it cannot, or is not to; call->outside
 * is then what was to blame, or NO_VALUE. */
bool joint_record(Call *call);
/* What it computes with a history may be led back to, where it ends. */
bool joint_may_follow(const Recording *recording);
bool joint_wanted(const Function *function);
/* What the entry's results lead back to, if they do, is, in this call, something that nobody can
 * go back over yet. */
bool joint_is_promised(const Entry *entry, Tensor *const *value);
/* entry_run, and where something leads back from the results, what that takes is kept: a history,
 * until they have theirs. random: the state that the run drew from. */
bool entry_run_kept(const Entry *entry, Tensor *const *value, const int64_t *argument,
                    Tensor **graph_output, RandomState *random, History **kept);
/* value: by number, the tensors that have become the results, or NULL. kept may be NULL. */
void entry_hand_histories(const Entry *entry, History *kept, Tensor *const *value);
int entry_results(const Entry *entry); /* graph outputs that are no saved values */

#endif
