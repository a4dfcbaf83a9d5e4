/* What is left of a run behind its last whole strip (sweep.c), as C. */
#include "codegen/c/kernel.h"

/* Whether nothing but folds is left to do, of elements that may be read again: what is left of a
 * row whose length is in the text. Lane by lane, accumulators would be stored an element at a time,
 * and whoever reads them as vectors waits for that. */
static bool overlaps(const CKernel *c, int pass) {
    const Kernel *kernel = c->e.kernel;
    const Axis *axis = &kernel->axis[c->e.lane_axis];
    bool cut = c->split || c->range || c->lanes || c->slab || c->several;
    if (c->masked || cut || axis->varies || axis->size < c->strip || kernel_has_scan(kernel))
        return false;
    for (int s = 0; s < c->store_count; s++)
        if (c_stores_in(c, s, pass)) return false;
    for (int id = 0; id < c->e.count; id++) {
        const Local *local = &c->e.local[id];
        const Expr *x = kernel->expr[id];
        const Access *access = &c->e.load[id];
        if (!local->needed) continue;
        if (local->cached || local->kept) return false;
        if (x->op != EX_load || !expr_uses_axis(x, c->e.lane_axis)) continue;
        bool half = kernel->buffer[x->imm.i].dtype == CB_F16; /* goes by way of an array */
        if (half || !access->linear || access->stride != 1) return false;
    }
    return true;
}

static void overlapping_strip(CKernel *c, int pass) {
    Emit *e = &c->e;
    Mark mark = emit_mark(e);
    long long strip = (long long)c->strip;
    emit_block(e);
    emit_line(e, "const int done = %lld - n %% %lld;", strip, strip);
    emit_directive(e, "#pragma omp simd");
    emit_open(e, "for (int j = 0; j < %lld; j++)", strip);
    emit_line(e, "const int64_t l = n - %lld + j;", strip);
    emit_line(e, "const int kept = j >= done;");
    e->kept = "kept";
    c->in_tail = true;
    c_lane_body(c, pass);
    c->in_tail = false;
    e->kept = NULL;
    emit_close(e);
    emit_close(e);
    emit_forget(e, mark);
}

/* What is left of a run behind its last whole strip: in two parts under masks, each a vector where
 * these are the widest; or as a strip that ends with the run, of which the first lanes are done;
 * else lane by lane, in so many as there are.
 *
 * What lanes that are left out compute goes nowhere, which a compiler sees, and then it loads
 * nothing into them: whatever the register held, perhaps denormals, goes through exp, and each of
 * its instructions takes a hundred cycles. So stores and sums ask for the lane by a count that it
 * does not know to be the same. */
void c_tail_loop(CKernel *c, int pass) {
    Emit *e = &c->e;
    if (overlaps(c, pass)) {
        overlapping_strip(c, pass);
        return;
    }
    Mark mark = emit_mark(e);
    bool masked = c->masked;
    const char *mask = c->masks_wide ? "int64_t" : "int";
    long long strip = (long long)c->strip, part = strip / 2;
    emit_block(e);
    c_declare_outs(c, pass, c->strip);
    c_scan_strip(c, pass, "whole", "n - whole");
    c_widen(c, c->strip, " + whole", "n - whole");
    c_gather(c, pass, "whole", "n - whole", masked ? "on" : NULL);
    if (masked) {
        e->usage->helper[HELPER_masks] = true;
        emit_line(e, "int64_t rest = whole, left = n - whole;");
        emit_line(e, "__asm__(\"\" : \"+r\"(left));");
        emit_directive(e, "#pragma GCC unroll 2");
        emit_open(e, "for (int part = 0; part < %lld; part += MASKED(%lld, %lld))", strip, part,
                  strip);
        emit_line(e, "if (part >= n - whole) break;");
        emit_directive(e, "#pragma omp simd");
        emit_open(e, "for (%s i = 0; i < MASKED(%lld, n - whole); i++)", mask, part);
        emit_line(e, "const %s j = part + i;", mask);
        emit_line(e, "const int64_t l = rest + i;");
        emit_line(e, "const %s on = MASKED(i < n - whole - part, 1);", mask);
        emit_line(e, "const %s kept = MASKED(i < left - part, 1);", mask);
        e->mask = "on", e->kept = "kept";
    } else {
        emit_directive(e, "#pragma omp simd");
        emit_open(e, "for (int j = 0; j < n - whole; j++)");
        emit_line(e, "const int64_t l = whole + j;");
    }
    c->in_tail = true;
    c_lane_body(c, pass);
    c->in_tail = false;
    e->mask = e->kept = NULL;
    emit_close(e);
    if (masked) {
        emit_line(e, "rest += %lld;", part);
        emit_close(e);
    }
    c_narrow_outs(c, pass, " + whole", "n - whole");
    emit_close(e);
    emit_forget(e, mark);
}
