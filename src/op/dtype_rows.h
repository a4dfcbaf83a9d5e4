/* Includes the rows of dtype.def once and forgets the row macros: define DTYPE for all rows, or
 * those of the kinds that you read. */
#ifndef DTYPE
#define DTYPE(...)
#endif
#ifndef BOOL_ROW
#define BOOL_ROW DTYPE
#endif
#ifndef NARROW_ROW
#define NARROW_ROW DTYPE
#endif
#ifndef INTEGER_ROW
#define INTEGER_ROW DTYPE
#endif
#ifndef HALF_ROW
#define HALF_ROW DTYPE
#endif
#ifndef FLOAT_ROW
#define FLOAT_ROW DTYPE
#endif
#include "op/dtype.def"
#undef DTYPE
#undef BOOL_ROW
#undef NARROW_ROW
#undef INTEGER_ROW
#undef HALF_ROW
#undef FLOAT_ROW
