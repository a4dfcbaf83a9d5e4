/* What a kernel computes, its name and what its buffers are bound to apart, as 128 bits: kernels of
 * one key run the same code. Expressions count by their place among those that stores need, so what
 * simplification left behind changes nothing. Kernels are compared by it in each plan, hundreds of
 * them in a network's: it reads the structure, and writes no text. */
#include "lower/loop.h"

typedef struct KeyWriter {
    Arena *arena;
    uint64_t *word; /* vec */
    int *place;     /* by expression: among the live ones, from 1 on */
} KeyWriter;

static void put_word(KeyWriter *w, uint64_t word) { push(w->arena, w->word, word); }

static uint64_t place_of(const KeyWriter *w, const Expr *e) {
    return e ? (uint64_t)w->place[e->id] : 0;
}

static void put_axes(KeyWriter *w, const Kernel *kernel) {
    put_word(w, (uint64_t)length(kernel->axis) << 32 | (uint64_t)kernel->outer_count);
    for (int a = 0; a < length(kernel->axis); a++)
        put_word(w, (uint64_t)kernel->axis[a].size << 1 | kernel->axis[a].varies);
}

static void put_buffers(KeyWriter *w, const Kernel *kernel) {
    put_word(w, (uint64_t)length(kernel->buffer));
    for (int i = 0; i < length(kernel->buffer); i++) {
        const KernelBuffer *b = &kernel->buffer[i];
        put_word(w, (uint64_t)b->dtype << 16 | (uint64_t)b->shared << 8 | (uint64_t)b->role);
        put_word(w, (uint64_t)b->numel);
    }
}

static void put_expr(KeyWriter *w, const Expr *e) {
    put_word(w, (uint64_t)e->op << 32 | (uint64_t)e->dtype << 8 | e->input_count);
    put_word(w, (uint64_t)e->imm.i);
    for (int i = 0; i < e->input_count; i++) put_word(w, place_of(w, e->input[i]));
}

static void put_stores(KeyWriter *w, const Kernel *kernel) {
    for (int i = 0; i < length(kernel->store); i++) {
        const Store *s = &kernel->store[i];
        put_word(w, (uint64_t)s->buffer << 8 | (uint64_t)s->mode);
        put_word(w, place_of(w, s->index));
        put_word(w, place_of(w, s->value));
        put_word(w, place_of(w, s->guard));
    }
}

void kernel_key(const Kernel *kernel, Arena *arena, uint64_t key[2]) {
    const bool *live = kernel_live(kernel, arena);
    KeyWriter w = {.arena = arena, .place = arena_new_array(arena, int, length(kernel->expr) + 1)};
    int places = 0;
    put_word(&w, (uint64_t)kernel->form << 32 | (uint64_t)length(kernel->store));
    put_word(&w, (uint64_t)kernel->split);
    put_axes(&w, kernel);
    put_buffers(&w, kernel);
    for (int i = 0; i < length(kernel->expr); i++) {
        if (!live[i]) continue;
        w.place[i] = ++places;
        put_expr(&w, kernel->expr[i]);
    }
    put_stores(&w, kernel);
    for (uint64_t i = 0; i < 2; i++)
        key[i] = hash_bytes(w.word, sizeof *w.word * (size_t)length(w.word), i + 1);
}
