/* Going back over the tape: from a result to the leaves, or to what is asked for.
 *
 *     l = sum(x * w), of gradient 1      sum: 1 spread over the product; mul: x * that, to w's leaf
 *
 * In: a result's node and its gradient. Out: what cb_backward adds to leaves, or cb_grad gives.
 * Every node is gone over once, behind all that its result went into; its gradient is freed
 * then. */
#include "base/map.h"
#include "eager/anomaly.h"
#include "eager/apply.h"
#include "eager/checkpoint.h"
#include "eager/eager.h"
#include "graph/grad/grad.h"

#include <string.h>

typedef struct TapeVisit {
    TapeNode *node;
    Tensor *gradient; /* so far, in the walk's scope */
    Tensor **given;   /* of TAPE_TOGETHER in its place: by result, when one came */
    int next;         /* operand to look at */
    bool wanted;      /* its gradient is asked for, or leads to what is */
    bool leads;       /* an operand's gradient is wanted */
    bool asked;       /* its own is */
} TapeVisit;

/* What computed several results, where the ops that did are gone over in its place. */
typedef struct Unrolled {
    const TapeNode *whole;
    TapeNode **result; /* by part; the walk's scope holds them */
} Unrolled;

typedef struct TapeWalk {
    Arena *arena;
    const char *what;         /* was called, for messages */
    bool graph;               /* what comes out has a history */
    uint64_t began;           /* (serial_next) */
    Map seen;                 /* node -> its number in order */
    TapeVisit *order, *stack; /* vecs; order: operands before results */
    Unrolled *unrolled;       /* vec */
    Checkpoint *filled;       /* a list: whose functions ran again on the way */
} TapeWalk;

static TapeNode **results_of(const TapeWalk *walk, const TapeNode *whole) {
    for (int i = 0; i < length(walk->unrolled); i++)
        if (walk->unrolled[i].whole == whole) return walk->unrolled[i].result;
    return NULL;
}

/* As it was when the walk set out: a hook on the way may ask for what has ops run again. */
static TapeNode *meant(const TapeWalk *walk, TapeNode *node) {
    bool later = node->kind == TAPE_PART && node->producer[0]->since > walk->began;
    return later ? node : tape_meant(node);
}

/* To what others an op's result is, while the call is not run again that it may be of. */
static TapeNode *shown(const TapeWalk *walk, TapeNode *node) {
    bool shows = node->shows && !node->shows->producer[0]->unrolls;
    return meant(walk, shows ? node->shows : node);
}

/* Where gradients go on to from a node, which has count of them; NULL: nowhere. */
static TapeNode *producer_of(const TapeWalk *walk, const TapeNode *node, int k) {
    TapeNode **result = node->kind == TAPE_PART ? results_of(walk, node->producer[0]) : NULL;
    if (result) return result[node->part];
    return node->producer[k] ? shown(walk, node->producer[k]) : NULL;
}

/* A result of a call is one, by whichever of its nodes. */
static bool is_same(const TapeNode *a, const TapeNode *b) {
    bool parts = a->kind == TAPE_PART && b->kind == TAPE_PART;
    return a == b || (parts && a->producer[0] == b->producer[0] && a->part == b->part);
}

static uint64_t hash_of(const TapeNode *node) {
    bool part = node->kind == TAPE_PART;
    const TapeNode *of = part ? node->producer[0] : node;
    return hash_bytes(&of, sizeof of, part ? (uint64_t)node->part + 1 : 0);
}

static int number_of(const TapeWalk *walk, const TapeNode *node) {
    for (MapEntry *e = map_first(&walk->seen, hash_of(node)); e; e = map_next(e)) {
        const int *number = e->value;
        if (is_same(walk->order[*number].node, node)) return *number; /* untested: equal hashes */
    }
    return -1;
}

