/* Slots of tensors: whatever addresses the host hands out, when memory runs out, and what a cleanup
 * leaves. */
#include "fixture.h"

#include "base/poison.h"
#include "tensor/thread.h"

#include <pthread.h>

/* ---- the host's allocator -------------------------------------------------------------------- */

/* An address that no handle has room for, as a host with other page tables may have; it is never
 * looked at. */
#define HIGH ((void *)((uintptr_t)0x0100 << 48))

static int64_t blocks, left = -1; /* allocations until one fails */
static size_t slab_bytes, last;   /* that get HIGH, 0: none; of the last allocation */
static int high, returned;

static void *host(void *user, void *pointer, size_t bytes) {
    (void)user;
    if (bytes == 0) {
        returned += pointer == HIGH;
        if (pointer == HIGH) return NULL;
        blocks -= pointer != NULL;
        free(pointer);
        return NULL;
    }
    last = bytes;
    if (bytes == slab_bytes) return high++, HIGH;
    if (left >= 0 && left-- == 0) return NULL;
    void *out = realloc(pointer, bytes);
    blocks += out && !pointer;
    return out;
}

enum { MANY = 1000 };

static void use_many(void) {
    cb_tensor *x = cb_ones(cb_dims(2, 3)), *views[MANY];
    for (int i = 0; i < MANY; i++) assert_non_null(views[i] = cb_t(x));
    for (int i = 0; i < MANY; i++) assert_int_equal(cb_size(views[i], 0), 3);
    for (int i = 0; i < MANY; i += 2) cb_free(views[i]);
    for (int i = 0; i < MANY; i++) assert_int_equal(cb_rank(views[i]), i % 2 ? 2 : -1);
    cb_clear_error();
}

/* What the library allocates for a tensor when it has no slot left. */
static size_t find_slab_bytes(void) {
    cb_tensor *x = cb_ones(cb_dims(2, 3));
    for (last = 0; !last;) cb_t(x);
    return last;
}

static void high_addresses(void **state) {
    (void)state;
    int64_t before = blocks;
    cb_scope_open();
    use_many();
    cb_cleanup();
    cb_scope_open();
    slab_bytes = find_slab_bytes();
    use_many();
    assert_true(high > 0);
    assert_int_equal(returned, high); /* slots lie in pages of the system then */
    cb_scope_close();
    slab_bytes = 0;
    cb_cleanup();
    assert_int_equal(cb_memory().live_tensors, 0);
    assert_true(blocks <= before);
}

/* ---- memory runs out ------------------------------------------------------------------------- */

/* A thread without memory for the list of its last deaths knows of them no more than that. */
static void without_a_list(void **state) {
    (void)state;
    cb_cleanup();
    left = 0;
    cb_scope_open(); /* the list fails; then the scope is there */
    left = -1;
    assert_null(cb_error());
    assert_null(thread_state.deaths);
    cb_tensor *x = cb_ones(cb_dims(2)), *dead = cb_t(cb_t(x));
    cb_free(dead);
    assert_int_equal(cb_rank(dead), -1);
    expect_error("freed at test_slots.c"); /* its slot was not used since */
    for (int i = 0; i < (POISONS ? 1 << 15 : 100); i++) cb_free(cb_t(x));
    assert_int_equal(cb_rank(dead), -1);
    expect_error("it was freed long ago");
    cb_scope_close();
    cb_cleanup();
}

/* ---- cleanup --------------------------------------------------------------------------------- */

/* Kept tensors stay, where they are; slots beside them are used again under new names. */
static void kept_tensors_stay(void **state) {
    (void)state;
    enum { KEPT = 5 };
    cb_tensor *kept[KEPT], *dead[MANY];
    for (int round = 0; round < 3; round++) {
        cb_scope_open();
        for (int i = 0; i < MANY; i++) {
            dead[i] = cb_full(cb_dims(2), i);
            if (i % 200 == 7) kept[i / 200] = cb_keep(dead[i]);
        }
        cb_scope_close();
        cb_cleanup();
        assert_int_equal(cb_memory().live_tensors, KEPT);
        use_many();
        for (int i = 0; i < KEPT; i++) {
            assert_true(cb_item(cb_sum(kept[i])) == 2.0 * (200 * i + 7));
            assert_int_equal(cb_rank(dead[200 * i + 8]), -1);
            cb_clear_error();
            cb_free(kept[i]);
        }
        cb_cleanup();
        assert_int_equal(cb_memory().live_tensors, 0);
    }
}

/* With the option check, slots wait before they are used again: so many, then the oldest. */
static void waiting_slots(void **state) {
    (void)state;
    assert_int_equal(cb_set_option("check", "1"), CB_OK);
    cb_scope_open();
    cb_tensor *x = cb_ones(cb_dims(2)), *dead = cb_t(cb_t(x));
    const Tensor *slot = tensor_in(dead, "test");
    cb_free(dead);
    int used = 0;
    for (int i = 0; i < 40000 && !used; i++) {
        cb_tensor *y = cb_t(x);
        if (tensor_in(y, "test") == slot) used = i;
        cb_free(y);
    }
    assert_in_range(used, 10000, 20000);
    assert_int_equal(cb_rank(dead), -1);
    expect_error("the tensor is gone");
    cb_scope_close();
    assert_int_equal(cb_set_option("check", "0"), CB_OK);
    cb_cleanup();
}

typedef struct EndedThread {
    cb_tensor *given, *scoped, *left;
    int freed_at, scoped_at;
} EndedThread;

static void *free_and_end(void *user) {
    EndedThread *ended = user;
    ended->freed_at = __LINE__ + 1;
    cb_free(ended->given);
    cb_scope_open();
    ended->scoped = cb_full(cb_dims(2), 2.0);
    ended->scoped_at = __LINE__ + 1;
    cb_scope_close();
    for (int i = 0; i < 8; i++) ended->left = cb_full(cb_dims(2), 3.0); /* in the slots of those */
    return NULL;
}

static void expect_freed_at(const cb_tensor *x, const char *place, int line) {
    char text[80];
    snprintf(text, sizeof text, line ? "and freed at %s:%d" : "and freed at %s", place, line);
    assert_int_equal(cb_rank(x), -1);
    expect_error(text);
}

/* Twice, so that one thread's deaths are known beside another's. */
static void freed_in_threads_that_ended(void **state) {
    (void)state;
    EndedThread ended[2] = {{0}};
    for (int i = 0; i < 2; i++) {
        pthread_t thread;
        ended[i].given = cb_keep(cb_full(cb_dims(2), 1.0));
        assert_int_equal(pthread_create(&thread, NULL, free_and_end, &ended[i]), 0);
        pthread_join(thread, NULL);
    }
    for (int i = 0; i < 2; i++) {
        expect_freed_at(ended[i].given, "test_slots.c", ended[i].freed_at);
        expect_freed_at(ended[i].scoped, "test_slots.c", ended[i].scoped_at);
        expect_freed_at(ended[i].left, "the end of its thread", 0);
    }
    cb_cleanup();
    assert_int_equal(blocks, 0);
}

int main(void) {
    cb_set_allocator((cb_allocator){host, NULL});
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(high_addresses),
        cmocka_unit_test(without_a_list),
        cmocka_unit_test(kept_tensors_stay),
        cmocka_unit_test(waiting_slots),
        cmocka_unit_test(freed_in_threads_that_ended),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
