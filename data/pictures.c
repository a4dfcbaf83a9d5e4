/* Pictures out of files, by stb_image, which fills up what a truncated JPEG lacks: that is looked
 * for first. */
#include "pictures.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wsign-compare"
#pragma GCC diagnostic ignored "-Wunused-but-set-variable"
#define STB_IMAGE_STATIC
#define STB_IMAGE_IMPLEMENTATION
#define STBI_ONLY_JPEG
#define STBI_ONLY_PNG
#define STBI_NO_STDIO
#define STBI_MAX_DIMENSIONS 32768
#include <stb_image.h>
#pragma GCC diagnostic pop

/* ---- JPEG ----------------------------------------------------------------------------------- */

/* Does the file have its end marker? Segments tell their lengths; behind a start of scan comes
 * data, in which 0xff stands before 0 and restart markers alone. */
static bool jpeg_ends(const uint8_t *at, size_t count) {
    for (size_t i = 2; i + 1 < count;) {
        if (at[i] != 0xff) {
            i++;
            continue;
        }
        int marker = at[i + 1];
        if (marker == 0xd9) return true;
        bool alone =
            marker == 0 || marker == 1 || marker == 0xff || (marker >= 0xd0 && marker <= 0xd8);
        if (alone)
            i += marker == 0xff ? 1 : 2;
        else if (i + 3 < count)
            i += 2 + ((size_t)at[i + 2] << 8 | at[i + 3]);
        else
            return false;
    }
    return false;
}

/* ---- files ---------------------------------------------------------------------------------- */

static uint8_t *read_all(int file, size_t count, size_t *got) {
    uint8_t *bytes = malloc(count + 1);
    for (*got = 0; bytes && *got < count;) {
        ssize_t more = read(file, bytes + *got, count - *got);
        if (more < 0 && errno == EINTR) continue;
        if (more <= 0) break;
        *got += (size_t)more;
    }
    return bytes;
}

/* Read, not mapped: who shortens a picture meanwhile ends no program. */
static uint8_t *file_bytes(const char *path, size_t *count, BatchError *error) {
    struct stat status;
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    uint8_t *bytes = NULL;
    if (file < 0 || fstat(file, &status) != 0)
        batch_refuse(error, CB_ERR_IO, "%s: %s", path, strerror(errno));
    else if (!S_ISREG(status.st_mode))
        batch_refuse(error, CB_ERR_IO, "%s: not a regular file", path);
    else if (status.st_size > INT32_MAX)
        batch_refuse(error, CB_ERR_IO, "%s: a picture of more than 2 GB", path);
    else if (!(bytes = read_all(file, (size_t)status.st_size, count)))
        batch_refuse(error, CB_ERR_MEMORY, "%s: out of memory", path);
    if (file >= 0) close(file);
    return bytes;
}

bool picture_read(const char *path, int channels, PictureView *picture, BatchError *error) {
    size_t count;
    uint8_t *bytes = file_bytes(path, &count, error);
    if (!bytes) return false;
    int width = 0, height = 0, inside;
    uint8_t *pixels = NULL;
    bool jpeg = count >= 2 && bytes[0] == 0xff && bytes[1] == 0xd8;
    if (jpeg && !jpeg_ends(bytes, count))
        batch_refuse(error, CB_ERR_IO, "%s: the picture is truncated", path);
    else if (!(pixels =
                   stbi_load_from_memory(bytes, (int)count, &width, &height, &inside, channels)))
        batch_refuse(error, CB_ERR_IO, "%s: not a picture of JPEG or PNG, or a damaged one: %s",
                     path, stbi_failure_reason());
    free(bytes);
    *picture = (PictureView){pixels,   true, height, width, channels, (int64_t)width * channels,
                             channels, 1};
    return pixels != NULL;
}

void picture_free(PictureView *picture) {
    if (picture->owned) stbi_image_free(picture->at);
    *picture = (PictureView){0};
}