static void order_nodes(TapeWalk *walk, TapeNode *root) {
    push(walk->arena, walk->stack, ((TapeVisit){.node = root}));
    while (length(walk->stack)) {
        TapeVisit *top = &walk->stack[length(walk->stack) - 1];
        TapeNode *node = top->node, *producer = NULL;
        while (top->next < node->count && !producer)
            producer = producer_of(walk, node, top->next++);
        if (producer) {
            if (number_of(walk, producer) < 0)
                push(walk->arena, walk->stack, ((TapeVisit){.node = producer}));
            continue;
        }
        (void)pop(walk->stack);
        int *number = arena_alloc(walk->arena, sizeof *number);
        *number = length(walk->order);
        map_put(&walk->seen, hash_of(node), number);
        push(walk->arena, walk->order, ((TapeVisit){.node = node}));
    }
}

static int number_of_tensor(const TapeWalk *walk, const Tensor *x) {
    return x->history ? number_of(walk, meant(walk, tape_node(x))) : -1;
}

/* Ops that lead to nothing that is asked for are not gone over: no memory is needed for them, and
 * what they saved may have been written to. */
static void find_wanted(TapeWalk *walk, const GoingBack *back) {
    for (int k = 0; k < back->count; k++) {
        int number = number_of_tensor(walk, back->wrt[k]);
        if (number >= 0) walk->order[number].wanted = walk->order[number].asked = true;
    }
    for (int i = 0; i < length(walk->order); i++) {
        TapeVisit *visit = &walk->order[i];
        for (int k = 0; k < visit->node->count && !visit->leads; k++) {
            const TapeNode *producer = producer_of(walk, visit->node, k);
            visit->leads =
                producer && (!back->wrt || walk->order[number_of(walk, producer)].wanted);
        }
        visit->wanted |= visit->leads || !back->wrt || visit->node->promised;
    }
}

/* An op of the walk's own, without attributes. */
static Tensor *apply_own(const TapeWalk *walk, Op op, const cb_operand *input, int count) {
    return (walk->graph ? apply : eager_apply)(op, input, count, &attrs_none);
}

/* A gradient that nobody reads any more, so that those of a deep network are not there at once.
 * With a history it may be somebody else's, too. */
static void drop(const TapeWalk *walk, Tensor *g) {
    if (!walk->graph) tensor_destroy(g);
}

/* g, or NULL, comes to it. False with an error. */
static bool add(const TapeWalk *walk, TapeVisit *visit, Tensor *g) {
    Tensor *before = visit->gradient;
    if (!visit->wanted || !g) {
        drop(walk, g);
        return true;
    }
    visit->gradient = g;
    if (!before) return true;
    cb_operand pair[] = {cb_operand_tensor(before), cb_operand_tensor(g)};
    visit->gradient = apply_own(walk, OP_add, pair, 2);
    drop(walk, before);
    drop(walk, g);
    return visit->gradient;
}

/* What is saved of operand i, as a tensor for one run; false with an error when it was written. */
static bool restore(const TapeNode *node, int i, Number *number, Tensor **x) {
    const Saved *saved = &node->saved[i];
    if (saved->number.kind != CB_OPERAND_TENSOR) {
        *x = number_wrap(number, &saved->number);
        return true;
    }
    Tensor *shell = &number->tensor;
    *shell = (Tensor){.device = saved->meta.device,
                      .dtype = saved->meta.dtype,
                      .rank = saved->meta.rank,
                      .offset = saved->offset,
                      .storage = saved->storage};
    *x = shell;
    memcpy(shell->size, saved->meta.size, sizeof shell->size);
    memcpy(shell->stride, saved->stride, sizeof shell->stride);
    if (!saved->storage) return true; /* nobody reads it */
    uint64_t version = atomic_load_explicit(&saved->storage->version, memory_order_relaxed);
    if (version == saved->version) return true;
    uint64_t times = version - saved->version;
    fail(CB_ERR_ARGUMENT,
         "backward: operand %d of %s (%s:%d) was modified in place, %llu time%s since, and its "
         "gradient needs the elements as they were",
         i, op_info(node->op)->name, node->site.file ? node->site.file : "?", node->site.line,
         (unsigned long long)times, plural((int64_t)times));
    return false;
}

