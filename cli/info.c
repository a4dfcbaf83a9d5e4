/* `carbide info`: what Carbide finds on this machine, the process options with their values, and
 * the options of compiled functions. */
#define _GNU_SOURCE
#include "base/cpu.h"
#include "base/option.h"
#include "capture/function.h"
#include "commands.h"
#include "jit/cache.h"
#include "jit/compiler.h"
#include "method/plugin.h"
#include "screen.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

/* Libraries that are opened at run time; Carbide builds and runs without any of them. */
static const struct {
    const char *name, *use;
} libraries[] = {
    {"libcuda.so.1", "CUDA driver"},
    {"libnvrtc.so.13", "CUDA compiler"},
    {"libnvrtc.so.12", "CUDA compiler"},
    {"libcublasLt.so.13", "matrix products on CUDA"},
    {"libcublasLt.so.12", "matrix products on CUDA"},
    {"libcudnn.so.9", "convolutions on CUDA"},
    {"libnccl.so.2", "several GPUs"},
};

static const char *const compilers[] = {"cc", "gcc", "clang", "tcc"};

static void print_line(const char *name, const char *value) {
    screen_row(stdout, 0, 12, name, value);
}

/* The first "model name" of /proc/cpuinfo, or the architecture. */
static void processor_name(char *out, size_t bytes) {
    struct utsname system;
    char line[512];
    snprintf(out, bytes, "%s", uname(&system) ? "unknown" : system.machine);
    FILE *file = fopen("/proc/cpuinfo", "r");
    while (file && fgets(line, sizeof line, file)) {
        char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon) continue;
        line[strcspn(line, "\n")] = '\0';
        snprintf(out, bytes, "%s", colon + 2);
        break;
    }
    if (file) fclose(file);
}

static void print_processor(void) {
    char text[600];
    processor_name(text, sizeof text);
    print_line("processor", text);
    snprintf(text, sizeof text, "%ld, %d threads for kernels", sysconf(_SC_NPROCESSORS_ONLN),
             cb_threads());
    print_line("cores", text);
    print_line("level", cpu_level_name());
}

/* The first line that `path --version` prints. */
static void compiler_version(const char *path, char *out, size_t bytes) {
    char command[COMPILER_PATH + 32];
    snprintf(command, sizeof command, "'%s' --version 2>/dev/null", path);
    FILE *pipe = strchr(path, '\'') ? NULL : popen(command, "r");
    *out = '\0';
    if (pipe && fgets(out, (int)bytes, pipe)) out[strcspn(out, "\n")] = '\0';
    if (pipe) pclose(pipe);
}

static void print_compiler(const char *name, bool chosen) {
    static Compiler compiler;
    char version[200], text[COMPILER_PATH + 300];
    cb_set_option("cc", name);
    compiler_forget();
    if (!compiler_find(&compiler)) {
        snprintf(text, sizeof text, "'%s' is no program: fused kernels run on the vector VM", name);
        if (chosen) print_line("compiler", text);
        return;
    }
    compiler_version(compiler.path, version, sizeof version);
    snprintf(text, sizeof text, "%s (%s)%s", compiler.path, version, chosen ? ", used" : "");
    print_line("compiler", text);
}

static void print_compilers(void) {
    char chosen[COMPILER_PATH];
    snprintf(chosen, sizeof chosen, "%s", option_text(OPTION_cc));
    print_compiler(chosen, true);
    for (size_t i = 0; i < sizeof compilers / sizeof *compilers; i++)
        if (strcmp(compilers[i], chosen) != 0) print_compiler(compilers[i], false);
    cb_set_option("cc", chosen);
    compiler_forget();
}

static void add_bytes(void *user, const CacheEntry *entry) { *(int64_t *)user += entry->bytes; }

static void print_cache(void) {
    char directory[CACHE_PATH], text[CACHE_PATH + 64];
    int64_t bytes = 0;
    Reason reason = option_int(OPTION_cache) ? cache_directory(directory) : REASON_NONE;
    if (!option_int(OPTION_cache)) {
        print_line("cache", "off");
    } else if (reason != REASON_NONE) {
        print_line("cache", reason_info(reason)->text);
    } else {
        int count = cache_visit(directory, add_bytes, &bytes);
        snprintf(text, sizeof text, "%s: %d entries, %.1f kB", directory, count,
                 (double)bytes / 1e3);
        print_line("cache", text);
    }
}

