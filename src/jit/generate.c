/* Kernels -> C files -> shared objects -> functions.
 *
 * Kernels with the same text (the layers of a network) are written once. Where sizes vary, kernels
 * of a family (jit/family.h) take what differs as arguments, and one that has code in this process
 * is not written at all. Big plans become several
 * files of about FILE_WEIGHT expressions, compiled by two compiler processes at a time, so that
 * compile time stays linear in the plan. When one file fails, nothing is used and the reason is
 * kept.
 *
 * Kernels that differ in numbers alone, a step of an unrolled recurrence each or a cell that is
 * written, share one function, too, where a plan has many of them; large ones where these are no
 * sizes. */
#include "jit/generate.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/round.h"
#include "codegen/c/c.h"
#include "jit/family.h"
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

enum {
    FILE_WEIGHT = 1500,
    SPLIT_WEIGHT = 400, /* of so much each compiler gets its part */
    COMPILERS = 2,
    KINDS = 4,           /* of files */
    SMALL_POINTS = 4096, /* a number that is an argument costs nothing there that one sees */
    SHARED_LEAST = 3,    /* kernels that differ in numbers become one function */
    SHARED_LARGE = 8,    /* the same of larger ones, which differ in no size */
    SLIGHT_RUN = 32,     /* lanes of a run: two vectors of AVX-512 */
    SLIGHT_POINTS = 1024 /* and all of them */
};

typedef struct File {
    const Kernel **kernel; /* vec */
    const char **name;     /* vec: theirs */
    Holes *holes;          /* vec: theirs; NULL: all numbers are literal */
    int weight;            /* expressions */
    bool slight;           /* C_SLIGHT */
    Buffer source;
    CodeResult result;
} File;

typedef struct Compilation {
    File *file; /* vec */
    Stop *stop;
    _Atomic int next;
    _Atomic bool failed;
} Compilation;

/* same[k]: the first kernel that differs from k in its name alone. */
static int *find_same(const Plan *plan, Arena *arena) {
    int count = length(plan->kernel);
    int *same = arena_new_array(arena, int, count + 1);
    Map seen = map_new(arena);
    for (int k = 0; k < count; k++) {
        const uint64_t *key = plan->kernel[k]->key;
        const int *first = map_get(&seen, key[0]);
        same[k] = first && plan->kernel[*first]->key[1] == key[1] ? *first : k;
        if (!first) map_put(&seen, key[0], &same[k]);
    }
    return same;
}

/* One generation of code. */
typedef struct Kernels {
    const Plan *plan;
    Arena *arena;
    int *same;            /* by kernel: the first one that is the same, with the same arguments */
    int *code_of;         /* by kernel: the one whose function it shares */
    int *file_of;         /* by kernel: where it is written, when it is the first of its kind */
    bool *slight;         /* by kernel: one of many that scalar code is good enough for */
    FamilyKernel *family; /* by kernel; NULL: all numbers are literal */
    bool keeps_families;  /* sizes vary: kernels of other plans find the code */
    KernelFunction **function;
    File *file; /* vec */
} Kernels;

/* ---- kernels of varying sizes ---------------------------------------------------------------- */

/* Kernels of the same text, most of a network's, are read once. */
static FamilyKernel *read_families(const Plan *plan, Arena *arena) {
    int count = length(plan->kernel);
    const int *same = find_same(plan, arena);
    FamilyKernel *family = arena_new_array(arena, FamilyKernel, count + 1);
    for (int k = 0; k < count; k++)
        family[k] = same[k] == k ? family_kernel(plan->kernel[k], arena) : family[same[k]];
    return family;
}

/* Of one text, by its key of 128 bits, and each number the same. */
static bool is_same(const FamilyKernel *a, const FamilyKernel *b) {
    bool same = a->key[0] == b->key[0] && a->key[1] == b->key[1] &&
                length(a->holes.hole) == length(b->holes.hole);
    for (int h = 0; same && h < length(a->holes.hole); h++)
        same = a->holes.hole[h].value.i == b->holes.hole[h].value.i;
    return same;
}

