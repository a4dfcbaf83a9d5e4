/* The command `carbide`: looks its first word up in the table of commands.
 *
 * Exit status: 0 it worked, 1 it did not (outputs differ, no memory), 2 the command line was not
 * understood. */
#include "carbide.h"
#include "commands.h"

#include <string.h>

typedef struct Command {
    const char *name, *arguments, *help;
    int (*run)(int argc, char **argv);
    const ArgumentRow *rows; /* its options */
} Command;

static const Command commands[] = {
    {"bench", "[CASE...]", "times cases, all when none is named; `bench list` shows them",
     command_bench, bench_rows},
    {"explain", "CASE", "shows how a case compiles: graph, fusion, kernels, bytes", command_explain,
     explain_rows},
    {"ops", "[--markdown]", "lists every op with its signature and meaning", command_ops, ops_rows},
    {"cache", "list|why|clear", "looks into the cache of compiled kernels", command_cache,
     cache_rows},
    {"info", "", "shows processor, compilers, cache, libraries and options", command_info,
     info_rows},
};
enum { COMMANDS = sizeof commands / sizeof *commands };

static void print_help(FILE *out) {
    fprintf(out, "carbide %s: torch.compile as a C library\n\n", CB_VERSION);
    for (int i = 0; i < COMMANDS; i++) {
        char left[64];
        snprintf(left, sizeof left, "%s %s", commands[i].name, commands[i].arguments);
        fprintf(out, "  carbide %-23s %s\n", left, commands[i].help);
    }
    fprintf(out, "  carbide %-23s %s\n", "--version", "prints the version");
    fprintf(out, "\n`carbide COMMAND --help` lists the options of a command.\n");
}

static int print_command_help(const Command *command) {
    printf("carbide %s %s\n%s\n", command->name, command->arguments, command->help);
    if (command->rows->name) fputc('\n', stdout);
    arguments_help(command->rows, stdout);
    return STATUS_OK;
}

static bool is_help(const char *word) { return !strcmp(word, "--help") || !strcmp(word, "-h"); }

int main(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "";
    if (!strcmp(name, "help") || is_help(name)) {
        print_help(stdout);
        return STATUS_OK;
    }
    if (!strcmp(name, "--version") || !strcmp(name, "version")) {
        puts(CB_VERSION);
        return STATUS_OK;
    }
    for (int i = 0; i < COMMANDS; i++) {
        if (strcmp(name, commands[i].name) != 0) continue;
        for (int k = 2; k < argc; k++)
            if (is_help(argv[k])) return print_command_help(&commands[i]);
        int status = commands[i].run(argc - 2, argv + 2);
        cb_cleanup();
        return status;
    }
    if (*name) fprintf(stderr, "carbide: there is no command '%s'\n\n", name);
    print_help(stderr);
    return STATUS_USAGE;
}
