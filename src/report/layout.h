/* Where boxes of a layered drawing go: boxes above those that need them, few crossings, straight
 * lines. Internal to report/.
 *
 * In: items with sizes and layers, linked from each layer to the next (a link that passes a layer
 * has an item without a width there). Out: x, y of each. All in pixels. */
#ifndef CARBIDE_REPORT_LAYOUT_H
#define CARBIDE_REPORT_LAYOUT_H

#include "base/vec.h"

typedef struct LayoutItem {
    int width, height, layer;
    int *above, *below; /* vecs: the items that it is linked with */
    int x, y;           /* of its upper left corner: the result */
    double center;      /* of its width, while that is looked for */
} LayoutItem;

typedef struct LayoutSheet {
    Arena *arena;
    LayoutItem *item; /* vec */
    int **layer;      /* vec of vecs: items from left to right */
    int width, height;
} LayoutSheet;

int layout_add(LayoutSheet *layout, int width, int height, int layer); /* the item's number */
void layout_link(LayoutSheet *layout, int from, int to); /* of neighbouring layers */
void layout_place(LayoutSheet *layout);

#endif