/* As find_same, of kernels whose sizes vary. */
static int *find_same_numbers(const Plan *plan, const FamilyKernel *family, Arena *arena) {
    int count = length(plan->kernel);
    int *same = arena_new_array(arena, int, count + 1);
    Map seen = map_new(arena);
    for (int k = 0; k < count; k++) {
        same[k] = k;
        for (MapEntry *e = map_first(&seen, family[k].key[0]); e; e = map_next(e)) {
            const int *first = e->value;
            if (is_same(&family[*first], &family[k])) same[k] = *first;
        }
        if (same[k] == k) map_put(&seen, family[k].key[0], &same[k]);
    }
    return same;
}

/* The kernel that k was over other sizes: of its family, as many come before it. NULL: there is
 * none. */
static const FamilyKernel *find_before(const FamilyKernel *family, int k,
                                       const FamilyUsual *usual) {
    int place = 0;
    for (int i = 0; i < k; i++) place += family[i].key[0] == family[k].key[0];
    for (int i = 0; i < usual->count; i++)
        if (usual->kernel[i].key[0] == family[k].key[0] && place-- == 0) return &usual->kernel[i];
    return NULL;
}

/* The same where that one was written for its sizes alone: as it would be if the sizes varied that
 * do here. So n - 1 = 10 is not taken for what n was before. */
static const FamilyKernel *find_twin(const Kernels *kernels, int k, const Plan *like) {
    const Kernel *kernel = kernels->plan->kernel[k];
    if (!like || kernel->like < 0) return NULL;
    Kernel twin = *like->kernel[kernel->like];
    Axis *axis = NULL;
    for (int a = 0; a < length(twin.axis); a++) {
        Axis one = twin.axis[a];
        one.varies = kernel->axis[a].varies;
        push(kernels->arena, axis, one);
    }
    twin.axis = axis;
    twin.form = kernel->form;
    kernel_key(&twin, kernels->arena, twin.key);
    FamilyKernel *family = arena_alloc(kernels->arena, sizeof *family);
    *family = family_kernel(&twin, kernels->arena);
    return family->key[0] == kernels->family[k].key[0] ? family : NULL;
}

static void add_size(Arena *arena, int64_t **sizes, int64_t size) {
    for (int i = 0; i < length(*sizes); i++)
        if ((*sizes)[i] == size) return;
    push(arena, *sizes, size);
}

/* With those of the kernel's axes that are several dims in one: where 4 rows of 16 are a run of 64,
 * the 3 that were there before end at 48. */
static const int64_t *varying_in(const Kernel *kernel, const int64_t *varying, Arena *arena) {
    int64_t *sizes = NULL;
    for (int i = 0; i < length(varying); i++) push(arena, sizes, varying[i]);
    for (int a = 0; a < length(kernel->axis); a++)
        for (int i = 0; i < length(varying) && kernel->axis[a].varies; i++) {
            int64_t times =
                kernel->axis[a].size % varying[i] ? 0 : kernel->axis[a].size / varying[i];
            for (int k = 0; k < length(varying) && times; k++)
                add_size(arena, &sizes, times * varying[k]);
        }
    return sizes;
}

/* Code that this process has for kernels of other sizes, and what are arguments of the others. */
static void find_code(Kernels *kernels, PlanSizes sizes, Generated *out) {
    const Plan *like = sizes.like;
    int count = length(kernels->plan->kernel), missing = 0;
    for (int k = 0; k < count; k++) {
        if (kernels->same[k] != k) continue;
        Code *code = family_find(&kernels->family[k], &kernels->function[k]);
        if (code) out->code[out->code_count++] = code;
        missing += !code;
    }
    if (!missing) return;
    FamilyUsual usual = {.count = 0};
    if (like)
        usual.kernel = read_families(like, kernels->arena), usual.count = length(like->kernel);
    for (int k = 0; k < count; k++) {
        if (kernels->same[k] != k || kernels->function[k]) continue;
        const FamilyKernel *before = find_before(kernels->family, k, &usual);
        if (!before) before = find_twin(kernels, k, like);
        usual.varying = varying_in(kernels->plan->kernel[k], sizes.varying, kernels->arena);
        family_choose(&kernels->family[k], before, &usual);
    }
}

