/* Scans of a ROW kernel, as C (kernel.h): what they fold and what is made of them is computed by
 * vectors, strip by strip, and between the two a loop goes over the strip in order.
 *
 *     cumsum(exp(x), 1)      for (int j = 0; j < 128; j++) y3[j] = m_exp_f32(p1[k + j]);
 *                            for (int j = 0; j < 128; j++) {
 *                                c3 = c3 + y3[j];
 *                                y3[j] = (float)c3;
 *                            }
 *                            for (int j = 0; j < 128; j++) s0[k + j] = y3[j]; */
#include "codegen/c/kernel.h"

static void open_lanes(CKernel *c, const char *start, const char *count) {
    Emit *e = &c->e;
    c_widen(c, c->strip, arena_format(e->arena, " + %s", start), count);
    emit_directive(e, "#pragma omp simd");
    emit_open(e, "for (int j = 0; j < %s; j++)", count);
    emit_line(e, "const int64_t l = %s + j;", start);
}

/* The array has the scan's terms first, then the scan. */
static void scan_strip(CKernel *c, Expr *x, const char *start, const char *count) {
    Emit *e = &c->e;
    emit_begin(e);
    emit_root(e, x->input[0], e->body_level);
    emit_collect(e);
    uint32_t number = emit_number(e, x->id);
    Phrase element = text_atom(arena_format(e->arena, "y%u[j]", number)), total = c_scan(e, x);
    emit_line(e, "%s y%u[%lld] __attribute__((aligned(64)));", c_array_type(c, x->dtype), number,
              (long long)c->strip);
    Mark mark = emit_mark(e);
    open_lanes(c, start, count);
    c->in_strip = true;
    emit_declare(e, e->body_level);
    emit_line(e, "%s = %s;", element.text, text_value(e, x->input[0]).text);
    c->in_strip = false;
    emit_close(e);
    emit_forget(e, mark);
    emit_open(e, "for (int j = 0; j < %s; j++)", count);
    emit_line(e, "%s = %s;", total.text, text_combine(e, x, total, element).text);
    emit_line(e, "%s = (%s)%s;", element.text, e->target->type[x->dtype], total.text);
    emit_close(e);
    emit_name(e, x, element);
}

void c_scan_strip(CKernel *c, int pass, const char *start, const char *count) {
    Emit *e = &c->e;
    Expr **scan = NULL;
    if (!kernel_has_scan(e->kernel)) return;
    c_collect(c, pass); /* the strip before has arrays of its own */
    for (int id = 0; id < e->count; id++) {
        Expr *x = e->kernel->expr[id];
        if (x->op == EX_scan && e->local[id].needed) push(e->arena, scan, x);
    }
    for (int i = 0; i < length(scan); i++) scan_strip(c, scan[i], start, count);
    if (scan) c_collect(c, pass); /* they are arrays now, and what they alone needed is nobody's */
}
