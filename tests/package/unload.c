/* A host that opens the library, computes on a thread, closes it, and lets the thread end: the
 * library's threads and their clean-up functions must still be there.
 *     unload LIBRARY */
#include <carbide.h>

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *library;
static pthread_barrier_t barrier;

static void *find(const char *name) {
    void *symbol = dlsym(library, name);
    if (!symbol) exit((puts(dlerror()), 1));
    return symbol;
}

static void compute(void) {
    void (*open)(void), (*close)(void);
    cb_tensor *(*from_data)(const void *, cb_dtype, cb_dim_list);
    cb_tensor *(*exponential)(cb_operand);
    cb_status (*read)(cb_tensor *, void *, cb_dtype);
    static const float x[70000] = {0};
    static float y[70000];
    void *symbol[] = {find("cb_scope_open"), find("cb_scope_close"), find("cb_from_data"),
                      find("cb_exp"), find("cb_read")};
    memcpy(&open, &symbol[0], sizeof open);
    memcpy(&close, &symbol[1], sizeof close);
    memcpy(&from_data, &symbol[2], sizeof from_data);
    memcpy(&exponential, &symbol[3], sizeof exponential);
    memcpy(&read, &symbol[4], sizeof read);
    open();
    cb_tensor *result = exponential(cb_operand_tensor(from_data(x, CB_F32, cb_dims(70000))));
    if (!result || read(result, y, CB_F32) || y[69999] != 1.0f) exit((puts("wrong result"), 1));
    close();
}

static void *thread_main(void *argument) {
    compute();
    pthread_barrier_wait(&barrier); /* the library is closed now */
    pthread_barrier_wait(&barrier);
    return argument;
}

int main(int argc, char **argv) {
    pthread_t thread;
    library = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!library) return puts("no library"), 1;
    pthread_barrier_init(&barrier, NULL, 2);
    pthread_create(&thread, NULL, thread_main, NULL);
    pthread_barrier_wait(&barrier);
    dlclose(library);
    pthread_barrier_wait(&barrier);
    pthread_join(thread, NULL);
    return 0;
}
