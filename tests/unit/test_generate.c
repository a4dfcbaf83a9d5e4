/* Functions of so many kernels that they are compiled as several files by several compilers: some
 * of which fail, leave out a kernel, or find no thread. The answer is that of eager in any case,
 * and explain says who computed it and why. */
#define _GNU_SOURCE
#include "capture/function.h" /* whose locals are called as globals of the next */

#include "adder.h"

#include "carbide.h"

#include <errno.h>
#include <pthread.h>
#include <unistd.h>

/* The linker hands the calls of the library to __wrap_pthread_create (--wrap, CMakeLists.txt). */
static bool no_threads;

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *user);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *user);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *user) {
    return no_threads ? EAGAIN : __real_pthread_create(thread, attributes, run, user);
}

/* ---- a long function --------------------------------------------------------------------- */

enum { LAYERS = 8, OPS = 50 };

/* Kernels of some 200 expressions, no two alike, whatever their numbers. */
static cb_tensor *layers(cb_tensor *x) {
    for (int i = 0; i < LAYERS; i++) {
        cb_tensor *y = x;
        for (int k = 0; k < OPS + i; k++) {
            y = cb_mul(cb_sub(y, 0.01 * (i * OPS + k)), 0.5);
            y = cb_add(y, cb_abs(y));
        }
        x = cb_add(x, cb_sum(y, cb_dims(i % 2), true));
        x = cb_div(x, cb_add(cb_amax(cb_abs(x)), 1.0));
    }
    return x;
}

/* "$copy" holds the source, which the compiler reads. */
static void use_compiler(const char *first, const char *filter) {
    char body[1500];
    snprintf(body, sizeof body,
             "copy=$(mktemp %s/source-XXXXXX)\ncat >$copy\n%s\n"
             "sed '%s' $copy | cc -w -O0 -fopenmp-simd -fPIC -shared -nostdlib -x c - -o \"$out\"",
             root, first, filter);
    use_script("compiler", body);
}

static void expect(const char *words) {
    cb_scope_open();
    cb_tensor *x = cb_sub(cb_mul(cb_reshape(cb_arange(0, 24), cb_dims(4, 6)), 0.125), 1);
    cb_function *fast = cb_compile(layers, "backend=c");
    cb_tensor *found = cb_call(fast, x), *wanted = layers(x);
    assert_null(cb_error());
    assert_true(cb_item(cb_amax(cb_abs(cb_sub(found, wanted)))) < 1e-5);
    char *text = cb_explain(fast);
    if (!strstr(text, words)) FAIL("no '%s' in %s", words, text);
    cb_free_text(text);
    cb_function_free(fast);
    cb_scope_close();
}

typedef struct FakeCompiler {
    const char *first, *filter; /* what it does before, and to the source */
    const char *words;          /* of explain */
} FakeCompiler;

static void test_several_files(void **state) {
    (void)state;
    static const FakeCompiler compilers[] = {
        {"", "", "engine: C, compiled now; "},
        {"grep -q k0_ $copy && { echo out of luck >&2; exit 1; }", "", "out of luck"},
        {"grep -q k15_ $copy && { echo out of luck >&2; exit 1; }", "", "out of luck"},
        {"echo out of luck >&2; exit 1", "", "out of luck"},
        {"", "s/k15_/lost_/", "lacks k15_"},
    };
    cb_set_option("cache", "0");
    for (int i = 0; i < 10; i++) {
        const FakeCompiler *c = &compilers[i / 2];
        no_threads = i % 2;
        use_compiler(c->first, c->filter);
        expect(c->words);
    }
    no_threads = false;
}

/* Each file has an entry of its own in the cache, and is known by its part of the source. */
static void test_entries_of_files(void **state) {
    (void)state;
    char description[CACHE_TEXT], found[CACHE_TEXT], key[CACHE_KEY];
    use_compiler("", "");
    cb_scope_open();
    cb_function *fast = cb_compile(layers, "backend=c");
    assert_non_null(cb_call(fast, cb_ones(cb_dims(4, 6))));
    ExecutableInfo info = executable_info(atomic_load(&fast->first)->executable);
    const char *at = info.source;
    assert_true(info.files > 1);
    for (int i = 0; i < info.files; at += info.file_bytes[i++]) {
        assert_true(code_describe(at, info.file_bytes[i], description, sizeof description));
        cache_key(description, key);
        assert_true(cache_describe(cache, key, found));
        assert_string_equal(found, description);
    }
    assert_int_equal(*at, '\0');
    cb_function_free(fast);
    cb_scope_close();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(test_several_files),
        CASE(test_entries_of_files),
    };
    return cmocka_run_group_tests_name("generate", tests, NULL, NULL);
}
