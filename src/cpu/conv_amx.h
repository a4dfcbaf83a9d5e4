/* The kernels of convolution on AMX tiles, as conv_tiles.c drives them. x and the weights are bf16,
 * sums f32. */
#ifndef CARBIDE_CPU_CONV_AMX_H
#define CARBIDE_CPU_CONV_AMX_H

#include "cpu/end_kernel.h"

enum {
    TILE_SIDE = 16,      /* positions, or out channels, of a tile of sums */
    TILE_SPAN = 32,      /* of the four that are summed at once */
    TILE_STEP = 32,      /* k of one step */
    TILE_ROW_BYTES = 64, /* the same in bytes */
    TILE_BYTES = TILE_SIDE * TILE_ROW_BYTES,
    TILE_STEP_BYTES = 2 * TILE_BYTES /* weights of a step: two tiles of pairs of k by channels */
};

typedef struct TileBlock { /* 32 positions */
    const char *low, *high; /* the rows of x of 16 each; high NULL: there are 16 */
    int count;              /* of them that are results */
    uint8_t lane[TILE_SPAN];
    int64_t at[TILE_SPAN]; /* of each the first element in the result */
} TileBlock;

typedef struct TileSteps { /* row r of step i lies at low or high + offset[i] + r * stride bytes */
    int64_t count, stride;
    const int64_t *offset; /* one more than count */
} TileSteps;

typedef struct TileSums { /* of 32 positions by 32 channels, until their end */
    const TileBlock *block; /* NULL: there are none */
    float *sum;             /* [32][32] */
    int64_t channel;        /* the first */
    int columns;
} TileSums;

typedef struct TileKernels {
    /* Computes sums; those before come to their end. Loads go one tile of weights past the last. */
    void (*multiply)(const TileSteps *steps, const TileSums *now, const char *weight,
                     const End *end, TileSums *before);
    void (*end)(const End *end, TileSums *sums);
    /* Rows of up to 32 elements, filled up with zeros: row i from `from + i * step` bytes. */
    void (*rows)(const char *from, int64_t step, int64_t count, int64_t elements, char *to);
    /* to[3 * i + c] = plane[c][i] */
    void (*interleave)(const char *const *plane, int64_t count, char *to);
} TileKernels;

#if defined(CARBIDE_HAVE_AMX)
extern const TileKernels conv_tiles_amx;
#endif

#endif
