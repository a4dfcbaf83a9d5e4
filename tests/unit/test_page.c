/* The page of cb_explain_html and of option explain: whole and well-formed, everything escaped,
 * every step and node drawn, nothing loaded from anywhere. (tests/cli/page.sh asks a browser.) */
#include "capture_support.h"
#include "fixture.h"

#include "children.h"

enum { TEXT = 8 << 20 };
static char page[TEXT], path[128];

static void read_page(void) {
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    page[fread(page, 1, TEXT - 1, file)] = '\0';
    fclose(file);
    unlink(path);
}

static int counted(const char *words) {
    int count = 0;
    for (const char *at = page; (at = strstr(at, words)); at++) count++;
    return count;
}

static void has(const char *words) {
    if (!strstr(page, words)) fprintf(stderr, "no '%s' in the page\n", words);
    assert_non_null(strstr(page, words));
}

/* Every tag that opens closes again, in order, and < begins tags alone. Style and script are
 * skipped. */
static void expect_balanced(void) {
    static const char *const alone[] = {"meta", "br", "!doctype"};
    char open[64][24];
    int depth = 0;
    for (const char *at = page; (at = strchr(at, '<')); at++) {
        char name[24] = "";
        bool closes = at[1] == '/', single = false;
        size_t length = strcspn(at + 1 + closes, " />\n");
        assert_true(length > 0 && length < sizeof name);
        memcpy(name, at + 1 + closes, length);
        const char *end = strchr(at, '>');
        assert_non_null(end);
        for (size_t i = 0; i < sizeof alone / sizeof *alone; i++) single |= !strcmp(name, alone[i]);
        if (closes && strcmp(open[--depth], name) != 0)
            fail_msg("</%s> closes <%s>", name, open[depth]);
        if (!closes && !single && end[-1] != '/') {
            assert_true(depth < 64);
            memcpy(open[depth++], name, sizeof name);
        }
        if (!closes && !strcmp(name, "style")) at = strstr(at, "</style") - 1;
        if (!closes && !strcmp(name, "script")) at = strstr(at, "</script") - 1;
    }
    assert_int_equal(depth, 0);
}

/* ---- what is drawn --------------------------------------------------------------------------- */

static int several(cb_tensor *const *x, int count, cb_tensor **out, void *user) {
    (void)count, (void)user;
    cb_site("<b>\"evil\" & 'odd'.c", 7);
    cb_tensor *y = (cb_softmax)(x[0], 1);
    out[0] = cb_relu(cb_matmul(y, x[1]));
    out[1] = cb_t(y);
    out[2] = x[0];
    cb_add_(x[1], 1.0);
    return 3;
}

static void whole(void **state) {
    (void)state;
    cb_set_option("profile", "1");
    cb_function *fast = cb_compile_n(several, NULL, VM);
    cb_tensor *x[] = {ramp(4, 4), ramp(4, 4)}, *out[3];
    for (int i = 0; i < 2; i++) assert_int_equal(cb_call_n(fast, x, 2, out, 3), 3);
    assert_int_equal(cb_explain_html(fast, path), CB_OK);
    read_page();
    expect_balanced();
    assert_int_equal(counted("<svg "), 1);
    assert_int_equal(counted("class=\"box task\""), 1);
    assert_int_equal(counted("class=\"box "), (int)cb_stats(fast).kernels);
    assert_int_equal(counted("class=\"pill\""), 2 + 2 + 1); /* an input that is returned is none */
    has("arg0 f32[4, 4]");
    has("written to input 1");
    has("<title>amax = amax(arg0, dim=[1], keepdim=true)");
    has("&#60;b&#62;&#34;evil&#34; &#38; &#39;odd&#39;.c:7");
    assert_null(strstr(page, "<b>\""));
    has("of the roofline");
    has("<td class=\"number\">in cache</td>");
    has("id=\"f0g0s0\"");
    has("href=\"#f0g0s0\"");
    has("row by row");
    has("guards: what a call must bring along");
    has("input 0: f32[4, 4]");
    assert_int_equal(counted("http"), 2); /* http-equiv, and the name of SVG */
    has("default-src 'none'");
    cb_function_free(fast);
    cb_set_option("profile", "0");
}

static cb_tensor *chain(cb_tensor *x) {
    for (int i = 0; i < 40; i++) x = cb_softmax(cb_matmul(x, x), i % 2);
    return x;
}

