/* The command `carbide`: looks its first word up in the table of commands.
 *
 * Exit status: 0 it worked, 1 it did not (outputs differ, no memory, nowhere to print to), 2 the
 * command line was not understood. */
#include "carbide.h"
#include "commands.h"
#include "screen.h"

#include <fcntl.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

const Command commands[] = {
    {"bench", "[CASE...]", "times cases, all when none is named; `bench list` shows them",
     command_bench, bench_rows, "list cases",
     "carbide bench gelu softmax --threads 2\n"
     "carbide bench alexnet --batch 32        # 100 batches eager, 100 compiled\n"
     "carbide bench gpt2 --autocast bf16\n"
     "carbide bench resnet18-train --batches 10 # steps of a network that learns\n"
     "carbide bench mlp --json                # one object a line\n"},
    {"explain", "CASE", "shows how a case compiles: steps, bytes, reasons; with --profile times",
     command_explain, explain_rows, "cases",
     "carbide explain resnet50 --profile\n"
     "carbide explain softmax --full          # guards, graph and source, too\n"
     "carbide explain gpt2 --html gpt2.html   # drawn, for a browser\n"
     "CARBIDE_EXPLAIN=report.html ./program   # of any program\n"},
    {"ops", "[OP]", "lists every op, or documents one", command_ops, ops_rows, "ops",
     "carbide ops relu\n"
     "carbide ops | grep softmax\n"},
    {"cache", "list|why|clear|...", "looks into the cache of compiled kernels", command_cache,
     cache_rows, "list why clear export import cases",
     "carbide cache list\n"
     "carbide cache why gelu --dtype f64      # why a case is not served from it\n"
     "carbide cache clear\n"
     "carbide cache export kernels.bin        # for machines like this one\n"
     "carbide cache import kernels.bin\n"},
    {"info", "", "shows processor, compilers, cache, libraries and options", command_info,
     info_rows, "",
     "carbide info\n"
     "CARBIDE_LEVEL=v3 carbide info\n"},
    {"completion", "bash|zsh|fish", "prints completions for a shell", command_completion,
     completion_rows, "bash zsh fish",
     "carbide completion bash >~/.local/share/bash-completion/completions/carbide\n"},
    {"manual", "", "prints the manual page", command_manual, manual_rows, "",
     "carbide manual | man -l -\n"},
    {NULL, NULL, NULL, NULL, NULL, NULL, NULL},
};

enum { HELP_COLUMN = 34 };

static void print_help(FILE *out) {
    fprintf(out, "carbide %s: torch.compile as a C library\n\n", CB_VERSION);
    for (int i = 0; commands[i].name; i++) {
        char left[80];
        snprintf(left, sizeof left, "carbide %s %s", commands[i].name, commands[i].arguments);
        screen_row(out, 2, HELP_COLUMN, left, commands[i].help);
    }
    screen_row(out, 2, HELP_COLUMN, "carbide --version", "prints the version");
    fprintf(out, "\n`carbide COMMAND --help` lists the options of a command.\n");
}

static int print_command_help(const Command *command) {
    printf("carbide %s %s\n%s\n", command->name, command->arguments, command->help);
    if (command->rows->name) fputc('\n', stdout);
    arguments_help(command->rows, stdout);
    printf("\nexamples\n");
    for (const char *line = command->examples; *line; line += strcspn(line, "\n") + 1)
        printf("  %.*s\n", (int)strcspn(line, "\n"), line);
    return STATUS_OK;
}

static bool is_help(const char *word) { return !strcmp(word, "--help") || !strcmp(word, "-h"); }

static void print_unknown(const char *name) {
    Guess guess = guess_begin(name);
    for (int i = 0; commands[i].name; i++) guess_try(&guess, commands[i].name);
    guess_try(&guess, "help"), guess_try(&guess, "version");
    if (!strcasecmp(name, "-v")) guess.best = "--version", guess.distance = 0;
    fprintf(stderr, "carbide: there is no command '%s'", name);
    guess_print(&guess, stderr);
    fputs("\n\n", stderr);
}

static int run(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "";
    bool asks = !strcmp(name, "help") || is_help(name);
    if (asks && argc > 2 && !is_help(argv[2])) name = argv[2]; /* help bench */
    if (asks && name == argv[1]) {
        print_help(stdout);
        return STATUS_OK;
    }
    if (!strcmp(name, "--version") || !strcmp(name, "version")) {
        puts(CB_VERSION);
        return STATUS_OK;
    }
    for (int i = 0; commands[i].name; i++) {
        if (strcmp(name, commands[i].name) != 0) continue;
        for (int k = 2; k < argc; k++) asks |= is_help(argv[k]);
        if (asks) return print_command_help(&commands[i]);
        int status = commands[i].run(argc - 2, argv + 2);
        cb_cleanup();
        return status;
    }
    if (*name) print_unknown(name);
    print_help(stderr);
    return STATUS_USAGE;
}

/* Files that the library opens shall not become what is printed to: writing fails then, as it
 * does where nothing is open. */
static bool occupy_streams(void) {
    for (int file = STDIN_FILENO; file <= STDERR_FILENO; file++)
        if (fcntl(file, F_GETFD) < 0 && open("/dev/null", file ? O_RDONLY : O_WRONLY) != file)
            return false;
    return true;
}

int main(int argc, char **argv) {
    if (!occupy_streams()) return STATUS_FAILED;
    int status = run(argc, argv);
    if (fflush(stdout) == 0 && !ferror(stdout)) return status;
    fputs("carbide: not all of the output could be written\n", stderr);
    return STATUS_FAILED;
}
