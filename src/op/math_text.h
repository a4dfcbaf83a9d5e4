/* The scalar functions of math_int.h, math_f64.h, math_f64_angles.h, math_f32.h and
 * math_f32_angles.h as text (generated: math_text.c), for the C files that codegen writes. */
#ifndef CARBIDE_OP_MATH_TEXT_H
#define CARBIDE_OP_MATH_TEXT_H

extern const char math_text_int[], math_text_f64[], math_text_f64_angles[], math_text_f32[],
    math_text_f32_angles[];

#endif