/* Layers, lanes that pass them, and boxes that do not lie on each other. */
static void boxes_apart(void **state) {
    (void)state;
    cb_function *fast = cb_compile(chain, VM);
    cb_call(fast, ramp(4, 4));
    assert_int_equal(cb_explain_html(fast, path), CB_OK);
    read_page();
    expect_balanced();
    int x[128], y[128], w[128], h[128], boxes = 0;
    for (const char *at = page; (at = strstr(at, "class=\"box ")); at++, boxes++) {
        assert_true(boxes < 128);
        const char *rect = strstr(at, "<rect ");
        assert_int_equal(sscanf(rect, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"",
                                &x[boxes], &y[boxes], &w[boxes], &h[boxes]),
                         4);
        assert_true(x[boxes] >= 0 && y[boxes] >= 0);
    }
    assert_int_equal(boxes, (int)cb_stats(fast).kernels);
    for (int a = 0; a < boxes; a++)
        for (int b = 0; b < a; b++)
            assert_true(x[a] + w[a] <= x[b] || x[b] + w[b] <= x[a] || y[a] + h[a] <= y[b] ||
                        y[b] + h[b] <= y[a]);
    cb_function_free(fast);
}

static cb_tensor *long_sum(cb_tensor *x) {
    cb_tensor *y = x;
    for (int i = 0; i < 3500; i++) y = cb_add(cb_mul(y, 1.0 + i), x);
    return y;
}

static void too_many(void **state) {
    (void)state;
    cb_function *fast = cb_compile(long_sum, VM);
    cb_call(fast, ramp(2, 2));
    assert_int_equal(cb_explain_html(fast, path), CB_OK);
    read_page();
    expect_balanced();
    has("nodes are too many to draw");
    cb_function_free(fast);
}

static void refused(void **state) {
    (void)state;
    cb_function *fast = cb_compile(gelu, VM);
    assert_int_equal(cb_explain_html(NULL, path), CB_ERR_ARGUMENT);
    cb_clear_error();
    assert_int_equal(cb_explain_html(fast, NULL), CB_ERR_ARGUMENT);
    cb_clear_error();
    assert_int_not_equal(cb_explain_html(fast, "/nonexistent/page.html"), CB_OK);
    assert_non_null(strstr(cb_error(), "/nonexistent/page.html"));
    cb_clear_error();
    assert_int_equal(cb_explain_html(fast, path), CB_OK); /* nothing was called */
    read_page();
    expect_balanced();
    cb_function_free(fast);
}

/* ---- at exit --------------------------------------------------------------------------------- */

static void at_exit(void **state) {
    (void)state;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        cb_set_option("explain", path);
        cb_scope_open();
        cb_function *first = cb_compile(gelu, VM), *second = cb_compile(chain, VM);
        cb_call(first, ramp(2, 2));
        cb_call(first, ramp(3, 2));
        for (int i = 0; i < 2; i++) cb_call(second, ramp(2, 2));
        cb_function_free(first);
        cb_scope_close();
        exit(0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
    read_page();
    expect_balanced();
    has("<h1>test_page</h1>");
    has("<b>2</b><span>functions</span>");
    has("<b>4</b><span>calls</span>");
    has("<b>1</b><span>recorded again</span>");
    has("</b><span>ms at best, eager \u2192 compiled</span>");
    has(" %</b><span>of the roofline</span>");
    has("</b><span>ms on data that fits the caches</span>");
    has(" ms at its best, eager ");
    has(" ms in its only run, cold, eager "); /* gelu, over either size */
    has("<p>Recorded again: input 0 is f32[3, 2], entry 0 has f32[2, 2].</p>");
    has("input 0 is f32[3, 2], entry 0 has f32[2, 2]");
    assert_int_equal(counted("<section>"), 2);
    assert_int_equal(counted("<svg "), 3);
    has("<td><a href=\"#f1\">");
    has("<h2 id=\"f2\">");
}

static cb_tensor *checks_alone(cb_tensor *x) {
    cb_index_select(x, 0, cb_zeros(1, CB_I64));
    return cb_add(x, 1.0);
}

/* A constant that nobody reads but a check has no name in the graph. */
static void checks_of_constants(void **state) {
    (void)state;
    cb_function *fast = cb_compile(checks_alone, VM);
    assert_non_null(cb_call(fast, ramp(3, 2)));
    assert_int_equal(cb_explain_html(fast, path), CB_OK);
    read_page();
    expect_balanced();
    assert_int_equal(counted(">constant<"), 1);
    cb_function_free(fast);
}

int main(void) {
    snprintf(path, sizeof path, "/tmp/carbide-page-%d.html", (int)getpid());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(whole, open_scope, close_scope),
        cmocka_unit_test_setup_teardown(boxes_apart, open_scope, close_scope),
        cmocka_unit_test_setup_teardown(too_many, open_scope, close_scope),
        cmocka_unit_test_setup_teardown(refused, open_scope, close_scope),
        cmocka_unit_test_setup_teardown(checks_of_constants, open_scope, close_scope),
        cmocka_unit_test(at_exit),
    };
    return run_counted(tests);
}
