/* Families of kernels, and their code (family.h).
 *
 * In: kernels over some sizes. Out: which of their numbers are arguments, and code that takes
 * these. What was the same in all kernels of the family so far is literal; numbers that were equal
 * to each other in all of them are one argument:
 *
 *     the first   (1024, 16, 16, 768)    literal throughout
 *     the second  (1024, 24, 24, 768)    (1024, n0, n0, 768)
 *     a third     (1024, 30, 30, 768)    the same code
 *     a fourth    (1024, 30, 30, 512)    (1024, n0, n0, n1): one more variant
 *
 * What a kernel's numbers were is known from the same kernel of the plan over other sizes, and
 * which were arguments from the code that serves that one: another layer's width has not changed.
 * Each further variant of it takes more arguments; after MOST_CHOICES of these everything is one,
 * and so it is where a family has MOST_VARIANTS. Of two that compile for the same numbers at once
 * the first one's code stays. The table is a process singleton, as loaded code is. It holds a
 * reference to the code of each variant; when there are MOST_CODES variants in all families, the
 * family that was not used for longest leaves with all of its own, so that a program that meets
 * ever new kernels keeps few of the mappings that a process may have, of which each loaded object
 * takes about five. */
#include "jit/family.h"
#include "base/lock.h"
#include "base/map.h"
#include "base/memory.h"
#include "codegen/c/c.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

enum { MOST_CODES = 1024, BUCKETS = 256, MOST_CHOICES = 6, MOST_VARIANTS = 64 };

typedef struct Variant Variant;
typedef struct Family Family;
struct Variant {
    Variant *next, *known; /* older; in table.known */
    const Family *family;
    Code *code;
    KernelFunction *function;
    uint64_t kernel[2]; /* the one that it was compiled for: Kernel.key */
    TextNumber *hole;   /* and its numbers */
    int argument[];
};

struct Family {
    Family *next; /* in its bucket */
    uint64_t key[2], used;
    int holes;
    Variant *newest;
    int variants, choices; /* choices: of which numbers are arguments */
};

static struct {
    Family *bucket[BUCKETS];
    Variant *known[BUCKETS]; /* by Variant.kernel */
    int variants;            /* of all families; none has none */
    uint64_t uses;
    atomic_int most_holes; /* of any so far; read without it */
} table;                   /* under the lock */

/* ---- one kernel -------------------------------------------------------------------------- */

static const Variant *find_known(const uint64_t kernel[2]) {
    const Variant *v = table.known[kernel[0] % BUCKETS];
    while (v && (v->kernel[0] != kernel[0] || v->kernel[1] != kernel[1])) v = v->known;
    return v;
}

/* Of a kernel that code was compiled for, as those are that do not change with a length: it is not
 * written again to be known. Memory, which may run out, is asked for before the lock is taken. */
static bool recall_kernel(FamilyKernel *kernel) {
    Holes *holes = &kernel->holes;
    int room = atomic_load(&table.most_holes), count = 0;
    for (int h = 0; h < room; h++) push(holes->arena, holes->hole, (TextNumber){.size = false});
    lock_take(LOCK_family);
    const Variant *v = find_known(kernel->kernel);
    if (v && v->family->holes > room) v = NULL; /* another thread has just added it */
    if (v) memcpy(kernel->key, v->family->key, sizeof kernel->key);
    if (v) count = v->family->holes;
    if (count) memcpy(holes->hole, v->hole, sizeof *holes->hole * (size_t)count);
    lock_give(LOCK_family);
    truncate_to(holes->hole, count);
    return v;
}

FamilyKernel family_kernel(const Kernel *kernel, Arena *arena) {
    FamilyKernel out = {.kernel = {kernel->key[0], kernel->key[1]}, .holes = {.arena = arena}};
    if (recall_kernel(&out)) return out;
    Kernel nameless = *kernel;
    Buffer text = buffer_new(arena);
    nameless.name = "kernel";
    c_render_kernel(&nameless, &out.holes, &text);
    for (int i = 0; i < 2; i++) out.key[i] = hash_bytes(text.text, text.length, (uint64_t)i + 1);
    return out;
}

static Family *find_family(const FamilyKernel *kernel) {
    for (Family *f = table.bucket[kernel->key[0] % BUCKETS]; f; f = f->next) {
        bool same = f->key[0] == kernel->key[0] && f->key[1] == kernel->key[1];
        if (!same || f->holes != length(kernel->holes.hole)) continue;
        f->used = ++table.uses;
        return f;
    }
    return NULL;
}

static bool fits(const Variant *variant, const Holes *holes) {
    int first[length(holes->hole) + 1]; /* by argument: a hole of it */
    memset(first, -1, sizeof first);
    for (int h = 0; h < length(holes->hole); h++) {
        int argument = variant->argument[h];
        int64_t value = holes->hole[h].value.i;
        if (argument < 0 && variant->hole[h].value.i != value) return false;
        if (argument < 0) continue;
        if (first[argument] < 0) first[argument] = h;
        if (holes->hole[first[argument]].value.i != value) return false;
    }
    return true;
}

/* ---- choosing arguments ------------------------------------------------------------------ */

