/* Kernels -> C files -> shared objects -> functions.
 *
 * Kernels with the same text (the layers of a network) are written once. Big plans become several
 * files of about FILE_WEIGHT expressions, compiled by two compiler processes at a time, so that
 * compile time stays linear in the plan. When one file fails, nothing is used and the reason is
 * kept. */
#include "jit/generate.h"
#include "base/clock.h"
#include "base/memory.h"
#include "codegen/c/c.h"
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

enum { FILE_WEIGHT = 1500, COMPILERS = 2 };

typedef struct File {
    const Kernel **kernel; /* vec */
    const char **name;     /* vec: theirs */
    Buffer source;
    CodeResult result;
} File;

typedef struct Compilation {
    File *file; /* vec */
    _Atomic int next;
    _Atomic bool failed;
} Compilation;

/* same[k]: the first kernel that differs from k in its name alone. Two texts are equal when the
 * hashes of what follows the name are. */
static int *find_same(const Plan *plan) {
    int count = length(plan->kernel);
    int *same = arena_new_array(plan->arena, int, count + 1);
    Map seen = map_new(plan->arena);
    Buffer text = buffer_new(plan->arena);
    for (int k = 0; k < count; k++) {
        text.length = 0;
        kernel_print(plan->kernel[k], &text);
        size_t skip = strcspn(buffer_text(&text), "(");
        uint64_t hash = hash_bytes(text.text + skip, text.length - skip, 0);
        const int *first = map_get(&seen, hash);
        same[k] = first ? *first : k;
        if (!first) map_put(&seen, hash, &same[k]);
    }
    return same;
}

/* file_of[k]: where kernel k stands, when it is the first of its kind. */
static File *make_files(const Plan *plan, const int *same, int *file_of, int *functions) {
    File *file = NULL;
    int weight = FILE_WEIGHT;
    for (int k = 0; k < length(plan->kernel); k++) {
        if (same[k] != k) continue;
        if (weight >= FILE_WEIGHT) {
            push(plan->arena, file, (File){0});
            weight = 0;
        }
        file_of[k] = length(file) - 1;
        push(plan->arena, file[file_of[k]].kernel, plan->kernel[k]);
        push(plan->arena, file[file_of[k]].name, plan->kernel[k]->name);
        *functions += 1;
        weight += length(plan->kernel[k]->expr);
    }
    for (int i = 0; i < length(file); i++) {
        file[i].source = buffer_new(plan->arena);
        c_render(file[i].kernel, length(file[i].kernel), &file[i].source);
    }
    return file;
}

static void *compile_files(void *user) {
    Compilation *work = user;
    for (;;) {
        int i = atomic_fetch_add(&work->next, 1);
        if (i >= length(work->file) || atomic_load(&work->failed)) return NULL;
        File *file = &work->file[i];
        file->result = code_load(buffer_text(&file->source), file->source.length, file->name,
                                 length(file->name));
        if (!file->result.code) atomic_store(&work->failed, true);
    }
}

static bool compile_all(File *file) {
    Compilation work = {.file = file};
    pthread_t helper[COMPILERS - 1];
    int helpers = 0, wanted = length(file) < COMPILERS ? length(file) - 1 : COMPILERS - 1;
    while (helpers < wanted && pthread_create(&helper[helpers], NULL, compile_files, &work) == 0)
        helpers++;
    compile_files(&work);
    for (int i = 0; i < helpers; i++) pthread_join(helper[i], NULL);
    return !atomic_load(&work.failed);
}

static const char *join_sources(const Plan *plan, const File *file) {
    if (length(file) == 1) return buffer_text(&file->source);
    Buffer all = buffer_new(plan->arena);
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

static void find_functions(const Plan *plan, const int *same, const int *file_of, const File *file,
                           KernelFunction **function) {
    for (int k = 0; k < length(plan->kernel); k++) {
        const Code *code = file[file_of[same[k]]].result.code;
        function[k] = same[k] == k ? code_function(code, plan->kernel[k]->name) : function[same[k]];
    }
}

void generate(const Plan *plan, Generated *out) {
    *out = (Generated){.from_disk = true};
    int count = length(plan->kernel);
    if (count == 0) return;
    double start = clock_ms();
    int *same = find_same(plan), *file_of = arena_new_array(plan->arena, int, count);
    File *file = make_files(plan, same, file_of, &out->functions);
    out->source = join_sources(plan, file);
    out->source_ms = clock_ms() - start;
    start = clock_ms();
    KernelFunction **function = arena_new_array(plan->arena, KernelFunction *, count);
    out->code = arena_new_array(plan->arena, Code *, length(file));
    bool ok = compile_all(file); /* from here on nothing escapes: what is loaded is in out->code */
    for (int i = 0; i < length(file); i++) {
        out->from_disk &= file[i].result.from_disk;
        if (out->cache == REASON_NONE) out->cache = file[i].result.cache;
        if (file[i].result.code) out->code[out->code_count++] = file[i].result.code;
    }
    keep_failure(out, file);
    if (ok) {
        find_functions(plan, same, file_of, file, function);
        out->function = function;
    } else {
        generated_release(out);
    }
    out->compiler_ms = clock_ms() - start;
}

void generated_release(Generated *generated) {
    for (int i = 0; i < generated->code_count; i++) code_release(generated->code[i]);
    generated->code_count = 0;
}
