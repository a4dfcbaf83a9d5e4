/* Artifacts: kernels that one machine has compiled run on another one, here one with another cache
 * and without a compiler. Files that are damaged, of another version or processor, or somebody
 * else's are refused, with the reason, and nothing of them is taken. */
#define _GNU_SOURCE
#include "adder.h"

#include "base/buffer.h"
#include "base/map.h"
#include "carbide.h"
#include "jit/artifact.h"
#include "jit/compiler.h"

#include <fcntl.h>
#include <limits.h>
#include <unistd.h>

static char path[400], other[400]; /* the file; the cache of the other machine */

static cb_tensor *layer(cb_tensor *x) { return cb_softmax(cb_tanh(cb_mul(x, 1.25)), 1); }

static cb_tensor *sums(cb_tensor *x) { return cb_sum(cb_exp(x), cb_dims(0)); }

static bool agrees(cb_function *fast, cb_tensor *(*wanted)(cb_tensor *)) {
    cb_scope_open();
    cb_tensor *x =
        cb_sub(cb_mul(cb_reshape(cb_to(cb_arange(0, 96), CB_F32), cb_dims(4, 24)), 0.03), 1);
    cb_tensor *y = cb_call(fast, x);
    bool same = y && cb_item(cb_amax(cb_abs(cb_sub(y, wanted(x))))) < 1e-5;
    cb_scope_close();
    return same;
}

static bool says(cb_function *fast, const char *words) {
    char *text = cb_explain(fast);
    bool found = strstr(text, words);
    cb_free_text(text);
    return found;
}

/* Compiles on this machine, saves, and moves to the other one, with or without its compiler. */
static void save_and_move(const char *compiler) {
    cb_function *a = cb_compile(layer, "backend=c"), *b = cb_compile(sums, "backend=c");
    path_in(path, "kernels");
    path_in(other, "other");
    assert_true(agrees(a, layer) && agrees(b, sums));
    assert_int_equal(cb_save_artifacts(path), CB_OK);
    cb_function_free(a);
    cb_function_free(b);
    cb_set_option("cache_dir", other);
    cb_set_option("cc", compiler);
}

static int entries_there(void) {
    char unused[CACHE_KEY];
    return cache_visit(other, count_entry, unused);
}

static void assert_warm(void) {
    cb_function *a = cb_compile(layer, "backend=c"), *b = cb_compile(sums, "backend=c");
    assert_true(agrees(a, layer) && agrees(b, sums));
    assert_true(says(a, "engine: C, from the disk cache") &&
                says(b, "engine: C, from the disk cache"));
    assert_true(cb_stats(a).cache_hits > 0);
    cb_function_free(a);
    cb_function_free(b);
    assert_null(cb_error());
}

static void test_another_machine_starts_warm(void **state) {
    (void)state;
    static const char *const compilers[] = {"/bin/false", "no-such-compiler"};
    for (int i = 0; i < 2; i++) {
        cb_set_option("cache_dir", cache);
        cb_set_option("cc", "cc");
        save_and_move(compilers[i]);
        assert_int_equal(cb_load_artifacts(path), CB_OK);
        assert_int_equal(entries_there(), 2);
        assert_warm();
        cache_clear(other);
    }
}

/* What was taken from a file is passed on. */
static void test_passed_on(void **state) {
    (void)state;
    save_and_move("/bin/false");
    assert_int_equal(cb_load_artifacts(path), CB_OK);
    cb_function *a = cb_compile(layer, "backend=c");
    assert_true(agrees(a, layer));
    assert_int_equal(cb_save_artifacts(path), CB_OK);
    cb_function_free(a);
    cache_clear(other);
    assert_int_equal(cb_load_artifacts(path), CB_OK);
    assert_int_equal(entries_there(), 1); /* of the one function that lived */
}

/* A file of the whole cache, with what the tuner measured here; not with what it did elsewhere. */
static void test_tuned_times(void **state) {
    (void)state;
    char text[CACHE_TEXT], key[CACHE_KEY], found[64];
    int count = 0;
    save_and_move("cc");
    for (int i = 0; i < 2; i++) {
        snprintf(text, sizeof text, "carbide %s\ncpu %s%s\ntuned matmul\n", CB_VERSION,
                 compiler_cpu(), i ? " of another kind" : "");
        cache_key(text, key);
        assert_true(cache_set(cache, key, text, "fast 1.5\n"));
    }
    cb_set_option("cache_dir", cache);
    assert_int_equal(artifacts_save(path, ARTIFACT_ALL, &count), CB_OK);
    assert_int_equal(count, 3);
    cb_set_option("cache_dir", other);
    assert_int_equal(artifacts_load(path, &count), CB_OK);
    assert_int_equal(count, 3);
    snprintf(text, sizeof text, TUNED_TEXT "matmul\n", CB_VERSION, compiler_cpu());
    cache_key(text, key);
    assert_int_equal(cache_get(other, key, text, found, sizeof found), CACHE_HIT);
    assert_string_equal(found, "fast 1.5\n");
}