/* What is known of a hole besides its number now: the argument that it was, or the number. */
typedef struct Past {
    int argument; /* -1: literal */
    int64_t value;
} Past;

/* A multiple of the size, or a few less: x[1:], the divisor of a mean. */
static bool follows_size(const TextNumber *hole, int64_t size) {
    double value = dtype_is_float(hole->dtype) ? hole->value.f : (double)hole->value.i;
    double less = (double)size - value;
    if (!hole->size && !dtype_is_float(hole->dtype)) return false;
    return (value != 0 && fmod(value, (double)size) == 0) || (less > 0 && less <= FEW_LESS);
}

/* Nothing is known of the family. A number is literal that the other sizes' kernels have, too;
 * where there are none, one that follows no size which varies. -20 is where the second part of a
 * concatenation begins. */
static bool is_usual(const TextNumber *hole, const FamilyUsual *usual) {
    bool slight = hole->size && hole->value.i < 2 && hole->value.i > -2, last = false;
    for (int i = 0; i < length(usual->varying) && slight; i++)
        last |= usual->varying[i] == 2 && hole->value.i == 1; /* of two */
    if (slight) return !last;
    for (int i = 0; i < length(usual->varying); i++)
        if (hole->size && hole->value.i == usual->varying[i]) return false;
    for (int k = 0; k < usual->count; k++)
        for (int h = 0; h < length(usual->kernel[k].holes.hole); h++)
            if (usual->kernel[k].holes.hole[h].value.i == hole->value.i) return true;
    bool follows = false;
    for (int i = 0; i < length(usual->varying); i++)
        follows |= follows_size(hole, usual->varying[i]);
    return !usual->count && !follows;
}

/* The first hole that was what h was, and is what h is. */
static int first_like(const Holes *holes, const Past *past, int h) {
    for (int k = 0; k < h; k++)
        if (holes->hole[k].value.i == holes->hole[h].value.i &&
            holes->hole[k].dtype == holes->hole[h].dtype && past[k].argument == past[h].argument &&
            past[k].value == past[h].value)
            return k;
    return h;
}

/* all: every number is an argument of its own. */
static void choose(Holes *holes, const Past *past, bool all, int *argument) {
    holes->argument_count = 0;
    for (int h = 0; h < length(holes->hole); h++) {
        int like = all ? h : first_like(holes, past, h);
        bool literal = past[h].argument < 0 && past[h].value == holes->hole[h].value.i;
        if (literal && !all)
            argument[h] = -1;
        else
            argument[h] = like < h ? argument[like] : holes->argument_count++;
    }
    holes->argument = argument;
}

static const Variant *find_variant(const Family *family, const Holes *holes) {
    const Variant *v = family ? family->newest : NULL;
    while (v && !fits(v, holes)) v = v->next;
    return v;
}

/* What the holes of the kernel before were, and of the code that serves it, if any. The caller
 * holds the lock. */
static void recall(const Family *family, const Holes *before, Past *past) {
    const Variant *v = find_variant(family, before);
    for (int h = 0; h < length(before->hole); h++) {
        past[h] = (Past){-1, before->hole[h].value.i};
        if (v && v->argument[h] >= 0) past[h] = (Past){v->argument[h], 0};
    }
}

void family_choose(FamilyKernel *kernel, const FamilyKernel *before, const FamilyUsual *usual) {
    Holes *holes = &kernel->holes;
    int count = length(holes->hole);
    Past *past = arena_new_array(holes->arena, Past, count + 1);
    int *argument = arena_new_array(holes->arena, int, count + 1);
    for (int h = 0; h < count; h++) {
        int64_t value = holes->hole[h].value.i;
        past[h] = (Past){-1, is_usual(&holes->hole[h], usual) ? value : ~value};
    }
    lock_take(LOCK_family);
    const Family *family = find_family(kernel);
    if (before && length(before->holes.hole) == count) recall(family, &before->holes, past);
    bool all = family && (family->choices >= MOST_CHOICES || family->variants >= MOST_VARIANTS);
    lock_give(LOCK_family);
    choose(holes, past, all, argument);
}

/* Numbers that are equal in each kernel have the same past, so they are one argument. */
void family_choose_shared(FamilyKernel *const *kernel, int count) {
    Holes *first = &kernel[0]->holes;
    int holes = length(first->hole);
    Past *past = arena_new_array(first->arena, Past, holes + 1);
    int *argument = arena_new_array(first->arena, int, holes + 1);
    for (int h = 0; h < holes; h++) {
        int64_t value = first->hole[h].value.i;
        bool same = true;
        uint64_t all = 0;
        for (int k = 0; k < count; k++) {
            int64_t own = kernel[k]->holes.hole[h].value.i;
            same &= own == value;
            all = hash_mix(all, (uint64_t)own);
        }
        past[h] = (Past){same ? -1 : 0, same ? value : (int64_t)all};
    }
    choose(first, past, false, argument);
    for (int k = 1; k < count; k++) {
        kernel[k]->holes.argument = argument;
        kernel[k]->holes.argument_count = first->argument_count;
    }
}