/* They stay open: unloading one may leave its threads and memory behind. */
static void print_libraries(void) {
    char text[1200];
    for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++) {
        struct link_map *map = NULL;
        void *library = dlopen(libraries[i].name, RTLD_LAZY | RTLD_LOCAL);
        if (!library) continue;
        bool known = dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && map;
        snprintf(text, sizeof text, "%s (%s)", known ? map->l_name : libraries[i].name,
                 libraries[i].use);
        print_line("library", text);
    }
}

/* oneDNN's version and file, or why it does not serve. */
static void print_provider(void) {
    char text[2200];
    const Plugin *plugin = plugin_find("onednn");
    const Provider *provider = plugin->provider;
    if (provider)
        snprintf(text, sizeof text, "%s %s, %s (through %s)", provider->name, provider->version,
                 provider->library, plugin->path);
    else
        snprintf(text, sizeof text, "oneDNN: none, %s (%s)", plugin->detail,
                 reason_info(plugin->reason)->text);
    print_line("provider", text);
}

/* "auto|own" -> "auto | own", which can be cut into lines. */
static const char *spread(const char *words, char *out, size_t bytes) {
    size_t used = 0;
    for (; *words && used + 4 < bytes; words++)
        used += (size_t)snprintf(out + used, bytes - used, *words == '|' ? " %c " : "%c", *words);
    out[used] = '\0';
    return out;
}

/* What to choose from: " (auto | own)", " (one other)" of the type "names(one other)"; "" where the
 * help says it. */
static void put_words(const char *type, char *out, size_t bytes) {
    char words[256];
    *out = '\0';
    if (strchr(type, '|')) snprintf(out, bytes, " (%s)", spread(type, words, sizeof words));
    if (!strncmp(type, "names", 5)) snprintf(out, bytes, " %s", type + 5);
}

static void print_heading(const char *text) {
    printf("\n%s%s%s\n", screen_bold(), text, screen_plain());
}

enum { OPTION_COLUMN = 29, COMPILE_COLUMN = 20 };

static void print_option(const char *name, const char *value, const char *help) {
    char left[CACHE_PATH + 32];
    snprintf(left, sizeof left, "%-17s %s", name, value);
    screen_row(stdout, 2, OPTION_COLUMN, left, help);
}

static void print_options(void) {
    char words[288], text[640];
    print_heading("options, set by CARBIDE_NAME in the environment or cb_set_option");
    for (Option option = 0; option < OPTION_COUNT; option++) {
        const OptionInfo *info = option_info(option);
        const char *value = option_text(option);
        bool changed = strcmp(value, info->value) != 0;
        put_words(info->type, words, sizeof words);
        snprintf(text, sizeof text, "%s%s%s%s%s", info->help, words, changed ? " (default " : "",
                 changed && !*info->value ? "-"
                 : changed                ? info->value
                                          : "",
                 changed ? ")" : "");
        print_option(info->name, *value ? value : "-", text);
    }
    print_heading("options of cb_compile, the default first");
#define OPTION(name, Type, help, ...)                                                              \
    snprintf(text, sizeof text, "%s (%s)", help, spread(&(__VA_ARGS__)[1], words, sizeof words));  \
    screen_row(stdout, 2, COMPILE_COLUMN, #name, text);
#define VALUE(enumerator, word) "|" word
#include "capture/options.def"
#undef OPTION
#undef VALUE
}

const ArgumentRow info_rows[] = {{NULL, ARGUMENT_FLAG, 0, NULL, NULL}};

int command_info(int argc, char **argv) {
    const char *word[MAX_WORDS];
    int words = arguments_parse("info", info_rows, argc, argv, NULL, word);
    if (words > 0) fprintf(stderr, "carbide info: '%s' is not understood\n", word[0]);
    if (words != 0) return STATUS_USAGE;
    print_line("carbide", CB_VERSION);
    print_processor();
    print_compilers();
    print_cache();
    print_provider();
    print_libraries();
    print_options();
    return STATUS_OK;
}
