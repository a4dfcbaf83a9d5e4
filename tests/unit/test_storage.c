/* How long tensors and their memory live: scopes, threads, fork, the cache of storages, memory that
 * runs out. */
#include "children.h"
#include "fixture.h"

#include "base/memory.h"
#include "eager/apply.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- scopes ---------------------------------------------------------------------------------- */

static void test_scopes(void **state) {
    (void)state;
    int64_t before = cb_memory().live_tensors;
    cb_scope_open();
    cb_tensor *kept = cb_keep(cb_empty(cb_dims(10), CB_F32));
    cb_empty(cb_dims(10), CB_F32);
    cb_scope_open();
    cb_tensor *inner = cb_empty(cb_dims(10), CB_F32);
    cb_scope_add(kept); /* into the inner scope, and out again */
    cb_keep(kept);
    cb_tensor *moved = cb_scope_add(cb_empty(cb_dims(3), CB_F32));
    assert_ptr_equal(cb_keep(moved), moved);
    cb_free(inner);
    cb_scope_close();
    assert_int_equal(cb_memory().live_tensors, before + 3);
    cb_scope_add(moved); /* dies with the outer scope */
    cb_scope_close();
    assert_int_equal(cb_memory().live_tensors, before + 1);
    assert_int_equal(cb_numel(kept), 10);
    cb_free(kept);
    assert_int_equal(cb_memory().live_tensors, before);
}

static void test_deep_scopes(void **state) {
    (void)state;
    int64_t before = cb_memory().live_tensors;
    for (int i = 0; i < 10000; i++) {
        cb_scope_open();
        cb_empty(cb_dims(1), CB_U8);
    }
    assert_int_equal(cb_memory().live_tensors, before + 10000);
    for (int i = 0; i < 10000; i++) cb_scope_close();
    assert_int_equal(cb_memory().live_tensors, before);
}

/* Frees from every position of a scope's list. */
static void test_free_order(void **state) {
    (void)state;
    cb_scope_open();
    cb_tensor *x[4];
    for (int i = 0; i < 4; i++) x[i] = cb_empty(cb_dims(i), CB_F32);
    cb_free(x[3]);
    cb_free(x[0]);
    cb_free(x[1]);
    assert_int_equal(cb_numel(x[2]), 2);
    cb_scope_close();
}

static void *use_thread(void *kept) {
    for (int i = 0; i < 100; i++) cb_empty(cb_dims(i), CB_F64);
    cb_scope_open(); /* left open: the thread's end closes it */
    cb_empty(cb_dims(5), CB_F64);
    cb_free(kept); /* made by another thread */
    cb_scope_close();
    cb_scope_close();
    bool refused = cb_error_status() == CB_ERR_ARGUMENT;
    cb_scope_open();
    cb_empty(cb_dims(7), CB_F64);
    return refused ? cb_keep(cb_empty(cb_dims(9), CB_F64)) : NULL;
}

static void test_thread_end(void **state) {
    (void)state;
    cb_memory_stats before = cb_memory();
    cb_tensor *kept = cb_keep(cb_empty(cb_dims(3), CB_F32));
    pthread_t thread;
    void *result;
    assert_int_equal(pthread_create(&thread, NULL, use_thread, kept), 0);
    pthread_join(thread, &result);
    assert_non_null(result);
    assert_int_equal(cb_numel(result), 9);
    assert_int_equal(cb_memory().live_tensors, before.live_tensors + 1);
    cb_free(result);
    assert_int_equal(cb_memory().live_tensors, before.live_tensors);
    assert_int_equal(cb_memory().live_bytes, before.live_bytes);
}

