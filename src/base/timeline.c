/* Events into a file, in the trace event format: an array of objects, a line each.
 *
 *     [
 *     {"name":"passes","cat":"compile","ph":"X","ts":12.345,"dur":6.789,"pid":7,"tid":7},
 *     {"name":"process_name","ph":"M","pid":7,"args":{"name":"photo"}}
 *     ]
 *
 * The file is opened with the first event and ends with the process. A forked child adds nothing:
 * the file is its parent's. */
#define _GNU_SOURCE /* gettid, program_invocation_short_name */
#include "base/timeline.h"
#include "base/lock.h"
#include "base/option.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct {
    FILE *file;
    uint32_t process; /* whose it is; 0: nobody has tried to open it */
} timeline;

bool timeline_on(void) {
    const char *name = option_name(OPTION_trace);
    return name && *name;
}

static void put_text(const char *text) {
    fputc('"', timeline.file);
    for (; *text; text++) {
        if ((unsigned char)*text < ' ') continue;
        if (*text == '"' || *text == '\\') fputc('\\', timeline.file);
        fputc(*text, timeline.file);
    }
    fputc('"', timeline.file);
}

static void finish(void) {
    lock_take(LOCK_timeline);
    if (timeline.file && timeline.process == process_number()) {
        fprintf(timeline.file,
                "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,\"args\":{\"name\":",
                (int)getpid());
        put_text(program_invocation_short_name);
        fputs("}}\n]\n", timeline.file);
        fclose(timeline.file);
        timeline.file = NULL;
    }
    lock_give(LOCK_timeline);
}

static void begin(void) {
    const char *path = option_name(OPTION_trace);
    timeline.process = process_number();
    timeline.file = fopen(path, "we");
    if (!timeline.file)
        fprintf(stderr, "carbide: the trace %s cannot be written: %s\n", path, strerror(errno));
    else if (fputs("[\n", timeline.file) < 0 || atexit(finish) != 0)
        fprintf(stderr, "carbide: the trace %s will not be whole\n", path);
}

static void put_us(const char *name, int64_t ns) {
    fprintf(timeline.file, ",\"%s\":%lld.%03lld", name, (long long)(ns / 1000),
            (long long)(ns % 1000));
}

void timeline_add(const char *category, const char *name, int64_t start_ns, int64_t end_ns) {
    if (!timeline_on()) return;
    lock_take(LOCK_timeline);
    if (!timeline.process) begin();
    if (timeline.file && timeline.process == process_number()) {
        fputs("{\"name\":", timeline.file);
        put_text(name);
        fprintf(timeline.file, ",\"cat\":\"%s\",\"ph\":\"X\"", category);
        put_us("ts", start_ns);
        put_us("dur", end_ns > start_ns ? end_ns - start_ns : 0);
        fprintf(timeline.file, ",\"pid\":%d,\"tid\":%d},\n", (int)getpid(), (int)gettid());
    }
    lock_give(LOCK_timeline);
}
