/* The photograph's pipeline: exposure, white balance, filmic curve, saturation, vignette, gamma.
 * Shared by photo.c and by `carbide bench photo`, so that what is shown is what is measured.
 *
 * Pictures are planes, u8[3, height, width]: every step runs along contiguous memory, and the gray
 * value of a pixel is a mean over dimension 0. */
#ifndef PHOTO_DEVELOP_H
#define PHOTO_DEVELOP_H

#include <carbide.h>
#include <math.h>
#include <stb_image.h>

/* The curve of Krzysztof Narkowicz, "ACES Filmic Tone Mapping Curve" (2015). */
static inline cb_tensor *filmic(cb_tensor *x) {
    cb_tensor *above = cb_mul(x, cb_add(cb_mul(x, 2.51), 0.03));
    cb_tensor *below = cb_add(cb_mul(x, cb_add(cb_mul(x, 2.43), 0.59)), 0.14);
    return cb_clamp(cb_div(above, below), 0.0, 1.0);
}

/* 1 in the middle, darker towards the corners: [height, width] */
static inline cb_tensor *vignette(int64_t height, int64_t width, double strength, cb_dtype dtype) {
    cb_tensor *u = cb_sub(cb_div(cb_to(cb_arange(0, width), dtype), (double)width), 0.5);
    cb_tensor *v = cb_sub(cb_div(cb_to(cb_arange(0, height), dtype), (double)height), 0.5);
    cb_tensor *distance = cb_add(cb_square(u), cb_unsqueeze(cb_square(v), 1));
    return cb_sub(1.0, cb_mul(distance, strength));
}

/* picture: u8[3, height, width], gains: [3, 1, 1], whose dtype is the one of all arithmetic ->
 * u8[3, height, width] */
static inline cb_tensor *develop(cb_tensor *picture, cb_tensor *gains) {
    cb_dtype dtype = cb_dtype_of(gains);
    cb_tensor *x = cb_div(cb_to(picture, dtype), 255.0);
    x = cb_pow(x, 2.2);                    /* to linear light */
    x = cb_mul(x, exp2(-0.4));             /* exposure, in stops */
    x = filmic(cb_mul(x, gains));          /* white balance, then the curve */
    cb_tensor *gray = cb_mean(x, 0, true); /* saturation: away from gray */
    x = cb_add(gray, cb_mul(cb_sub(x, gray), 1.1));
    x = cb_mul(x, vignette(cb_size(picture, 1), cb_size(picture, 2), 0.8, dtype));
    x = cb_pow(cb_clamp(x, 0.0, 1.0), 1.0 / 2.2);
    return cb_to(cb_round(cb_mul(x, 255.0)), CB_U8);
}

/* The white balance of the example: a little warmer. */
static inline cb_tensor *warm_gains(cb_dtype dtype) {
    const float gains[3] = {1.08F, 1.0F, 0.92F};
    return cb_to(cb_from_data(gains, CB_F32, cb_dims(3, 1, 1)), dtype);
}

/* NULL, without an error of Carbide, when the file is missing or no picture. */
static inline cb_tensor *load_picture(const char *path) {
    int width, height, channels;
    unsigned char *pixels = stbi_load(path, &width, &height, &channels, 3);
    if (!pixels) return NULL;
    cb_tensor *x = cb_from_data(pixels, CB_U8, cb_dims(height, width, 3)); /* pixel by pixel */
    stbi_image_free(pixels);
    return cb_contiguous(cb_permute(x, cb_dims(2, 0, 1)));
}

#endif
