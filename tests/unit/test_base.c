#define _GNU_SOURCE /* sched_setaffinity */
/* The base layer: arena, vectors, maps, buffers, errors, threads, allocation failures. */
#include "children.h"
#include "counting_heap.h"
#include "test_support.h"

#include "base/arena.h"
#include "base/buffer.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/map.h"
#include "base/memory.h"
#include "base/pages.h"
#include "base/parallel.h"
#include "base/reason.h"
#include "base/vec.h"
#include <float.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- arena ---- */

static void arena_aligns_and_keeps(void **state) {
    (void)state;
    Arena *arena = arena_new();
    char *block[200];
    for (int i = 0; i < 200; i++) {
        size_t bytes = (size_t)i * 37 % 5000;
        block[i] = arena_alloc(arena, bytes);
        assert_int_equal((uintptr_t)block[i] % 16, 0);
        memset(block[i], i, bytes);
    }
    for (int i = 0; i < 200; i++)
        for (int k = 0; k < i * 37 % 5000; k++) assert_int_equal((unsigned char)block[i][k], i);
    char *large = arena_zalloc(arena, 3 << 20);
    for (int i = 0; i < 3 << 20; i += 1000) assert_int_equal(large[i], 0);
    assert_true(arena_bytes(arena) > 3 << 20);
    assert_string_equal(arena_text(arena, "relu"), "relu");
    assert_string_equal(arena_format(arena, "%s_%d", "add", 7), "add_7");
    for (int i = 1; i < 300; i++) {
        Buffer out = buffer_new(arena);
        for (int k = 0; k < 2; k++) putf(&out, "%*d", i, k); /* up to any end of the room */
        const char *padded = arena_format(arena, "%*d%*d", i, 0, i, 1);
        assert_int_equal(strlen(padded), 2 * i);
        assert_string_equal(buffer_text(&out), padded);
        put(&out, "!");
        const char *text = buffer_text(&out),
                   *twice = arena_format(arena, "%s%c%s", text, '-', text);
        putf(&out, "%s%%", twice); /* by signs that are put without printf */
        assert_int_equal(strlen(twice), 4 * i + 3);
        assert_string_equal(buffer_text(&out) + 2 * i + 1 + 2 * i + 2 + 2 * i, "!%");
    }
    arena_free(arena);
    arena_free(NULL);
}

static void numbers_are_as_printf_writes_them(void **state) {
    (void)state;
    Arena *arena = arena_new();
    const int64_t number[] = {0, 9, -10, 4294967296, INT64_MAX, INT64_MIN};
    for (int i = 0; i < 6; i++) {
        char wanted[200];
        int small = (int)number[i];
        unsigned bits = (unsigned)number[i];
        long long large = number[i];
        for (int k = 0; k < 2; k++) {
            const char *format = k ? "%d %u %lld" : "%d %u %lld %04x";
            snprintf(wanted, sizeof wanted, format, small, bits, large, bits);
            assert_string_equal(arena_format(arena, format, small, bits, large, bits), wanted);
        }
    }
    assert_string_equal(arena_format(arena, "%d%s%%%c", INT_MIN, "", 'x'), "-2147483648%x");
    arena_free(arena);
}

/* What is larger than a step does not end the chunk that is being filled, and the last chunk is a
 * small one, however much there is. */
static void arena_wastes_little(void **state) {
    (void)state;
    Arena *arena = arena_new();
    size_t asked = 0;
    for (int i = 0; i < 100; i++) {
        arena_alloc(arena, 100 << 10);
        arena_alloc(arena, 1 << 10);
        asked += 101 << 10;
    }
    assert_in_range(arena_bytes(arena), asked, asked + asked / 50);
    for (int i = 0; i < 1000; i++) arena_alloc(arena, 1100), asked += 1100;
    assert_in_range(arena_bytes(arena), asked, asked + (80 << 10) + asked / 50);
    arena_free(arena);
}

