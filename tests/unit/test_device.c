/* Devices: where tensors lie, what the device guarded refuses, and that it works behind the host's
 * back: its memory is out of reach, its kernels run later, its faults come to who waits. */
#include "children.h"
#include "failing_once.h"
#include "fixture.h"

#include "device/device.h"
#include "tensor/tensor.h"

#include <math.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>

#define GUARDED(...)                                                                               \
    cb_to_device(cb_from_data((float[]){__VA_ARGS__}, CB_F32,                                      \
                              cb_dims(sizeof((float[]){__VA_ARGS__}) / sizeof(float))),            \
                 "guarded")

static void expect_floats(cb_tensor *x, const float *expected, int count) {
    float got[64];
    assert_int_equal(cb_numel(x), count);
    assert_int_equal(cb_read(x, got, CB_F32), CB_OK);
    for (int i = 0; i < count; i++)
        if (got[i] != expected[i]) FAIL("element %d: %g, not %g", i, got[i], expected[i]);
}

/* ---- where tensors lie ----------------------------------------------------------------------- */

static void test_moves(void **state) {
    (void)state;
    cb_tensor *x = cb_from_data((float[]){1, 2, 3, 4, 5, 6}, CB_F32, cb_dims(2, 3));
    assert_string_equal(cb_device(x), "cpu");
    cb_tensor *t = cb_to_device(cb_t(x), "guarded");
    assert_string_equal(cb_device(t), "guarded");
    assert_int_equal(cb_stride(t, 1), 3);
    expect_floats(t, (float[]){1, 4, 2, 5, 3, 6}, 6);
    cb_tensor *row = cb_select(t, 0, 1);
    assert_string_equal(cb_device(row), "guarded");
    assert_true(cb_shares_storage(row, t));
    assert_true(cb_shares_storage(cb_to_device(t, "guarded"), t));
    cb_tensor *back = cb_to_device(row, "cpu");
    assert_string_equal(cb_device(back), "cpu");
    assert_true(((float *)cb_data(back))[0] == 2);
    assert_true(cb_item(cb_select(row, 0, 1)) == 5);
    assert_int_equal(cb_item_int(cb_sum(t)), 21);
    assert_null(cb_error());
    REFUSED(cb_to_device(x, "abacus"), "there is no device 'abacus'; there are cpu, guarded");
    REFUSED(cb_to_device(x, NULL), "there is no device 'NULL'");
    REFUSED(cb_device(NULL), "device: x is NULL");
    REFUSED(cb_data(t), "the host cannot touch");
}

static void test_default(void **state) {
    (void)state;
    cb_tensor *x = cb_ones(cb_dims(2));
    assert_int_equal(cb_set_option("device", "guarded"), CB_OK);
    cb_tensor *y = cb_ones(cb_dims(2));
    assert_string_equal(cb_device(y), "guarded");
    char text[80];
    cb_format(x, text, sizeof text);
    assert_string_equal(text, "tensor([1., 1.], device='cpu')");
    cb_format(y, text, sizeof text);
    assert_string_equal(text, "tensor([1., 1.])");
    assert_int_equal(cb_set_option("device", "cpu"), CB_OK);
    cb_format(y, text, sizeof text);
    assert_string_equal(text, "tensor([1., 1.], device='guarded')");
    assert_string_equal(cb_device(cb_ones(cb_dims(2))), "cpu");
    assert_int_equal(cb_set_option("device", "abacus"), CB_ERR_OPTION);
    expect_error("abacus");
}

/* A word of the option is the number of its device. */
static void test_words_of_the_option(void **state) {
    (void)state;
    char words[80] = "";
    for (DeviceId id = 0; id < DEVICE_COUNT; id++) {
        size_t used = strlen(words);
        snprintf(words + used, sizeof words - used, "%s%s", id ? "|" : "", devices[id]->name);
    }
    assert_string_equal(option_info(OPTION_device)->type, words);
}

