/* What surrounds a call and is none of its operands, yet decides what the call computes.
 *
 * Whoever builds something for such calls holds one Ambient and compares it whole: an entry of a
 * compiled function and its guard, the key of an eager op, a graph and all that is made of it.
 *
 *     autocast   the thread's scopes                   cb_autocast_open (tensor/autocast.c)
 *     reduced    the process                           cb_set_float32_matmul_precision("medium")
 *     precise    the process                           option precise
 *     flushes    the thread                            cb_set_flush_denormal
 *     device     the process                           option device
 *     checked    the process                           option check
 *
 * A new one is a field here, is taken in ambient.c, and has a row there to be printed by. The
 * number of threads is none of them: results do not depend on it, and who splits work asks then. */
#ifndef CARBIDE_TENSOR_AMBIENT_H
#define CARBIDE_TENSOR_AMBIENT_H

#include "base/buffer.h"
#include "carbide.h"
#include <string.h>

typedef struct Ambient { /* a word, so that it stays in a register: eager takes one for each op */
    cb_dtype autocast;   /* to compute in; CB_SAME: as the operands are */
    bool reduced;        /* f32 factors of products and convolutions may be rounded to bf16 */
    bool precise;        /* f16 and bf16 are rounded after every op, inside of kernels, too */
    bool flushes : 1;    /* subnormal numbers are 0 (base/subnormal.h) */
    bool checked : 1;    /* integers that are divided by 0 are looked for */
    uint8_t device : 6;  /* DeviceId: where tensors are made that come from none */
} Ambient;
_Static_assert(sizeof(Ambient) == sizeof(uint32_t), "it is compared, and put into keys, as a word");

Ambient ambient_of_op(void); /* of an op behind the door, where autocast has been applied */

void ambient_watch(void); /* from now on tracers hear of options that are set (change_ambient) */

static inline uint32_t ambient_word(Ambient a) {
    uint32_t word;
    memcpy(&word, &a, sizeof word);
    return word;
}
static inline bool ambient_equal(Ambient a, Ambient b) {
    return ambient_word(a) == ambient_word(b);
}
/* Lines of what is not as it is without any setting, "  autocast: bf16". */
void ambient_print(Ambient a, Buffer *out);
/* "autocast is bf16, for entry 0 it was off; ..." */
void ambient_print_change(Ambient now, Ambient then, const char *whose, char *out, size_t bytes);

#endif
