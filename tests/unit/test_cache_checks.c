/* Every check of the disk cache by itself: entries that are sound but for one thing, and everything
 * that a key depends on. Entries hold texts here (cache_set), which nothing else would find fault
 * with. */
#define _GNU_SOURCE
#include "adder.h"

#include "base/cpu.h"
#include "base/map.h"
#include "carbide.h"
#include "jit/compiler.h"
#include "jit/object.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

static const char description[] = "carbide\ntuned for a test\n";
static char key[CACHE_KEY], path[CACHE_PATH];

/* As jit/cache.c writes it. */
typedef struct FooterBytes {
    char magic[8];
    uint64_t object_bytes, text_bytes, hash;
} FooterBytes;

static int make_cache(void **state) {
    if (set_up(state)) return -1;
    mkdir(cache, 0700);
    cache_key(description, key);
    cache_path(cache, key, path);
    return 0;
}

#define CHECK(test) cmocka_unit_test_setup_teardown(test, make_cache, tear_down)

static CacheLookup get(void) {
    char text[64] = "";
    CacheLookup found = cache_get(cache, key, description, text, sizeof text);
    if (found == CACHE_HIT) assert_string_equal(text, "fast 1.5\n");
    return found;
}

static bool describes(void) {
    char text[CACHE_TEXT];
    return cache_describe(cache, key, text);
}

static void store(void) { assert_true(cache_set(cache, key, description, "fast 1.5\n")); }

/* An entry of this text whose footer says what it is told to, with a checksum that fits. */
static void forge(const char *magic, int64_t more_object, int64_t more_text, const char *text) {
    char body[256];
    int bytes = snprintf(body, sizeof body, "fast 1.5\n%s", text);
    FooterBytes footer = {.object_bytes = 9 + (uint64_t)more_object,
                          .text_bytes = strlen(text) + (uint64_t)more_text,
                          .hash = hash_bytes(body, (size_t)bytes, 0)};
    memcpy(footer.magic, magic, sizeof footer.magic);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fwrite(body, 1, (size_t)bytes, file);
    fwrite(&footer, sizeof footer, 1, file);
    fclose(file);
    chmod(path, 0600);
}

/* ---- what an entry says of itself -------------------------------------------------------- */

static void test_footers(void **state) {
    (void)state;
    assert_int_equal(get(), CACHE_MISS);
    forge("CARBIDE1", 0, 0, description);
    assert_int_equal(get(), CACHE_HIT);
    assert_true(describes());
    forge("CARBIDE0", 0, 0, description);
    assert_int_equal(get(), CACHE_DAMAGED);
    const int more[][2] = {{0, 1}, {0, -1}, {-1, 0}, {1, 0}, {1000, -1000}, {-9, 8}};
    for (int i = 0; i < 6; i++) {
        forge("CARBIDE1", more[i][0], more[i][1], description);
        assert_int_equal(get(), CACHE_DAMAGED);
        assert_false(describes());
    }
    store();
    assert_int_equal(get(), CACHE_HIT);
}

static void test_checksum(void **state) {
    (void)state;
    struct stat info;
    store();
    stat(path, &info);
    for (off_t at = 0; at < info.st_size; at++) {
        char byte;
        int file = open(path, O_RDWR);
        assert_int_equal(pread(file, &byte, 1, at), 1);
        byte ^= 1;
        assert_int_equal(pwrite(file, &byte, 1, at), 1);
        assert_int_equal(get(), CACHE_DAMAGED);
        byte ^= 1;
        assert_int_equal(pwrite(file, &byte, 1, at), 1);
        close(file);
    }
    assert_int_equal(get(), CACHE_HIT);
    for (off_t size = info.st_size - 1; size >= 0; size--) {
        assert_int_equal(truncate(path, size), 0);
        assert_int_equal(get(), CACHE_DAMAGED);
    }
}

