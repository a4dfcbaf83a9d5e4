/* The commands of `carbide`, one per file. Each gets what stands after its name and returns the
 * exit status. */
#ifndef CARBIDE_CLI_COMMANDS_H
#define CARBIDE_CLI_COMMANDS_H

#include "arguments.h"

enum {
    STATUS_OK,
    STATUS_FAILED, /* the work did not succeed */
    STATUS_USAGE   /* the command line was not understood */
};

typedef struct Command {
    const char *name, *arguments, *help;
    int (*run)(int argc, char **argv);
    const ArgumentRow *rows; /* its options */
    const char *words;       /* that may stand behind it, for completion; "cases", "ops": those */
    const char *examples;    /* a line each */
} Command;
extern const Command commands[]; /* ends with name NULL */

extern const ArgumentRow bench_rows[], explain_rows[], ops_rows[], cache_rows[], info_rows[];
extern const ArgumentRow manual_rows[], completion_rows[];

int command_bench(int argc, char **argv);
int command_explain(int argc, char **argv);
int command_ops(int argc, char **argv);
int command_cache(int argc, char **argv);
int command_info(int argc, char **argv);
int command_manual(int argc, char **argv);
int command_completion(int argc, char **argv);

#endif
