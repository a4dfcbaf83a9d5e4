/* Sizes that pass: a text that grows has each length once, so what compiling for it costs never
 * comes back.
 *
 * In: a call that no entry takes, but for sizes that vary. When the last 8 entries over such sizes
 * (option passing_sizes) were each run by one call, sizes that are new run op by op; those that
 * were there before are compiled, as all are that have so much to win that the first run pays: what
 * the newest entry does not move and eager does. All of it is counted and nothing is timed, so a
 * program runs the same way each time.
 *
 *     2, 3, .. 9    an entry each    10, 11, ..    op by op    10 again    an entry
 *
 * Nor do they pass where the user has said that sizes change (option dynamic, cb_mark_dynamic):
 * there the code of one serves the others.
 *
 * What was there before are hashes of the inputs' sizes, each in its place of a table, of which the
 * last one stays: so however long a text grows, a new length is a new one, and one that comes again
 * much later may count as new. */
#include "capture/find.h"

#include "base/option.h"

/* What an op costs to plan, and how fast memory is, each within a factor of two. */
enum { PLAN_NS_OF_AN_OP = 20000, BYTES_OF_A_NS = 10 };

static bool is_alike(const Entry *entry, Tensor *const *input, int count) {
    bool alike = !entry->resumes && entry->executable && entry->input_count == count &&
                 !atomic_load(&entry->wider);
    for (int i = 0; i < count && alike; i++)
        alike = guard_holds_resized(&entry->guard[i], input[i], grad_mode());
    return alike;
}

/* The newest of so many in a row that no call has come back to; NULL: there are fewer. */
static const Entry *find_passed(const Function *function, Tensor *const *input, int count) {
    const Entry *newest = NULL;
    int passed = 0, wanted = (int)option_int(OPTION_passing_sizes);
    for (const Entry *e = atomic_load(&function->first); e; e = atomic_load(&e->next)) {
        if (!is_alike(e, input, count)) continue;
        passed = atomic_load(&e->used) == e->made ? passed + 1 : 0;
        newest = e;
    }
    return wanted && passed >= wanted ? newest : NULL;
}

static double bytes_of(Tensor *const *input, const Guard *guard, int count) {
    double bytes = 0;
    for (int i = 0; i < count; i++) {
        const int64_t *size = guard ? guard[i].size : input[i]->size;
        bytes +=
            (double)(sizes_numel(input[i]->rank, size) * (int64_t)cb_dtype_size(input[i]->dtype));
    }
    return bytes;
}

/* In its first run already, by what is known of other sizes. */
static bool pays_at_once(const Entry *known, Tensor *const *input, int count) {
    const Plan *plan = executable_plan(known->executable);
    double before = bytes_of(input, known->guard, count), grown = bytes_of(input, NULL, count);
    double saved = (double)(plan->bytes_eager - plan->bytes) * (before > 0 ? grown / before : 1);
    return saved / BYTES_OF_A_NS > (double)plan->kernels_eager * PLAN_NS_OF_AN_OP;
}

/* The user has said so of all that is not as the known entry has it. */
static bool is_said_to_vary(const Function *function, const Entry *known, Tensor *const *input,
                            int count) {
    if (function->options.dynamic == DYNAMIC_ASKED) return true;
    for (int i = 0; i < count; i++)
        for (int d = 0; d < input[i]->rank; d++)
            if (input[i]->size[d] != known->guard[i].size[d] && !(input[i]->dynamic >> d & 1))
                return false;
    return true;
}

bool function_lets_pass(Function *function, Tensor *const *input, int count) {
    if (function->options.fullgraph || checkpoint_current()) return false;
    const Entry *known = find_passed(function, input, count);
    if (!known || is_said_to_vary(function, known, input, count)) return false;
    if (pays_at_once(known, input, count)) return false;
    uint64_t key = find_key_of_inputs(input, count);
    uint32_t rest = (uint32_t)(key >> 32);
    return atomic_exchange(&function->passed[key % PASSED_PLACES], rest) != rest;
}