/* Of a function that compiles in the background, too. */
static void test_saving_waits(void **state) {
    (void)state;
    int count = 0;
    path_in(path, "kernels");
    use_script("slow", "sleep 0.2; exec cc \"$@\"");
    cb_function *fast = cb_compile(layer, "async=1");
    assert_true(agrees(fast, layer));
    assert_int_equal(artifacts_save(path, ARTIFACT_LOADED, &count), CB_OK);
    assert_int_equal(count, 1);
    cb_function_free(fast);
}

static int heap_live, heap_left; /* left: allocations before the one that fails */

static void *heap_resize(void *user, void *pointer, size_t bytes) {
    (void)user;
    heap_live -= pointer != NULL;
    if (bytes && heap_left-- == 0) return heap_live += pointer != NULL, NULL;
    if (bytes) return heap_live++, realloc(pointer, bytes);
    free(pointer);
    return NULL;
}

/* Whichever allocation fails: an error, no file, and nothing stays; or it was not needed. */
static void test_memory_runs_out(void **state) {
    (void)state;
    save_and_move("cc");
    remove(path);
    cb_cleanup();
    heap_left = INT_MAX;
    cb_set_allocator((cb_allocator){heap_resize, NULL});
    assert_int_equal(cb_set_option("cache_dir", cache), CB_OK);
    int count, lowest = dup(0), before = heap_live;
    close(lowest);
    bool failed = true;
    for (int n = 0; failed; n++) {
        heap_left = n;
        bool done = artifacts_save(path, ARTIFACT_ALL, &count) == CB_OK;
        failed = heap_left < 0;
        heap_left = INT_MAX;
        if (!done && cb_error_status() != CB_ERR_MEMORY) FAIL("%d: %s", n, cb_error());
        assert_true(done ? count == 2 : access(path, F_OK) != 0);
        remove(path);
        cb_clear_error();
        assert_int_equal(heap_live, before);
        assert_true(n < 100);
        int now = dup(0);
        close(now);
        assert_int_equal(now, lowest);
    }
    cb_cleanup();
    cb_set_allocator((cb_allocator){NULL, NULL});
}

/* ---- refusals -------------------------------------------------------------------------------- */

static void expect_refused(const char *words) {
    cb_clear_error();
    assert_int_equal(cb_load_artifacts(path), CB_ERR_IO);
    if (!strstr(cb_error(), words)) FAIL("no '%s' in: %s", words, cb_error());
    assert_true(entries_there() <= 0);
    cb_clear_error();
}

static size_t read_whole(char **content) {
    FILE *file = fopen(path, "rb");
    fseek(file, 0, SEEK_END);
    size_t bytes = (size_t)ftell(file);
    rewind(file);
    *content = malloc(bytes);
    assert_int_equal(fread(*content, 1, bytes, file), bytes);
    fclose(file);
    return bytes;
}

static void write_whole(const char *content, size_t bytes) {
    FILE *file = fopen(path, "wb");
    assert_int_equal(fwrite(content, 1, bytes, file), bytes);
    fclose(file);
}

/* The checksum fits what has been changed. */
static void seal_again(char *content, size_t bytes) {
    ArtifactHeader header;
    memcpy(&header, content, sizeof header);
    const char *from = (const char *)&header.bytes;
    uint64_t first = hash_bytes(from, (size_t)((const char *)(&header + 1) - from), 0);
    header.hash = hash_bytes(content + sizeof header, bytes - sizeof header, first);
    memcpy(content, &header, sizeof header);
}