static void test_fork(void **state) {
    (void)state;
    cb_tensor *x = cb_from_data((const float[]){0, 1, 2, 3}, CB_F32, cb_dims(4));
    int64_t live = cb_memory().live_tensors;
    pid_t child = fork();
    if (!child) {
        cb_tensor *y = cb_empty(cb_dims(64), CB_F32);
        bool good = y && cb_memory().live_tensors == live + 1;
        cb_free(y);
        good &= cb_item(cb_select(x, 0, 3)) == 3;
        leave_child(good ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* ---- storage --------------------------------------------------------------------------------- */

static void test_cache(void **state) {
    (void)state;
    storage_trim();
    cb_memory_stats before = cb_memory();
    assert_int_equal(before.cached_bytes, 0);
    Storage *a = storage_new(1000);
    assert_true(a->bytes >= 1000 && a->bytes <= 1125);
    assert_int_equal(cb_memory().live_bytes, before.live_bytes + (int64_t)a->bytes);
    uint64_t serial = a->serial;
    storage_release(storage_retain(a));
    storage_release(a);
    assert_true(cb_memory().cached_bytes >= 1000);
    assert_int_equal(cb_memory().live_bytes, before.live_bytes);
    Storage *b = storage_new(990);
    assert_ptr_equal(a, b); /* the same class, from the cache */
    assert_true(b->serial != serial);
    assert_int_equal(cb_memory().cached_bytes, 0);
    assert_true(cb_memory().peak_bytes >= cb_memory().live_bytes);
    storage_release(b);
    storage_trim();
    assert_int_equal(cb_memory().cached_bytes, 0);
}

/* Sizes that grow: what was freed long ago goes, and what comes again and again stays. */
static void test_idle_blocks(void **state) {
    (void)state;
    enum { MB = 1 << 20, ROUND = 5 * MB };
    storage_trim();
    Storage *often = storage_new(ROUND);
    const void *place = often->data;
    storage_release(often);
    for (int i = 1; i <= 300; i++) {
        storage_release(storage_new((size_t)i * MB / 4));
        often = storage_new(ROUND);
        assert_ptr_equal(often->data, place);
        storage_release(often);
    }
    assert_in_range(cb_memory().cached_bytes, 75 * MB, 480 * MB); /* of 1,600 in 53 classes */
    Storage *large = storage_new((size_t)100 * MB), *small = storage_new(3 * MB);
    storage_release(large);
    storage_release(small);
    storage_trim();
    for (int round = 0; round < 2; round++) { /* as long as nothing is missing, all stay */
        storage_release(storage_new((size_t)100 * MB));
        for (int i = 0; i < 1000; i++) storage_release(storage_new(3 * MB));
        assert_in_range(cb_memory().cached_bytes, 103 * MB, 130 * MB);
    }
    storage_release(storage_new(7 * MB));
    assert_in_range(cb_memory().cached_bytes, 10 * MB, 12 * MB);
    storage_trim();
}

/* A round as of a network: each size once, and a small one many times in between, as if all before
 * were idle. Blocks go in the first rounds, and are kept in all later ones. */
static void test_rounds_find_their_blocks(void **state) {
    (void)state;
    enum { MB = 1 << 20, SIZES = 8, ROUNDS = 8, SETTLED = 4, ALL = (6 + 13) * SIZES / 2 + 3 };
    storage_trim();
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < SIZES; i++) {
            storage_release(storage_new((size_t)(6 + i) * MB));
            for (int j = 0; j < 20; j++) storage_release(storage_new(3 * MB));
        }
        int64_t cached = cb_memory().cached_bytes;
        if (round == 0) assert_in_range(cached, 16 * MB, 40 * MB);
        if (round >= SETTLED) assert_int_equal(cached, ALL * MB);
    }
    storage_trim();
}

static void test_cache_limit(void **state) {
    (void)state;
    storage_trim();
    assert_int_equal(cb_set_option("storage_limit_mb", "4"), CB_OK);
    Storage *block[8];
    for (int i = 0; i < 8; i++) assert_non_null(block[i] = storage_new(1 << 20));
    for (int i = 0; i < 8; i++) {
        storage_release(block[i]);
        assert_true(cb_memory().cached_bytes <= 4 << 20);
    }
    assert_int_equal(cb_set_option("storage_limit_mb", "0"), CB_OK);
    storage_release(storage_new(100));
    assert_int_equal(cb_memory().cached_bytes, 0);
    assert_int_equal(cb_set_option("storage_limit_mb", "4096"), CB_OK);
}

/* Every size gets its bytes and wastes at most an eighth, or less than a line. */
static void test_size_classes(void **state) {
    (void)state;
    for (size_t bytes = 0; bytes < 1 << 22; bytes += 1 + bytes / 7) {
        Storage *s = storage_new(bytes);
        assert_true(s->bytes >= bytes);
        assert_true(s->bytes <= bytes + bytes / 8 + 64);
        storage_release(s);
    }
    storage_trim();
}

static void limit_memory(int allocations) {
    allocations_left = allocations;
    cb_set_allocator((cb_allocator){failing_resize, NULL});
}

static void *make_under_limit(void *limit) {
    limit_memory(*(int *)limit);
    cb_tensor *x = cb_empty(cb_dims(64, 64), CB_F32);
    cb_tensor *y = x ? cb_t(x) : NULL;
    cb_set_allocator((cb_allocator){NULL, NULL});
    bool reported = y || cb_error_status() == CB_ERR_MEMORY;
    cb_clear_error();
    return reported ? (y ? "made" : "refused") : NULL;
}

/* In a thread of its own and after a clean-up, so that no slot is free. */
static void test_no_memory(void **state) {
    (void)state;
    storage_trim();
    cb_memory_stats before = cb_memory();
    int limit = 0;
    for (bool made = false; !made; limit++) {
        cb_cleanup();
        cb_scope_open(); /* the fixture closes one */
        pthread_t thread;
        void *result;
        assert_int_equal(pthread_create(&thread, NULL, make_under_limit, &limit), 0);
        pthread_join(thread, &result);
        assert_non_null(result);
        made = !strcmp(result, "made");
        assert_true(limit < 10);
        assert_int_equal(cb_memory().live_tensors, before.live_tensors);
        assert_int_equal(cb_memory().live_bytes, before.live_bytes);
    }
    assert_true(limit > 2);
}

/* Whose memory a large block is, is remembered: the host's allocator may come late. */
static void test_large_blocks(void **state) {
    (void)state;
    storage_trim();
    Storage *paged = storage_new(3 << 20);
    limit_memory(1);
    Storage *given = storage_new(3 << 20);
    assert_int_equal(allocations_left, 0);
    storage_release(paged);
    storage_trim();
    cb_set_allocator((cb_allocator){NULL, NULL});
    memset(given->data, 1, given->bytes);
    storage_release(given);
    storage_trim();
    assert_int_equal(cb_memory().cached_bytes, 0);
}

/* A cache that holds the memory which the heap lacks gives it back. */
static void test_trim_on_pressure(void **state) {
    (void)state;
    storage_trim();
    storage_release(storage_new(1 << 20));
    assert_true(cb_memory().cached_bytes > 0);
    limit_memory(0);
    assert_null(storage_new(3 << 20));
    cb_set_allocator((cb_allocator){NULL, NULL});
    assert_int_equal(cb_memory().cached_bytes, 0);
    expect_status(CB_ERR_MEMORY, "out of memory");
}

static void test_scope_without_memory(void **state) {
    (void)state;
    limit_memory(0);
    cb_scope_open();
    cb_set_allocator((cb_allocator){NULL, NULL});
    expect_status(CB_ERR_MEMORY, "out of memory");
    cb_tensor *x = cb_empty(cb_dims(2), CB_F32);
    cb_scope_close(); /* pairs with the failed one */
    assert_int_equal(cb_numel(x), 2);
    assert_null(cb_error());
}

static void *churn(void *seed) {
    unsigned random = *(unsigned *)seed;
    for (int i = 0; i < 20000; i++) {
        random = random * 1664525u + 1013904223u;
        size_t bytes = random >> 20;
        Storage *s = storage_new(bytes);
        memset(s->data, (int)random, bytes);
        Storage *t = storage_new(bytes / 2);
        if (t == s || t->serial == s->serial) return NULL;
        storage_release(storage_retain(s));
        storage_release(s);
        storage_release(t);
        if (i % 5000 == 0) storage_trim();
    }
    return seed;
}

static void test_storage_threads(void **state) {
    (void)state;
    int64_t live = cb_memory().live_bytes;
    pthread_t thread[4];
    unsigned seed[4] = {1, 2, 3, 4};
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, churn, &seed[i]), 0);
    for (int i = 0; i < 4; i++) {
        void *result;
        pthread_join(thread[i], &result);
        assert_ptr_equal(result, &seed[i]);
    }
    assert_int_equal(cb_memory().live_bytes, live);
}

