/* The loop IR's text: refused, or what it prints reads back and prints the same. Reading numbers
 * the expressions anew, so that is held of the second text on. */
#include "target.h"

#include "base/arena.h"
#include "lower/loop.h"

static const char *print(Arena *arena, const Kernel *kernel) {
    Buffer out = buffer_new(arena);
    kernel_print(kernel, &out);
    return buffer_text(&out);
}

static void parse(Arena *arena, const char *text) {
    Kernel *kernel = kernel_parse(arena, text);
    claim_error(kernel != NULL);
    Buffer why = buffer_new(arena);
    const char *before = NULL;
    for (int i = 0; i < 3 && kernel && kernel_verify(kernel, &why); i++) {
        const char *now = print(arena, kernel);
        kernel = kernel_parse(arena, now);
        claim(kernel != NULL, now);
        if (i == 2) claim(strcmp(before, now) == 0, now);
        before = now;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *text = exact_text(data, size);
    Arena *arena = arena_new();
    claim(arena && !arena_guard(arena), "memory");
    parse(arena, text);
    arena_free(arena);
    free(text);
    return 0;
}