static void test_damage(void **state) {
    (void)state;
    char *content;
    save_and_move("/bin/false");
    size_t bytes = read_whole(&content);
    for (int i = 0; i < 60; i++) {
        size_t at = i < 40 ? (size_t)i : bytes / 60 * (size_t)i;
        content[at] ^= 0x20;
        write_whole(content, bytes);
        expect_refused(at < 7 ? "no artifacts" : at < 8 ? "of another format" : "it is ");
        content[at] ^= 0x20;
    }
    for (int i = 0; i < 20; i++) {
        write_whole(content, bytes / 20 * (size_t)i);
        expect_refused(i ? "it is cut short" : "by its size");
    }
    write_whole(content, bytes);
    FILE *file = fopen(path, "ab");
    fputs("more", file);
    fclose(file);
    expect_refused("longer than it was");
    write_whole(content, bytes);
    assert_int_equal(cb_load_artifacts(path), CB_OK);
    assert_warm();
    free(content);
}

/* With a checksum that fits: no size or count leads out of the file, and nothing is taken by
 * halves. */
static void test_forged(void **state) {
    (void)state;
    char *content;
    ArtifactHeader header;
    unsigned random = 7;
    save_and_move("/bin/false");
    size_t bytes = read_whole(&content);
    memcpy(&header, content, sizeof header);
    size_t item = sizeof header + header.fit_bytes;
    char *forged = malloc(bytes);
    for (int i = 0; i < 300; i++) {
        memcpy(forged, content, bytes);
        random = random * 1103515245 + 12345;
        size_t at = i % 2 ? item + (random >> 16) % sizeof(ArtifactItem) : 16 + (random >> 16) % 16;
        forged[at] = (char)(random >> 8);
        seal_again(forged, bytes);
        write_whole(forged, bytes);
        if (cb_load_artifacts(path) == CB_OK)
            cache_clear(other);
        else
            assert_true(entries_there() <= 0);
        cb_clear_error();
    }
    free(forged);
    free(content);
}

static void forge_fit(const char *from, const char *to, const char *words) {
    char *content;
    size_t bytes = read_whole(&content);
    char *at = memmem(content, bytes, from, strlen(from));
    assert_non_null(at);
    char *sound = memcpy(malloc(bytes), content, bytes);
    memcpy(at, to, strlen(to));
    seal_again(content, bytes);
    write_whole(content, bytes);
    expect_refused(words);
    write_whole(sound, bytes);
    free(content);
    free(sound);
}

static void test_other_versions_and_processors(void **state) {
    (void)state;
    save_and_move("/bin/false");
    forge_fit("carbide " CB_VERSION, "carbide 9", "made for carbide 9");
    forge_fit("level ", "level z", "made for level z");
    forge_fit("flags -std", "flags -xxx", "made for flags -xxx");
    assert_int_equal(cb_load_artifacts(path), CB_OK);
}

static void test_files_that_others_may_write(void **state) {
    (void)state;
    save_and_move("/bin/false");
    chmod(path, 0666);
    expect_refused("root or this user alone may write");
    chmod(path, 0644);
    if (geteuid() == 0) {
        assert_int_equal(chown(path, 12345, 12345), 0);
        expect_refused("root or this user alone may write");
        assert_int_equal(chown(path, 0, 0), 0);
    }
    path_in(path, "missing");
    expect_refused("No such file");
    snprintf(path, sizeof path, "%s", root);
    expect_refused("it is no file");
}

static void test_without_a_cache(void **state) {
    (void)state;
    save_and_move("cc");
    cb_set_option("cache", "0");
    expect_refused("the option cache is off");
    assert_int_equal(cb_save_artifacts(path), CB_ERR_IO);
    cb_set_option("cache", "1");
    cb_function *a = cb_compile(layer, "backend=c");
    assert_true(agrees(a, layer));
    cache_clear(other);
    cb_clear_error();
    assert_int_equal(cb_save_artifacts(path), CB_ERR_IO); /* what is loaded is not there */
    assert_non_null(strstr(cb_error(), "of 1 loaded files of kernels 0 are in the cache"));
    cb_function_free(a);
    cb_clear_error();
    assert_int_equal(cb_save_artifacts("/no/such/folder/file"), CB_ERR_IO);
    assert_int_equal(cb_save_artifacts(NULL), CB_ERR_ARGUMENT);
    assert_int_equal(cb_load_artifacts(NULL), CB_ERR_ARGUMENT);
    cb_clear_error();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(test_another_machine_starts_warm),
        CASE(test_passed_on),
        CASE(test_tuned_times),
        CASE(test_saving_waits),
        CASE(test_memory_runs_out),
        CASE(test_damage),
        CASE(test_forged),
        CASE(test_other_versions_and_processors),
        CASE(test_files_that_others_may_write),
        CASE(test_without_a_cache),
    };
    return cmocka_run_group_tests_name("artifact", tests, NULL, NULL);
}