static void test_operands_of_two_devices(void **state) {
    (void)state;
    cb_tensor *x = GUARDED(1, 2), *y = cb_ones(cb_dims(2));
    REFUSED(cb_add(x, y), "add: operands lie on guarded and on cpu");
    REFUSED(cb_cat((cb_tensor *[]){y, x}, 2, 0), "cat: operands lie on cpu and on guarded");
    /* What has no dimensions is a number, wherever the rest lies. */
    cb_tensor *number = cb_sum(y);
    expect_floats(cb_add(x, number), (float[]){3, 4}, 2);
    expect_floats(cb_mul(number, cb_add(number, x)), (float[]){6, 8}, 2);
    assert_string_equal(cb_device(cb_mul(number, number)), "cpu");
    REFUSED(cb_add(y, cb_sum(x)), "add: operands lie on cpu and on guarded");
    /* Writes move what they write. */
    assert_non_null(cb_assign(y, x));
    expect_floats(y, (float[]){1, 2}, 2);
    assert_non_null(cb_assign(x, cb_full(cb_dims(2), 7)));
    expect_floats(x, (float[]){7, 7}, 2);
    assert_non_null(cb_fill_(x, 3));
    expect_floats(x, (float[]){3, 3}, 2);
}

/* ---- compiled -------------------------------------------------------------------------------- */

static cb_tensor *scaled(cb_tensor *x, cb_tensor *by) {
    return cb_add(cb_softmax(cb_mul(x, by), 0), 1.0);
}

static void test_guards(void **state) {
    (void)state;
    cb_function *f = cb_compile(scaled, "backend=vm");
    cb_tensor *x = cb_from_data((float[]){1, 2}, CB_F32, cb_dims(2)), *by = cb_full(cb_dims(), 0.0);
    for (int i = 0; i < 2; i++) {
        cb_tensor *there = cb_call(f, cb_to_device(x, "guarded"), by);
        assert_string_equal(cb_device(there), "guarded");
        expect_floats(there, (float[]){1.5f, 1.5f}, 2);
        cb_tensor *here = cb_call(f, x, by);
        assert_string_equal(cb_device(here), "cpu");
        expect_floats(here, (float[]){1.5f, 1.5f}, 2);
    }
    assert_int_equal(cb_stats(f).graphs, 2);
    char *text = cb_explain(f);
    assert_non_null(strstr(text, "input 0: f32[2] on guarded"));
    assert_non_null(strstr(text, "input 0 is f32[2] on cpu, entry 0 has f32[2] on guarded"));
    cb_free_text(text);
    cb_function_free(f);
    f = cb_compile(scaled, "device=guarded");
    REFUSED(cb_call(f, x, by), "input 0 lies on cpu, and scaled was compiled for guarded");
    cb_function_free(f);
}

static cb_tensor *two_places(cb_tensor *x) {
    cb_tensor *there = cb_add(x, 1.0), *here = cb_ones(cb_dims(2)); /* of the default device */
    return cb_add(there, cb_sum(here));
}

static void test_two_devices_in_a_function(void **state) {
    (void)state;
    cb_function *f = cb_compile(two_places);
    for (int i = 0; i < 2; i++) expect_floats(cb_call(f, GUARDED(1, 2)), (float[]){4, 5}, 2);
    char *text = cb_explain(f);
    assert_non_null(strstr(text, "another device"));
    cb_free_text(text);
    cb_function_free(f);
}

static const char *made_on;

/* The option is set between ops that are made of nothing. */
static int makes(cb_tensor *const *x, int count, cb_tensor **out, void *asks) {
    (void)x, (void)count;
    out[0] = cb_full(cb_dims(2), 1.0);
    cb_set_option("device", made_on);
    double sum = asks ? cb_item(cb_sum(out[0])) : 2; /* runs what was recorded */
    out[1] = cb_full(cb_dims(2), 2.0);
    cb_set_option("device", "cpu");
    assert_true(sum == 2);
    return 2;
}

