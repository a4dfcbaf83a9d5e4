/* Includes the rows of ops.def once and forgets the row macros: define only the ones that you
 * read. */
#ifndef UNARY
#define UNARY(...)
#endif
#ifndef BINARY
#define BINARY(...)
#endif
#ifndef TERNARY
#define TERNARY(...)
#endif
#ifndef INTERNAL
#define INTERNAL(...)
#endif
#ifndef REDUCE
#define REDUCE(...)
#endif
#ifndef SCAN
#define SCAN(...)
#endif
#ifndef VIEW
#define VIEW(...)
#endif
#ifndef STRUCTURED
#define STRUCTURED(...)
#endif
#ifndef COMPOSITE
#define COMPOSITE(...)
#endif
#ifndef HIDDEN
#define HIDDEN(...)
#endif
#ifndef CUSTOM
#define CUSTOM(...)
#endif
#include "op/ops.def"
#undef UNARY
#undef BINARY
#undef TERNARY
#undef INTERNAL
#undef REDUCE
#undef SCAN
#undef VIEW
#undef STRUCTURED
#undef COMPOSITE
#undef HIDDEN
#undef CUSTOM
