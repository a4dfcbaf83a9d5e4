/* What the tests of graphs share: an arena around each test, graphs from and to text. */
#ifndef CARBIDE_TEST_GRAPH_SUPPORT_H
#define CARBIDE_TEST_GRAPH_SUPPORT_H

#include "graph/graph.h"
#include <string.h>

#include "test_support.h" /* last: its fail() is cmocka's */

#define TEST(function) cmocka_unit_test_setup_teardown(function, open_arena, close_arena)

static Arena *arena;

static inline int open_arena(void **state) {
    (void)state;
    cb_clear_error();
    arena = arena_new();
    return arena ? 0 : -1;
}

static inline int close_arena(void **state) {
    (void)state;
    arena_free(arena);
    return 0;
}

static inline Graph *parse(const char *text) {
    Graph *graph = graph_parse(arena, text);
    if (!graph) fail_msg("%s\n%s", cb_error(), text);
    return graph;
}

static inline const char *print(Graph *graph) {
    Buffer out = buffer_new(arena);
    graph_print(graph, &out);
    return buffer_text(&out);
}

static inline void expect_verified(Graph *graph) {
    Buffer why = buffer_new(arena);
    if (!graph_verify(graph, &why)) fail_msg("%s\n%s", buffer_text(&why), print(graph));
}

static inline void expect_parse_error(const char *text, const char *expected) {
    cb_clear_error();
    if (graph_parse(arena, text)) fail_msg("parsed: %s", text);
    assert_non_null(cb_error());
    if (!strstr(cb_error(), expected)) fail_msg("'%s' is not in '%s'", expected, cb_error());
    cb_clear_error();
}

#endif
