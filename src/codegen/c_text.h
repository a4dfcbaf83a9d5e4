/* The fixed parts of generated C files. */
#ifndef CARBIDE_CODEGEN_C_TEXT_H
#define CARBIDE_CODEGEN_C_TEXT_H

#include "codegen/emit.h"

extern const Target c_target;
/* Types, helpers, scalar functions and op functions that the usage names. */
void c_text_prelude(const Usage *usage, Buffer *out);

#endif
