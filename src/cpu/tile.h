/* Macros for tiles in registers, whose vectors are named variables (compilers spill arrays).
 *
 *     EACH_3(M)    M(0) M(1) M(2)
 *     UP_TO_3(M)   M(1) M(2) M(3) */
#ifndef CARBIDE_CPU_TILE_H
#define CARBIDE_CPU_TILE_H

#define EACH_1(M) M(0)
#define EACH_2(M) EACH_1(M) M(1)
#define EACH_3(M) EACH_2(M) M(2)
#define EACH_4(M) EACH_3(M) M(3)
#define EACH_5(M) EACH_4(M) M(4)
#define EACH_6(M) EACH_5(M) M(5)
#define EACH_7(M) EACH_6(M) M(6)
#define EACH_8(M) EACH_7(M) M(7)
#define EACH_9(M) EACH_8(M) M(8)
#define EACH_10(M) EACH_9(M) M(9)
#define EACH_11(M) EACH_10(M) M(10)
#define EACH_12(M) EACH_11(M) M(11)
#define EACH_13(M) EACH_12(M) M(12)
#define EACH_14(M) EACH_13(M) M(13)

#define UP_TO_4(M) M(1) M(2) M(3) M(4)
#define UP_TO_6(M) UP_TO_4(M) M(5) M(6)
#define UP_TO_8(M) UP_TO_6(M) M(7) M(8)
#define UP_TO_14(M) UP_TO_8(M) M(9) M(10) M(11) M(12) M(13) M(14)

/* The low and high halves of two vectors of some lanes, lane by lane in turn. */
#define LOW_2(a, b) __builtin_shufflevector(a, b, 0, 2)
#define HIGH_2(a, b) __builtin_shufflevector(a, b, 1, 3)
#define LOW_4(a, b) __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define HIGH_4(a, b) __builtin_shufflevector(a, b, 2, 6, 3, 7)
#define LOW_8(a, b) __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define HIGH_8(a, b) __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#define LOW_16(a, b)                                                                               \
    __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define HIGH_16(a, b)                                                                              \
    __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)

/* Transposes row[0] ... row[count - 1], vectors of as many lanes: each stage interleaves the first
 * half of the rows with the second one, which rotates the bits of an element's place (row, lane) by
 * one; after log2(count) stages they have changed places. */
#define TRANSPOSE(Vector, row, count, LOW, HIGH)                                                   \
    for (int stage = 1; stage < (count); stage *= 2) {                                             \
        Vector next[count];                                                                        \
        for (int r = 0; r < (count) / 2; r++) {                                                    \
            next[2 * r] = LOW((row)[r], (row)[r + (count) / 2]);                                   \
            next[2 * r + 1] = HIGH((row)[r], (row)[r + (count) / 2]);                              \
        }                                                                                          \
        for (int r = 0; r < (count); r++) (row)[r] = next[r];                                      \
    }

#endif
