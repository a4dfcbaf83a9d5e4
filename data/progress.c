/* The progress of a run: the live line, the log, and the values that a curve is drawn of.
 *
 *     {"step": 12, "loss": 1.25, "lr": 0.0003, "tokens/s": 41200, "seconds": 3.51}
 *     {"step": 12, "validation": 1.5}
 *
 * A line is one write to the end of the log, so that a run that is killed leaves whole lines and at
 * most a part of one. A run that goes on behind step n keeps the lines of steps up to n: what the
 * killed run did after its checkpoint is done again. */
#include "progress.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* ---- values --------------------------------------------------------------------------------- */

/* The number of a name's curve; -1: it cannot have one. */
static int series_of(cb_progress *progress, const char *name) {
    for (int i = 0; i < progress->names; i++)
        if (!strcmp(progress->name[i], name)) return i;
    bool plain = *name && strlen(name) < sizeof *progress->name && !strpbrk(name, "\"\\<>&");
    for (const char *c = name; *c; c++) plain = plain && (unsigned char)*c >= ' ';
    if (!plain || progress->names == MOST_SERIES) return -1;
    strcpy(progress->name[progress->names], name);
    return progress->names++;
}

static bool add(cb_progress *progress, int series, int64_t step, double value) {
    if (progress->count == progress->capacity) {
        size_t capacity = progress->capacity ? 2 * progress->capacity : 256;
        ProgressPoint *point = realloc(progress->point, capacity * sizeof *point);
        if (!point) return data_refuse(CB_ERR_MEMORY, "progress: out of memory"), false;
        progress->point = point;
        progress->capacity = capacity;
    }
    progress->point[progress->count++] = (ProgressPoint){step, value, series};
    return true;
}

/* ---- the log -------------------------------------------------------------------------------- */

/* Takes a line of the log in; false when it is none of ours, or of a later step. */
static bool take_line(cb_progress *progress, const char *line) {
    char name[32], rest[32];
    int64_t step;
    int used = 0;
    if (sscanf(line, "{\"step\": %" SCNd64 ", \"%31[^\"]\": %n", &step, name, &used) != 2 || !used)
        return false;
    if (step < 1 || step > progress->first || line[strlen(line) - 1] != '}') return false;
    double value;
    if (sscanf(line + used, "%lf", &value) != 1) {
        if (sscanf(line + used, "%4s", rest) != 1 || strcmp(rest, "null")) return false;
        value = NAN;
    }
    int series = series_of(progress, name);
    return series >= 0 && add(progress, series, step, value);
}

/* The lines of text that stay, moved to its front; their bytes. */
static size_t keep_lines(cb_progress *progress, char *text) {
    size_t kept = 0;
    for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
        *end = '\0';
        size_t length = (size_t)(end - line);
        if (!length || !take_line(progress, line)) continue;
        memmove(text + kept, line, length);
        kept += length;
        text[kept++] = '\n';
    }
    return kept;
}

/* What the log holds of earlier steps. A log that does not exist holds nothing. */
static bool log_resume(cb_progress *progress, const char *path) {
    if (progress->first == 0 || access(path, F_OK) != 0)
        return data_save("progress_new", path, "", 0);
    MappedFile file;
    if (!data_map("progress_new", path, &file)) return false;
    char *text = malloc(file.count + 1);
    if (text) {
        memcpy(text, file.at ? (const char *)file.at : "", file.count);
        text[file.count] = '\0';
    } else {
        data_refuse(CB_ERR_MEMORY, "progress_new: %s: out of memory", path);
    }
    data_unmap(&file);
    bool done = text && data_save("progress_new", path, text, keep_lines(progress, text));
    free(text);
    return done;
}

static bool log_open(cb_progress *progress, const char *path) {
    if (!log_resume(progress, path)) return false;
    progress->log = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (progress->log < 0) data_refuse_file("progress_new", path);
    return progress->log >= 0;
}

static cb_status log_line(cb_progress *progress, const char *line) {
    if (progress->log < 0 || data_write(progress->log, line, strlen(line))) return CB_OK;
    return data_refuse_file("progress_step", progress->path);
}

/* As JSON has it, which knows no NaN. */
static const char *number(char *out, size_t bytes, double value) {
    if (!isfinite(value)) return "null";
    snprintf(out, bytes, "%.9g", value);
    return out;
}

/* ---- runs ----------------------------------------------------------------------------------- */

