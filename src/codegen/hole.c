/* The numbers in a kernel's text, which may be left open (hole.h). */
#include "codegen/hole.h"

#include "base/vec.h"

/* n: int64_t, i: int, f: float, d: double. */
static char letter(const TextNumber *hole, bool is_int) {
    if (hole->dtype == CB_F32) return 'f';
    if (hole->dtype == CB_F64) return 'd';
    return is_int ? 'i' : 'n';
}

/* NULL: it stays literal. */
static const char *open_hole(Holes *holes, TextNumber hole, bool is_int) {
    int number = holes->written++;
    if (holes->argument)
        number = holes->argument[number];
    else
        push(holes->arena, holes->hole, hole);
    return number < 0 ? NULL : arena_format(holes->arena, "%c%d", letter(&hole, is_int), number);
}

const char *hole_size(Holes *holes, Arena *arena, int64_t value, const char *suffix) {
    TextNumber hole = {{.i = value}, CB_I64, true};
    const char *open = holes ? open_hole(holes, hole, false) : NULL;
    return open ? open : arena_format(arena, "%lld%s", (long long)value, suffix);
}

/* Open or not, the text around it must not differ. */
Phrase hole_value(Holes *holes, TextNumber hole, bool is_int, Phrase literal) {
    const char *open = open_hole(holes, hole, is_int);
    return text_name(open ? open : text_operand(holes->arena, literal));
}

uint32_t hole_local(Holes *holes, uint32_t id) {
    while ((uint32_t)length(holes->local) <= id) push(holes->arena, holes->local, 0);
    if (!holes->local[id]) holes->local[id] = ++holes->locals;
    return holes->local[id];
}

void hole_declare(const Holes *holes, int buffer, Buffer *out) {
    if (!holes || !holes->argument_count) return;
    putf(out, "    const int64_t *number = buffer[%d];\n", buffer);
    putf(out, "    const double *real = buffer[%d];\n", buffer);
    for (int a = 0; a < holes->argument_count; a++) {
        int h = 0;
        while (holes->argument[h] != a) h++;
        switch (holes->hole[h].dtype) {
        case CB_F32:
            putf(out, "    const float f%d = (float)real[%d];\n", a, a);
            break;
        case CB_F64:
            putf(out, "    const double d%d = real[%d];\n", a, a);
            break;
        default:
            putf(out, "    const int64_t n%d = number[%d];\n", a, a);
            putf(out, "    const int i%d = (int)n%d;\n", a, a);
        }
    }
}
