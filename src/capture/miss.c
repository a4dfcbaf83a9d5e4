/* What of a call no entry fits, for explain.
 *
 *     entry 0 was compiled for f32[2, 8]; a call with f32[4, 8]
 *         ->  input_changed, "input 0 is f32[4, 8], entry 0 has f32[2, 8]" */
#include "capture/function.h"

Reason miss_describe(const Function *function, const Conditions *now, Tensor *const *input,
                     int input_count, char *out, size_t bytes) {
    const Entry *last = NULL;
    for (Entry *e = atomic_load(&function->first); e; e = atomic_load(&e->next))
        if (!e->resumes) last = e;
    snprintf(out, bytes, "another number of inputs");
    for (int i = 0; i < input_count && input_count == last->input_count; i++) {
        if (guard_holds(&last->guard[i], input[i])) continue;
        Meta meta = tensor_meta(input[i]), known = last->trace->value[i].meta;
        char found[128], expected[128];
        meta_format(&meta, found, sizeof found);
        meta_format(&known, expected, sizeof expected);
        bool moved = meta.device != known.device;
        const char *strides = guard_fits(&last->guard[i], input[i]) ? " of other strides" : "";
        snprintf(out, bytes, "input %d is %s%s%s, entry %d has %s%s%s", i, found,
                 moved ? " on " : strides, moved ? devices[meta.device]->name : "", last->number,
                 expected, moved ? " on " : "", moved ? devices[known.device]->name : "");
        return REASON_input_changed;
    }
    if (input_count == last->input_count && entry_describe_aliases(last, input, out, bytes))
        return REASON_input_changed;
    Reason why = conditions_differ(last, now, out, bytes);
    if (why != REASON_NONE) return why;
    if (function->options.fullgraph && !frozen_all_hold(last, NULL))
        snprintf(out, bytes, "a parameter that was compiled as a constant has changed");
    return REASON_input_changed;
}
