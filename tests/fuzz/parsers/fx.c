/* FX text: refused, or what it prints reads back and prints the same. torch prints a string
 * without its quotes, so '1' comes back as a number: of text with quotes it is asked that nothing
 * breaks. */
#include "target.h"

#include "carbide_fx.h"

static void print_and_back(const cb_graph *graph, bool exact) {
    char *text = cb_graph_text(graph);
    claim(text != NULL, "a graph that prints");
    cb_graph *again = cb_graph_parse(text, NULL);
    claim(again || !exact, text);
    char *twice = again ? cb_graph_text(again) : NULL;
    claim(!exact || (twice && strcmp(text, twice) == 0), text);
    cb_free_text(text);
    cb_free_text(twice);
    cb_graph_free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *text = exact_text(data, size);
    cb_graph *graph = cb_graph_parse(text, NULL);
    claim_error(graph != NULL);
    if (graph) print_and_back(graph, !strpbrk(text, "'\""));
    cb_graph_free(graph);
    cb_clear_error();
    free(text);
    return 0;
}
