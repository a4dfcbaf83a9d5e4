/* Batches of samples: chosen, cropped, turned and normalized by seed and place.
 *
 *     place p of a run   ->  epoch p / count, sample data_shuffle(p % count)
 *                        ->  crop, turn: numbers drawn by p  ->  f32[channels, height, width]
 *
 * Batch n is places n * batch .. and on, so that it is the same for any number of threads, and for
 * a run that goes on. */
#include "pictures.h"
#include "position.h"

#include <inttypes.h>
#include <stdlib.h>

enum { MOST_CHANNELS = 4, MOST_THREADS = 64 };
enum { DRAW_DOWN, DRAW_RIGHT, DRAW_FLIP, DRAWS };

struct cb_sample_reader {
    const cb_samples *samples;
    cb_sample_options options;
    BatchPosition position;
    Ahead *ahead;
    int64_t pixels; /* of a picture that comes out, with its channels */
};

/* ---- one sample ----------------------------------------------------------------------------- */

typedef struct CropWindow { /* of a picture, beyond whose edges there is nothing */
    int64_t top, left;
    bool flip;
} CropWindow;

/* Where a window of so many begins in a line of `there`, with pad nothings at both ends. */
static int64_t place_window(const cb_sample_options *options, uint64_t seed, uint64_t draw,
                            int64_t there, int64_t wanted) {
    int64_t places = there + 2 * options->pad - wanted + 1;
    int64_t at =
        options->random ? (int64_t)data_draw(seed, draw, (uint64_t)places) : (places - 1) / 2;
    return at - options->pad;
}

static void normalize(const cb_sample_reader *reader, const PictureView *picture, CropWindow window,
                      float *out) {
    const cb_sample_options *options = &reader->options;
    for (int c = 0; c < picture->channels; c++) {
        float mean = (float)options->mean[c],
              deviation = options->deviation[c] ? (float)options->deviation[c] : 1;
        for (int64_t y = 0; y < options->height; y++) {
            int64_t row = window.top + y;
            for (int64_t x = 0; x < options->width; x++) {
                int64_t column = window.left + (window.flip ? options->width - 1 - x : x);
                bool inside =
                    row >= 0 && row < picture->height && column >= 0 && column < picture->width;
                const uint8_t *at = picture->at + row * picture->down + column * picture->right +
                                    c * picture->deeper;
                *out++ = ((inside ? (float)*at / 255 : 0) - mean) / deviation;
            }
        }
    }
}

static bool source_picture(const cb_samples *samples, int64_t index, PictureView *picture,
                           BatchError *error) {
    if (samples->path) return picture_read(samples->path[index], samples->channels, picture, error);
    int64_t plane = (int64_t)samples->height * samples->width;
    uint8_t *at = samples->pictures + index * samples->channels * plane;
    *picture = (PictureView){
        at, false, samples->height, samples->width, samples->channels, samples->width, 1, plane};
    return true;
}

static bool make_sample(const cb_sample_reader *reader, uint64_t seed, uint64_t place, float *out,
                        int64_t *label, BatchError *error) {
    const cb_samples *samples = reader->samples;
    const cb_sample_options *options = &reader->options;
    uint64_t count = (uint64_t)samples->count, index = place % count;
    if (options->random)
        index = data_shuffle(seed ^ data_draw(seed, place / count, UINT64_MAX), index, count);
    PictureView picture;
    if (!source_picture(samples, (int64_t)index, &picture, error)) return false;
    bool fits = picture.height + 2 * options->pad >= options->height &&
                picture.width + 2 * options->pad >= options->width;
    if (!fits)
        batch_refuse(error, CB_ERR_SHAPE,
                     "%s: a picture of %d x %d, for windows of %" PRId64 " x %" PRId64
                     " with %" PRId64 " around",
                     samples->path ? samples->path[index] : "sample_reader_next", picture.height,
                     picture.width, options->height, options->width, options->pad);
    if (fits) {
        uint64_t draw = place * DRAWS;
        CropWindow window = {
            place_window(options, seed, draw + DRAW_DOWN, picture.height, options->height),
            place_window(options, seed, draw + DRAW_RIGHT, picture.width, options->width),
            options->flip && options->random && data_draw(seed, draw + DRAW_FLIP, 2)};
        normalize(reader, &picture, window, out);
        *label = samples->label[index];
    }
    picture_free(&picture);
    return fits;
}