cb_progress *cb_progress_new(int64_t first, int64_t steps, int64_t samples, const char *unit,
                             const char *log) {
    if (first < 0 || steps < first || samples < 0 || !unit || strlen(unit) >= 32) {
        data_refuse(CB_ERR_ARGUMENT,
                    "progress_new: steps %" PRId64 " .. %" PRId64 " of %" PRId64 " %s", first,
                    steps, samples, unit ? unit : "NULL");
        return NULL;
    }
    size_t length = log ? strlen(log) + 1 : 1;
    cb_progress *progress = calloc(1, sizeof *progress + length);
    if (!progress) return data_refuse(CB_ERR_MEMORY, "progress_new: out of memory"), NULL;
    progress->first = first, progress->steps = steps, progress->samples = samples;
    progress->log = -1;
    progress->live = isatty(STDERR_FILENO);
    progress->begin = now();
    progress->shown = -1;
    strcpy(progress->unit, unit);
    memcpy(progress->path, log ? log : "", length);
    progress->names = 1;
    strcpy(progress->name[0], "loss");
    if (!log || log_open(progress, log)) return progress;
    cb_progress_free(progress);
    return NULL;
}

double cb_progress_seconds(const cb_progress *progress) {
    return progress ? now() - progress->begin : 0;
}

bool cb_progress_due(const cb_progress *progress) {
    return progress && progress->live && cb_progress_seconds(progress) >= progress->shown + 0.1;
}

/* Steps a second, without the first one, which compiles. */
static double pace(cb_progress *progress, int64_t step, double seconds) {
    if (progress->timed == 0) progress->timed = step, progress->timed_at = seconds;
    int64_t done = step - progress->timed;
    if (done <= 0) return (double)(step - progress->first) / fmax(seconds, 1e-9);
    return (double)done / fmax(seconds - progress->timed_at, 1e-9);
}

static void show(cb_progress *progress, int64_t step, double loss, double lr, double rate) {
    int64_t left = (int64_t)fmin((double)(progress->steps - step) / rate, 1e9);
    fprintf(stderr, "\r\033[Kstep %" PRId64 "/%" PRId64 "  loss %.4f  lr %.1e  %.0f %s/s  ", step,
            progress->steps, loss, lr, rate * (double)progress->samples, progress->unit);
    if (left >= 3600)
        fprintf(stderr, "%d:%02d:", (int)(left / 3600), (int)(left / 60 % 60));
    else
        fprintf(stderr, "%d:", (int)(left / 60));
    fprintf(stderr, "%02d left", (int)(left % 60));
}

cb_status cb_progress_step(cb_progress *progress, int64_t step, double loss, double lr) {
    if (!progress) return data_refuse(CB_ERR_ARGUMENT, "progress_step: NULL");
    double seconds = cb_progress_seconds(progress), rate = pace(progress, step, seconds);
    if (cb_progress_due(progress)) {
        show(progress, step, loss, lr, rate);
        progress->shown = seconds;
    }
    char line[256], losses[32], rates[32];
    snprintf(line, sizeof line,
             "{\"step\": %" PRId64 ", \"loss\": %s, \"lr\": %s, \"%s/s\": %.6g, "
             "\"seconds\": %.3f}\n",
             step, number(losses, sizeof losses, loss), number(rates, sizeof rates, lr),
             progress->unit, rate * (double)progress->samples, seconds);
    if (!add(progress, 0, step, loss)) return CB_ERR_MEMORY;
    return log_line(progress, line);
}

cb_status cb_progress_value(cb_progress *progress, int64_t step, const char *name, double value) {
    if (!progress || !name) return data_refuse(CB_ERR_ARGUMENT, "progress_value: NULL");
    int series = series_of(progress, name);
    if (series < 0)
        return data_refuse(CB_ERR_ARGUMENT,
                           "progress_value: '%s' is not a plain name of up to 31 letters, or the "
                           "fourth one",
                           name);
    char line[128], values[32];
    snprintf(line, sizeof line, "{\"step\": %" PRId64 ", \"%s\": %s}\n", step, name,
             number(values, sizeof values, value));
    if (!add(progress, series, step, value)) return CB_ERR_MEMORY;
    return log_line(progress, line);
}

void cb_progress_free(cb_progress *progress) {
    if (!progress) return;
    if (progress->shown >= 0) fputs("\r\033[K", stderr);
    if (progress->log >= 0) close(progress->log);
    free(progress->point);
    free(progress);
}

/* ---- Ctrl-C --------------------------------------------------------------------------------- */

static volatile sig_atomic_t interrupted;

static void note(int signal) {
    (void)signal;
    interrupted = 1;
}

void cb_interrupt_catch(void) {
    /* RESETHAND: the second one finds what a program has by default. */
    struct sigaction action = {.sa_handler = note, .sa_flags = SA_RESTART | (int)SA_RESETHAND};
    sigemptyset(&action.sa_mask);
    interrupted = 0;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

bool cb_interrupted(void) { return interrupted != 0; }
