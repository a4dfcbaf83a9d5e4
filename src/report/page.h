/* Pieces of a page (HTML) about executables. Every text goes through page_text: names, paths and
 * sources may hold anything.
 *
 *   page.c    head and foot: style and script, all in one file
 *   graph.c   an executable: its steps, kernels and what was not fused
 *   draw.c    its graph as a drawing (SVG), by layout.c
 *   roof.c    what the machine can do */
#ifndef CARBIDE_REPORT_PAGE_H
#define CARBIDE_REPORT_PAGE_H

#include "report/report.h"

void page_head(Buffer *out, const char *title);
void page_foot(Buffer *out);
void page_text(Buffer *out, const char *text); /* escaped */
/* A text that opens on demand, behind its name. */
void page_fold(Buffer *out, const char *name, const char *text);
/* id: the beginning of the names of its places in the page. inputs: that a call gives. */
void page_graph(const Executable *executable, const Graph *graph, int inputs, const char *id,
                Buffer *out);
void page_drawing(const Executable *executable, const Graph *graph, int inputs, const char *id,
                  Buffer *out);

/* ---- the roofline ---------------------------------------------------------------------------- */

typedef struct Roof {
    double bytes, flops; /* per millisecond: of a copy, of a product of f32; 0: not known */
    double cache;        /* bytes of what is faster than the memory of that copy */
} Roof;

/* Measured at the first call, which takes about 100 ms. */
Roof roof_now(void);
/* The least that the machine needs for the step's work over what it took, in per cent: more than
 * 100 where data lies in cache all the same. 0: not known; products of other dtypes have other
 * limits, and what fits the caches is compared with no copy. */
double roof_share(Roof roof, const Executable *executable, int step);
/* Whether nothing is known of a step because its data fits the caches. */
bool roof_is_cached(Roof roof, const Executable *executable, int step);

#endif