/* ---- kernels of one plan that differ in numbers ---------------------------------------------- */

static bool is_small(const Kernel *kernel) {
    return kernel->outer_size * kernel->inner_size <= SMALL_POINTS;
}

static int list_first(const Kernels *kernels, int *first) {
    int count = 0;
    for (int k = 0; k < length(kernels->plan->kernel); k++)
        if (kernels->same[k] == k) first[count++] = k;
    return count;
}

/* Whether numbers of one text may be arguments: where there are few points any, else those that
 * tell places and values, which cost a loop nothing, and no sizes. */
static bool may_share(const Kernel *a, const Kernel *b) {
    bool small = is_small(a);
    if (small || is_small(b)) return small && is_small(b);
    for (int i = 0; i < length(a->axis); i++)
        if (a->axis[i].size != b->axis[i].size) return false;
    return true;
}

/* Those of the family of at[i], which have the code of that one from now on. */
static void share(Kernels *kernels, const int *at, int count, int i) {
    FamilyKernel *family = kernels->family, *first = &family[at[i]];
    FamilyKernel **member = arena_new_array(kernels->arena, FamilyKernel *, count);
    const Kernel **kernel = kernels->plan->kernel;
    int members = 0, least = is_small(kernel[at[i]]) ? SHARED_LEAST : SHARED_LARGE;
    for (int j = i; j < count; j++) {
        FamilyKernel *other = &family[at[j]];
        bool same = other->key[0] == first->key[0] && other->key[1] == first->key[1];
        if (same && may_share(kernel[at[i]], kernel[at[j]])) member[members++] = other;
    }
    if (members < least) return;
    family_choose_shared(member, members);
    for (int m = 1; m < members; m++) kernels->code_of[member[m] - family] = at[i];
}

static int64_t longest_run(const Kernel *kernel) {
    int outer = kernel->outer_count, axes = length(kernel->axis);
    int64_t across = outer ? kernel->axis[outer - 1].size : 1;
    return axes > outer && kernel->axis[axes - 1].size > across ? kernel->axis[axes - 1].size
                                                                : across;
}

/* Where the functions that are left are many. */
static void find_slight(Kernels *kernels, const int *at, int count) {
    int functions = 0;
    for (int i = 0; i < count; i++) {
        int k = at[i];
        const Kernel *kernel = kernels->plan->kernel[k];
        kernels->slight[k] = kernels->code_of[k] == k && longest_run(kernel) <= SLIGHT_RUN &&
                             kernel->outer_size * kernel->inner_size <= SLIGHT_POINTS;
        functions += kernels->slight[k];
    }
    for (int i = 0; i < count && functions < SHARING_KERNELS; i++) kernels->slight[at[i]] = false;
}

static void share_functions(Kernels *kernels) {
    Arena *arena = kernels->arena;
    int kernel_count = length(kernels->plan->kernel);
    int *at = arena_new_array(arena, int, kernel_count + 1);
    int count = list_first(kernels, at);
    if (count < SHARING_KERNELS) return;
    kernels->family = arena_new_array(arena, FamilyKernel, kernel_count + 1);
    for (int i = 0; i < count; i++)
        kernels->family[at[i]] = family_kernel(kernels->plan->kernel[at[i]], arena);
    for (int i = 0; i < count; i++)
        if (!kernels->family[at[i]].holes.argument) share(kernels, at, count, i);
    find_slight(kernels, at, count);
}

/* ---- files ----------------------------------------------------------------------------------- */

static bool is_written(const Kernels *kernels, int k) {
    return kernels->code_of[k] == k && !kernels->function[k];
}

