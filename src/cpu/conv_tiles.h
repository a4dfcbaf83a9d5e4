/* What the two files of convolution on AMX tiles share: conv_tiles.c cuts a step into tasks and
 * multiplies, conv_tiles_copy.c lays the rows of x as the tiles want them. */
#ifndef CARBIDE_CPU_CONV_TILES_H
#define CARBIDE_CPU_CONV_TILES_H

#include "cpu/conv_amx.h"
#include "cpu/conv_internal.h"

/* A row is what one position reads in one step: 32 elements. In a copy it stands in a plane with
 * the same row of the other positions.
 *
 *     IN_PLACE   a kernel of one position at stride 1 in whole steps: x as it lies
 *     PLANES     a row is some channels of a pixel. Of stride s there is a plane for each remainder
 *                of y and of x by s, which makes the kernel one of stride 1
 *     LINES      few channels: a row is some of a line of the kernel, which is one run of memory;
 *                the lines of a kernel whose last elements are few share further rows, the tail */
typedef enum TileForm { IN_PLACE, PLANES, LINES } TileForm;

typedef struct Tiles {
    const Convolution *common;
    const TileKernels *kernel;
    ConvolutionTask task;
    TileForm form;
    int64_t inner;                   /* channels of a group */
    int64_t taps, chunks;            /* pixels, or lines, of the kernel; rows of each */
    int64_t rest, tail;              /* elements of each for the tail; rows of that */
    int64_t steps;                   /* rows of a position, in all */
    int64_t phase[2], phases[2];     /* of y and x: the stride that is dealt out; its remainders */
    int64_t pitch;                   /* positions from line to line */
    bool shares;                     /* padding at the end of a line is that of the next */
    int64_t plane_lines, planes;     /* of each chunk */
    int64_t copied;                  /* bytes of a slab's copy */
    int64_t band, bands;             /* lines of positions in a slab; slabs of a z */
    int64_t slabs, slabs_together;   /* of all images; in a task */
    int64_t panels, panels_together; /* of a group; in a task */
    int64_t panel_bytes;
    TileSteps sweep;
} Tiles;

typedef struct TileSlab { /* lines of positions of one image */
    int64_t image, z, first, lines;
    char *copy;
} TileSlab;

/* Lines that the plane of `band` lines of positions has; bytes of the copy. */
int64_t tile_plane_lines(const Tiles *t, int64_t band);
int64_t tile_copy_bytes(const Tiles *t, int64_t band);
int64_t tile_scratch_bytes(const Tiles *t); /* of the scratch that a copy takes */
/* Byte offsets of the rows of a position in a copy, in the order of the steps. */
void tile_offsets(const Tiles *t, int64_t *offset);
void tile_clear(const Tiles *t, char *copy); /* what no slab writes, once */
/* The slab's part of x, for one group. */
void tile_copy(const Tiles *t, const TileSlab *slab, int64_t group, char *scratch);

#endif
