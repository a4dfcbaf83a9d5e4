/* The most memory that the process has had: the high-water mark of its resident pages, which Linux
 * lets a process set back to what it has now. */
#include "measure.h"
#include "tensor/tensor.h"

#include <string.h>
#include <sys/resource.h>

/* Freed storage goes first: what making inputs and parameters left behind is nobody's. */
void resident_reset(void) {
    storage_trim();
    FILE *file = fopen("/proc/self/clear_refs", "w");
    if (!file) return; /* then the mark is that of the whole process */
    fputs("5", file);
    fclose(file);
}

double resident_peak_mb(void) {
    char line[128];
    long long kilobytes = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "VmHWM: %lld", &kilobytes) == 1) break;
    if (file) fclose(file);
    struct rusage usage;
    if (!kilobytes && !getrusage(RUSAGE_SELF, &usage)) kilobytes = usage.ru_maxrss;
    return (double)kilobytes / 1e3;
}
