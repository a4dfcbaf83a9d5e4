/* Option trace (CARBIDE_TRACE=trace.json): what ran when, as a file for Perfetto and
 * chrome://tracing.
 *
 *     int64_t start = clock_ns();
 *     ... passes ...
 *     timeline_add("compile", "passes", start, clock_ns());    nothing without the option */
#ifndef CARBIDE_BASE_TIMELINE_H
#define CARBIDE_BASE_TIMELINE_H

#include <stdbool.h>
#include <stdint.h>

bool timeline_on(void);
void timeline_add(const char *category, const char *name, int64_t start_ns, int64_t end_ns);

#endif