/* The name of an entry is a hash; its description is what it is of. */
static void test_descriptions(void **state) {
    (void)state;
    const char *other[] = {"carbide\ntuned for a text\n", "carbide\ntuned for a test\n\n",
                           "carbide\ntuned for a test", ""};
    for (int i = 0; i < 4; i++) {
        forge("CARBIDE1", 0, 0, other[i]);
        assert_int_equal(get(), CACHE_DAMAGED);
        assert_true(describes());
    }
}

static void test_room_for_the_text(void **state) {
    (void)state;
    char text[10];
    store();
    assert_int_equal(cache_get(cache, key, description, text, 10), CACHE_HIT);
    assert_int_equal(cache_get(cache, key, description, text, 9), CACHE_DAMAGED);
}

static void test_last_use(void **state) {
    (void)state;
    struct stat info;
    const struct timespec past[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    store();
    utimensat(AT_FDCWD, path, past, 0);
    assert_true(describes()); /* to look is not to use */
    stat(path, &info);
    assert_int_equal(info.st_mtime, 1000);
    assert_int_equal(get(), CACHE_HIT);
    stat(path, &info);
    assert_true(info.st_mtime > 1000);
}

/* ---- whose it is ------------------------------------------------------------------------- */

static void test_kinds_of_files(void **state) {
    (void)state;
    char aside[CACHE_PATH];
    store();
    snprintf(aside, sizeof aside, "%.300s/aside", root);
    assert_int_equal(rename(path, aside), 0);
    assert_int_equal(symlink(aside, path), 0); /* to a sound entry of this very key */
    assert_int_equal(get(), CACHE_DAMAGED);
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0); /* nobody writes to it: it must not be waited for */
    assert_int_equal(get(), CACHE_DAMAGED);
    unlink(path);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(get(), CACHE_DAMAGED);
    rmdir(path);
    assert_int_equal(symlink("/nowhere", path), 0);
    assert_int_equal(get(), CACHE_DAMAGED);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(get(), CACHE_MISS);
    assert_int_equal(rename(aside, path), 0);
    assert_int_equal(get(), CACHE_HIT);
}

static void test_writers_of_entries(void **state) {
    (void)state;
    const mode_t open_to[] = {0620, 0602};
    store();
    for (int i = 0; i < 2; i++) {
        chmod(path, open_to[i]);
        assert_int_equal(get(), CACHE_DAMAGED);
    }
    chmod(path, 0644);
    assert_int_equal(get(), CACHE_HIT);
    if (geteuid() != 0) skip_because("an entry of another user needs root");
    assert_int_equal(chown(path, 12345, 0), 0);
    assert_int_equal(get(), CACHE_DAMAGED);
}

static void test_writers_of_directories(void **state) {
    (void)state;
    char directory[CACHE_PATH];
    const mode_t open_to[] = {0720, 0702};
    for (int i = 0; i < 2; i++) {
        chmod(cache, open_to[i]);
        assert_int_equal(cache_directory(directory), REASON_cache_unsafe);
    }
    chmod(cache, 0755);
    assert_int_equal(cache_directory(directory), REASON_NONE);
    path_in(directory, "file");
    write_file(directory, "no directory", 0700);
    cb_set_option("cache_dir", directory);
    assert_int_equal(cache_directory(directory), REASON_cache_unusable);
    cb_set_option("cache_dir", cache);
    if (geteuid() == 0) skip_because("root writes to any directory");
    chmod(cache, 0500);
    assert_int_equal(cache_directory(directory), REASON_cache_unusable);
    chmod(cache, 0600);
    assert_int_equal(cache_directory(directory), REASON_cache_unusable);
}

static size_t largest;

static void *note_size(void *user, void *pointer, size_t bytes) {
    (void)user;
    if (bytes > largest) largest = bytes;
    if (bytes) return realloc(pointer, bytes);
    free(pointer);
    return NULL;
}

/* A file of any size is not read into memory. */
static void test_size_of_entries(void **state) {
    (void)state;
    store();
    assert_int_equal(truncate(path, (256 << 20) + 1), 0);
    cb_set_allocator((cb_allocator){note_size, NULL});
    CacheLookup found = get();
    cb_set_allocator((cb_allocator){0});
    assert_int_equal(found, CACHE_DAMAGED);
    assert_true(largest < 1 << 20);
}