/* Each op makes its tensor where the option says then, whenever it runs. */
static void test_option_is_set_in_a_function(void **state) {
    (void)state;
    cb_tensor *x = cb_ones(cb_dims(2)), *out[2];
    bool asks = true;
    for (int way = 0; way < 2; way++) {
        cb_function *f = cb_compile_n(makes, way ? &asks : NULL, "backend=vm");
        for (int i = 0; i < 4; i++) { /* recorded, repeated, another way, and that once more */
            made_on = i < 2 && !way ? "cpu" : "guarded";
            assert_int_equal(cb_call_n(f, &x, 1, out, 2), 2);
            assert_string_equal(cb_device(out[0]), "cpu");
            assert_string_equal(cb_device(out[1]), made_on);
            expect_floats(out[0], (float[]){1, 1}, 2);
            expect_floats(out[1], (float[]){2, 2}, 2);
        }
        cb_function_free(f);
    }
}

/* ---- out of reach ---------------------------------------------------------------------------- */

typedef void Deed(cb_tensor *x);

/* What a forked child that does it says on stderr, and how it ends. */
static int status_of(Deed *deed, cb_tensor *x, char *text, size_t bytes) {
    int ends_of[2], status;
    assert_int_equal(pipe(ends_of), 0);
    pid_t child = fork();
    if (child == 0) {
        for (int number = 1; number < 32; number++) signal(number, SIG_DFL); /* cmocka's */
        dup2(ends_of[1], STDERR_FILENO);
        deed(x);
        leave_child(0);
    }
    close(ends_of[1]);
    FILE *said = fdopen(ends_of[0], "r");
    text[fread(text, 1, bytes - 1, said)] = '\0';
    fclose(said);
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static Tensor *inside(cb_tensor *x) { return tensor_in(x, "x"); }

/* In a program of its own, which cmocka has no handlers in. */
static int touch(void) {
    cb_tensor *x = GUARDED(1, 2, 3, 4, 5);
    const volatile float *data = inside(cb_add(x, x))->storage->data;
    return data[3] > 0;
}

static void run_touch(cb_tensor *x) {
    (void)x;
    execl("/proc/self/exe", "test_device", "touch", NULL);
}

static void launch_on_the_stack(cb_tensor *x) {
    int local = 0;
    void *pointer = &local;
    (void)x;
    devices[DEVICE_guarded]->launch(&(DeviceLaunch){.pointer = &pointer, .pointer_count = 1});
}

static void add_in_a_child(cb_tensor *x) {
    cb_add(x, x);
    fprintf(stderr, "%s", cb_error());
}

static void test_out_of_reach(void **state) {
    (void)state;
    char text[512];
    cb_tensor *x = GUARDED(1, 2, 3, 4, 5);
    int status = status_of(run_touch, x, text, sizeof text);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    assert_non_null(strstr(text, "carbide: the host touched memory of device guarded: byte 12 of a "
                                 "tensor's block of 64 bytes"));
    status = status_of(launch_on_the_stack, x, text, sizeof text);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    assert_non_null(strstr(text, "pointer 0 of a launch is no memory of its device"));
    status = status_of(add_in_a_child, x, text, sizeof text);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_non_null(strstr(text, "cannot be used in a forked child"));
}

/* ---- later ----------------------------------------------------------------------------------- */

static sem_t gate;

static bool wait_at_the_gate(const void *argument, void *const *pointer) {
    (void)argument, (void)pointer;
    sem_wait(&gate);
    return true;
}

static void test_later(void **state) {
    (void)state;
    const Device *device = devices[DEVICE_guarded];
    cb_tensor *x = GUARDED(1, 2), *y = x;
    assert_int_equal(cb_synchronize(), CB_OK);
    _Atomic int64_t ns[2] = {0};
    DeviceEvent before = {.ns = &ns[0]}, after = {.ns = &ns[1]};
    assert_true(device->record(&before));
    assert_int_equal(sem_init(&gate, 0, 0), 0);
    assert_true(device->launch(&(DeviceLaunch){.kernel = wait_at_the_gate}));
    for (int i = 0; i < 100; i++) y = cb_add(y, 1.0); /* none of them has run by then */
    cb_assign(x, y);
    assert_true(device->record(&after));
    assert_false(device->reached(&after));
    cb_free(x); /* its memory is not given out to anything that comes before what uses it */
    assert_int_equal(atomic_load(&ns[1]), 0);
    sem_post(&gate);
    expect_floats(y, (float[]){101, 102}, 2);
    assert_true(device->reached(&before) && device->reached(&after));
    assert_true(ns[1] > ns[0]);
    sem_destroy(&gate);
}

static cb_tensor *rows(cb_tensor *x, cb_tensor *at) { return cb_add(cb_index_select(x, 0, at), 1); }

static cb_tensor *adds_rows(cb_tensor *x, cb_tensor *at) {
    return cb_add_(x, cb_index_select(x, 0, at));
}

static cb_tensor *drops_rows(cb_tensor *x, cb_tensor *at) {
    cb_index_select(x, 0, at);
    return cb_add_(x, 1.0);
}

static void test_nothing_follows_a_fault(void **state) {
    (void)state;
    cb_tensor *x = GUARDED(1, 2, 3);
    cb_tensor *at = cb_to_device(cb_from_data((int64_t[]){0, 3, 1}, CB_I64, cb_dims(3)), "guarded");
    cb_function_2 *const functions[] = {adds_rows, drops_rows};
    for (int i = 0; i < 2; i++) {
        cb_function *f = cb_compile(functions[i], "backend=vm");
        assert_non_null(cb_call(f, x, at));
        assert_int_equal(cb_synchronize(), CB_ERR_INDEX);
        expect_error("index 3 is out of range");
        expect_floats(x, (float[]){1, 2, 3}, 3);
        cb_function_free(f);
    }
}

#define BEYOND                                                                                     \
    "index_select: index 3 is out of range for size 3 of dim 0: f32[3], i64[2] (on device "        \
    "guarded)"

static void test_faults(void **state) {
    (void)state;
    cb_tensor *x = GUARDED(1, 2, 3);
    cb_tensor *bad = cb_to_device(cb_from_data((int64_t[]){0, 3}, CB_I64, cb_dims(2)), "guarded");
    cb_tensor *good = cb_to_device(cb_from_data((int64_t[]){0, 2}, CB_I64, cb_dims(2)), "guarded");
    cb_function *f = cb_compile(rows, "backend=vm");
    for (int compiled = 0; compiled < 2; compiled++) {
        assert_non_null(compiled ? cb_call(f, x, bad) : rows(x, bad)); /* nobody knows yet */
        assert_null(cb_error());
        cb_tensor *y = compiled ? cb_call(f, x, good) : rows(x, good);
        assert_int_equal(cb_synchronize(), CB_ERR_INDEX);
        expect_error(BEYOND);
        assert_int_equal(cb_synchronize(), CB_OK);
        expect_floats(y, (float[]){2, 4}, 2);
    }
    cb_function_free(f);
    /* A run that is waited for fails itself. */
    cb_set_option("blocking", "1");
    REFUSED(rows(x, bad), BEYOND);
    assert_int_equal(cb_synchronize(), CB_OK);
    cb_set_option("blocking", "0");
    /* Who asks for a value hears of it, too. */
    rows(x, bad);
    assert_true(isnan(cb_item(cb_sum(x))));
    expect_status(CB_ERR_INDEX, "test_device.c:");
}

static cb_tensor *adds_one(cb_tensor *x) { return cb_mul(cb_add_(x, 1.0), 2.0); }

static cb_tensor *weight;
static cb_tensor *times_weight(cb_tensor *x) { return cb_matmul(x, cb_mul(weight, 2.0)); }

/* What others launched is no failure of who waits for a run of its own, and is not lost there. */
static void test_faults_of_others(void **state) {
    (void)state;
    static const char *const waits[] = {"blocking", "profile"};
    cb_tensor *x = GUARDED(1, 2, 3), *bad = cb_to_device(cb_full(cb_dims(1), 3), "guarded");
    for (int i = 0; i < 2; i++) {
        cb_function *f = cb_compile(adds_one, "backend=vm");
        cb_tensor *y = cb_to_device(cb_zeros(cb_dims(2)), "guarded");
        assert_non_null(cb_index_select(x, 0, bad));
        cb_set_option(waits[i], "1");
        for (int n = 0; n < 2; n++) assert_non_null(cb_call(f, y));
        cb_set_option(waits[i], "0");
        assert_int_equal(cb_synchronize(), CB_ERR_INDEX);
        cb_clear_error();
        expect_floats(y, (float[]){2, 2}, 2);
        cb_function_free(f);
    }
    cb_function *f = cb_compile(times_weight, "backend=vm,freeze=1");
    weight = cb_to_device(cb_ones(cb_dims(48, 48)), "guarded");
    cb_tensor *ones = cb_to_device(cb_ones(cb_dims(40, 48)), "guarded");
    assert_non_null(cb_index_select(x, 0, bad));
    cb_tensor *y = cb_sum(cb_call(f, ones)); /* its weight is packed */
    assert_int_equal(cb_synchronize(), CB_ERR_INDEX);
    cb_clear_error();
    assert_true(cb_item(y) == 2.0 * 40 * 48 * 48);
    assert_int_equal(cb_stats(f).graphs, 1);
    cb_function_free(f);
}

/* What failed before stays the first error, as it was said; a status is that of the fault. */
static void test_faults_behind_errors(void **state) {
    (void)state;
    cb_tensor *x = GUARDED(1, 2, 3), *bad = cb_to_device(cb_full(cb_dims(1), 3), "guarded");
    assert_non_null(cb_index_select(x, 0, bad));
    assert_null(cb_add(cb_ones(cb_dims(3)), cb_ones(cb_dims(4))));
    assert_int_equal(cb_synchronize(), CB_ERR_INDEX);
    cb_set_option("device", "guarded");
    assert_null(cb_empty(cb_dims(1 << 16, 1 << 16)));
    cb_set_option("device", "cpu");
    assert_null(strstr(cb_error(), "guarded"));
    expect_status(CB_ERR_SHAPE, "sizes do not broadcast");
}

/* ---- the end, and a new beginning ------------------------------------------------------------ */

static void test_handler_comes_and_goes(void **state) {
    (void)state;
    struct sigaction before, during, after;
    cb_cleanup();
    sigaction(SIGSEGV, NULL, &before);
    for (int i = 0; i < 2; i++) {
        cb_scope_open();
        expect_floats(cb_add(GUARDED(1, 2), 1.0), (float[]){2, 3}, 2);
        sigaction(SIGSEGV, NULL, &during);
        assert_true(during.sa_handler != before.sa_handler);
        cb_scope_close();
        cb_cleanup();
        sigaction(SIGSEGV, NULL, &after);
        assert_true(after.sa_handler == before.sa_handler);
    }
}

static void begin_anew(cb_tensor *x) {
    alarm(20); /* the parent's launches are not waited for */
    cb_free(x);
    cb_scope_close();
    cb_cleanup();
    cb_scope_open();
    expect_floats(cb_add(GUARDED(1, 2), 1.0), (float[]){2, 3}, 2);
    cb_scope_close();
    cb_cleanup();
    fprintf(stderr, "%s", cb_error() ? cb_error() : "done");
}

static void test_child_begins_anew(void **state) {
    (void)state;
#if defined(__SANITIZE_THREAD__)
    skip_because("under ThreadSanitizer a child of a process with threads may start none");
#endif
    char text[512];
    cb_tensor *x = GUARDED(1, 2);
    assert_int_equal(sem_init(&gate, 0, 0), 0);
    assert_true(devices[DEVICE_guarded]->launch(&(DeviceLaunch){.kernel = wait_at_the_gate}));
    cb_tensor *y = cb_add(x, 1.0);
    int status = status_of(begin_anew, x, text, sizeof text);
    sem_post(&gate);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_string_equal(text, "done");
    expect_floats(y, (float[]){2, 3}, 2);
    sem_destroy(&gate);
}

/* The option check fills freed memory, which no child can. */
static void free_it(cb_tensor *x) {
    cb_set_option("check", "1");
    cb_free(x);
    fprintf(stderr, "%s", cb_error() ? cb_error() : "freed");
}

static void test_child_frees(void **state) {
    (void)state;
    char text[512];
    int status = status_of(free_it, GUARDED(1, 2), text, sizeof text);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_string_equal(text, "freed");
}

static void *use_and_close(void *failed) {
    cb_scope_open();
    for (int i = 0; i < 50; i++) {
        cb_tensor *x = cb_add(GUARDED(1, 2), 1.0);
        float got[2] = {0, 0};
        if (cb_read(x, got, CB_F32) != CB_OK || got[1] != 3) *(bool *)failed = true;
        devices_close();
    }
    cb_scope_close();
    return NULL;
}

static void test_threads_close(void **state) {
    (void)state;
    enum { THREADS = 4 };
    pthread_t thread[THREADS];
    bool failed[THREADS] = {false};
    alarm(100);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, use_and_close, &failed[i]), 0);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(thread[i], NULL), 0);
        assert_false(failed[i]);
    }
    alarm(0);
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Where the host lacks memory for the list of blocks, none gets more than it asked for. */
static void test_blocks_are_cut(void **state) {
    (void)state;
    cb_cleanup();
    cb_set_allocator((cb_allocator){fail_once, NULL});
    for (int64_t n = 0, left = -1; left < 0; n++) {
        cb_scope_open();
        cb_tensor *here = cb_ones(cb_dims(2));
        countdown = n;
        cb_to_device(here, "guarded");
        left = countdown;
        countdown = -1;
        cb_clear_error();
        expect_floats(cb_to_device(here, "guarded"), (float[]){1, 1}, 2);
        cb_scope_close();
        cb_cleanup();
    }
    cb_set_allocator((cb_allocator){NULL, NULL});
}

