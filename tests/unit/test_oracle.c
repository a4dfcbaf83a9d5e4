/* Random calls of ops against PyTorch's results: tests/oracle/calls.txt, written by
 * tests/oracle/random_calls.py; CARBIDE_ORACLE_CALLS names another file, of many more calls. What
 * PyTorch refuses has to be refused, too. */
#include "expression.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { LINE = 4096, FIRST = 8, MOST = 4096 };

typedef struct Expected {
    char *call;
    bool refused;
    int rank, first_count;
    int64_t size[CB_MAX_RANK];
    double first[FIRST], sum, magnitude;
} Expected;

static char *next_part(char **at) {
    char *start = *at, *end = strstr(start, " | ");
    if (!end) {
        *at = start + strcspn(start, "\n");
        **at = '\0';
        return start;
    }
    *end = '\0';
    *at = end + 3;
    return start;
}

static void parse_line(char *line, Expected *out) {
    char *at = line, *end;
    memset(out, 0, sizeof *out);
    out->call = next_part(&at);
    char *sizes = next_part(&at);
    out->refused = strcmp(sizes, "refused") == 0;
    if (out->refused) return;
    while (*sizes && out->rank < CB_MAX_RANK) {
        out->size[out->rank++] = strtoll(sizes, &end, 10);
        if (end == sizes) fail_msg("%s: bad sizes", out->call);
        sizes = end + strspn(end, " ");
    }
    char *first = next_part(&at);
    while (*first && out->first_count < FIRST) {
        out->first[out->first_count++] = strtod(first, &end);
        if (end == first) fail_msg("%s: bad elements", out->call);
        first = end + strspn(end, " ");
    }
    out->sum = strtod(next_part(&at), NULL);
    out->magnitude = strtod(next_part(&at), NULL);
}

static bool near(double found, double expected, double scale, double tolerance) {
    if (isnan(expected) || isinf(expected))
        return isnan(expected) ? isnan(found) : found == expected;
    return fabs(found - expected) <= tolerance * (1 + scale);
}

/* 0: as expected. */
static int differs(const Expected *e, cb_dtype dtype, double tolerance) {
    static double value[MOST];
    cb_tensor *y = evaluate(e->call, dtype);
    if (e->refused || !y) {
        bool same = e->refused == !y;
        if (!same && y) print_error("%s: PyTorch refuses it\n", e->call);
        if (!same && !y) print_error("%s: %s\n", e->call, cb_error());
        cb_clear_error();
        return !same;
    }
    bool same = cb_rank(y) == e->rank;
    for (int i = 0; same && i < e->rank; i++) same = cb_size(y, i) == e->size[i];
    if (!same) {
        print_error("%s: other sizes\n", e->call);
        return 1;
    }
    cb_read(y, value, CB_F64);
    double sum = 0;
    for (int64_t i = 0; i < cb_numel(y); i++) sum += value[i] * (double)(i * 7 % 13 + 1);
    for (int i = 0; i < e->first_count; i++) {
        if (near(value[i], e->first[i], fabs(e->first[i]), tolerance)) continue;
        print_error("%s %s: [%d] is %.9g, not %.9g\n", cb_dtype_name(dtype), e->call, i, value[i],
                    e->first[i]);
        return 1;
    }
    if (near(sum, e->sum, e->magnitude, tolerance)) return 0;
    print_error("%s %s: the sum is %.9g, not %.9g\n", cb_dtype_name(dtype), e->call, sum, e->sum);
    return 1;
}

static void every_call(cb_dtype dtype, double tolerance) {
    const char *given = getenv("CARBIDE_ORACLE_CALLS");
    FILE *file = fopen(given ? given : "tests/oracle/calls.txt", "r");
    assert_non_null(file);
    char line[LINE];
    int calls = 0, wrong = 0;
    while (fgets(line, sizeof line, file)) {
        Expected expected;
        parse_line(line, &expected);
        cb_scope_open();
        wrong += differs(&expected, dtype, tolerance);
        cb_scope_close();
        calls++;
    }
    fclose(file);
    if (wrong) fail_msg("%d of %d calls differ", wrong, calls);
    assert_true(calls > 0);
}

static void in_f64(void **state) {
    (void)state;
    every_call(CB_F64, 1e-6); /* PyTorch resizes at positions in f32 */
}

static void in_f32(void **state) {
    (void)state;
    every_call(CB_F32, 2e-5);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(in_f64), cmocka_unit_test(in_f32)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