/* ---- the key ----------------------------------------------------------------------------- */

static void test_keys(void **state) {
    (void)state;
    char other[CACHE_KEY], text[sizeof description];
    assert_int_equal(strlen(key), 32);
    assert_memory_not_equal(key, key + 16, 16); /* 128 bits, not 64 twice */
    for (size_t at = 0; at + 1 < sizeof description; at++) {
        memcpy(text, description, sizeof text);
        text[at] ^= 1;
        cache_key(text, other);
        assert_memory_not_equal(key, other, 16);
        assert_memory_not_equal(key + 16, other + 16, 16);
    }
}

/* The lines of a description in which two differ, as bits. */
static int differences(const char *a, const char *b) {
    int lines = 0;
    for (int line = 0; *a && *b; line++) {
        size_t of_a = strcspn(a, "\n"), of_b = strcspn(b, "\n");
        if (of_a != of_b || memcmp(a, b, of_a) != 0) lines |= 1 << line;
        a += of_a + 1, b += of_b + 1;
    }
    return lines;
}

enum { SOURCE = 1 << 2, COMPILER = 1 << 3 };

static void describe(const char *source, char out[CACHE_TEXT]) {
    code_cleanup(); /* what is known of the compiler */
    assert_true(code_describe(source, strlen(source), out, CACHE_TEXT));
}

static void test_what_a_key_depends_on(void **state) {
    (void)state;
    char first[CACHE_TEXT], other[CACHE_TEXT], compiler[400], copy[400];
    use_script("compiler", "exec cc \"$@\"");
    path_in(compiler, "compiler");
    describe("int a;", first);
    assert_non_null(strstr(first, "carbide " CB_VERSION "\n"));
    assert_non_null(strstr(first, compiler));
    assert_non_null(strstr(first, compiler_flags()));
    assert_non_null(strstr(compiler_flags(), "-fwrapv"));
    assert_non_null(strstr(first, compiler_cpu()));
    assert_non_null(strstr(compiler_cpu(), cpu_level_name()));
    const char *sources[] = {"int b;", "int a;\n", "", "jnt a;"};
    for (int i = 0; i < 4; i++) {
        describe(sources[i], other);
        assert_int_equal(differences(first, other), SOURCE);
        const char *a = strstr(first, "source ") + 7, *b = strstr(other, "source ") + 7;
        assert_memory_not_equal(a, b, 16); /* each half of its hash by itself */
        assert_memory_not_equal(a + 16, b + 16, 16);
        assert_memory_not_equal(a, a + 16, 16);
    }
    describe("int a;", other);
    assert_int_equal(differences(first, other), 0);

    struct stat info;
    stat(compiler, &info);
    struct timespec later[2] = {info.st_atim, info.st_mtim};
    later[1].tv_nsec ^= 1; /* replaced within the same second */
    utimensat(AT_FDCWD, compiler, later, 0);
    describe("int a;", other);
    assert_int_equal(differences(first, other), COMPILER);
    use_script("compiler", "exec cc  \"$@\""); /* one byte more, at the same time */
    later[1] = info.st_mtim;
    utimensat(AT_FDCWD, compiler, later, 0);
    describe("int a;", other);
    assert_int_equal(differences(first, other), COMPILER);

    use_script("compiler", "exec cc \"$@\""); /* the same again, and the same elsewhere */
    utimensat(AT_FDCWD, compiler, later, 0);
    describe("int a;", other);
    assert_int_equal(differences(first, other), 0);
    path_in(copy, "compiler2");
    assert_int_equal(rename(compiler, copy), 0);
    cb_set_option("cc", copy);
    describe("int a;", other);
    assert_int_equal(differences(first, other), COMPILER);
    assert_int_equal(symlink(copy, compiler), 0); /* a link stands for what it leads to */
    cb_set_option("cc", compiler);
    describe("int a;", first);
    assert_int_equal(differences(first, other), 0);
}

