/* Byte pair encoding of one word (Sennrich, Haddow, Birch 2016; on bytes: Radford et al. 2019).
 *
 *     l o w e r   merges: "l o", "lo w", "e r"   ->   low er
 *
 * Of all pairs of neighbours the one of the lowest rank is merged, the leftmost among equals, until
 * none has a rank. The pairs wait in a heap, so that a word of n bytes takes n log n steps: a text
 * without a space is one word. A pair whose side was merged meanwhile is left in the heap, and told
 * by its tokens when it comes up. */
#include "tokenizer.h"

#include <stdlib.h>

typedef struct Piece {
    int32_t token;          /* NO_TOKEN: merged into the one before */
    int32_t previous, next; /* -1, and the count of pieces: none */
} Piece;

typedef struct WaitingPair {
    int32_t rank, at; /* at: the left piece */
    int32_t left, right, token;
} WaitingPair;

/* ---- the table ------------------------------------------------------------------------------ */

static size_t slot_of(const cb_tokenizer *tokenizer, int32_t left, int32_t right) {
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    key *= UINT64_C(0x9e3779b97f4a7c15);
    size_t at = (size_t)(key >> 32) & (tokenizer->merges - 1);
    for (; tokenizer->merge[at].rank != NO_TOKEN; at = (at + 1) & (tokenizer->merges - 1))
        if (tokenizer->merge[at].left == left && tokenizer->merge[at].right == right) break;
    return at;
}

bool merge_table_make(cb_tokenizer *tokenizer, size_t merges) {
    tokenizer->merges = 16;
    while (tokenizer->merges < 2 * merges) tokenizer->merges *= 2;
    tokenizer->merge = malloc(tokenizer->merges * sizeof *tokenizer->merge);
    if (!tokenizer->merge) return data_refuse(CB_ERR_MEMORY, "tokenizer: out of memory"), false;
    for (size_t i = 0; i < tokenizer->merges; i++) tokenizer->merge[i].rank = NO_TOKEN;
    return true;
}

bool merge_add(cb_tokenizer *tokenizer, PairMerge merge) {
    PairMerge *slot = &tokenizer->merge[slot_of(tokenizer, merge.left, merge.right)];
    if (slot->rank != NO_TOKEN) return false;
    *slot = merge;
    tokenizer->merge_count++;
    return true;
}

/* ---- the heap ------------------------------------------------------------------------------- */

static bool before(const WaitingPair *a, const WaitingPair *b) {
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static void push(WaitingPair *heap, size_t *count, WaitingPair candidate) {
    size_t at = (*count)++;
    for (; at && before(&candidate, &heap[(at - 1) / 2]); at = (at - 1) / 2)
        heap[at] = heap[(at - 1) / 2];
    heap[at] = candidate;
}

static WaitingPair pop(WaitingPair *heap, size_t *count) {
    WaitingPair first = heap[0], last = heap[--*count];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < *count; at = child) {
        if (child + 1 < *count && before(&heap[child + 1], &heap[child])) child++;
        if (before(&last, &heap[child])) break;
        heap[at] = heap[child];
    }
    heap[at] = last;
    return first;
}

/* ---- a word --------------------------------------------------------------------------------- */

void merge_space_free(MergeSpace *space) {
    free(space->piece);
    free(space->heap);
    *space = (MergeSpace){0};
}

/* A word of n pieces has n - 1 pairs, and each of at most n - 1 merges makes two more. */
static bool reserve(MergeSpace *space, size_t bytes) {
    if (bytes <= space->capacity) return true;
    if (bytes > INT32_MAX)
        return data_refuse(CB_ERR_ARGUMENT, "tokenizer_encode: a word of %zu bytes", bytes), false;
    merge_space_free(space);
    size_t capacity = bytes < 64 ? 64 : bytes;
    space->piece = malloc(capacity * sizeof *space->piece);
    space->heap = malloc(3 * capacity * sizeof *space->heap);
    if (space->piece && space->heap) {
        space->capacity = capacity;
        return true;
    }
    merge_space_free(space);
    return data_refuse(CB_ERR_MEMORY, "tokenizer_encode: out of memory"), false;
}

/* The pair of piece left and its neighbour waits, if it has a rank. */
static void consider(const cb_tokenizer *tokenizer, MergeSpace *space, size_t *waiting,
                     int32_t left, int32_t count) {
    int32_t right = left < 0 ? count : space->piece[left].next;
    if (right >= count) return;
    int32_t a = space->piece[left].token, b = space->piece[right].token;
    const PairMerge *merge = &tokenizer->merge[slot_of(tokenizer, a, b)];
    if (merge->rank == NO_TOKEN) return;
    push(space->heap, waiting, (WaitingPair){merge->rank, left, a, b, merge->token});
}

static void merge_all(const cb_tokenizer *tokenizer, MergeSpace *space, int32_t count) {
    Piece *piece = space->piece;
    size_t waiting = 0;
    for (int32_t i = 0; i < count; i++) consider(tokenizer, space, &waiting, i, count);
    while (waiting) {
        WaitingPair best = pop(space->heap, &waiting);
        int32_t left = best.at, right = piece[left].next;
        if (piece[left].token != best.left || right >= count || piece[right].token != best.right)
            continue;
        piece[left].token = best.token;
        piece[left].next = piece[right].next;
        piece[right].token = NO_TOKEN;
        if (piece[right].next < count) piece[piece[right].next].previous = left;
        consider(tokenizer, space, &waiting, piece[left].previous, count);
        consider(tokenizer, space, &waiting, left, count);
    }
}

int64_t merge_word(const cb_tokenizer *tokenizer, MergeSpace *space, const uint8_t *word,
                   size_t bytes, int32_t *ids) {
    if (!reserve(space, bytes)) return -1;
    int32_t count = (int32_t)bytes;
    for (int32_t i = 0; i < count; i++)
        space->piece[i] = (Piece){tokenizer->of_byte[word[i]], i - 1, i + 1};
    merge_all(tokenizer, space, count);
    int64_t given = 0;
    for (int32_t i = 0; i < count; i = space->piece[i].next) ids[given++] = space->piece[i].token;
    return given;
}
