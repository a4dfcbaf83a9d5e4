/* How precise products and convolutions of f32 have to be: one setting of the process
 * (cb_set_float32_matmul_precision). What is built is built for the setting of that moment. */
#ifndef CARBIDE_BASE_PRECISION_H
#define CARBIDE_BASE_PRECISION_H

#include <stdbool.h>

bool precision_reduced(void); /* "medium": factors may be rounded to bf16 */

#endif