static bool has_arguments(const Kernels *kernels, int k) {
    return kernels->keeps_families || (kernels->family && kernels->family[k].holes.argument);
}

/* Files are of kernels with arguments, or without, and of slight ones, or others. */
static int kind_of(const Kernels *kernels, int k) {
    return has_arguments(kernels, k) + 2 * kernels->slight[k];
}

/* By kind, what a file of it holds: as much as any other one, and the compilers are done at
 * once. */
static void share_weight(const Kernels *kernels, int64_t weight[KINDS]) {
    for (int k = 0; k < length(kernels->plan->kernel); k++)
        if (is_written(kernels, k))
            weight[kind_of(kernels, k)] += length(kernels->plan->kernel[k]->expr);
    for (int kind = 0; kind < KINDS; kind++)
        if (weight[kind] > SPLIT_WEIGHT)
            weight[kind] /= round_up(divide_up(weight[kind], FILE_WEIGHT), COMPILERS);
}

static void put_in_file(Kernels *kernels, int k, const int64_t weight[KINDS],
                        int open_file[KINDS]) {
    const Kernel *kernel = kernels->plan->kernel[k];
    int kind = kind_of(kernels, k), f = open_file[kind];
    if (f < 0 || kernels->file[f].weight >= weight[kind]) {
        f = open_file[kind] = length(kernels->file);
        push(kernels->arena, kernels->file, (File){.slight = kernels->slight[k]});
    }
    File *file = &kernels->file[f];
    push(kernels->arena, file->kernel, kernel);
    push(kernels->arena, file->name, kernel->name);
    if (has_arguments(kernels, k)) push(kernels->arena, file->holes, kernels->family[k].holes);
    file->weight += length(kernel->expr);
    kernels->file_of[k] = f;
}

static void make_files(Kernels *kernels) {
    int open_file[KINDS] = {-1, -1, -1, -1};
    int64_t weight[KINDS] = {0};
    share_weight(kernels, weight);
    for (int k = 0; k < length(kernels->plan->kernel); k++)
        if (is_written(kernels, k)) put_in_file(kernels, k, weight, open_file);
    for (int i = 0; i < length(kernels->file); i++) {
        File *file = &kernels->file[i];
        file->source = buffer_new(kernels->arena);
        put(&file->source, file->slight ? C_SLIGHT : "");
        c_render(file->kernel, file->holes, length(file->kernel), &file->source);
    }
}

static void *compile_files(void *user) {
    Compilation *work = user;
    for (;;) {
        int i = atomic_fetch_add(&work->next, 1);
        if (i >= length(work->file) || atomic_load(&work->failed)) return NULL;
        File *file = &work->file[i];
        file->result = code_load(buffer_text(&file->source), file->source.length, file->name,
                                 length(file->name), work->stop);
        if (!file->result.code) atomic_store(&work->failed, true);
    }
}

static bool compile_all(File *file, Stop *stop) {
    Compilation work = {.file = file, .stop = stop};
    pthread_t helper[COMPILERS - 1];
    int helpers = 0, wanted = length(file) < COMPILERS ? length(file) - 1 : COMPILERS - 1;
    while (helpers < wanted && pthread_create(&helper[helpers], NULL, compile_files, &work) == 0)
        helpers++;
    if (length(file)) compile_files(&work);
    for (int i = 0; i < helpers; i++) pthread_join(helper[i], NULL);
    return !atomic_load(&work.failed);
}

static const char *join_sources(Arena *arena, const File *file) {
    if (length(file) == 1) return buffer_text(&file->source);
    Buffer all = buffer_new(arena);
    for (int i = 0; i < length(file); i++)
        put_bytes(&all, file[i].source.text, file[i].source.length);
    return buffer_text(&all);
}

