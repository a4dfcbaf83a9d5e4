/* Declarations of values, level by level, stores, and lines (emit.h). */
#include "codegen/emit.h"

#include <stdarg.h>

/* ---- names --------------------------------------------------------------------------------- */

uint32_t emit_number(const Emit *e, uint32_t id) {
    Holes *holes = e->usage->holes;
    return holes && !holes->argument ? hole_local(holes, id) : id;
}

void emit_name(Emit *e, const Expr *expr, Phrase name) {
    e->local[expr->id].name = name;
    push(e->arena, e->declared, e->kernel->expr[expr->id]);
}

Mark emit_mark(const Emit *e) { return (Mark){length(e->declared), length(e->addresses)}; }

void emit_forget(Emit *e, Mark mark) {
    while (length(e->declared) > mark.declared) e->local[pop(e->declared)->id].name = (Phrase){0};
    while (length(e->addresses) > mark.addresses) pop(e->addresses)->name = NULL;
}

/* ---- declarations -------------------------------------------------------------------------- */

static void declare_address(Emit *e, Access *access, int buffer, const char *name, bool guarded,
                            bool constant) {
    access->name = name;
    e->target->address(e, access, buffer, guarded, constant);
    push(e->arena, e->addresses, access);
}

static void declare_store_address(Emit *e, int s) {
    const Store *store = &e->kernel->store[s];
    declare_address(e, &e->store[s], store->buffer, arena_format(e->arena, "s%d", s),
                    store->guard != NULL, false);
}

/* c5 = c5 + t4: the running value itself is the scan's name, unless it is kept wider. */
static void declare_scan(Emit *e, const Expr *x) {
    Phrase name = e->target->scan(e, x);
    Phrase step = text_combine(e, x, name, text_value(e, x->input[0]));
    emit_line(e, "%s = %s;", name.text, step.text);
    if (expr_running(x) != x->dtype) {
        const char *type = e->target->type[x->dtype];
        const char *value = arena_format(e->arena, "t%u%s", emit_number(e, x->id), e->suffix);
        emit_line(e, "const %s %s = (%s)%s;", type, value, type, name.text);
        name = text_name(value);
    }
    emit_name(e, x, name);
}

/* A bool that is the same for all lanes: gcc 12 makes no vector of one, and of no loop that chooses
 * by it. Of an int it does, as wide as elements are, but looks through one that was a bool. */
static bool hides_bool(const Emit *e, const Expr *x) {
    bool before = e->lane_axis != NO_LANE && e->local[x->id].level < e->axis_level[e->lane_axis];
    if (x->dtype != CB_BOOL || !before || !e->target->hide) return false;
    for (int i = 0; i < length(e->kernel->buffer); i++)
        if (cb_dtype_size(e->kernel->buffer[i].dtype) < sizeof(int)) return false;
    return true;
}

static void declare_value(Emit *e, const Expr *x) {
    const Local *local = &e->local[x->id];
    const char *name = arena_format(e->arena, "t%u%s", emit_number(e, x->id), e->suffix);
    const char *value = text_value(e, x).text;
    if (hides_bool(e, x)) {
        emit_line(e, "int %s = %s;", name, value);
        emit_line(e, e->target->hide, name);
    } else {
        emit_line(e, "const %s %s = %s;", e->target->type[x->dtype], name, value);
    }
    if (local->cached && !local->kept) emit_line(e, "%s = %s;", e->target->row(e, x).text, name);
    emit_name(e, x, text_name(name));
}

/* The name of a guard that is the same for all lanes, or NULL. */
static const char *guard_of_lanes(const Emit *e, const Expr *x, const Access *access) {
    if (x->input_count < 2 || e->flat) return NULL;
    const Local *guard = &e->local[x->input[1]->id];
    return guard->level <= access->level ? guard->name.text : NULL;
}

/* What no lane loads has an address, too, which may be that of no memory: a masked load from there
 * takes the processor some hundred cycles. */
static void declare_load_address(Emit *e, const Expr *x, Access *access) {
    access->when = guard_of_lanes(e, x, access);
    declare_address(e, access, (int)x->imm.i, arena_format(e->arena, "p%u", emit_number(e, x->id)),
                    x->input_count == 2, true);
}

void emit_declare(Emit *e, int level) {
    for (int id = 0; id < e->count; id++) {
        const Expr *x = e->kernel->expr[id];
        const Local *local = &e->local[id];
        if (!local->needed || local->name.text) continue;
        Access *access = &e->load[id];
        bool addressed = x->op == EX_load && !local->kept && access->level == level;
        if (addressed && !access->name) declare_load_address(e, x, access);
        if (local->level != level || (local->per_point && !e->at_point) || emit_inlines(e, x))
            continue;
        if (x->op == EX_scan)
            declare_scan(e, x);
        else
            declare_value(e, x);
    }
    for (int i = 0; i < length(e->rooted); i++) {
        const Access *access = &e->store[e->rooted[i]];
        if (access->level == level && !access->name) declare_store_address(e, e->rooted[i]);
    }
}

void emit_coordinates(Emit *e, int count, const char *point, const char *name) {
    const Kernel *kernel = e->kernel;
    int64_t stride = 1;
    for (int axis = 0; axis < count; axis++) stride *= kernel->axis[axis].size;
    for (int axis = 0; axis < count; axis++) {
        int64_t size = kernel->axis[axis].size;
        stride /= size ? size : 1;
        Buffer text = buffer_new(e->arena);
        putf(&text, "%s%d = %s", name, axis, point);
        if (stride > 1) putf(&text, " / %s", emit_size(e, stride));
        if (axis > 0) putf(&text, " %% %s", emit_size(e, size));
        emit_line(e, "%s;", buffer_text(&text));
    }
}

void emit_store(Emit *e, int s, Phrase element) {
    const Store *store = &e->kernel->store[s];
    cb_dtype dtype = e->kernel->buffer[store->buffer].dtype, computed = store->value->dtype;
    Phrase value = text_value(e, store->value);
    if (e->store[s].wide) dtype = computed;
    if (store_adds(store->mode))
        value = text_op(e, OP_add, computed, computed,
                        (Phrase[]){text_widen(e, dtype, element), value}, 2);
    value = text_narrow(e, dtype, value);
    e->usage->guards |= store->guard != NULL;
    const char *guard = store->guard ? text_value(e, store->guard).text : e->kept;
    if (e->kept && !value.simple) {
        emit_line(e, "const %s y%d = %s;", e->target->storage[dtype], s, value.text);
        value = text_name(arena_format(e->arena, "y%d", s));
    }
    if (guard)
        emit_line(e, "if (%s) %s = %s;", guard, element.text, value.text);
    else
        emit_line(e, "%s = %s;", element.text, value.text);
}

/* ---- lines ------------------------------------------------------------------------------- */

static void indent(Emit *e) {
    for (int i = 0; i < e->indent; i++) put(e->out, "    ");
}

void emit_line(Emit *e, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    indent(e);
    putf_list(e->out, format, arguments);
    va_end(arguments);
    put(e->out, "\n");
}

void emit_directive(Emit *e, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    putf_list(e->out, format, arguments);
    va_end(arguments);
    put(e->out, "\n");
}

void emit_open(Emit *e, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    indent(e);
    putf_list(e->out, format, arguments);
    va_end(arguments);
    put(e->out, " {\n");
    e->indent++;
}

void emit_block(Emit *e) {
    emit_line(e, "{");
    e->indent++;
}

void emit_close(Emit *e) {
    e->indent--;
    emit_line(e, "}");
}
