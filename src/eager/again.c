/* Checkpoints: a function whose intermediate values are not kept for the gradients, but computed
 * again when they come (torch.utils.checkpoint with use_reentrant=False).
 *
 * In: a function over tensors. Out: what it gives, with a history whose nodes let go of what was
 * made in the run (checkpoint.c); and, for a walk back that comes to one, the run that makes it
 * once more: with the same inputs, random state and autocast, on the nodes of the first one.
 *
 * What the function does besides, it does in its first run alone: writes to what was there before,
 * running statistics, gradients added to leaves, hooks. */
#include "eager/checkpoint.h"

#include "tensor/frame.h"

#include <limits.h>

typedef enum RunKind {
    RUNS_PLAINLY, /* nothing is to be computed again */
    RUNS_FIRST,
    RUNS_WITHIN, /* once more, since what is around it does */
    RUNS_AGAIN   /* once more, for gradients */
} RunKind;

/* A function of the user's in a scope of its own. */
typedef struct CheckpointRun {
    Frame frame;
    RunKind kind;
    Checkpoint *checkpoint, *before; /* that runs, NULL: plainly; the thread's before */
    int traced;                      /* the thread's before */
    RandomState own, *lent;          /* that it draws from, where it runs again; the one before */
    bool moved[CB_MAX_ARGS];
    Tensor *output[OUTPUT_ROOM];
} CheckpointRun;

/* ---- a run ----------------------------------------------------------------------------------- */

static void begin(CheckpointRun *run, Checkpoint *checkpoint, RunKind kind) {
    run->kind = kind;
    run->checkpoint = checkpoint;
    run->traced = checkpoint_traced();
    if (!checkpoint && !run->traced) checkpoint_set_traced((int)(serial_above() & INT_MAX) | 1);
    if (!checkpoint) return;
    run->before = checkpoint_set(checkpoint);
    checkpoint->born = serial_above();
    checkpoint->at = checkpoint->answers_met = 0;
    checkpoint->again = checkpoint->filling = kind != RUNS_FIRST;
    if (kind != RUNS_AGAIN) return;
    run->own = checkpoint->random;
    run->lent = random_lend(&run->own);
    autocast_set(checkpoint->lower);
    no_grad_set(0);
    tracer_set(NULL);
}

static void end(CheckpointRun *run) {
    Checkpoint *checkpoint = run->checkpoint;
    checkpoint_set_traced(run->traced);
    if (!checkpoint) return;
    checkpoint_set(run->before);
    if (run->kind == RUNS_AGAIN) random_lend(run->lent);
    if (run->kind != RUNS_AGAIN) checkpoint_forget(checkpoint);
    checkpoint->again = checkpoint->filling = false;
    set_free(&checkpoint->doubtful);
    if (run->kind == RUNS_FIRST) checkpoint_release(checkpoint);
}

static void abandon(Frame *frame) { end((CheckpointRun *)frame); }

static int call_function(CheckpointRun *run, cb_function_n *function, void *user, Tensor *const *x,
                         int count) {
    unsigned errors = error_count();
    int given = tensors_call(function, x, count, run->output, user);
    if (cb_error_status() != CB_OK && error_count() != errors) return cb_error_status();
    if (given < 0) return fail(CB_ERR_ARGUMENT, "checkpoint: the function gave %d", given);
    const Checkpoint *checkpoint = run->checkpoint;
    bool again = checkpoint && checkpoint->again;
    return again && !checkpoint_is_over(checkpoint) ? cb_error_status() : given;
}

/* Into the scope around it. */
static int move_results(CheckpointRun *run, int count) {
    for (int k = 0; k < count; k++)
        run->moved[k] = run->output[k] && frame_take(&run->frame, run->output[k]);
    bool balanced = frame_close(&run->frame);
    for (int k = 0; k < count; k++)
        if (run->moved[k]) cb_scope_add(run->output[k]);
    if (balanced) return count;
    return fail(CB_ERR_ARGUMENT,
                "checkpoint: the function opened an autocast and did not close it");
}

/* The count of results, of which the first `room` are output, or a negative status. Of a first run,
 * the checkpoint is taken over. */
