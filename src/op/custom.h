/* Operations of the user's: what was registered, by number, and what a call of one gives. */
#ifndef CARBIDE_OP_CUSTOM_H
#define CARBIDE_OP_CUSTOM_H

#include "op/op.h"

enum { CUSTOM_NONE = -1, CUSTOM_RESULTS = CB_MAX_OP_OUTPUTS + CB_MAX_OP_INPUTS };

/* The number of a name that was registered, or CUSTOM_NONE. */
int custom_find(const char *name, size_t length);
const cb_custom_op *custom_given(int64_t number);
/* An error: false. */
bool custom_miscounted(const cb_custom_op *op, int inputs, int integers, int floats);
static inline const cb_custom_op *custom_of(const Attrs *attrs) {
    return custom_given(attrs->word[ATTR_custom_operation]);
}

/* The number of the op that computes the gradient of a call, or CUSTOM_NONE. */
int custom_gradient(const Attrs *attrs);
/* The op has a gradient, as the table or cb_register_op says. */
bool op_has_gradient(Op op, const Attrs *attrs);

/* The name that a call of op is told by: of a custom one that of the user's. */
const char *op_call_name(Op op, const int64_t *word);

/* What a call computes: its outputs, then the new elements of the inputs that it writes to. One
 * result is the value of the op itself; several lie in one value of bytes, each at its offset. */
typedef struct CustomResults {
    int count;
    Meta meta[CUSTOM_RESULTS];
    int64_t offset[CUSTOM_RESULTS]; /* bytes */
    int input[CUSTOM_RESULTS];      /* that takes it, or -1 */
    Meta value;
} CustomResults;
bool custom_results(const Meta *input, int input_count, const Attrs *attrs, CustomResults *out);

Attrs custom_part_attrs(const CustomResults *results, int k); /* of OP_custom_part, of several */

/* Around the user's callbacks: calls one and turns what it says into the error of the call, which
 * was made at `site`. */
typedef struct CustomCall {
    cb_array input[CB_MAX_OP_INPUTS], output[CB_MAX_OP_OUTPUTS];
    cb_dim_list integers;
    cb_float_list floats;
    cb_op_call call;
} CustomCall;
void custom_prepare(CustomCall *call, const Meta *input, int input_count, const Attrs *attrs);
bool custom_invoke(cb_op_callback *callback, const CustomCall *call, const Attrs *attrs, Site site);

#endif
