/* A second target is possible with what Target holds: the kernels of every golden file, written for
 * plain_target.h, compiled and run, beside the VM. test_codegen_random does the same with random
 * kernels. */
#include "kernel_vm.h"
#include "plain_target.h"

#include "graph/graph.h"
#include "sched/plan.h"

#include <glob.h>

static char *read_text(Arena *arena, const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) FAIL("%s cannot be read", path);
    Buffer out = buffer_new(arena);
    char block[4096];
    for (size_t n; (n = fread(block, 1, sizeof block, file)) > 0;) put_bytes(&out, block, n);
    fclose(file);
    return arena_text(arena, buffer_text(&out));
}

/* As golden.c plans it, but that nothing is frozen. */
static Plan *plan_of(Arena *arena, const char *path) {
    char *text = read_text(arena, path), *start = strstr(text, "graph("),
         *end = strstr(text, "\n---");
    if (!start || !end) FAIL("%s has no graph, or no stage", path);
    end[1] = '\0';
    Graph *graph = graph_parse(arena, start);
    if (!graph) FAIL("%s: %s", path, cb_error());
    graph_optimize(graph, NULL);
    return plan_build(graph, arena, NULL, (PlanOptions){.fuse = true});
}

static void run_all(const Kernel *kernel, KernelFunction *function, void *const *buffer) {
    if (kernel->split > 1)
        run_split(kernel, function, buffer);
    else
        function(buffer, 0, kernel->outer_size, 0, NULL);
}

/* The VM's results are what is wanted. */
static void expect_as_the_vm(const Kernel *kernel, const Code *code) {
    Data data;
    void *wanted[MAX_BUFFERS];
    fill(kernel, &data);
    for (int b = 0; b < length(kernel->buffer); b++)
        wanted[b] = kernel->buffer[b].role == BUFFER_IN ? data.before[b] : data.wanted[b];
    current = program_build(kernel, false);
    assert_non_null(current);
    run_all(kernel, run_current, wanted);
    program_free(current);
    run_all(kernel, code_function(code, kernel->name), data.bound);
    bool same = compare(kernel, &data);
    release(kernel, &data);
    assert_true(same);
}

static void check_file(const char *path) {
    Arena *arena = arena_new();
    assert_int_equal(arena_guard(arena), 0);
    Plan *plan = plan_of(arena, path);
    int count = length(plan->kernel), expressions = count_expressions(plan->kernel, count);
    if (count) {
        Code *code = compile(plan->kernel, count, arena);
        for (int k = 0; k < count; k++) expect_as_the_vm(plan->kernel[k], code);
        assert_int_equal(count_expressions(plan->kernel, count), expressions); /* by the VM, too */
        code_release(code);
    }
    arena_free(arena);
}

static void every_golden(void **state) {
    (void)state;
    glob_t files;
    assert_int_equal(glob("tests/golden/*.t", 0, NULL, &files), 0);
    assert_true(files.gl_pathc >= 20);
    for (size_t i = 0; i < files.gl_pathc; i++) check_file(files.gl_pathv[i]);
    globfree(&files);
}

static void of_another_dialect(void **state) {
    (void)state;
    Arena *arena = arena_new();
    const Kernel *kernel =
        parse(arena, "kernel k(outer a0:9) tile split 1 { b0: in f16[9] b1: out f32[9]"
                     " t0 = f32 load b0[a0] t1 = f32 add t0, inf:f32"
                     " store b1[a0] = t1 }");
    Buffer text = buffer_new(arena);
    target_render(&plain_target, &kernel, NULL, 1, &text);
    static const char *const foreign[] = {"omp", "restrict", "__builtin_inf", "_Bool *"};
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
        if (strstr(buffer_text(&text), foreign[i])) FAIL("%s: %s", foreign[i], buffer_text(&text));
    assert_non_null(strstr(buffer_text(&text), "b1[a0] = m_from_f16_f32(b0[a0]) + infinite_f32;"));
    arena_free(arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_golden),
        cmocka_unit_test(of_another_dialect),
    };
    written_for = &plain_target;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    cb_cleanup();
    return failed;
}