/* By the cached executable of all that the op's gradient is. */
static bool run_gradient(const TapeNode *node, Tensor *g, Tensor **output) {
    Number number[OP_MAX_INPUTS];
    Tensor *input[OP_MAX_INPUTS + 1];
    int inputs = 0;
    for (int i = 0; i < node->count; i++)
        if (node->needs.fed >> i & 1 && !restore(node, i, &number[i], &input[inputs++]))
            return false;
    cb_operand operand = cb_operand_tensor(g);
    input[inputs] = tensor_contiguous(g) ? g : eager_apply(OP_contiguous, &operand, 1, &attrs_none);
    bool done = input[inputs] && executable_run(eager_executable(node->entry), input, output);
    if (input[inputs] != g) tensor_destroy(input[inputs]);
    return done;
}

/* Op by op, from operands that know what they were computed from. */
static bool record_gradient(const TapeVisit *visit, Tensor *g, Tensor **output) {
    TapeNode *node = visit->node;
    Number number[OP_MAX_INPUTS];
    cb_operand input[OP_MAX_INPUTS];
    Attrs attrs;
    for (int i = 0; i < node->count; i++) {
        const Saved *saved = &node->saved[i];
        input[i] = saved->number;
        if (saved->number.kind != CB_OPERAND_TENSOR || !(node->needs.fed >> i & 1)) continue;
        if (!restore(node, i, &number[i], &input[i].tensor)) return false;
        TapeNode *producer = node->producer[i];
        if (producer) input[i].tensor->history = &producer->history;
    }
    memcpy(attrs.word, node->word, sizeof(int64_t) * op_info(node->op)->word_count);
    Site site = site_current();
    site_set(node->site);
    bool done = tape_ops(node->op, input, node->count, &attrs, node->needs.produced, g,
                         &node->history, output);
    site_set(site);
    return done;
}

/* A contiguous tensor that shares its elements with nobody. */
static bool is_own(const Tensor *g) {
    return atomic_load(&g->storage->references) == 1 && tensor_contiguous(g);
}

/* What a slice of all that g belongs to has of g. NULL with an error. */
static Tensor *part_of(const TapeNode *slice, const Tensor *g) {
    Meta meta = tensor_meta(g);
    Attrs attrs;
    Inferred inferred;
    int64_t stride[CB_MAX_RANK], offset;
    memcpy(attrs.word, slice->word, sizeof(int64_t) * op_info(slice->op)->word_count);
    if (!op_infer(slice->op, &meta, 1, &attrs, &inferred)) return NULL;
    view_strides(slice->op, &attrs, &meta, &inferred.result, g->stride, g->offset, stride, &offset);
    return tensor_view_of(g, &inferred.result, stride, offset);
}

/* The gradient of a slice goes to its place in what came to all of it before: a loop over the rows
 * of x makes zeros of x's size once. *done: it went there. False with an error. */
static bool add_to_part(const TapeWalk *walk, const TapeVisit *visit, bool *done) {
    const TapeNode *node = visit->node;
    *done = false;
    if (walk->graph || !view_has_start(node->op)) return true;
    TapeVisit *to = &walk->order[number_of(walk, producer_of(walk, node, 0))];
    Tensor *all = to->gradient;
    if (!to->wanted || !all) return true;
    if (!is_own(all)) to->gradient = eager_clone(all), tensor_destroy(all);
    Tensor *part = to->gradient ? part_of(node, to->gradient) : NULL;
    cb_operand pair[] = {cb_operand_tensor(part), cb_operand_tensor(visit->gradient)};
    *done = part && eager_in_place(OP_add, pair, 2);
    tensor_destroy(part);
    return *done;
}

