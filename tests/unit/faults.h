/* Allocations that fail, once and from then on: the answer is right or an error, nothing leaks, and
 * the same work succeeds afterwards.
 *
 * A scenario makes all it needs, gives its numbers to `take` and frees everything. Its first run
 * sets what is right and counts the allocations; then it runs again with each of them failing:
 * of the heap, and of tensors, whose slots come 64 at a time. Long scenarios are sampled:
 * CARBIDE_FAULTS=all tries every allocation. */
#ifndef CARBIDE_TEST_FAULTS_H
#define CARBIDE_TEST_FAULTS_H

#include "failing_once.h"
#include "fixture.h"

#include "tensor/thread.h"
#include <math.h>
#include <stdio.h>

enum { MOST_NUMBERS = 8192, MOST_RUNS = 120 };

static struct {
    double number[MOST_NUMBERS];
    int count;
    bool compare, differs;
} answer;

static bool after_it; /* all allocations behind the one that fails do, too */
static _Atomic int64_t taken, live; /* a device frees what was launched in a thread of its own */
static struct { int64_t first, end; /* of the allocations that are to fail; end 0: all */ } window;
static struct {
    size_t bytes, last; /* of 64 slots; of the last allocation */
    bool refuse;
    int refused;
    Tensor *ballast; /* slots that nobody gets */
} slots;

static inline void *faulty(void *user, void *pointer, size_t bytes) {
    (void)user;
    if (bytes == 0) {
        if (pointer) live--;
        free(pointer);
        return NULL;
    }
    taken++;
    slots.last = bytes;
    if (slots.refuse && bytes == slots.bytes) {
        slots.refused++;
        return NULL;
    }
    if (countdown == 0) {
        if (!after_it) countdown = -1;
        return NULL;
    }
    if (countdown > 0) countdown--;
    void *out = realloc(pointer, bytes);
    if (out && !pointer) live++;
    return out;
}

/* Of the scenario that runs: the allocations from here on are to fail; those from there on not. */
static inline void begin_faults(void) { window.first = taken; }
static inline void end_faults(void) { window.end = taken; }

/* The numbers of x belong to the answer; NULL is what a failed call gives. */
static inline void take(cb_tensor *x) {
    if (!x) return;
    static double number[MOST_NUMBERS];
    int64_t count = cb_numel(x);
    assert_true(count >= 0 && count + answer.count <= MOST_NUMBERS);
    if (cb_read(x, number, CB_F64) != CB_OK) return;
    for (int64_t i = 0; i < count; i++) {
        double *at = &answer.number[answer.count++];
        if (!answer.compare)
            *at = number[i];
        else if (!(fabs(*at - number[i]) <= 1e-3 + 1e-3 * fabs(*at)))
            answer.differs = true;
    }
}

static inline void free_text(char *text) { cb_free_text(text); }

static inline cb_tensor *ramp(int rows, int columns) {
    cb_tensor *flat = cb_to(cb_arange(0, (int64_t)rows * columns), CB_F32);
    return cb_sub(cb_mul(cb_reshape(flat, cb_dims(rows, columns)), 0.0625), 0.75);
}

#define FAIL(...) (print_error(__VA_ARGS__), print_error("\n"), _fail(__FILE__, __LINE__))

/* ---- one allocation after the other --------------------------------------------------------- */

static inline void run(void (*scenario)(void)) {
    answer.count = 0;
    cb_scope_open();
    scenario();
    countdown = -1;
    cb_scope_close();
}

/* Without faults: right, and no memory stays. */
static inline void run_well(void (*scenario)(void), int64_t kept) {
    answer.differs = false;
    run(scenario);
    cb_cleanup();
    if (cb_error()) FAIL("without a fault: %s", cb_error());
    assert_false(answer.differs);
    assert_int_equal(cb_memory().live_tensors, 0);
    assert_int_equal(live, kept);
}

/* What survives a failed allocation is either right or missing; an answer that lacks numbers says
 * why. */