/* The first block of its last chunk. */
static char *fill_chunks(Arena *arena, int chunks) {
    char *block = NULL;
    while (arena_bytes(arena) < (size_t)(chunks + 1) * (64 << 10)) block = arena_alloc(arena, 1024);
    return block;
}

/* What is asked for in between does not get the chunks. Of many, so many are kept; of a host's
 * allocator none, and it is given none that another one has made. */
static void chunks_are_taken_up(void **state) {
    (void)state;
    cb_set_allocator((cb_allocator){NULL, NULL});
    arenas_cleanup();
    Arena *arena = arena_new();
    char *block = fill_chunks(arena, 1);
    arena_seal(arena);
    arena_free(arena);
    void *other = memory_alloc(64 << 10);
    arena = arena_new();
    assert_ptr_equal(fill_chunks(arena, 1), block);
    memory_free(other);
    fill_chunks(arena, 300);
    arena_free(arena);
    use_counting_heap(NULL);
    arena = arena_new();
    fill_chunks(arena, 2);
    arena_free(arena);
    assert_int_equal(live, 0);
    arenas_cleanup();
    assert_int_equal(live, -128);
    live = 0;
}

static bool fill_until_escape(Arena *arena, int *count) {
    if (arena_guard(arena)) return true;
    for (*count = 0; *count < 100000; ++*count) arena_alloc(arena, 100);
    return false;
}

static void arena_escapes_when_memory_ends(void **state) {
    (void)state;
    int count = 0;
    for (int limit = 1; limit < 8; limit++) {
        budget = limit;
        Arena *arena = arena_new();
        int before = count;
        assert_true(fill_until_escape(arena, &count));
        assert_true(count > before);
        budget = -1;
        arena_free(arena);
        assert_int_equal(live, 0);
    }
    budget = 0;
    assert_null(arena_new());
    assert_null(memory_alloc(1));
    assert_null(memory_zalloc(1));
    assert_null(memory_copy_text("x"));
    budget = -1;
}

static bool fill_inner_until_escape(Arena *outer) {
    if (arena_guard(outer)) return true;
    Arena *inner = arena_inner(outer);
    for (int i = 0; i < 100000; i++) arena_alloc(inner, 100);
    return false;
}

/* Its memory goes when it is freed, and with the outer one when it escapes. */
static void inner_arenas_escape_by_the_outer_one(void **state) {
    (void)state;
    Arena *outer = arena_new();
    char *text = arena_text(outer, "kept");
    for (int round = 0; round < 3; round++) {
        Arena *inner = arena_inner(outer);
        arena_alloc(inner, 1 << 20);
        text = arena_text(outer, text);
        arena_free(inner);
    }
    assert_true(arena_bytes(outer) < 1 << 16);
    assert_string_equal(text, "kept");
    arena_free(outer);
    assert_int_equal(live, 0);
    for (int limit = 1; limit < 8; limit++) {
        budget = -1;
        outer = arena_new();
        budget = limit - 1;
        assert_true(fill_inner_until_escape(outer));
        budget = -1;
        arena_free(outer);
        assert_int_equal(live, 0);
    }
}

static void allocate(Arena *arena) { arena_alloc(arena, 1); }
static void guard(Arena *arena) { (void)arena_escape_point(arena); }

