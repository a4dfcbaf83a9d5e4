/* One picture of a file, and what a reader of samples asks of its source. */
#ifndef CARBIDE_DATA_PICTURES_H
#define CARBIDE_DATA_PICTURES_H

#include "ahead.h"

/* A picture as it lies: rows of pixels of channels, or a plane for each channel. */
typedef struct PictureView {
    uint8_t *at;
    bool owned;  /* free it */
    int height, width, channels;
    int64_t down, right, deeper; /* bytes to the next row, pixel, channel */
} PictureView;

/* JPEG or PNG, turned into so many channels: 1, 3 or 4. */
bool picture_read(const char *path, int channels, PictureView *picture, BatchError *error);
void picture_free(PictureView *picture);

struct cb_samples {
    int64_t count, classes;
    int64_t *label;    /* of each */
    uint8_t *pictures; /* of a tensor: [count, channels, height, width], or NULL */
    int channels, height, width;
    char **path; /* of a folder: of each, or NULL */
    char **name; /* of classes, or NULL */
};

#endif