static bool step_op(TapeWalk *walk, const TapeVisit *visit) {
    TapeNode *node = visit->node;
    Tensor *output[OP_MAX_INPUTS], *g = visit->gradient;
    int outputs = 0;
    bool done;
    if (op_refuses_gradient(node->op)) return grad_refuses(node->op, node->site);
    if (!add_to_part(walk, visit, &done)) return false;
    if (done) return true;
    if (!(walk->graph ? record_gradient(visit, g, output) : run_gradient(node, g, output)))
        return false;
    for (int i = 0; i < node->count; i++) {
        if (!node->producer[i]) continue;
        TapeVisit *producer = &walk->order[number_of(walk, producer_of(walk, node, i))];
        Tensor *to = output[outputs++];
        if (anomaly_wanted() && !anomaly_pass_gradient(to, g, node->op, node->site, i))
            return false;
        if (!add(walk, producer, to)) return false;
    }
    return true;
}

/* Of what was unrolled: the op that gave it has a visit of its own. */
static bool step_result(TapeWalk *walk, const TapeVisit *visit) {
    const TapeNode *result = producer_of(walk, visit->node, 0);
    if (!result) return true;
    Tensor *g = tensor_double(visit->gradient);
    return g && add(walk, &walk->order[number_of(walk, result)], g);
}

/* One of several results: they are gone over at once, behind the last of them. */
static bool step_part(TapeWalk *walk, const TapeVisit *visit) {
    if (results_of(walk, visit->node->producer[0])) return step_result(walk, visit);
    TapeVisit *together = &walk->order[number_of(walk, visit->node->producer[0])];
    cb_operand g = cb_operand_tensor(visit->gradient);
    if (!together->given)
        together->given = arena_new_array(walk->arena, Tensor *, together->node->part + 1);
    Tensor **given = &together->given[visit->node->part];
    *given = tensor_contiguous(visit->gradient) ? tensor_double(visit->gradient)
                                                : eager_apply(OP_contiguous, &g, 1, &attrs_none);
    return *given;
}

static bool step_together(TapeWalk *walk, const TapeVisit *visit) {
    TapeNode *node = visit->node;
    Tensor **output = arena_new_array(walk->arena, Tensor *, node->count + 1);
    if (!node->steps->go_back(node->state, walk->what, visit->given, output)) return false;
    for (int i = 0; i < node->count; i++) {
        TapeVisit *producer = &walk->order[number_of(walk, producer_of(walk, node, i))];
        if (!add(walk, producer, output[i])) return false;
    }
    for (int k = 0; k <= node->part; k++) drop(walk, visit->given[k]);
    return true;
}

static bool step_kind(TapeWalk *walk, const TapeVisit *visit) {
    switch (visit->node->kind) {
    case TAPE_PART:
        return step_part(walk, visit);
    case TAPE_TOGETHER:
        return step_together(walk, visit);
    default:
        return step_op(walk, visit);
    }
}

static bool step(TapeWalk *walk, const TapeVisit *visit) {
    TapeNode *node = visit->node;
    if (!node->checkpoint) return step_kind(walk, visit);
    bool done = checkpoint_restore(node, &walk->filled) && step_kind(walk, visit);
    checkpoint_pass(node);
    return done;
}

/* A tensor that outlives the walk, and shares its elements with nobody. It has g's history and none
 * of its own: what the walk computed further back from g was computed from it. NULL with an error.
 */
static Tensor *kept(Tensor *g) {
    Tensor *own = is_own(g) ? tensor_double(g) : eager_clone(g);
    if (own && g->history && !own->history) own->history = history_retain(g->history);
    return own ? cb_keep(own) : NULL;
}

static bool accumulate(TapeNode *leaf, Tensor *g) {
    if (leaf->ended || checkpoint_is_again()) return true;
    if (!leaf->gradient) {
        leaf_take(&leaf->gradient, kept(g));
        return leaf->gradient;
    }
    cb_operand pair[] = {cb_operand_tensor(leaf->gradient), cb_operand_tensor(g)};
    if (!tensor_overwritten(leaf->gradient)) return false; /* it may have been traced */
    Tensor *sum = eager_apply(OP_add, pair, 2, NULL);
    cb_operand value = cb_operand_tensor(sum);
    if (!sum || !eager_assign(leaf->gradient, &value)) return false;
    storage_written(leaf->gradient->storage);
    return true;
}

