/* Develops a photograph: exposure, white balance, filmic curve, saturation, vignette, gamma
 * (photo_develop.h). More than thirty operations, which eager runs one by one over the whole
 * picture and Carbide compiles into one kernel.
 *
 *     photo [picture.jpg [out_folder]]     writes photo_eager.png and photo_compiled.png
 *
 * The picture that comes with Carbide is a NASA photograph of Eileen Collins, in the public domain
 * (examples/data). */
#include "photo_develop.h"

#include <stb_image_write.h>
#include <stdlib.h>
#include <time.h>

enum { RUNS = 51 };

static bool save_picture(const char *folder, const char *name, cb_tensor *x) {
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    cb_tensor *pixels = cb_contiguous(cb_permute(x, cb_dims(1, 2, 0)));
    int width = (int)cb_size(x, 2), height = (int)cb_size(x, 1);
    if (pixels && stbi_write_png(path, width, height, 3, cb_data(pixels), width * 3)) return true;
    fprintf(stderr, "photo: cannot write %s\n", path);
    return false;
}

static double now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median of RUNS calls, in milliseconds; fast NULL: eager. */
static double time_ms(cb_function *fast, cb_tensor *picture, cb_tensor *gains) {
    double ms[RUNS];
    for (int i = 0; i < RUNS; i++) {
        double start = now_ms();
        cb_scope_open();
        fast ? cb_call(fast, picture, gains) : develop(picture, gains);
        cb_scope_close();
        ms[i] = now_ms() - start;
    }
    qsort(ms, RUNS, sizeof *ms, ascending);
    return ms[RUNS / 2];
}

int main(int argc, char **argv) {
    const char *path = argc > 1 ? argv[1] : CARBIDE_EXAMPLE_DATA "/astronaut.jpg";
    const char *folder = argc > 2 ? argv[2] : ".";
    cb_scope_open();
    cb_tensor *picture = load_picture(path);
    if (!picture) return fprintf(stderr, "photo: cannot read %s\n", path), 1;
    cb_tensor *gains = warm_gains(CB_F32);

    cb_function *fast = cb_compile(develop);
    cb_tensor *eager = develop(picture, gains), *compiled = cb_call(fast, picture, gains);
    double eager_ms = time_ms(NULL, picture, gains), compiled_ms = time_ms(fast, picture, gains);

    cb_tensor *apart = cb_abs(cb_sub(cb_to(eager, CB_I32), cb_to(compiled, CB_I32)));
    int64_t difference = cb_item_int(cb_max(apart));
    cb_function_stats stats = cb_stats(fast);
    bool saved = save_picture(folder, "photo_eager.png", eager) &&
                 save_picture(folder, "photo_compiled.png", compiled);
    printf("%d ops became %d kernel: eager %.2f ms, compiled %.2f ms, %.1fx; "
           "largest difference %d/255\n",
           (int)stats.kernels_eager, (int)stats.kernels, eager_ms, compiled_ms,
           eager_ms / compiled_ms, (int)difference);

    cb_function_free(fast);
    cb_scope_close();
    if (cb_error()) fprintf(stderr, "%s\n", cb_error());
    return cb_error() || !saved || difference > 1 || stats.kernels != 1;
}
