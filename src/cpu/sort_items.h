/* Template of the sorts of one kind of item; sort.c includes it once per kind, with
 *   ITEM          the type
 *   NAME(x)       x with the kind's suffix
 *   BEFORE(a, b)  whether a stands before b: no two items are equal, so every sort is stable
 *   KEY(a)        the bits of the key
 *   NEXT(item, i, count, bound)  the first one from i on that stands before the bound; or count */

static void NAME(insertion_sort)(ITEM *item, int64_t count) {
    for (int64_t i = 1; i < count; i++) {
        ITEM moving = item[i];
        int64_t at = i;
        for (; at > 0 && BEFORE(moving, item[at - 1]); at--) item[at] = item[at - 1];
        item[at] = moving;
    }
}

static void NAME(merge)(const ITEM *low, const ITEM *high, const ITEM *end, ITEM *out) {
    const ITEM *a = low, *b = high;
    while (a < high && b < end) *out++ = BEFORE(*b, *a) ? *b++ : *a++;
    while (a < high) *out++ = *a++;
    while (b < end) *out++ = *b++;
}

static void NAME(merge_sort)(ITEM *item, ITEM *other, int64_t count) {
    for (int64_t i = 0; i < count; i += RUN)
        NAME(insertion_sort)(item + i, count - i < RUN ? count - i : RUN);
    ITEM *from = item, *to = other;
    for (int64_t width = RUN; width < count; width *= 2) {
        for (int64_t i = 0; i < count; i += 2 * width) {
            int64_t middle = i + width < count ? i + width : count;
            int64_t end = i + 2 * width < count ? i + 2 * width : count;
            NAME(merge)(from + i, from + middle, from + end, to + i);
        }
        ITEM *swapped = from;
        from = to, to = swapped;
    }
    if (from != item) memcpy(item, from, (size_t)count * sizeof *item);
}

/* Keys have so many bytes that may differ. Where the sorted items are: in either block. */
static const ITEM *NAME(radix_sort)(ITEM *item, ITEM *other, int64_t count, int bytes) {
    int64_t histogram[8][256] = {0};
    for (int64_t i = 0; i < count; i++)
        for (int byte = 0; byte < bytes; byte++) histogram[byte][KEY(item[i]) >> 8 * byte & 255]++;
    ITEM *from = item, *to = other;
    for (int byte = 0; byte < bytes; byte++) {
        int64_t *start = histogram[byte], sum = 0;
        if (start[KEY(item[0]) >> 8 * byte & 255] == count) continue;
        for (int value = 0; value < 256; value++) {
            int64_t here = start[value];
            start[value] = sum, sum += here;
        }
        for (int64_t i = 0; i < count; i++) to[start[KEY(from[i]) >> 8 * byte & 255]++] = from[i];
        ITEM *swapped = from;
        from = to, to = swapped;
    }
    return from;
}

/* Restores the heap below `at`: the parent is the last in order of its family. */
static void NAME(sift)(ITEM *heap, int64_t count, int64_t at) {
    ITEM moving = heap[at];
    for (int64_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && BEFORE(heap[child], heap[child + 1])) child++;
        if (!BEFORE(moving, heap[child])) break;
        heap[at] = heap[child];
    }
    heap[at] = moving;
}

/* The first `keep` of the order, sorted, at the front of item. */
static void NAME(select_first)(ITEM *item, ITEM *other, int64_t count, int64_t keep) {
    for (int64_t i = keep / 2 - 1; i >= 0; i--) NAME(sift)(item, keep, i);
    for (int64_t i = keep; (i = NEXT(item, i, count, item[0])) < count; i++) {
        item[0] = item[i];
        NAME(sift)(item, keep, 0);
    }
    NAME(merge_sort)(item, other, keep);
}

/* Of which at least the first `keep` are in order then. */
static const ITEM *NAME(order)(ITEM *item, ITEM *other, const SortTask *task, int bytes) {
    if (task->keep > 0 && task->keep <= task->length / HEAP_SHARE)
        NAME(select_first)(item, other, task->length, task->keep);
    else if (task->length >= RADIX_FROM)
        return NAME(radix_sort)(item, other, task->length, bytes);
    else
        NAME(merge_sort)(item, other, task->length);
    return item;
}

#undef ITEM
#undef NAME
#undef BEFORE
#undef KEY
#undef NEXT
