/* Beam search over GPT-2: the BEAMS likeliest continuations of a text go on together, and chance
 * has a say. Shared by beam_search.c, its test and bench/breaks.c.
 *
 * Of each beam the TOP likeliest next tokens are candidates. BEAMS of all candidates are drawn
 * without replacement, as Kool, van Hoof and Welling do it, "Stochastic Beams and Where to Find
 * Them" (2019): the largest sums of a logarithm of a probability and a Gumbel variate are such a
 * draw. A beam that has come to the token END goes on with END alone, which costs it nothing; when
 * all have, or the text is as long as it may be, the search is over. */
#ifndef BEAM_SEARCH_H
#define BEAM_SEARCH_H

#include <carbide.h>

enum { BEAMS = 4, TOP = 8, END = 0 };

typedef struct Search {
    cb_module *net;     /* token numbers i64[beams, length] -> logits f32[beams, length, tokens] */
    int64_t longest;    /* tokens of a text */
    double temperature; /* logits are divided by it: above 1 for bolder texts */
} Search;

typedef struct Beams {
    cb_tensor *text;  /* i64[BEAMS, length] */
    cb_tensor *score; /* f32[BEAMS], the logarithm of its probability */
    cb_tensor *over;  /* bool[BEAMS]: it has come to END */
} Beams;

/* All begin with the prompt. But for the first, they are so unlikely that all candidates of the
 * first round are the first one's. */
static inline Beams beams_begin(cb_tensor *prompt) {
    cb_tensor *first = cb_eq(cb_arange(0, BEAMS), 0);
    return (Beams){.text = cb_repeat(prompt, cb_dims(BEAMS, 1)),
                   .score = cb_where(first, 0.0, -1e9),
                   .over = cb_zeros(BEAMS, CB_BOOL)};
}

/* f32 of the shape of x: minus the logarithm of an exponential variate. */
static inline cb_tensor *gumbel_like(cb_tensor *x) {
    return cb_neg(cb_log(cb_neg(cb_log(cb_clamp(cb_rand_like(x), 1e-20)))));
}

/* One token more. */
static inline Beams beams_grow(const Search *search, Beams old) {
    cb_tensor *logits = cb_select(cb_forward(search->net, old.text), 1, -1), *token;
    cb_tensor *chance = cb_log_softmax(cb_div(logits, search->temperature), -1);
    chance = cb_topk(chance, TOP, -1, true, &token);   /* f32[BEAMS, TOP], i64[BEAMS, TOP] */

    cb_tensor *over = cb_unsqueeze(old.over, 1);
    cb_tensor *only = cb_where(cb_eq(cb_arange(0, TOP), 0), 0.0, -1e9);
    chance = cb_where(over, only, chance);
    token = cb_where(over, END, token);

    cb_tensor *score = cb_add(cb_unsqueeze(old.score, 1), chance), *drawn;
    cb_topk(cb_flatten(cb_add(score, gumbel_like(score))), BEAMS, 0, true, &drawn);

    cb_tensor *parent = cb_floor_divide(drawn, TOP);
    token = cb_gather(cb_flatten(token), 0, drawn);
    cb_tensor *grown[] = {cb_index_select(old.text, 0, parent), cb_unsqueeze(token, 1)};
    return (Beams){.text = cb_cat(grown, 2, 1),
                   .score = cb_gather(cb_flatten(score), 0, drawn),
                   .over = cb_eq(token, END)};
}

static inline void beams_keep(Beams b) { cb_keep(b.text), cb_keep(b.score), cb_keep(b.over); }
static inline void beams_free(Beams b) { cb_free(b.text), cb_free(b.score), cb_free(b.over); }

/* inputs: the prompt, i64[1, length]; outputs: text i64[BEAMS, length], score f32[BEAMS], in the
 * order of the last draw. user: a Search. */
static inline int beam_search(cb_tensor *const *inputs, int count, cb_tensor **outputs,
                              void *user) {
    const Search *search = user;
    Beams beams = beams_begin(inputs[0]);
    beams_keep(beams);
    while (cb_size(beams.text, 1) < search->longest) {
        cb_scope_open();
        Beams next = beams_grow(search, beams);
        beams_keep(next);
        cb_scope_close();
        beams_free(beams);
        beams = next;
        if (cb_item(cb_all(beams.over)) != 0) break;
    }
    outputs[0] = cb_scope_add(beams.text);
    outputs[1] = cb_scope_add(beams.score);
    cb_free(beams.over);
    (void)count;
    return 2;
}

#endif