/* Large blocks have pages of their own; their elements begin at places of their own in these. */
static void test_spread(void **state) {
    (void)state;
    enum { BLOCKS = 8, BYTES = 48 << 20, PAGE = 4096 };
    Storage *block[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) {
        assert_non_null(block[i] = storage_new(BYTES));
        uintptr_t at = (uintptr_t)block[i]->data % PAGE;
        assert_int_equal(at % 64, 0);
        ((char *)block[i]->data)[BYTES - 1] = 1;
        for (int j = 0; j < i; j++) assert_int_not_equal(at, (uintptr_t)block[j]->data % PAGE);
    }
    for (int i = 0; i < BLOCKS; i++) storage_release(block[i]);
}

int main(void) {
#define TEST(name)                                                                                 \
    cmocka_unit_test_setup_teardown(test_##name, open_scope, close_scope_without_tensors)
    const struct CMUnitTest tests[] = {
        TEST(scopes),
        TEST(deep_scopes),
        TEST(free_order),
        TEST(thread_end),
        TEST(fork),
        TEST(cache),
        TEST(idle_blocks),
        TEST(rounds_find_their_blocks),
        TEST(cache_limit),
        TEST(size_classes),
        TEST(no_memory),
        TEST(large_blocks),
        TEST(spread),
        TEST(trim_on_pressure),
        TEST(scope_without_memory),
        TEST(storage_threads),
    };
    return cmocka_run_group_tests(tests, NULL, clean_up);
}