/* False with an error: nobody knows where it leads. */
static bool refuse_promise(const TapeNode *node) {
    fail(CB_ERR_ARGUMENT,
         "backward: it comes to a tensor (%s:%d) that a compiled function computed before it asked "
         "for a value, and that cannot be computed again with its history, since what it was "
         "computed from was modified in place",
         node->site.file ? node->site.file : "?", node->site.line);
    return false;
}

/* x is a result of what computed several, and another one of those that are gone over was computed
 * from it there. */
static bool is_passed_by(const TapeWalk *walk, const TapeNode *whole, const Tensor *x) {
    const TapeNode *node = x->history ? tape_node(x) : NULL;
    bool passed = false;
    if (!node || node->kind != TAPE_PART || node->producer[0] != whole) return false;
    for (int i = 0; i < length(walk->order) && !passed; i++) {
        const TapeNode *part = walk->order[i].node;
        passed = part->kind == TAPE_PART && part->producer[0] == whole &&
                 whole->steps->is_behind(whole->state, part->part, node->part);
    }
    return passed;
}

/* One of the results that are gone over was computed from another one with hooks. */
static bool is_hooked_before(const TapeWalk *walk, const TapeNode *whole) {
    bool hooked = false;
    for (int i = 0; i < length(walk->order) && whole->hook && !hooked; i++) {
        const TapeNode *part = walk->order[i].node;
        hooked = part->kind == TAPE_PART && part->producer[0] == whole &&
                 hooks_before(whole, part->part);
    }
    return hooked;
}

/* What is compiled knows its gradients by sources alone, and they have none: gradients of them,
 * those by a result of other ones, and what hooks on that see, come by the ops. */
static bool takes_ops(const TapeWalk *walk, const TapeVisit *visit, const GoingBack *back) {
    if (visit->node->kind != TAPE_TOGETHER) return false;
    bool takes = visit->leads && (walk->graph || is_hooked_before(walk, visit->node));
    for (int k = 0; k < back->count && !takes; k++)
        takes = is_passed_by(walk, visit->node, back->wrt[k]);
    return takes;
}

/* To ops that were computed from it, among them those of gradients which are recorded, an op's
 * result is the call's: what comes to it comes together, for hooks and for who asks. */
static bool show(TapeNode *whole, int k, TapeNode *result) {
    if (!result) return true;
    History *part = tape_part(&whole->history, k, &result->meta, result->op, result->site);
    if (result->shows) history_release(&result->shows->history); /* as a checkpoint knows it */
    result->shows = (TapeNode *)(void *)part;
    return part;
}

static bool unroll(TapeWalk *walk, TapeNode *whole) {
    History **source = arena_new_array(walk->arena, History *, whole->count + 1);
    Tensor **out = arena_new_array(walk->arena, Tensor *, whole->part + 1);
    TapeNode **result = arena_new_array(walk->arena, TapeNode *, whole->part + 1);
    for (int i = 0; i < whole->count; i++) source[i] = &whole->producer[i]->history;
    if (whole->checkpoint && !checkpoint_restore(whole, &walk->filled)) return false;
    whole->unrolls = true; /* gradients that it asks for within end in its own ops */
    bool done = whole->steps->unroll(whole->state, walk->what, source, out);
    whole->unrolls = false;
    for (int k = 0; k <= whole->part && done; k++) {
        result[k] = tape_node(out[k]);
        done = show(whole, k, result[k]);
    }
    if (!done) return false;
    push(walk->arena, walk->unrolled, ((Unrolled){whole, result}));
    return true;
}

/* The order of the walk. */
static bool set_out(TapeWalk *walk, TapeNode *root, const GoingBack *back) {
    int before = length(walk->unrolled);
    walk->seen = map_new(walk->arena);
    walk->order = NULL;
    order_nodes(walk, root);
    find_wanted(walk, back);
    for (int i = 0; i < length(walk->order); i++)
        if (takes_ops(walk, &walk->order[i], back) && !unroll(walk, walk->order[i].node))
            return false;
    return length(walk->unrolled) == before || set_out(walk, root, back);
}

