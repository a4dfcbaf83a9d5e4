/* `carbide manual` and `carbide completion SHELL`: the manual page and completions, written from
 * the table of commands, so that they say what the command does.
 *
 *     carbide completion fish >~/.config/fish/completions/carbide.fish */
#include "cases.h"
#include "commands.h"
#include "op/op.h"

#include <string.h>

const ArgumentRow manual_rows[] = {{NULL, ARGUMENT_FLAG, 0, NULL, NULL}};
const ArgumentRow completion_rows[] = {{NULL, ARGUMENT_FLAG, 0, NULL, NULL}};

/* ---- the manual ------------------------------------------------------------------------------ */

/* As roff has it: - and \ escaped, no line that begins with a dot or quote. */
static void put_roff(const char *text) {
    for (const char *at = text; *at; at++) {
        if (at == text && (*at == '.' || *at == '\'')) fputs("\\&", stdout);
        if (*at == '-' || *at == '\\') fputc('\\', stdout);
        fputc(*at, stdout);
    }
}

static void put_command(const Command *command) {
    printf(".SS \"carbide %s %s\"\n", command->name, command->arguments);
    put_roff(command->help);
    printf("\n");
    for (const ArgumentRow *row = command->rows; row->name; row++) {
        printf(".TP\n\\fB\\-\\-%s\\fR", row->name);
        if (*row->value) printf(" \\fI%s\\fR", row->value);
        printf("\n");
        put_roff(row->help);
        printf("\n");
    }
    printf(".PP\n.nf\n");
    for (const char *line = command->examples; *line; line += strcspn(line, "\n") + 1) {
        char text[256];
        snprintf(text, sizeof text, "    %.*s", (int)strcspn(line, "\n"), line);
        put_roff(text);
        printf("\n");
    }
    printf(".fi\n");
}

int command_manual(int argc, char **argv) {
    const char *word[MAX_WORDS];
    int words = arguments_parse("manual", manual_rows, argc, argv, NULL, word);
    if (words > 0) fprintf(stderr, "carbide manual: '%s' is not understood\n", word[0]);
    if (words != 0) return STATUS_USAGE;
    printf(".TH CARBIDE 1 \"\" \"Carbide %s\" \"User Commands\"\n.SH NAME\n"
           "carbide \\- torch.compile as a C library: times, explains and looks around\n"
           ".SH SYNOPSIS\n.B carbide\n.I COMMAND\n[\\fIOPTION\\fR]...\n.SH COMMANDS\n",
           CB_VERSION);
    for (int i = 0; commands[i].name; i++) put_command(&commands[i]);
    printf(".SH ENVIRONMENT\nOptions are variables, CARBIDE_THREADS=2; \\fBcarbide info\\fR lists "
           "them. NO_COLOR switches colours off.\n.SH EXIT STATUS\n0: it worked; 1: it did not; 2: "
           "the command line was not understood.\n");
    return STATUS_OK;
}

/* ---- completions ----------------------------------------------------------------------------- */

/* What may stand behind a command, between blanks: words, cases, ops. */
static void put_words(const char *words) {
    for (const char *at = words; *at; at += strcspn(at, " "), at += *at == ' ') {
        size_t length = strcspn(at, " ");
        if (length == 5 && !memcmp(at, "cases", 5)) {
            for (int i = 0; i < case_count; i++) printf(" %s", cases[i].name);
        } else if (length == 3 && !memcmp(at, "ops", 3)) {
            for (Op op = OP_none; op < OP_COUNT; op++)
                if (op_info(op)->kind != KIND_SPECIAL && !(op_info(op)->flags & LOWERED))
                    printf(" %s", op_info(op)->name);
        } else {
            printf(" %.*s", (int)length, at);
        }
    }
}

static void put_names(void) {
    for (int i = 0; commands[i].name; i++) printf("%s%s", i ? " " : "", commands[i].name);
}

/* A case of the shell for each command: its words and options. */
static void put_branches(const char *set) {
    for (int i = 0; commands[i].name; i++) {
        printf("    %s) %s'", commands[i].name, set);
        put_words(commands[i].words);
        for (const ArgumentRow *row = commands[i].rows; row->name; row++)
            printf(" --%s", row->name);
        printf(" --help' ;;\n");
    }
}

static void put_bash(void) {
    printf("# bash completion of carbide\n_carbide() {\n"
           "    local now=${COMP_WORDS[COMP_CWORD]} words='");
    put_names();
    printf(" help --version'\n    [ \"$COMP_CWORD\" -gt 1 ] && case ${COMP_WORDS[1]} in\n");
    put_branches("words=");
    printf("    *) words='' ;;\n    esac\n"
           "    mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$now\")\n}\n"
           "complete -o default -F _carbide carbide\n");
}

static void put_zsh(void) {
    printf("#compdef carbide\n_carbide() {\n    local words_now='");
    put_names();
    printf(" help --version'\n    (( CURRENT > 2 )) && case $words[2] in\n");
    put_branches("words_now=");
    printf(
        "    *) words_now='' ;;\n    esac\n    compadd -- ${=words_now} || _files\n}\n"
        "if [ \"$funcstack[1]\" = _carbide ]; then _carbide; else compdef _carbide carbide; fi\n");
}

static void put_fish(void) {
    printf("# fish completion of carbide\ncomplete -c carbide -n __fish_use_subcommand -f -a '");
    put_names();
    printf(" help'\ncomplete -c carbide -n __fish_use_subcommand -l version\n"
           "complete -c carbide -l help\n");
    for (int i = 0; commands[i].name; i++) {
        const char *name = commands[i].name;
        printf("complete -c carbide -n '__fish_seen_subcommand_from %s' -f -a '", name);
        put_words(commands[i].words);
        printf("'\n");
        if (strstr(commands[i].words, "export"))
            printf("complete -c carbide -n '__fish_seen_subcommand_from export import' -F\n");
        for (const ArgumentRow *row = commands[i].rows; row->name; row++)
            printf("complete -c carbide -n '__fish_seen_subcommand_from %s' -l %s%s\n", name,
                   row->name, row->type == ARGUMENT_FLAG ? "" : " -r");
    }
}

int command_completion(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*put)(void);
    } shells[] = {{"bash", put_bash}, {"zsh", put_zsh}, {"fish", put_fish}};
    const char *word[MAX_WORDS];
    int words = arguments_parse("completion", completion_rows, argc, argv, NULL, word);
    for (int i = 0; words == 1 && i < 3; i++) {
        if (strcmp(word[0], shells[i].name) != 0) continue;
        shells[i].put();
        return STATUS_OK;
    }
    if (words >= 0) fputs("usage: carbide completion bash | zsh | fish\n", stderr);
    return STATUS_USAGE;
}