/* The message of the first file that failed stays; the others' go. */
static void keep_failure(Generated *out, File *file) {
    for (int i = 0; i < length(file); i++) {
        CodeResult *result = &file[i].result;
        bool first = !result->code && result->reason != REASON_NONE && out->reason == REASON_NONE;
        if (first)
            out->reason = result->reason, out->message = result->message;
        else
            memory_free(result->message);
    }
}

static void find_functions(const Kernels *kernels) {
    const Plan *plan = kernels->plan;
    KernelFunction **function = kernels->function;
    for (int k = 0; k < length(plan->kernel); k++) {
        if (kernels->code_of[k] != k) function[k] = function[kernels->code_of[k]];
        if (function[k]) continue;
        Code *code = kernels->file[kernels->file_of[k]].result.code;
        function[k] = code_function(code, plan->kernel[k]->name);
        if (kernels->keeps_families) family_add(&kernels->family[k], code, function[k]);
    }
}

static void find_arguments(const Kernels *kernels, Arena *arena, Generated *out) {
    int count = length(kernels->plan->kernel);
    out->argument = arena_new_array(arena, void *, count);
    for (int k = 0; k < count && kernels->family; k++)
        out->argument[k] = family_arguments(&kernels->family[kernels->same[k]], arena);
}

static Kernels read_kernels(const Plan *plan, PlanSizes sizes, Arena *kept, Generated *out) {
    int count = length(plan->kernel);
    Arena *arena = arena_inner(kept); /* texts are many times as large as what stays */
    Kernels kernels = {.plan = plan, .arena = arena};
    kernels.function = arena_new_array(kept, KernelFunction *, count);
    kernels.file_of = arena_new_array(arena, int, count);
    out->code = arena_new_array(kept, Code *, 2 * count); /* found, or of a file */
    kernels.keeps_families = sizes.vary;
    if (sizes.vary) kernels.family = read_families(plan, arena);
    kernels.same =
        sizes.vary ? find_same_numbers(plan, kernels.family, arena) : find_same(plan, arena);
    if (sizes.vary) find_code(&kernels, sizes, out);
    kernels.slight = arena_new_array(arena, bool, count + 1);
    kernels.code_of = arena_new_array(arena, int, count + 1);
    memcpy(kernels.code_of, kernels.same, sizeof(int) * (size_t)count);
    if (!sizes.vary) share_functions(&kernels);
    for (int k = 0; k < count; k++) out->functions += kernels.code_of[k] == k;
    return kernels;
}

void generate(const Plan *plan, PlanSizes sizes, Arena *arena, Stop *stop, Generated *out) {
    *out = (Generated){.functions = 0};
    if (length(plan->kernel) == 0) return;
    double start = clock_ms();
    Kernels kernels = read_kernels(plan, sizes, arena, out);
    make_files(&kernels);
    File *file = kernels.file;
    out->files = length(file);
    out->origin = out->files ? CODE_IN_PROCESS : CODE_COMPILED;
    out->file_bytes = arena_new_array(arena, size_t, out->files + 1);
    for (int i = 0; i < out->files; i++) out->file_bytes[i] = file[i].source.length;
    out->source = arena_text(arena, join_sources(kernels.arena, file));
    find_arguments(&kernels, arena, out);
    out->source_ms = clock_ms() - start;
    start = clock_ms();
    bool ok =
        compile_all(file, stop); /* from here on nothing escapes: what is loaded is in out->code */
    for (int i = 0; i < length(file); i++) {
        if (file[i].result.origin < out->origin) out->origin = file[i].result.origin;
        if (out->cache == REASON_NONE) out->cache = file[i].result.cache;
        if (file[i].result.code) out->code[out->code_count++] = file[i].result.code;
    }
    keep_failure(out, file);
    if (ok) {
        find_functions(&kernels);
        out->function = kernels.function;
    } else {
        generated_release(out);
    }
    arena_free(kernels.arena);
    out->compiler_ms = clock_ms() - start;
}

void generated_release(Generated *generated) {
    for (int i = 0; i < generated->code_count; i++) code_release(generated->code[i]);
    generated->code_count = 0;
}