static inline void judge(const char *what, int64_t at, int numbers, int64_t kept) {
    if (answer.count < numbers) {
        if (!cb_error())
            FAIL("%s %lld: an answer is missing without an error", what, (long long)at);
        if (cb_error_status() != CB_ERR_MEMORY)
            FAIL("%s %lld: %s", what, (long long)at, cb_error());
    } else if (answer.differs)
        FAIL("%s %lld: another answer", what, (long long)at);
    assert_int_equal(cb_memory().live_tensors, 0);
    if (live != kept)
        FAIL("%s %lld: %lld blocks leak", what, (long long)at, (long long)(live - kept));
    cb_clear_error();
}

static inline void run_with_fault(void (*scenario)(void), int64_t at, int numbers, int64_t kept) {
    answer.differs = false;
    cb_clear_error();
    countdown = at;
    run(scenario);
    cb_cleanup();
    judge("allocation", at, numbers, kept);
}

/* The first run sets the answer, the second finds what it costs. */
static inline int64_t run_first(void (*scenario)(void)) {
    cb_clear_error();
    answer.compare = false;
    run(scenario);
    cb_cleanup();
    if (cb_error()) FAIL("without a fault: %s", cb_error());
    answer.compare = true;
    int64_t kept = live;
    run_well(scenario, kept);
    taken = window.first = window.end = 0;
    run_well(scenario, kept);
    if (!window.end) window.end = taken;
    return kept;
}

static inline void fail_each_allocation(void (*scenario)(void)) {
    int64_t kept = run_first(scenario), first = window.first, end = window.end;
    int numbers = answer.count;
    const char *amount = getenv("CARBIDE_FAULTS");
    bool all = amount && strcmp(amount, "all") == 0;
    int64_t count = end - first, step = all || count < MOST_RUNS ? 1 : count / MOST_RUNS + 1;
    for (int64_t n = first; n < end; n += step)
        for (int from = 0; from < 2; from++) {
            after_it = from;
            run_with_fault(scenario, n + (from && !all ? step / 2 : 0), numbers, kept);
        }
    run_well(scenario, kept);
}

static inline void each_allocation_fails(void **state) {
    fail_each_allocation(*(void (**)(void)) * state);
}

/* ---- one tensor after the other ------------------------------------------------------------- */

static inline void give_slots(int count) {
    for (; slots.ballast && count; count--) {
        Tensor *x = slots.ballast;
        slots.ballast = x->next;
        x->next = thread_state.slots;
        thread_state.slots = x;
        thread_state.slot_count++;
    }
}

static inline bool hold_slot(void) {
    if (!thread_state.slots && !slots_refill(&thread_state)) return false;
    Tensor *x = slot_take(&thread_state);
    x->next = slots.ballast;
    slots.ballast = x;
    return true;
}

/* From here on the thread gets this many tensors more than it has; below 0: any number. */
static inline void leave_tensors(int count) {
    while (!slots.bytes) { /* what it allocates when it has no slot left */
        int64_t before = taken;
        hold_slot();
        if (taken > before) slots.bytes = slots.last;
    }
    for (int i = 0; i < count; i++) hold_slot();
    slots.refuse = count >= 0;
    while (slots.refuse && hold_slot()) continue;
    slots.refused = 0;
    give_slots(count >= 0 ? count : INT32_MAX);
}

/* Fewer tensors than the scenario has at a time, down to none. */
static inline void each_tensor_fails(void **state) {
    void (*scenario)(void) = *(void (**)(void)) * state;
    int64_t kept = run_first(scenario);
    int numbers = answer.count, refused = 1;
    for (int n = 0; refused; n++) {
        answer.differs = false;
        cb_clear_error();
        cb_scope_open();
        leave_tensors(n);
        run(scenario);
        refused = slots.refused;
        leave_tensors(-1);
        cb_scope_close();
        cb_cleanup();
        judge("tensor", n, numbers, kept);
    }
    run_well(scenario, kept);
}

#define SCENARIO(name)                                                                             \
    {                                                                                              \
#name, each_allocation_fails, NULL, NULL, &(void (*[1])(void)) { name }                    \
    }
#define FEW_TENSORS(name)                                                                          \
    {                                                                                              \
#name " with few tensors", each_tensor_fails, NULL, NULL, &(void (*[1])(void)) { name }    \
    }

#endif
