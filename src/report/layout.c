/* A layered drawing, by Sugiyama's method: the order within layers by barycenters, sweeping down
 * and up, then places by least squares under that order (pool adjacent violators).
 *
 *     layers {a} {b c} {d}, links a-b a-c b-d c-d   ->        a
 *                                                           b   c
 *                                                             d             */
#include "report/layout.h"

#include <stdbool.h>
#include <stdlib.h>

enum { ORDER_SWEEPS = 8, PLACE_SWEEPS = 24, GAP_X = 26, GAP_Y = 44, MARGIN = 16 };

int layout_add(LayoutSheet *l, int width, int height, int layer) {
    push(l->arena, l->item, (LayoutItem){.width = width, .height = height, .layer = layer});
    return length(l->item) - 1;
}

void layout_link(LayoutSheet *l, int from, int to) {
    push(l->arena, l->item[from].below, to);
    push(l->arena, l->item[to].above, from);
}

static void fill_layers(LayoutSheet *l) {
    for (int i = 0; i < length(l->item); i++) {
        while (length(l->layer) <= l->item[i].layer) push(l->arena, l->layer, NULL);
        push(l->arena, l->layer[l->item[i].layer], i);
        l->item[i].center = length(l->layer[l->item[i].layer]);
    }
}

typedef enum LayoutSide { SIDE_ABOVE = 1, SIDE_BELOW = 2 } LayoutSide;

/* The mean of the neighbours' centers; without any, its own. */
static double mean(const LayoutSheet *l, int item, int sides) {
    const int *above = l->item[item].above, *below = l->item[item].below;
    double sum = 0;
    int count = 0;
    for (int i = 0; i < length(above) && sides & SIDE_ABOVE; i++, count++)
        sum += l->item[above[i]].center;
    for (int i = 0; i < length(below) && sides & SIDE_BELOW; i++, count++)
        sum += l->item[below[i]].center;
    return count ? sum / count : l->item[item].center;
}

/* ---- order ----------------------------------------------------------------------------------- */

typedef struct Ranked {
    double at;
    int item, place;
} Ranked;

static int by_key(const void *a, const void *b) {
    const Ranked *x = a, *y = b;
    if (x->at != y->at) return x->at < y->at ? -1 : 1;
    return x->place - y->place;
}

/* While the order is looked for, centers are places in it. */
static void order_layer(LayoutSheet *l, int *layer, LayoutSide side, Ranked *key) {
    int count = length(layer);
    for (int i = 0; i < count; i++) key[i] = (Ranked){mean(l, layer[i], side), layer[i], i};
    qsort(key, (size_t)count, sizeof *key, by_key);
    for (int i = 0; i < count; i++) {
        layer[i] = key[i].item;
        l->item[layer[i]].center = i;
    }
}

/* ---- places ---------------------------------------------------------------------------------- */

typedef struct Touching { /* items that touch, at the mean of where they want to be */
    double sum, weight;
    int count;
} Touching;

/* What passes holds its line more than boxes do. */
static double weight_of(const LayoutItem *item) { return item->width ? 1 : 6; }

/* Centers that are next to where they want to be, with room for widths between them: how far the
 * items of a pool lie from its first one is fixed, so that they only have to be in order. */
static void place_layer(LayoutSheet *l, const int *layer, int sides, Touching *pool) {
    double offset = 0;
    int pools = 0, at = 0;
    for (int i = 0; i < length(layer); i++) {
        const LayoutItem *item = &l->item[layer[i]];
        if (i) offset += (l->item[layer[i - 1]].width + item->width) / 2.0 + GAP_X;
        double weight = weight_of(item);
        pool[pools++] = (Touching){(mean(l, layer[i], sides) - offset) * weight, weight, 1};
        while (pools > 1 && pool[pools - 2].sum / pool[pools - 2].weight >
                                pool[pools - 1].sum / pool[pools - 1].weight) {
            Touching last = pool[--pools], *into = &pool[pools - 1];
            *into = (Touching){into->sum + last.sum, into->weight + last.weight,
                               into->count + last.count};
        }
    }
    offset = 0;
    for (int p = 0; p < pools; p++)
        for (int k = 0; k < pool[p].count; k++, at++) {
            LayoutItem *item = &l->item[layer[at]];
            if (at) offset += (l->item[layer[at - 1]].width + item->width) / 2.0 + GAP_X;
            item->center = pool[p].sum / pool[p].weight + offset;
        }
}

static void set_corners(LayoutSheet *l) {
    double left = 0;
    int y = MARGIN;
    for (int i = 0; i < length(l->item); i++) {
        double edge = l->item[i].center - l->item[i].width / 2.0;
        if (i == 0 || edge < left) left = edge;
    }
    for (int k = 0; k < length(l->layer); k++) {
        int height = 0;
        for (int i = 0; i < length(l->layer[k]); i++) {
            LayoutItem *item = &l->item[l->layer[k][i]];
            item->x = (int)(item->center - item->width / 2.0 - left) + MARGIN;
            item->y = y;
            if (item->height > height) height = item->height;
            if (item->x + item->width + MARGIN > l->width)
                l->width = item->x + item->width + MARGIN;
        }
        for (int i = 0; i < length(l->layer[k]); i++) { /* what passes passes all of the layer */
            LayoutItem *item = &l->item[l->layer[k][i]];
            if (!item->width) item->height = height;
        }
        y += height + GAP_Y;
    }
    l->height = y - GAP_Y + MARGIN;
}

/* One sweep: each layer after the one that it looks at. */
static void sweep(LayoutSheet *l, bool down, Ranked *key, Touching *pool) {
    int layers = length(l->layer);
    for (int k = 1; k < layers; k++) {
        int *layer = l->layer[down ? k : layers - 1 - k];
        if (key)
            order_layer(l, layer, down ? SIDE_ABOVE : SIDE_BELOW, key);
        else
            place_layer(l, layer, SIDE_ABOVE | SIDE_BELOW, pool);
    }
}

void layout_place(LayoutSheet *l) {
    fill_layers(l);
    int items = length(l->item);
    Ranked *key = arena_new_array(l->arena, Ranked, items + 1);
    Touching *pool = arena_new_array(l->arena, Touching, items + 1);
    for (int i = 0; i < ORDER_SWEEPS; i++) sweep(l, i % 2 == 0, key, NULL);
    for (int k = 0; k < length(l->layer); k++) place_layer(l, l->layer[k], SIDE_ABOVE, pool);
    for (int i = 0; i < PLACE_SWEEPS; i++) sweep(l, i % 2 == 0, NULL, pool);
    set_corners(l);
}