/* ---- batches -------------------------------------------------------------------------------- */

/* Labels first, as they are the wider ones. */
static void make_batch(void *user, uint64_t seed, int64_t n, void *batch, BatchError *error) {
    const cb_sample_reader *reader = user;
    int64_t *label = batch, each = reader->options.batch;
    float *picture = (float *)(label + each);
    for (int64_t i = 0; i < each; i++) {
        uint64_t place = (uint64_t)n * (uint64_t)each + (uint64_t)i;
        if (!make_sample(reader, seed, place, picture + i * reader->pixels, label + i, error))
            return;
    }
}

static bool options_fit(const cb_samples *samples, const cb_sample_options *o) {
    if (!samples || !o) return data_refuse(CB_ERR_ARGUMENT, "sample_reader_new: NULL"), false;
    bool numbers = o->batch > 0 && o->height > 0 && o->width > 0 && o->pad >= 0 && o->threads >= 0;
    bool small = numbers && o->threads <= MOST_THREADS && o->pad < INT32_MAX &&
                 o->height < INT32_MAX && o->width < INT32_MAX &&
                 o->batch <= INT32_MAX / MOST_CHANNELS / o->height / o->width;
    if (small) return true;
    data_refuse(CB_ERR_ARGUMENT,
                "sample_reader_new: batches of %" PRId64 " windows of %" PRId64 " x %" PRId64
                ", %" PRId64 " around, %d threads",
                o->batch, o->height, o->width, o->pad, o->threads);
    return false;
}

cb_sample_reader *cb_sample_reader_new(const cb_samples *samples,
                                       const cb_sample_options *options) {
    if (!options_fit(samples, options)) return NULL;
    cb_sample_reader *reader = calloc(1, sizeof *reader);
    if (!reader) return data_refuse(CB_ERR_MEMORY, "sample_reader_new: out of memory"), NULL;
    reader->samples = samples;
    reader->options = *options;
    reader->pixels = samples->channels * options->height * options->width;
    size_t bytes =
        (size_t)options->batch * (sizeof(int64_t) + (size_t)reader->pixels * sizeof(float));
    if (position_open(&reader->position, "SampleReader", options->seed))
        reader->ahead = ahead_new(make_batch, reader, bytes, options->threads);
    if (reader->ahead) return reader;
    (cb_sample_reader_free)(reader);
    return NULL;
}

cb_status cb_sample_reader_next(cb_sample_reader *reader, cb_tensor **pictures,
                                cb_tensor **labels) {
    if (!reader || !pictures || !labels)
        return data_refuse(CB_ERR_ARGUMENT, "sample_reader_next: NULL");
    uint64_t seed;
    int64_t n;
    const cb_sample_options *options = &reader->options;
    if (!position_read(&reader->position, &seed, &n)) return cb_error_status();
    const int64_t *label = ahead_get(reader->ahead, seed, n);
    if (!label) return cb_error_status();
    cb_tensor *x = cb_from_data(
        label + options->batch, CB_F32,
        (cb_dim_list){
            4, {options->batch, reader->samples->channels, options->height, options->width}});
    cb_tensor *y = cb_from_data(label, CB_I64, cb_dims_one(options->batch));
    if (x && y && position_write(&reader->position, seed, n + 1)) {
        *pictures = x, *labels = y;
        return CB_OK;
    }
    cb_free(x), cb_free(y);
    return cb_error_status();
}

cb_module *cb_sample_reader_state(cb_sample_reader *reader) {
    return reader ? reader->position.state
                  : (data_refuse(CB_ERR_ARGUMENT, "sample_reader_state: NULL"), NULL);
}

void cb_sample_reader_free(cb_sample_reader *reader) {
    if (!reader) return;
    ahead_free(reader->ahead);
    position_close(&reader->position);
    free(reader);
}
