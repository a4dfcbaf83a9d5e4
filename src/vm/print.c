/* A vector program as text, for the dump of kernels and for tests:
 *
 *     program TILE, blocks of 1024 lanes, 1 pass
 *     last point
 *       v0 = point b0[a0]
 *       v1 = exp v0            (lanes) */
#include "vm/instruction.h"

static void print_access(const Program *p, const VmAccess *access, Buffer *out) {
    putf(out, " b%d[%lld", access->buffer, (long long)access->constant);
    if (access->rest >= 0) putf(out, " + v%d%s", access->rest, access->apart ? " by row" : "");
    for (int i = 0; i < access->term_count; i++) {
        const VmTerm *term = &p->term[access->first_term + i];
        putf(out, " + a%d*%lld", term->axis, (long long)term->stride);
    }
    put(out, "]");
    if (access->index >= 0) putf(out, "[v%d]", access->index);
    if (access->guard >= 0) putf(out, " if v%d", access->guard);
}

static void print_instr(const Program *p, const VmInstr *in, Buffer *out) {
    static const char *const mode[] = {"one", "rows", "lanes", "full"};
    put(out, "  ");
    if (in->y >= 0) putf(out, "v%d = ", in->y);
    put(out, in->name);
    if (in->a >= 0) putf(out, " v%d", in->a);
    if (in->b >= 0) putf(out, " v%d", in->b);
    if (in->c >= 0) putf(out, " v%d", in->c);
    switch (in->kind) {
    case VM_LOAD:
    case VM_POINT:
    case VM_STORE:
        print_access(p, &p->access[in->number], out);
        break;
    case VM_COORDINATE:
        if (in->number < 0)
            put(out, " of lanes");
        else
            putf(out, " a%d", in->number);
        break;
    case VM_ROW:
    case VM_SLOT_READ:
    case VM_SLOT_WRITE:
        putf(out, " %d", in->number);
        break;
    default:
        break;
    }
    putf(out, " (%s)\n", mode[in->mode]);
}

static void print_section(const Program *p, const char *name, int pass, VmSection section,
                          Buffer *out) {
    if (section.first == section.end) return;
    if (pass < 0)
        putf(out, "%s\n", name);
    else
        putf(out, "%s %d\n", name, pass);
    for (int i = section.first; i < section.end; i++) print_instr(p, &p->instr[i], out);
}

void program_print(const Program *p, Buffer *out) {
    putf(out, "program %s, blocks of %lld %s, %d pass%s, frame of %lld bytes\n",
         p->row ? "ROW" : "TILE",
         (long long)(p->rows     ? p->rows
                     : p->points ? p->points
                                 : p->capacity),
         p->rows     ? "rows"
         : p->points ? "points"
                     : "lanes",
         p->pass_count, p->pass_count == 1 ? "" : "es", (long long)p->frame_bytes);
    print_section(p, "entry", -1, p->entry, out);
    for (int i = 0; i < p->pass_count; i++) {
        print_section(p, "point", i, p->pass[i].point, out);
        print_section(p, "step", i, p->pass[i].step, out);
        print_section(p, "block", i, p->pass[i].block, out);
        print_section(p, "after", i, p->pass[i].after, out);
    }
    print_section(p, "last point", -1, p->pass[p->pass_count].point, out);
}