static OPENS_FRAME int run_function(Checkpoint *checkpoint, RunKind kind, cb_function_n *function,
                                    void *user, Tensor *const *x, int count, Tensor **output,
                                    int room) {
    FRAME_MARK(mark);
    CheckpointRun *run = (CheckpointRun *)frame_open(sizeof *run, abandon, FRAME_OF_FUNCTION, mark);
    if (!run) {
        if (kind == RUNS_FIRST) checkpoint_release(checkpoint);
        return CB_ERR_MEMORY;
    }
    Site site = site_current();
    begin(run, checkpoint, kind);
    int given = call_function(run, function, user, x, count);
    if (!frame_is_open(&run->frame, mark)) return CB_ERR_ARGUMENT;
    end(run);
    given = move_results(run, given);
    for (int k = 0; k < given && k < room; k++) output[k] = run->output[k];
    frame_free(&run->frame);
    site_set(site);
    return given;
}

/* ---- for gradients --------------------------------------------------------------------------- */

static Tensor *input_again(const CheckpointInput *input) {
    const Saved *saved = &input->saved;
    const Tensor base = {.storage = saved->storage, .device = saved->meta.device};
    Tensor *x = tensor_view_of(&base, &saved->meta, saved->stride, saved->offset);
    if (x && input->node) x->history = history_retain(&input->node->history);
    return x;
}

static bool run_again(Checkpoint *checkpoint) {
    Tensor *x[checkpoint->input_count + 1];
    Tracer *tracer = tracer_current();
    if (tracer && tracer->meet_code) tracer->meet_code(tracer);
    cb_scope_open();
    bool done = true;
    for (int i = 0; i < checkpoint->input_count && done; i++)
        done = (x[i] = input_again(&checkpoint->input[i])) != NULL;
    done = done && run_function(checkpoint, RUNS_AGAIN, checkpoint->function, checkpoint->user, x,
                                checkpoint->input_count, NULL, 0) >= 0;
    cb_scope_close();
    return done;
}

static bool is_missing(const Saved *saved) { return saved->owner && !saved->storage; }

static bool refuse(const Checkpoint *checkpoint, const char *why) {
    char line[64];
    site_format(checkpoint->site, line, sizeof line);
    fail(CB_ERR_ARGUMENT, "backward: the checkpoint at %s %s", line, why);
    return false;
}

static bool fill(Checkpoint *checkpoint, Checkpoint **filled) {
    if (checkpoint->again) return refuse(checkpoint, "runs again, and is gone back over meanwhile");
    for (int i = 0; i < checkpoint->input_count; i++) {
        const Saved *saved = &checkpoint->input[i].saved;
        if (is_missing(saved) && !fill(saved->owner, filled)) return false;
        if (is_missing(saved)) return refuse(checkpoint, "was not called again by what is around");
    }
    if (!checkpoint_reads_hold(checkpoint)) return false;
    if (!checkpoint->filled) {
        checkpoint->next = *filled;
        *filled = checkpoint_retain(checkpoint);
    }
    checkpoint->filled = false; /* what its function goes back over is not passed for good */
    bool done = run_again(checkpoint);
    checkpoint->filled = true;
    checkpoint_pass_inputs(checkpoint);
    return done;
}

bool checkpoint_restore(const TapeNode *node, Checkpoint **filled) {
    for (int i = 0; i < node->saves; i++) {
        const Saved *saved = &node->saved[i];
        if (is_missing(saved) && !fill(saved->owner, filled)) return false;
        if (is_missing(saved)) return refuse(saved->owner, "did not compute what is missing");
    }
    return !node->forgotten || fill(node->checkpoint, filled);
}

void checkpoint_leave(Checkpoint *filled) {
    while (filled) {
        Checkpoint *next = filled->next;
        checkpoint_forget(filled);
        filled->filled = false;
        checkpoint_release(filled);
        filled = next;
    }
}

/* ---- the call -------------------------------------------------------------------------------- */

