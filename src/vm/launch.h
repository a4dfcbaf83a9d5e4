/* A kernel made runnable, and its work spread over threads (launch.c). */
#ifndef CARBIDE_VM_LAUNCH_H
#define CARBIDE_VM_LAUNCH_H

#include "lower/function.h"
#include "vm/program.h"

/* Points in which the conditions of a pointwise kernel do not change: a program of their own. */
typedef struct LaunchPiece {
    Program *program; /* owned */
    int64_t outer_size;
} LaunchPiece;
enum { LAUNCH_PIECES = 32 };

/* Elements that points add to. sink: from 0 on; else to what is there. */
typedef struct LaunchBins {
    int buffer;
    bool sink;
    cb_dtype dtype;
    int64_t numel;
} LaunchBins;

typedef struct Launch {
    KernelFunction *function; /* generated code, or NULL: program on the VM */
    void *argument;           /* of the function, behind the buffers; NULL: it takes none */
    Program *program;         /* owned; NULL when function is set */
    LaunchPiece *piece;       /* owned; NULL: the program runs by itself */
    int piece_count;
    Form form;
    int64_t outer_size, split, parts, grain; /* grain: items that are worth waking a thread for */
    int64_t unit;                            /* items that are one thread's */
    int pass_count, reduce_count, buffer_count;
    /* owned: elements that chunks, or parts, add to; NULL: none */
    LaunchBins *bins;
    int bins_count;
    /* owned, by slot: how chunks combine */
    struct {
        cb_dtype dtype;
        Op op;
        int pass;
    } * reduce;
} Launch;
/* function NULL: the VM, in f64 when oracle is set. false: out of memory, nothing to free. */
bool launch_init(Launch *launch, const Kernel *kernel, KernelFunction *function, bool oracle);
void launch_free(Launch *launch);
size_t launch_bytes(const Launch *launch); /* of its programs */
/* spreads over threads; false: no memory */
bool launch_run(const Launch *launch, void *const *buffer);

/* Folds the chunks of the reductions that end with the pass, in their order. */
void launch_combine(const Launch *launch, int pass, Scalar *slot);
/* Launches that run at the same time: no one writes what another one reads or writes. The number of
 * threads changes no result. false: no memory. list.c. */
typedef struct ListPart {
    const Launch *launch;
    void *const *buffer;
    Scalar *slot;  /* list_run's own: partial results of a split one */
    double pieces; /* the same: pieces of the parts before */
} ListPart;
bool list_run(ListPart *part, int count);

/* A part of the work on this thread, with the arguments of a KernelFunction. */
void launch_part(const Launch *launch, void *const *buffer, int64_t low, int64_t high, int pass,
                 void *slot);

#endif
