/* Running one kernel, written as text, on the VM and on the oracle, and comparing with the
 * reference. */
#ifndef CARBIDE_TEST_KERNEL_VM_H
#define CARBIDE_TEST_KERNEL_VM_H

#include "kernel_run.h"
#include "vm/instruction.h"

static Program *current;

static void run_current(void *const *buffer, int64_t low, int64_t high, int pass, void *slot) {
    program_run(current, buffer, low, high, pass, slot);
}

static Kernel *parse(Arena *arena, const char *text) {
    Buffer why = buffer_new(arena);
    Kernel *kernel = kernel_parse(arena, text);
    if (!kernel) FAIL("%s", cb_error());
    if (!kernel_verify(kernel, &why)) FAIL("%s: %s", kernel->name, buffer_text(&why));
    return kernel;
}

static inline void check_text(const char *text) {
    Arena *arena = arena_new();
    assert_int_equal(arena_guard(arena), 0);
    Kernel *kernel = parse(arena, text);
    for (int oracle = 0; oracle < 2; oracle++) {
        Data data;
        fill(kernel, &data);
        current = program_build(kernel, oracle);
        assert_non_null(current);
        reference_run(kernel, data.before, data.wanted);
        if (kernel->split > 1)
            run_split(kernel, run_current, data.bound);
        else
            run_plain(kernel, run_current, data.bound);
        bool same = compare(kernel, &data);
        release(kernel, &data);
        program_free(current);
        if (!same) FAIL("%s%s", text, oracle ? " (oracle)" : "");
    }
    arena_free(arena);
}

#define CHECK(...)                                                                                 \
    do {                                                                                           \
        static const char *const text[] = {__VA_ARGS__};                                           \
        for (size_t i = 0; i < sizeof text / sizeof *text; i++) check_text(text[i]);               \
    } while (0)

#endif