Code *family_find(FamilyKernel *kernel, KernelFunction **function) {
    Holes *holes = &kernel->holes;
    int count = length(holes->hole), *argument = arena_new_array(holes->arena, int, count + 1);
    Code *code = NULL;
    lock_take(LOCK_family);
    const Variant *v = find_variant(find_family(kernel), holes);
    if (v) {
        memcpy(argument, v->argument, sizeof *argument * (size_t)count);
        *function = v->function;
        code = code_retain(v->code);
    }
    lock_give(LOCK_family);
    if (!code) return NULL;
    holes->argument = argument;
    for (int h = 0; h < count; h++)
        if (argument[h] >= holes->argument_count) holes->argument_count = argument[h] + 1;
    return code;
}

void *family_arguments(const FamilyKernel *kernel, Arena *arena) {
    const Holes *holes = &kernel->holes;
    if (!holes->argument_count) return NULL;
    Scalar *number = arena_new_array(arena, Scalar, holes->argument_count);
    for (int h = 0; h < length(holes->hole); h++)
        if (holes->argument[h] >= 0) number[holes->argument[h]] = holes->hole[h].value;
    return number;
}

/* ---- the table --------------------------------------------------------------------------- */

/* It has left its bucket. */
static void forget_kernels(const Family *family) {
    for (Variant *v = family->newest; v; v = v->next) {
        Variant **at = &table.known[v->kernel[0] % BUCKETS];
        while (*at != v) at = &(*at)->known;
        *at = v->known;
    }
}

static void free_family(Family *family) {
    for (Variant *v = family->newest, *next; v; v = next) {
        next = v->next;
        code_release(v->code);
        memory_free(v);
    }
    memory_free(family);
}

/* The one that was not used for longest leaves its bucket. */
static Family *take_oldest(void) {
    Family **oldest = NULL;
    for (int b = 0; b < BUCKETS; b++)
        for (Family **at = &table.bucket[b]; *at; at = &(*at)->next)
            if (!oldest || (*at)->used < (*oldest)->used) oldest = at;
    Family *family = *oldest;
    *oldest = family->next;
    table.variants -= family->variants;
    forget_kernels(family);
    return family;
}

/* The family, which may be new; NULL: no memory. */
static Family *make_family(const FamilyKernel *kernel) {
    Family *family = find_family(kernel);
    if (family) return family;
    family = memory_zalloc(sizeof *family);
    if (!family) return NULL;
    memcpy(family->key, kernel->key, sizeof family->key);
    family->holes = length(kernel->holes.hole);
    if (family->holes > atomic_load(&table.most_holes))
        atomic_store(&table.most_holes, family->holes);
    family->used = ++table.uses;
    Family **bucket = &table.bucket[kernel->key[0] % BUCKETS];
    family->next = *bucket;
    *bucket = family;
    return family;
}

static Variant *new_variant(const FamilyKernel *kernel, Code *code, KernelFunction *function) {
    int count = length(kernel->holes.hole);
    size_t numbers = sizeof(TextNumber) * (size_t)count, roles = sizeof(int) * (size_t)count;
    Variant *v = memory_zalloc(sizeof *v + numbers + roles + sizeof(Scalar));
    if (!v) return NULL;
    v->function = function;
    v->hole = (TextNumber *)(void *)((char *)v + (sizeof *v + roles + 7) / 8 * 8);
    memcpy(v->argument, kernel->holes.argument, roles);
    for (int h = 0; h < count; h++) v->hole[h] = kernel->holes.hole[h];
    memcpy(v->kernel, kernel->kernel, sizeof v->kernel);
    v->code = code_retain(code);
    return v;
}

static bool is_chosen(const Family *family, const int *argument) {
    const Variant *v = family->newest;
    while (v && memcmp(v->argument, argument, sizeof *argument * (size_t)family->holes))
        v = v->next;
    return v;
}

static void add_variant(Family *family, Variant *variant) {
    family->choices += !is_chosen(family, variant->argument);
    family->variants++;
    table.variants++;
    variant->family = family;
    variant->next = family->newest;
    family->newest = variant;
    Variant **known = &table.known[variant->kernel[0] % BUCKETS];
    variant->known = *known;
    *known = variant;
}

void family_add(const FamilyKernel *kernel, Code *code, KernelFunction *function) {
    Family *left = NULL;
    Variant *variant = new_variant(kernel, code, function);
    if (!variant) return;
    lock_take(LOCK_family);
    if (table.variants >= MOST_CODES) left = take_oldest();
    Family *family = make_family(kernel);
    bool adds = family && !find_variant(family, &kernel->holes); /* or another thread was first */
    if (adds) add_variant(family, variant);
    lock_give(LOCK_family);
    if (left) free_family(left);
    if (adds) return;
    code_release(variant->code);
    memory_free(variant);
}

void families_cleanup(void) {
    Family *all = NULL;
    lock_take(LOCK_family);
    while (table.variants) {
        Family *family = take_oldest();
        family->next = all;
        all = family;
    }
    lock_give(LOCK_family);
    while (all) {
        Family *next = all->next;
        free_family(all);
        all = next;
    }
}
