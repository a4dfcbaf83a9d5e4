/* A file for a target: its opening, the functions that its kernels use, the kernels (target.h). */
#include "codegen/emit.h"

enum { MANY_LANE_LOOPS = 32 };

bool target_render(const Target *target, const Kernel *const *kernel, Holes *holes, int count,
                   Buffer *out) {
    Usage *usage = arena_zalloc(out->arena, sizeof *usage);
    Buffer kernels = buffer_new(out->arena);
    bool heavy = false, apart = false;
    for (int i = 0; i < count; i++) {
        usage->holes = holes ? &holes[i] : NULL;
        if (holes) holes[i].written = 0;
        heavy |= target->kernel(kernel_over(kernel[i], out->arena), usage, &kernels);
    }
    put(out, target->opening);
    if (usage->lane_loops >= MANY_LANE_LOOPS && !usage->strips)
        put(out, target->many_loops_opening);
    if (usage->guards) put(out, target->guards_opening);
    for (int h = 0; h < HELPER_COUNT; h++)
        if (usage->helper[h]) put(out, target->helper[h]);
    for (int op = 0; op < OP_COUNT; op++)
        for (int dtype = 0; dtype < CB_DTYPE_COUNT; dtype++) apart |= usage->apart[op][dtype];
    if (apart) put(out, target->apart_opening);
    op_text_functions(usage, target, out);
    put(out, buffer_text(&kernels));
    return heavy;
}
