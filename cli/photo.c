/* The case photo: the pipeline of examples/photo.c on its picture, or on a made-up one where that
 * file is missing. */
#include "cases.h"

#include <photo_develop.h> /* examples/ */

#include <string.h>
#include <unistd.h>

enum { SYNTHETIC_SIZE = 512 };

/* Where `make install` put the picture: beside the program, wherever that is. */
static cb_tensor *load_installed(void) {
    char path[4096];
    ssize_t bytes = readlink("/proc/self/exe", path, sizeof path - 256);
    if (bytes <= 0) return NULL;
    path[bytes] = '\0';
    char *slash = strrchr(path, '/');
    if (!slash) return NULL;
    strcpy(slash, "/" CARBIDE_DATA_FROM_PROGRAM "/astronaut.jpg");
    return load_picture(path);
}

/* Ramps in the three channels with noise over them: every value of u8 occurs. */
static cb_tensor *make_picture(void) {
    cb_dim_list sizes = cb_dims(3, SYNTHETIC_SIZE, SYNTHETIC_SIZE);
    cb_tensor *ramp = cb_div(cb_to(cb_arange(0, SYNTHETIC_SIZE), CB_F32), 2.0);
    cb_tensor *noise = cb_mul(cb_randn(sizes), 16.0);
    return cb_to(cb_clamp(cb_add(noise, ramp), 0.0, 255.0), CB_U8);
}

int photo_make(cb_dtype dtype, cb_tensor **input) {
    input[0] = load_installed();
    if (!input[0]) input[0] = load_picture(CARBIDE_EXAMPLE_DATA "/astronaut.jpg");
    if (!input[0]) input[0] = make_picture();
    input[1] = warm_gains(dtype);
    return 2;
}

int photo_body(cb_tensor *const *input, int input_count, cb_tensor **output, void *user) {
    (void)input_count, (void)user;
    *output = develop(input[0], input[1]);
    return 1;
}
