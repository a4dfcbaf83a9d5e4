/* Develops a photograph: exposure, white balance, filmic curve, saturation, vignette, gamma. More than thirty operations,
 * which eager runs one by one over the whole picture and Carbide compiles into one kernel.
 *
 *     photo [picture.jpg [out_folder]]     writes photo_eager.png and photo_compiled.png
 *
 * The picture that comes with Carbide is a NASA photograph of Eileen Collins, in the public domain (examples/data). */
#include <carbide.h>
#include <math.h>
#include <string.h>
#include <time.h>

#include "stb_image.h"
#include "stb_image_write.h"

/* The curve of Krzysztof Narkowicz, "ACES Filmic Tone Mapping Curve" (2015). */
static cb_tensor *filmic(cb_tensor *x) {
    cb_tensor *above = cb_mul(x, cb_add(cb_mul(x, 2.51), 0.03));
    cb_tensor *below = cb_add(cb_mul(x, cb_add(cb_mul(x, 2.43), 0.59)), 0.14);
    return cb_clamp(cb_div(above, below), 0.0, 1.0);
}

/* 1 in the middle, darker towards the corners: f32[height, width] */
static cb_tensor *vignette(int64_t height, int64_t width, double strength) {
    cb_tensor *u = cb_sub(cb_div(cb_to(cb_arange(0, width), CB_F32), (double)width), 0.5);
    cb_tensor *v = cb_sub(cb_div(cb_to(cb_arange(0, height), CB_F32), (double)height), 0.5);
    cb_tensor *distance = cb_add(cb_square(u), cb_unsqueeze(cb_square(v), 1));
    return cb_sub(1.0, cb_mul(distance, strength));
}

/* picture: u8[3, height, width], gains: f32[3, 1, 1] -> u8[3, height, width] */
static cb_tensor *develop(cb_tensor *picture, cb_tensor *gains) {
    cb_tensor *x = cb_div(cb_to(picture, CB_F32), 255.0);
    x = cb_pow(x, 2.2);                    /* to linear light */
    x = cb_mul(x, exp2(0.7));              /* exposure, in stops */
    x = filmic(cb_mul(x, gains));          /* white balance, then the curve */
    cb_tensor *gray = cb_mean(x, 0, true); /* saturation: away from gray */
    x = cb_add(gray, cb_mul(cb_sub(x, gray), 1.25));
    x = cb_mul(x, vignette(cb_size(picture, 1), cb_size(picture, 2), 0.9));
    x = cb_pow(cb_clamp(x, 0.0, 1.0), 1.0 / 2.2);
    return cb_to(cb_round(cb_mul(x, 255.0)), CB_U8);
}

/* stb keeps pixels together, we keep planes: u8[h, w, 3] <-> u8[3, h, w] */
static cb_tensor *load_picture(const char *path) {
    int width, height, channels;
    unsigned char *pixels = stbi_load(path, &width, &height, &channels, 3);
    if (!pixels) return NULL;
    cb_tensor *x = cb_from_data(pixels, CB_U8, cb_dims(height, width, 3));
    stbi_image_free(pixels);
    return cb_contiguous(cb_permute(x, cb_dims(2, 0, 1)));
}

static bool save_picture(const char *folder, const char *name, cb_tensor *x) {
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    cb_tensor *pixels = cb_contiguous(cb_permute(x, cb_dims(1, 2, 0)));
    int width = (int)cb_size(x, 2), height = (int)cb_size(x, 1);
    return pixels && stbi_write_png(path, width, height, 3, cb_data(pixels), width * 3);
}

static double now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

enum { RUNS = 10 };

int main(int argc, char **argv) {
    const char *path = argc > 1 ? argv[1] : CARBIDE_EXAMPLE_DATA "/astronaut.jpg";
    const char *folder = argc > 2 ? argv[2] : ".";
    const float warm[3] = {1.08F, 1.0F, 0.92F};
    cb_scope_open();
    cb_tensor *picture = load_picture(path);
    if (!picture) return fprintf(stderr, "photo: cannot read %s\n", path), 1;
    cb_tensor *gains = cb_from_data(warm, CB_F32, cb_dims(3, 1, 1));

    cb_function *fast = cb_compile(develop);
    cb_tensor *eager = develop(picture, gains), *compiled = cb_call(fast, picture, gains);
    double start = now_ms();
    for (int i = 0; i < RUNS; i++) {
        cb_scope_open();
        develop(picture, gains);
        cb_scope_close();
    }
    double middle = now_ms();
    for (int i = 0; i < RUNS; i++) {
        cb_scope_open();
        cb_call(fast, picture, gains);
        cb_scope_close();
    }
    double end = now_ms();

    cb_tensor *apart = cb_abs(cb_sub(cb_to(eager, CB_I32), cb_to(compiled, CB_I32)));
    int64_t difference = cb_item_int(cb_max(apart));
    cb_function_stats stats = cb_stats(fast);
    bool saved = save_picture(folder, "photo_eager.png", eager) &&
                 save_picture(folder, "photo_compiled.png", compiled);
    printf("%d ops, %d kernel: eager %.2f ms, compiled %.2f ms, %.1fx; largest difference %d/255\n",
           (int)stats.kernels_eager, (int)stats.kernels, (middle - start) / RUNS,
           (end - middle) / RUNS, (middle - start) / (end - middle), (int)difference);

    cb_function_free(fast);
    cb_scope_close();
    if (cb_error()) fprintf(stderr, "%s\n", cb_error());
    return cb_error() || !saved || difference > 1 || stats.kernels != 1;
}
