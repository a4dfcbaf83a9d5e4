/* Events into a file, in the trace event format: an array of objects, a line each.
 *
 *     [
 *     {"name":"passes","cat":"compile","ph":"X","ts":12.345,"dur":6.789,"pid":7,"tid":7},
 *     {"name":"process_name","ph":"M","pid":7,"args":{"name":"photo"}}
 *     ]
 *
 * The file is opened with the first event and ends with the process, which says so when some of it
 * was not written. A FIFO that nobody reads is refused, since to open it would wait. A forked child
 * adds nothing: the file is its parent's. */
#define _GNU_SOURCE /* gettid, program_invocation_short_name */
#include "base/timeline.h"
#include "base/file.h"
#include "base/lock.h"
#include "base/option.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_BYTES = 4096 };

static struct {
    FILE *file;
    char path[PATH_BYTES];
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
    Quiet quiet = signals_hold();
    lock_take(LOCK_timeline);
    if (timeline.file && timeline.process == process_number()) {
        fprintf(timeline.file,
                "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,\"args\":{\"name\":",
                (int)getpid());
        put_text(program_invocation_short_name);
        fputs("}}\n]\n", timeline.file);
        bool failed = ferror(timeline.file); /* errno is of something else then */
        errno = EIO;
        failed |= fclose(timeline.file) != 0;
        timeline.file = NULL;
        if (failed)
            fprintf(stderr, "carbide: the trace %s is not whole: %s\n", timeline.path,
                    strerror(errno));
    }
    lock_give(LOCK_timeline);
    signals_release(&quiet);
}

static FILE *open_file(const char *path) {
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK, 0666);
    if (file >= 0) (void)fcntl(file, F_SETFL, 0); /* a reader that is there may take its time */
    return file < 0 ? NULL : fdopen(file, "w");
}

static void begin(void) {
    const char *path = option_name(OPTION_trace);
    timeline.process = process_number();
    snprintf(timeline.path, sizeof timeline.path, "%s", path);
    timeline.file = open_file(path);
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
    Quiet quiet = signals_hold(); /* of a pipe whose reader has left */
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
    signals_release(&quiet);
}