static Checkpoint *begin_first(cb_function_n *function, void *user, Tensor *const *x, int count) {
    Checkpoint *outer = checkpoint_current(), *checkpoint = checkpoint_new(count);
    if (!checkpoint) return NULL;
    checkpoint->function = function;
    checkpoint->user = user;
    checkpoint->lower = cb_autocast_dtype();
    checkpoint->random = random_take(0);
    for (int i = 0; i < count; i++) {
        CheckpointInput *input = &checkpoint->input[i];
        input->saved.meta = tensor_meta(x[i]);
        input->saved.owner = checkpoint_of(x[i]->storage);
        checkpoint_save(&input->saved, x[i]);
        if (x[i]->history) input->node = tape_retain(tape_node(x[i]));
    }
    if (outer && outer->again) { /* the first one is gone: this is part of the other run, too */
        checkpoint->outer = checkpoint_retain(outer);
        checkpoint->place = outer->at - 1;
        return checkpoint;
    }
    if (!outer || checkpoint_nest(outer, checkpoint)) return checkpoint;
    checkpoint_release(checkpoint);
    return NULL;
}

/* Of a checkpoint whose outer one runs again. */
static void take_inputs(Checkpoint *checkpoint, Tensor *const *x) {
    for (int i = 0; i < checkpoint->input_count; i++) {
        Saved *saved = &checkpoint->input[i].saved;
        if (is_missing(saved) && saved->owner->filling) checkpoint_save(saved, x[i]);
    }
}

static int call(cb_function_n *function, void *user, Tensor *const *x, int count, Tensor **output,
                int room) {
    Checkpoint *outer = checkpoint_current(), *checkpoint = NULL;
    if (tracer_current() || !tape_in_use())
        return run_function(NULL, RUNS_PLAINLY, function, user, x, count, output, room);
    if (outer && outer->again && !checkpoint_meet_inner(outer, function, x, count, &checkpoint))
        return cb_error_status();
    if (checkpoint) {
        take_inputs(checkpoint, x);
        return run_function(checkpoint, RUNS_WITHIN, function, user, x, count, output, room);
    }
    checkpoint = begin_first(function, user, x, count);
    if (!checkpoint) return cb_error_status();
    return run_function(checkpoint, RUNS_FIRST, function, user, x, count, output, room);
}

static bool count_good(cb_function_n *function, cb_tensor *const *inputs, int count) {
    if (function && count >= 0 && count <= CB_MAX_ARGS && (!count || inputs)) return true;
    fail(CB_ERR_ARGUMENT, "checkpoint: NULL, or not 0 to %d tensors", CB_MAX_ARGS);
    return false;
}

static bool inputs_good(cb_tensor *const *inputs, int count, Tensor **x) {
    if (!tensors_in(inputs, count, "checkpoint", x)) return false;
    for (int i = 0; i < count; i++) {
        if (x[i] && (x[i]->storage || tracer_current())) continue;
        fail(CB_ERR_ARGUMENT, "checkpoint: input %d %s", i, x[i] ? never_computed : "is NULL");
        return false;
    }
    return true;
}

int(cb_checkpoint_n)(cb_function_n *function, void *user, cb_tensor *const *inputs, int count,
                     cb_tensor **outputs, int capacity) {
    frames_check();
    if (!count_good(function, inputs, count)) return cb_error_status();
    int room = output_room_of(capacity);
    Tensor *x[count + 1], *result[room + 1];
    if (!inputs_good(inputs, count, x)) return cb_error_status();
    int given = call(function, user, x, count, result, room);
    if (given > capacity || (given > 0 && !outputs))
        return fail(CB_ERR_ARGUMENT, "checkpoint: %d results do not fit into an array of %d", given,
                    outputs ? capacity : 0);
    for (int k = 0; k < given; k++) outputs[k] = tensor_out(result[k]);
    return given;
}

cb_tensor *(cb_checkpoint)(cb_function_n *function, void *user, cb_tensor *const *inputs,
                           int count) {
    frames_check();
    if (!count_good(function, inputs, count)) return NULL;
    Tensor *x[count + 1], *result = NULL;
    if (!inputs_good(inputs, count, x)) return NULL;
    return call(function, user, x, count, &result, 1) > 0 ? tensor_out(result) : NULL;
}