static void test_memory_runs_out(void **state) {
    (void)state;
    cb_cleanup(); /* and the device begins anew */
    assert_int_equal(cb_set_option("guarded_mb", "1"), CB_OK);
    cb_scope_open();
    cb_tensor *x[64];
    int count = 0;
    cb_set_option("device", "guarded");
    while (count < 64 && (x[count] = cb_zeros(cb_dims(1 << 14)))) count++; /* 64 KB each */
    assert_in_range(count, 12, 16);
    expect_status(CB_ERR_MEMORY, "could not be allocated on device guarded");
    cb_free(x[1]), cb_free(x[2]); /* neighbours become one block, behind the storages' cache */
    cb_tensor *y = cb_full(cb_dims(1 << 15), 2.0);
    assert_non_null(y);
    assert_true(cb_item(cb_select(y, 0, 77)) == 2);
    assert_null(cb_add(y, 1.0));
    expect_status(CB_ERR_MEMORY, "on device guarded");
    cb_scope_close();
    cb_cleanup();
}

int main(int count, char **argument) {
    (void)argument;
    if (count > 1) return touch();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_moves, open_scope, close_scope_without_error),
        cmocka_unit_test_setup_teardown(test_default, open_scope, close_scope_without_error),
        cmocka_unit_test(test_words_of_the_option),
        cmocka_unit_test_setup_teardown(test_operands_of_two_devices, open_scope,
                                        close_scope_without_error),
        cmocka_unit_test_setup_teardown(test_guards, open_scope, close_scope_without_error),
        cmocka_unit_test_setup_teardown(test_two_devices_in_a_function, open_scope,
                                        close_scope_without_error),
        cmocka_unit_test_setup_teardown(test_option_is_set_in_a_function, open_scope,
                                        close_scope_without_error),
        cmocka_unit_test_setup_teardown(test_out_of_reach, open_scope, close_scope_without_error),
        cmocka_unit_test_setup_teardown(test_later, open_scope, close_scope_without_error),
        cmocka_unit_test_setup_teardown(test_nothing_follows_a_fault, open_scope,
                                        close_scope_without_error),
        cmocka_unit_test_setup_teardown(test_faults, open_scope, close_scope_without_error),
        cmocka_unit_test_setup_teardown(test_faults_of_others, open_scope,
                                        close_scope_without_error),
        cmocka_unit_test_setup_teardown(test_faults_behind_errors, open_scope,
                                        close_scope_without_error),
        cmocka_unit_test(test_handler_comes_and_goes),
        cmocka_unit_test_setup_teardown(test_child_begins_anew, open_scope,
                                        close_scope_without_error),
        cmocka_unit_test_setup_teardown(test_child_frees, open_scope, close_scope_without_error),
        cmocka_unit_test(test_threads_close),
        cmocka_unit_test(test_blocks_are_cut),
        cmocka_unit_test(test_memory_runs_out),
    };
    return cmocka_run_group_tests(tests, NULL, clean_up);
}
