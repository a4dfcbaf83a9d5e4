/* What stands on the command line after a command's name: --name value, --name=value, --flag,
 * words. */
#ifndef CARBIDE_CLI_ARGUMENTS_H
#define CARBIDE_CLI_ARGUMENTS_H

#include "carbide.h"

typedef enum ArgumentType {
    ARGUMENT_FLAG,  /* bool */
    ARGUMENT_TEXT,  /* const char * */
    ARGUMENT_COUNT, /* int64_t, at least 1 */
    ARGUMENT_TIME,  /* double, seconds, above 0 */
    ARGUMENT_DTYPE, /* cb_dtype, a floating-point one */
    ARGUMENT_LOWER  /* cb_dtype, bf16 or f16 */
} ArgumentType;

typedef struct ArgumentRow { /* one option of a command; a table of them ends with name NULL */
    const char *name;
    ArgumentType type;
    size_t field; /* of the struct that arguments_parse fills */
    const char *value, *help;
} ArgumentRow;

enum { MAX_WORDS = 64 };

/* Fills fields of out and word[0 .. ]; the number of words, or -1 after a message. */
int arguments_parse(const char *command, const ArgumentRow *row, int argc, char **argv, void *out,
                    const char *word[MAX_WORDS]);
void arguments_help(const ArgumentRow *row, FILE *out);

#endif