/* ---- what is left behind ----------------------------------------------------------------- */

/* age: in seconds */
static void make(const char *name, bool folder, int age) {
    const struct timespec past = {.tv_sec = time(NULL) - age};
    char made[700], inside[800];
    snprintf(made, sizeof made, "%s/%s", cache, name);
    snprintf(inside, sizeof inside, "%s/kernel.so", made);
    if (folder) mkdir(made, 0700);
    write_file(folder ? inside : made, "x", 0600);
    utimensat(AT_FDCWD, made, (struct timespec[]){past, past}, 0);
}

static bool is_there(const char *name) {
    char made[700];
    snprintf(made, sizeof made, "%s/%s", cache, name);
    return !access(made, F_OK);
}

static void test_leftovers(void **state) {
    (void)state;
    char outside[400], victims[400], link[700];
    enum { NEW = 0, DEAD = 120, OLD = 7200 };
    char held[700];
    make("work-old", false, OLD);
    make("work-oldfolder", true, OLD);
    make("work-dead", false, DEAD); /* of nobody who lives */
    make("work-deadfolder", true, DEAD);
    make("work-new", false, NEW);
    make("work-newfolder", true, NEW);
    make("work-heldfolder", true, DEAD);
    snprintf(held, sizeof held, "%s/work-heldfolder", cache);
    int holds = object_hold(held);
    assert_true(holds >= 0);
    make("notes", false, OLD);
    path_in(outside, "outside");
    write_file(outside, "x", 0600);
    snprintf(link, sizeof link, "%s/work-link", cache); /* goes, what it leads to stays */
    assert_int_equal(symlink(root, link), 0);
    const struct timespec past[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    utimensat(AT_FDCWD, link, past, AT_SYMLINK_NOFOLLOW);
    snprintf(link, sizeof link, "%s/work-oldfolder/link", cache);
    path_in(victims, "victims");
    mkdir(victims, 0700);
    assert_int_equal(symlink(victims, link), 0);
    path_in(victims, "victims/victim");
    write_file(victims, "x", 0600);
    make("work-oldfolder", true, OLD);
    cache_trim(cache);
    assert_false(is_there("work-old") || is_there("work-oldfolder") || is_there("work-link"));
    assert_false(is_there("work-dead") || is_there("work-deadfolder"));
    assert_true(is_there("work-heldfolder"));
    close(holds);
    cache_trim(cache);
    assert_false(is_there("work-heldfolder"));
    assert_true(is_there("work-new") && is_there("work-newfolder") && is_there("notes"));
    assert_int_equal(access(outside, F_OK), 0);
    assert_int_equal(access(victims, F_OK), 0);
}

static atomic_bool compiled;

static void *sweeps(void *unused) {
    while (!atomic_load(&compiled)) cache_sweep(cache), usleep(1000);
    return unused;
}

/* Another process may sweep as often as it likes: what a compiler works in stays. */
static void test_slow_compilers(void **state) {
    (void)state;
    pthread_t other;
    use_script("slow", "touch -d '5 minutes ago' \"${out%/*}\"; sleep 0.1; exec cc \"$@\"");
    assert_int_equal(pthread_create(&other, NULL, sweeps, NULL), 0);
    CodeResult result = load_adder(71);
    atomic_store(&compiled, true);
    pthread_join(other, NULL);
    assert_adds(result, 71);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CHECK(test_footers),
        CHECK(test_checksum),
        CHECK(test_descriptions),
        CHECK(test_room_for_the_text),
        CHECK(test_last_use),
        CHECK(test_kinds_of_files),
        CHECK(test_writers_of_entries),
        CHECK(test_writers_of_directories),
        CHECK(test_size_of_entries),
        CHECK(test_keys),
        CHECK(test_what_a_key_depends_on),
        CHECK(test_leftovers),
        CHECK(test_slow_compilers),
    };
    return cmocka_run_group_tests_name("cache checks", tests, NULL, NULL);
}