/* The child ends by a failed check. */
static void expect_abort(void (*misuse)(Arena *), Arena *arena) {
    int status;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        close(STDERR_FILENO);
        signal(SIGABRT, SIG_DFL); /* cmocka catches it */
        misuse(arena);
        leave_child(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

static void arena_is_finished(void **state) {
    (void)state;
    Arena *arena = arena_new();
    char *text = arena_text(arena, "kept");
    arena_seal(arena);
    assert_string_equal(text, "kept");
    expect_abort(allocate, arena);
    expect_abort(guard, arena);
    arena_free(arena);
    assert_int_equal(live, 0);
}

static bool ask_too_much(Arena *arena) {
    if (arena_guard(arena)) return true;
    arena_alloc(arena, SIZE_MAX - 3);
    return false;
}

static void arena_escapes_on_overflow(void **state) {
    (void)state;
    Arena *arena = arena_new();
    assert_true(ask_too_much(arena));
    arena_free(arena);
}

/* ---- vec and map ---- */

typedef struct Pair {
    int64_t a, b;
} Pair;

static void vec_grows(void **state) {
    (void)state;
    Arena *arena = arena_new();
    int *numbers = NULL;
    Pair *pairs = NULL;
    assert_int_equal(length(numbers), 0);
    for (int i = 0; i < 1000; i++) {
        push(arena, numbers, i);
        push(arena, pairs, (Pair){i, -i});
    }
    assert_int_equal(length(numbers), 1000);
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(numbers[i], i);
        assert_int_equal(pairs[i].b, -i);
    }
    assert_int_equal(pop(numbers), 999);
    assert_int_equal(length(numbers), 999);
    truncate_to(numbers, 3);
    push(arena, numbers, 42);
    assert_int_equal(length(numbers), 4);
    assert_int_equal(numbers[3], 42);
    char *many = vec_grow(arena, NULL, 1000, 1);
    assert_int_equal(length(many), 0);
    assert_true(vec_header(many)->capacity >= 1000);
    arena_free(arena);
}

static void map_finds_newest_first(void **state) {
    (void)state;
    Arena *arena = arena_new();
    Map map = map_new(arena);
    static int value[3000];
    assert_null(map_get(&map, 5));
    /* 1000 keys with three values each, some of them colliding in their low bits */
    for (int i = 0; i < 3000; i++) map_put(&map, (uint64_t)(i % 1000) << (i % 2 * 20), &value[i]);
    assert_int_equal(map.count, 3000);
    for (int i = 1; i < 1000; i++) {
        MapEntry *entry = map_first(&map, (uint64_t)i << (i % 2 * 20));
        for (int k = 2; k >= 0; k--) {
            assert_non_null(entry);
            assert_ptr_equal(entry->value, &value[i + 1000 * k]);
            entry = map_next(entry);
        }
        assert_null(entry);
    }
    assert_null(map_get(&map, 1u << 31));
    arena_free(arena);
}

static void hashes_differ(void **state) {
    (void)state;
    assert_true(hash_mix(1, 2) != hash_mix(2, 1));
    assert_true(hash_text("add") != hash_text("sub"));
    assert_true(hash_text("add") == hash_bytes("add", 3, 0));
    assert_true(hash_bytes("add", 3, 0) != hash_bytes("add", 3, 1));
    /* The disk cache's keys: they must not change with the platform. */
    assert_true(hash_bytes("", 0, 0) == 0x2d06800538d394c2u);
}

/* ---- buffer ---- */

static void assert_prints(double value, const char *expected) {
    Arena *arena = arena_new();
    Buffer out = buffer_new(arena);
    put_double(&out, value);
    assert_string_equal(buffer_text(&out), expected);
    arena_free(arena);
}

static void doubles_print_as_python_does(void **state) {
    (void)state;
    assert_prints(0.0, "0.0");
    assert_prints(-0.0, "-0.0");
    assert_prints(1.0, "1.0");
    assert_prints(-2.5, "-2.5");
    assert_prints(0.1, "0.1");
    assert_prints(100.0, "100.0");
    assert_prints(1234.5, "1234.5");
    assert_prints(0.0001, "0.0001");
    assert_prints(0.00012345, "0.00012345");
    assert_prints(0.00001, "1e-05");
    assert_prints(1.5e-7, "1.5e-07");
    assert_prints(1e15, "1000000000000000.0");
    assert_prints(1e16, "1e+16");
    assert_prints(123456789012345680.0, "1.2345678901234568e+17");
    assert_prints(DBL_MAX, "1.7976931348623157e+308");
    assert_prints(5e-324, "5e-324");
    assert_prints(2.0 / 3.0, "0.6666666666666666");
    assert_prints(INFINITY, "inf");
    assert_prints(-INFINITY, "-inf");
    assert_prints(NAN, "nan");
}

static void doubles_read_back(void **state) {
    (void)state;
    uint64_t bits = 88172645463325252u;
    for (int i = 0; i < 3000; i++) {
        bits ^= bits << 13, bits ^= bits >> 7, bits ^= bits << 17;
        double value, back;
        memcpy(&value, &bits, sizeof value);
        if (!isfinite(value)) continue;
        Arena *arena = arena_new();
        Buffer out = buffer_new(arena);
        put_double(&out, value);
        back = strtod(buffer_text(&out), NULL);
        assert_memory_equal(&value, &back, sizeof value);
        arena_free(arena);
    }
}

static void doubles_ignore_the_locale(void **state) {
    (void)state;
    if (setlocale(LC_NUMERIC, "de_DE.UTF-8") || setlocale(LC_NUMERIC, "fr_FR.UTF-8"))
        assert_prints(0.5, "0.5");
    setlocale(LC_NUMERIC, "C");
    assert_prints(0.5, "0.5");
}

static void buffer_appends(void **state) {
    (void)state;
    Arena *arena = arena_new();
    Buffer out = buffer_new(arena);
    assert_string_equal(buffer_text(&out), "");
    put_sizes(&out, 0, NULL);
    put_sizes(&out, 2, (int64_t[]){2, 3});
    putf(&out, " %s=%d", "dim", -1);
    put_bytes(&out, "xyz", 2);
    assert_string_equal(buffer_text(&out), "[][2, 3] dim=-1xy");
    for (int i = 0; i < 5000; i++) put(&out, "ab");
    assert_int_equal(out.length, 17 + 10000);
    assert_int_equal(strlen(buffer_text(&out)), out.length);
    arena_free(arena);
}

/* ---- errors and reasons ---- */

static void *refusing(void *user, void *pointer, size_t bytes) {
    (void)user, (void)pointer, (void)bytes;
    return NULL;
}

static void first_error_stays(void **state) {
    (void)state;
    assert_null(cb_error());
    assert_int_equal(cb_error_status(), CB_OK);
    cb_site("/home/user/photo.c", 31);
    assert_int_equal(fail(CB_ERR_SHAPE, "matmul: %d x %d", 4, 5), CB_ERR_SHAPE);
    assert_int_equal(fail(CB_ERR_IO, "later"), CB_ERR_IO);
    assert_string_equal(cb_error(), "photo.c:31: matmul: 4 x 5");
    assert_int_equal(cb_error_status(), CB_ERR_SHAPE);
    assert_int_equal(site_current().line, 31);
    cb_clear_error();
    assert_null(cb_error());
    cb_site(NULL, 0);
    assert_int_equal(fail_memory(64), CB_ERR_MEMORY);
    assert_string_equal(cb_error(), "out of memory: 64 bytes could not be allocated");
    cb_clear_error();
    cb_set_allocator((cb_allocator){refusing, NULL});
    assert_null(memory_alloc(4096));
    cb_set_allocator((cb_allocator){NULL, NULL});
    assert_int_equal(fail_memory(0), CB_ERR_MEMORY);
    assert_string_equal(cb_error(), "out of memory: 4096 bytes could not be allocated");
}

static void the_host_records_its_own(void **state) {
    (void)state;
    cb_site("net.c", 7);
    assert_int_equal((cb_fail)(CB_ERR_SHAPE, "Net: 5% of nothing"), CB_ERR_SHAPE);
    assert_string_equal(cb_error(), "net.c:7: Net: 5% of nothing");
    assert_int_equal(cb_error_status(), CB_ERR_SHAPE);
    assert_int_equal(cb_fail(CB_ERR_MEMORY, "second"), CB_ERR_MEMORY);
    assert_int_equal(cb_error_status(), CB_ERR_SHAPE);
    cb_clear_error();
    assert_int_equal(cb_fail(CB_OK, NULL), CB_ERR_ARGUMENT);
    assert_non_null(cb_error());
    cb_clear_error();
    cb_site(NULL, 0);
}

static void long_errors_are_cut(void **state) {
    (void)state;
    char text[4000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    cb_site(text, 7);
    fail(CB_ERR_ARGUMENT, "%s", text);
    size_t bytes = strlen(cb_error());
    assert_true(bytes > 500 && bytes < 1024);
    assert_string_equal(cb_error() + bytes - 3, "...");
    cb_site(NULL, 0);
}

static void reasons_have_texts(void **state) {
    (void)state;
    assert_string_equal(reason_info(REASON_no_compiler)->id, "no_compiler");
    for (Reason reason = REASON_NONE + 1; reason < REASON_COUNT; reason++) {
        assert_true(strlen(reason_info(reason)->text) > 10);
        assert_non_null(strstr("break recorded again failed fallback fusion cache check note",
                               reason_info(reason)->kind));
    }
}

/* A hint names an option as it is set from outside. */
static void hints_name_options_as_set(void **state) {
    (void)state;
    for (Reason reason = REASON_NONE + 1; reason < REASON_COUNT; reason++) {
        const char *hint = reason_info(reason)->hint;
        for (Option option = 0; hint && option < OPTION_COUNT; option++) {
            const char *name = option_info(option)->name;
            bool named = strchr(name, '_') && strstr(hint, name); /* others are English words */
            if (named) print_error("%s: write CARBIDE_... for %s\n", hint, name);
            assert_false(named);
        }
    }
}

/* ---- threads ---- */

enum { ITEMS = 100003 };
static atomic_int touched[ITEMS];
static atomic_int bad_ranges;

static void touch(void *user, int64_t low, int64_t high) {
    int64_t grain = *(int64_t *)user;
    /* An assertion may not leave an OpenMP thread by longjmp. */
    if (low % grain || (high % grain && high != ITEMS)) atomic_fetch_add(&bad_ranges, 1);
    for (int64_t i = low; i < high; i++) atomic_fetch_add(&touched[i], 1);
}

static void every_item_runs_once(void **state) {
    (void)state;
    int times = 0;
    for (int threads = 1; threads <= 5; threads += 2)
        for (int64_t grain = 1; grain < 2 * ITEMS; grain = grain * 7 + 3) {
            cb_set_threads(threads);
            assert_true(cb_threads() == threads || cb_threads() == 1); /* 1: built without OpenMP */
            parallel_for(ITEMS, grain, touch, &grain);
            times++;
        }
    for (int i = 0; i < ITEMS; i++) assert_int_equal(touched[i], times);
    assert_int_equal(bad_ranges, 0);
    int64_t grain = 1;
    parallel_for(0, 1, touch, &grain);
    cb_set_threads(3);
    cb_clear_error();
    cb_set_threads(-3);
    assert_string_equal(cb_get_option("threads"), "3");
    assert_non_null(strstr(cb_error(), "set_threads: -3 is no number of threads (0: every core)"));
    cb_clear_error();
    cb_set_threads(0);
    assert_true(cb_threads() >= 1);
}

typedef struct Flushed {
    pthread_t caller;
    atomic_int computed, read, items; /* of which a subnormal number is 0 */
    atomic_bool helped;
} Flushed;

static void note_flushed(void *user, int64_t low, int64_t high) {
    Flushed *seen = user;
    for (int64_t i = low; i < high; i++) {
        volatile float small = 1e-30f, tiny;
        memcpy((void *)&tiny, &(uint32_t){71362}, sizeof tiny); /* 1e-40 */
        atomic_fetch_add(&seen->computed, small * 1e-10f == 0.0f);
        atomic_fetch_add(&seen->read, tiny * 1e10f == 0.0f);
        atomic_fetch_add(&seen->items, 1);
    }
    if (!pthread_equal(pthread_self(), seen->caller)) atomic_store(&seen->helped, true);
}

static void note_thread(void *seen) { note_flushed(seen, 0, 1); }

/* The OpenMP library, as a program of its own would use it. */
extern void GOMP_parallel(void (*)(void *), void *, unsigned, unsigned) __attribute__((weak));

/* What a team computes is as its caller would, whatever it did before; a busy machine's caller
 * works alone now and then. */
static void subnormal_numbers_are_the_callers(void **state) {
    (void)state;
    bool can = cb_set_flush_denormal(false);
    cb_set_threads(3);
    if (cb_threads() == 1) skip_because("built without OpenMP");
    int helped = 0;
    for (double end = clock_ms() + 20000; helped < 4 && clock_ms() < end;) {
        bool on = helped % 2 == 0;
        Flushed seen = {.caller = pthread_self()}, others = seen;
        assert_int_equal(cb_set_flush_denormal(on), can);
        parallel_for(8, 1, note_flushed, &seen);
        assert_int_equal(cb_set_flush_denormal(false), can);
        assert_int_equal(seen.items, 8);
        assert_int_equal(seen.computed, can && on ? 8 : 0);
        assert_int_equal(seen.read, can && on ? 8 : 0);
        if (GOMP_parallel) GOMP_parallel(note_thread, &others, 3, 0);
        assert_int_equal(others.computed + others.read, 0);
        helped += seen.helped;
    }
    assert_int_equal(helped, 4);
    cb_set_threads(0);
}

static void nested(void *user, int64_t low, int64_t high) {
    (void)user;
    for (int64_t i = low; i < high; i++)
        if (parallel_threads() != 1) atomic_fetch_add(&bad_ranges, 1);
}

static void inner_loops_stay_on_their_thread(void **state) {
    (void)state;
    cb_set_threads(2);
    parallel_for(8, 1, nested, NULL);
    assert_int_equal(bad_ranges, 0);
    cb_set_threads(0);
}

static void stay_on(void *user, int64_t low, int64_t high) {
    (void)low, (void)high;
    sched_setaffinity(0, sizeof(cpu_set_t), user);
}

static atomic_bool others_wait;
static void *keep_busy(void *user) {
    (void)user;
    while (!others_wait) continue;
    return NULL;
}

static void note_whole(void *user, int64_t low, int64_t high) {
    if (high - low == 2) atomic_store((atomic_bool *)user, true);
}

/* Whether a range comes in one piece, or in two, before long. */
static bool sees(bool whole) {
    for (double end = clock_ms() + 20000; clock_ms() < end;) {
        atomic_bool came_whole = false;
        parallel_for(2, 1, note_whole, &came_whole);
        if (came_whole == whole) return true;
    }
    return false;
}

/* Two threads and a third one, which is always busy, on one processor. */
static void a_late_team_is_left_for_a_while(void **state) {
    (void)state;
    cpu_set_t all, one;
    pthread_t busy;
    int first = 0;
    cb_set_threads(2);
    if (cb_threads() == 1) skip_because("built without OpenMP");
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    while (!CPU_ISSET(first, &all)) first++;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    assert_true(sees(false));
    parallel_for(2, 1, stay_on, &one);
    sched_setaffinity(0, sizeof one, &one);
    assert_int_equal(pthread_create(&busy, NULL, keep_busy, NULL), 0);
    assert_true(sees(true));
    for (int i = 0; i < 100; i++) parallel_for(8, 1, nested, NULL);
    assert_int_equal(bad_ranges, 0);
    others_wait = true;
    pthread_join(busy, NULL);
    sched_setaffinity(0, sizeof all, &all);
    assert_true(sees(false));
    for (int i = 0; i < 1000; i++) parallel_for(2, 1, stay_on, &all);
    cb_set_threads(0);
}

/* ---- pages ---- */

enum { BLOCKS = 60, PAGE_THREADS = 4 };

static size_t bytes_of(int i) { return ((size_t)1 << 17) + (size_t)i * 100001; }

static bool is_mapped(void *page) {
    unsigned char resident;
    return mincore((void *)((uintptr_t)page & -(uintptr_t)4096), 1, &resident) == 0;
}

/* Blocks of all sizes, each with its own elements to the last byte; more than one region. */
static void *fill_pages(void *user) {
    unsigned char *block[BLOCKS], mark = (unsigned char)(uintptr_t)user;
    for (int i = 0; i < BLOCKS; i++) {
        block[i] = pages_alloc(bytes_of(i));
        if (!block[i]) return "no memory";
        memset(block[i], mark + i, bytes_of(i));
        if (i % 3 == 2) pages_free(block[i - 1], bytes_of(i - 1));
    }
    for (int i = 0; i < BLOCKS; i++) {
        if (i % 3 == 1) continue;
        for (size_t k = 0; k < bytes_of(i); k++)
            if (block[i][k] != (unsigned char)(mark + i)) return "overwritten";
        pages_free(block[i], bytes_of(i));
    }
    return NULL;
}

static void pages_belong_to_one_block(void **state) {
    (void)state;
    pthread_t thread[PAGE_THREADS];
    for (uintptr_t i = 0; i < PAGE_THREADS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, fill_pages, (void *)(i * 64)), 0);
    for (int i = 0; i < PAGE_THREADS; i++) {
        void *complaint;
        pthread_join(thread[i], &complaint);
        assert_null(complaint);
    }
}

static void pages_go_back_to_the_system(void **state) {
    static const size_t size[] = {1 << 17, 3000001, 200 << 20}; /* the last: a region of its own */
    (void)state;
    for (size_t i = 0; i < sizeof size / sizeof *size; i++) {
        char *block = pages_alloc(size[i]);
        assert_non_null(block);
        block[0] = block[size[i] - 1] = 1;
        assert_true(is_mapped(block) && is_mapped(block + size[i] - 1));
        pages_free(block, size[i]);
        assert_false(is_mapped(block) || is_mapped(block + size[i] - 1));
    }
    assert_null(pages_alloc((size_t)1 << 62));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arena_aligns_and_keeps),
        cmocka_unit_test(numbers_are_as_printf_writes_them),
        cmocka_unit_test(arena_wastes_little),
        cmocka_unit_test(chunks_are_taken_up),
        cmocka_unit_test(arena_escapes_when_memory_ends),
        cmocka_unit_test(inner_arenas_escape_by_the_outer_one),
        cmocka_unit_test(arena_escapes_on_overflow),
        cmocka_unit_test(arena_is_finished),
        cmocka_unit_test(vec_grows),
        cmocka_unit_test(map_finds_newest_first),
        cmocka_unit_test(hashes_differ),
        cmocka_unit_test(doubles_print_as_python_does),
        cmocka_unit_test(doubles_read_back),
        cmocka_unit_test(doubles_ignore_the_locale),
        cmocka_unit_test(buffer_appends),
        cmocka_unit_test_setup(first_error_stays, use_counting_heap),
        cmocka_unit_test_setup(the_host_records_its_own, use_counting_heap),
        cmocka_unit_test_setup(long_errors_are_cut, use_counting_heap),
        cmocka_unit_test(reasons_have_texts),
        cmocka_unit_test(hints_name_options_as_set),
        cmocka_unit_test(every_item_runs_once),
        cmocka_unit_test(subnormal_numbers_are_the_callers),
        cmocka_unit_test(inner_loops_stay_on_their_thread),
        cmocka_unit_test(a_late_team_is_left_for_a_while),
        cmocka_unit_test(pages_belong_to_one_block),
        cmocka_unit_test(pages_go_back_to_the_system),
    };
    return cmocka_run_group_tests(tests, use_counting_heap, use_heap);
}