static bool call_hooks(const TapeWalk *walk, TapeVisit *visit) {
    Tensor *g = visit->gradient;
    if (visit->node->kind == TAPE_TOGETHER || !hooks_wait(visit->node)) return true;
    visit->gradient = hooks_call(visit->node, g, walk->graph);
    if (visit->gradient != g) drop(walk, g);
    return visit->gradient;
}

/* What is given back is no leaf, as one that the walk began with, or a hook gave, is: a leaf has a
 * gradient of its own, and can end. Before it goes on: what is further back comes of it. */
static bool part_from_leaf(const TapeWalk *walk, TapeVisit *visit) {
    if (!visit->asked || !visit->gradient || !tape_gradient(visit->gradient)) return true;
    cb_operand leaf = cb_operand_tensor(visit->gradient);
    visit->gradient = apply_own(walk, OP_clone, &leaf, 1);
    return visit->gradient;
}

/* From root with gradient g back to the leaves; with wrt: to those alone, into out. */
static bool walk_back(TapeWalk *walk, TapeNode *root, Tensor *g, const GoingBack *back,
                      Tensor **out) {
    if (!set_out(walk, root, back)) return false;
    int last = length(walk->order) - 1;
    walk->order[last].gradient = g;
    for (int i = last; i >= 0; i--) {
        TapeVisit *visit = &walk->order[i];
        if (!visit->gradient && !visit->given)
            continue; /* no gradient came this way: a 0 in the table */
        if (visit->node->promised) return refuse_promise(visit->node);
        if (!call_hooks(walk, visit) || !part_from_leaf(walk, visit)) return false;
        if (visit->leads && !step(walk, visit)) return false;
        bool leaf = visit->node->op == OP_none && !back->wrt;
        if (leaf && !accumulate(visit->node, visit->gradient)) return false;
        if (visit->asked) continue;
        drop(walk, visit->gradient);
        visit->gradient = NULL;
    }
    for (int k = 0; k < back->count; k++) {
        int number = number_of_tensor(walk, back->wrt[k]);
        Tensor *gradient = number >= 0 ? walk->order[number].gradient : NULL;
        out[k] = gradient ? kept(gradient) : NULL;
        if (gradient && !out[k]) return false;
    }
    return true;
}

/* y's own gradient: that given, or 1 for one element. */
static Tensor *seed(const GoingBack *back) {
    const Tensor *y = back->y, *given = back->given;
    Meta meta = tensor_meta(y), own = given ? tensor_meta(given) : meta;
    if (!y->history && !tape_refuses_untracked(back->what)) return NULL;
    if (!tape_fits(back->what, &meta, given ? &own : NULL)) return NULL;
    if (given) return back->graph ? tensor_double(given) : tensor_alias(given);
    return eager_full(&meta, cb_operand_int(1));
}

static bool go_back(const GoingBack *back, Tensor **out) {
    Arena *arena = arena_new();
    if (!arena || arena_guard(arena)) {
        fail_memory(0);
        arena_free(arena);
        return false;
    }
    Tensor *g = seed(back);
    TapeWalk walk = {
        .arena = arena, .what = back->what, .graph = back->graph, .began = serial_next()};
    bool done = g && walk_back(&walk, meant(&walk, tape_node(back->y)), g, back, out);
    checkpoint_leave(walk.filled);
    arena_free(arena);
    return done;
}

bool tape_go_back(const GoingBack *back, Tensor **out) {
    cb_scope_open();
    cb_dtype lower = autocast_set(CB_SAME); /* the dtypes are those of the ops that are gone over */
    History *root = back->y->history;
    if (root) history_retain(root); /* a hook may free y */
    bool done = go_back(back, out);
    if (root) history_release(root);
    autocast_set(lower);
    cb_scope_close();
    for (int k = 0; !done && k < back->count; k++) tensor_destroy(out[k]), out[k] = NULL;
    return done;
}
