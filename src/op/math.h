/* The scalar functions for C files; math_text.h has them as text. */
#ifndef CARBIDE_OP_MATH_H
#define CARBIDE_OP_MATH_H

#include "op/math_int.h" /* first: it says what MATH is */

#include "op/math_f64.h"

#include "op/math_f64_angles.h" /* behind math_f64.h, whose functions it calls */

#include "op/math_f32.h"

#include "op/math_f32_angles.h" /* behind math_f32.h */

#endif
