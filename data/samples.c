/* Where samples come from: a tensor of pictures, or a folder of folders of them.
 *
 *     pictures/cat/1.jpg  pictures/cat/2.jpg  pictures/dog/1.png   ->   2 classes, 3 samples */
#include "pictures.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

void cb_samples_free(cb_samples *samples) {
    if (!samples) return;
    for (int64_t i = 0; samples->path && i < samples->count; i++) free(samples->path[i]);
    for (int64_t i = 0; samples->name && i < samples->classes; i++) free(samples->name[i]);
    free(samples->path);
    free(samples->name);
    free(samples->label);
    free(samples->pictures);
    free(samples);
}

int64_t cb_samples_count(const cb_samples *samples) { return samples ? samples->count : 0; }
int64_t cb_samples_classes(const cb_samples *samples) { return samples ? samples->classes : 0; }

const char *cb_samples_class(const cb_samples *samples, int64_t index) {
    bool named = samples && samples->name && index >= 0 && index < samples->classes;
    return named ? samples->name[index] : NULL;
}

/* ---- tensors -------------------------------------------------------------------------------- */

static bool tensors_fit(const cb_tensor *pictures, const cb_tensor *labels) {
    if (!pictures || !labels) return data_refuse(CB_ERR_ARGUMENT, "samples_tensors: NULL"), false;
    int rank = cb_rank(pictures);
    int64_t channels = rank == 4 ? cb_size(pictures, 1) : 1;
    bool small = cb_size(pictures, rank - 1) < INT32_MAX && channels >= 1 && channels <= 4;
    if ((rank == 3 || rank == 4) && cb_dtype_of(pictures) == CB_U8 && small &&
        cb_numel(pictures) > 0 && cb_rank(labels) == 1 &&
        cb_size(labels, 0) == cb_size(pictures, 0))
        return true;
    data_refuse(CB_ERR_SHAPE,
                "samples_tensors: pictures of %s and rank %d with labels of rank %d; there are "
                "u8[N, H, W] and u8[N, 1..4, H, W], N > 0, with as many labels",
                cb_dtype_name(cb_dtype_of(pictures)), rank, cb_rank(labels));
    return false;
}

static bool labels_fit(cb_samples *samples) {
    for (int64_t i = 0; i < samples->count; i++) {
        int64_t label = samples->label[i];
        if (label < 0 || label == INT64_MAX)
            return data_refuse(CB_ERR_INDEX,
                               "samples_tensors: label %" PRId64 " at position %" PRId64, label, i),
                   false;
        if (label >= samples->classes) samples->classes = label + 1;
    }
    return true;
}

cb_samples *cb_samples_tensors(cb_tensor *pictures, cb_tensor *labels) {
    if (!tensors_fit(pictures, labels)) return NULL;
    int rank = cb_rank(pictures);
    cb_samples *samples = calloc(1, sizeof *samples);
    if (samples) {
        samples->count = cb_size(pictures, 0);
        samples->channels = rank == 4 ? (int)cb_size(pictures, 1) : 1;
        samples->height = (int)cb_size(pictures, rank - 2);
        samples->width = (int)cb_size(pictures, rank - 1);
        samples->pictures = malloc((size_t)cb_numel(pictures));
        samples->label = malloc((size_t)samples->count * sizeof *samples->label);
    }
    bool room = samples && samples->pictures && samples->label;
    if (!room) data_refuse(CB_ERR_MEMORY, "samples_tensors: out of memory");
    if (room && cb_read(pictures, samples->pictures, CB_U8) == CB_OK &&
        cb_read(labels, samples->label, CB_I64) == CB_OK && labels_fit(samples))
        return samples;
    cb_samples_free(samples);
    return NULL;
}

/* ---- folders -------------------------------------------------------------------------------- */

static int visible(const struct dirent *entry) { return entry->d_name[0] != '.'; }

static int is_picture(const struct dirent *entry) {
    const char *dot = strrchr(entry->d_name, '.');
    return visible(entry) && dot &&
           (!strcasecmp(dot, ".jpg") || !strcasecmp(dot, ".jpeg") || !strcasecmp(dot, ".png"));
}

static int by_name(const struct dirent **a, const struct dirent **b) {
    return strcmp((*a)->d_name, (*b)->d_name); /* not as a locale sorts */
}

/* Names in a folder, in order; -1 with an error. */
static int list(const char *path, int (*wanted)(const struct dirent *), struct dirent ***entry) {
    int count = scandir(path, entry, wanted, by_name);
    if (count < 0) data_refuse_file("samples_folder", path);
    return count;
}

static void list_free(struct dirent **entry, int count) {
    for (int i = 0; i < count; i++) free(entry[i]);
    free(entry);
}

static char *joined(const char *folder, const char *name) {
    char *path = NULL;
    if (asprintf(&path, "%s/%s", folder, name) >= 0) return path;
    return data_refuse(CB_ERR_MEMORY, "samples_folder: out of memory"), NULL;
}

static bool add_paths(cb_samples *samples, const char *folder, struct dirent **entry, int count) {
    size_t all = (size_t)(samples->count + count + 1);
    char **path = realloc(samples->path, all * sizeof *path);
    if (path) samples->path = path;
    int64_t *label = path ? realloc(samples->label, all * sizeof *label) : NULL;
    if (!label) return data_refuse(CB_ERR_MEMORY, "samples_folder: out of memory"), false;
    samples->label = label;
    for (int i = 0; i < count; i++) {
        if (!(path[samples->count] = joined(folder, entry[i]->d_name))) return false;
        label[samples->count++] = samples->classes;
    }
    return true;
}

/* A folder is a class, with or without pictures; what is no folder is left out. */
static bool add_class(cb_samples *samples, const char *root, const char *name) {
    struct dirent **entry;
    struct stat status;
    char *folder = joined(root, name);
    bool added = folder != NULL;
    if (folder && stat(folder, &status) == 0 && S_ISDIR(status.st_mode)) {
        int count = list(folder, is_picture, &entry);
        added = count >= 0 && add_paths(samples, folder, entry, count);
        if (count >= 0) list_free(entry, count);
        added = added && (samples->name[samples->classes] = strdup(name)) != NULL;
        samples->classes += added;
    }
    free(folder);
    return added;
}

cb_samples *cb_samples_folder(const char *path, int channels) {
    if (!path || (channels != 1 && channels != 3 && channels != 4))
        return data_refuse(CB_ERR_ARGUMENT,
                           "samples_folder: %d channels of %s; there are 1, 3 and 4", channels,
                           path ? path : "NULL"),
               NULL;
    struct dirent **entry;
    int count = list(path, visible, &entry);
    if (count < 0) return NULL;
    cb_samples *samples = calloc(1, sizeof *samples);
    if (samples) samples->name = calloc((size_t)count + 1, sizeof *samples->name);
    bool made = samples && samples->name;
    if (!made) data_refuse(CB_ERR_MEMORY, "samples_folder: out of memory");
    if (made) samples->channels = channels;
    for (int i = 0; made && i < count; i++) made = add_class(samples, path, entry[i]->d_name);
    list_free(entry, count);
    if (made && samples->count) return samples;
    if (made)
        data_refuse(CB_ERR_IO,
                    "samples_folder: %s: no folders with pictures (.jpg, .png) are in it", path);
    cb_samples_free(samples);
    return NULL;
}
