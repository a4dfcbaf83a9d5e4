/* The graph IR's text: refused, or valid, and what it prints reads back as an equal graph. */
#include "target.h"

#include "base/arena.h"
#include "graph/graph.h"

static void parse(Arena *arena, const char *text) {
    Graph *graph = graph_parse(arena, text);
    claim_error(graph != NULL);
    if (!graph) return;
    Buffer out = buffer_new(arena), why = buffer_new(arena);
    claim(graph_verify(graph, &why), buffer_text(&why));
    graph_print(graph, &out);
    Graph *again = graph_parse(arena, buffer_text(&out));
    claim(again && graph_equal(graph, again), buffer_text(&out));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *text = exact_text(data, size);
    Arena *arena = arena_new();
    claim(arena && !arena_guard(arena), "memory");
    parse(arena, text);
    arena_free(arena);
    free(text);
    return 0;
}
