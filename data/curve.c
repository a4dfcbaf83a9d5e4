/* The curves of a run as SVG: every value pale, its running mean on top, a further curve in another
 * colour, round numbers along both axes.
 *
 *     values (step, value)  ->  640 x 360 points, which any browser shows
 *
 * Values that are no numbers leave a gap. More steps than there are columns are drawn as the mean
 * of each column's, so that the size of a drawing has a limit. */
#include "progress.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

enum { WIDTH = 640, HEIGHT = 360, LEFT = 56, RIGHT = 16, TOP = 34, BOTTOM = 40, COLUMNS = 568 };

static const char *const colour[MOST_SERIES] = {"#1f6feb", "#d4570a", "#2c8a3d", "#8a2c7d"};

typedef struct CurveFrame {
    double least, most; /* of the values */
    double last;        /* step */
    FILE *out;
} CurveFrame;

static double column(const CurveFrame *frame, double step) {
    return LEFT + (WIDTH - LEFT - RIGHT) * step / frame->last;
}

static double row(const CurveFrame *frame, double value) {
    double share = (value - frame->least) / (frame->most - frame->least);
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share;
}

/* Around all numbers; false when there are none. */
static bool measure(const cb_progress *progress, CurveFrame *frame) {
    frame->least = INFINITY, frame->most = -INFINITY, frame->last = 1;
    for (size_t i = 0; i < progress->count; i++) {
        const ProgressPoint *point = &progress->point[i];
        frame->last = fmax(frame->last, (double)point->step);
        if (!isfinite(point->value)) continue;
        frame->least = fmin(frame->least, point->value);
        frame->most = fmax(frame->most, point->value);
    }
    bool any = frame->least <= frame->most;
    if (!any) frame->least = 0, frame->most = 1;
    if (frame->most - frame->least < 1e-12 * (1 + fabs(frame->most)))
        frame->least -= 0.5, frame->most += 0.5;
    return any;
}

/* 1, 2 or 5 times a power of ten: four to nine of them make span. */
static double round_step(double span) {
    double power = pow(10, floor(log10(span / 4)));
    return span / power >= 20 ? 5 * power : span / power >= 8 ? 2 * power : power;
}

static void axes(const CurveFrame *frame) {
    FILE *out = frame->out;
    double span = frame->most - frame->least, by = round_step(span);
    for (double v = ceil(frame->least / by) * by; v <= frame->most + 1e-9 * span; v += by) {
        double y = row(frame, v);
        fprintf(out,
                "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/>"
                "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%g</text>\n",
                LEFT, WIDTH - RIGHT, y, y, LEFT - 6, y + 4, fabs(v) < 1e-9 * by ? 0 : v);
    }
    by = fmax(round_step(frame->last), 1);
    for (double s = 0; s <= frame->last; s += by)
        fprintf(out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.0f</text>\n",
                column(frame, s), HEIGHT - BOTTOM + 18, s);
    fprintf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">step</text>\n",
            (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6);
}

/* The means of what falls into each column; how many numbers each has. */
static void means(const cb_progress *progress, const CurveFrame *frame, int series, double *mean,
                  int *count) {
    for (size_t i = 0; i < progress->count; i++) {
        const ProgressPoint *point = &progress->point[i];
        if (point->series != series || !isfinite(point->value)) continue;
        int at = (int)((COLUMNS - 1) * ((double)point->step / frame->last));
        mean[at] += point->value;
        count[at]++;
    }
    for (int at = 0; at < COLUMNS; at++)
        if (count[at]) mean[at] /= count[at];
}

/* A line through the columns that have numbers, each the mean of so much of the one before. */
static void line(const CurveFrame *frame, const double *mean, const int *count, double memory,
                 const char *style) {
    bool begun = false;
    double smooth = 0;
    fprintf(frame->out, "<polyline fill=\"none\" %s points=\"", style);
    for (int at = 0; at < COLUMNS; at++) {
        if (!count[at]) continue;
        smooth = begun ? memory * smooth + (1 - memory) * mean[at] : mean[at];
        begun = true;
        fprintf(frame->out, "%.1f,%.1f ", column(frame, frame->last * at / (COLUMNS - 1)),
                row(frame, smooth));
    }
    fprintf(frame->out, "\"/>\n");
}

/* Values of every step are noisy: pale, and their mean over some twenty columns. Few are drawn as
 * they are. */
static void curve(const cb_progress *progress, const CurveFrame *frame, int series) {
    double mean[COLUMNS] = {0};
    int count[COLUMNS] = {0}, filled = 0;
    char style[96];
    means(progress, frame, series, mean, count);
    for (int at = 0; at < COLUMNS; at++) filled += count[at] > 0;
    bool noisy = filled > 40;
    if (noisy) {
        snprintf(style, sizeof style, "stroke=\"%s\" stroke-opacity=\"0.25\"", colour[series]);
        line(frame, mean, count, 0, style);
    }
    snprintf(style, sizeof style, "stroke=\"%s\" stroke-width=\"2\"", colour[series]);
    line(frame, mean, count, noisy ? 0.9 : 0, style);
    double last = NAN;
    for (size_t i = 0; i < progress->count; i++)
        if (progress->point[i].series == series) last = progress->point[i].value;
    fprintf(frame->out, "<text x=\"%d\" y=\"20\" fill=\"%s\">%s %.4g</text>\n", LEFT + 150 * series,
            colour[series], progress->name[series], last);
}

static void draw(const cb_progress *progress, FILE *out) {
    CurveFrame frame = {.out = out};
    bool any = measure(progress, &frame);
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" "
            "font-family=\"sans-serif\" font-size=\"12\">\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
            WIDTH, HEIGHT);
    axes(&frame);
    for (int series = 0; any && series < progress->names; series++) curve(progress, &frame, series);
    fprintf(out, "</svg>\n");
}

cb_status cb_progress_curve(const cb_progress *progress, const char *path) {
    if (!progress) return data_refuse(CB_ERR_ARGUMENT, "progress_curve: NULL");
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    if (out) draw(progress, out);
    bool drawn = out && !ferror(out);
    drawn = out && fclose(out) == 0 && drawn;
    if (!drawn) data_refuse(CB_ERR_MEMORY, "progress_curve: out of memory");
    bool saved = drawn && data_save("progress_curve", path, text, bytes);
    free(text);
    return saved ? CB_OK : cb_error_status();
}
