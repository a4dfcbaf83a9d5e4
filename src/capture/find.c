/* Entries found by what they begin with, or differ from others in: where hundreds are known, one
 * for each length of a text, a call asks a few of them instead of all.
 *
 *     by inputs   dtypes and sizes of the inputs            f32[4, 17]
 *     by op       the op with which it left those that      2: slice(f32[4, 64], start, 17)
 *                 were known when it was recorded
 *
 * A key says that an entry may be meant, no more: whoever finds one asks its guards and its trace.
 * Chains are walked without a lock, as the list of entries is, and changed under the function's: an
 * entry that leaves still leads on (retire.c). */
#include "capture/find.h"

#include "base/map.h"

static uint64_t mix_meta(uint64_t key, cb_dtype dtype, int rank, const int64_t *size) {
    key = hash_mix(key, (uint64_t)dtype << 8 | (uint64_t)rank);
    for (int d = 0; d < rank; d++) key = hash_mix(key, (uint64_t)size[d]);
    return key;
}

uint64_t find_key_of_inputs(Tensor *const *input, int count) {
    uint64_t key = (uint64_t)count;
    for (int i = 0; i < count; i++)
        key = mix_meta(key, input[i]->dtype, input[i]->rank, input[i]->size);
    return key;
}

static uint64_t key_of_guards(const Entry *entry) {
    uint64_t key = (uint64_t)entry->input_count;
    for (int i = 0; i < entry->input_count; i++)
        key = mix_meta(key, entry->guard[i].dtype, entry->guard[i].rank, entry->guard[i].size);
    return key;
}

/* ---- by op ----------------------------------------------------------------------------------- */

/* Where it stands, and its attributes but for those that are numbers. */
static uint64_t begin_op(int at, int op, int input_count, const int64_t *word, int word_count) {
    uint64_t key = hash_mix((uint64_t)at, (uint64_t)op << 8 | (uint64_t)input_count);
    bool varies[ATTR_WORDS] = {false};
    const Param *param;
    for (int k = 0; word_count && (param = op_varying(op, k)); k++)
        for (int w = 0; w < param_words(param); w++) varies[param->word + w] = true;
    for (int w = 0; w < word_count; w++)
        if (!varies[w]) key = hash_mix(key, (uint64_t)word[w]);
    return key;
}

uint64_t find_key_of_op(int at, int op, const cb_operand *input, int input_count,
                        const int64_t *word, int word_count) {
    uint64_t key = begin_op(at, op, input_count, word, word_count);
    for (int i = 0; i < input_count; i++) {
        const Tensor *x = input[i].kind == CB_OPERAND_TENSOR ? input[i].tensor : NULL;
        key = x ? mix_meta(key, x->dtype, x->rank, x->size) : hash_mix(key, 0);
    }
    return key;
}

static uint64_t key_of_parting(const Trace *trace) {
    const TraceOp *op = &trace->op[trace->parted];
    uint64_t key =
        begin_op(trace->parted, op->op, op->input_count, op->word, op->back ? 0 : op->word_count);
    for (int i = 0; i < op->input_count; i++) {
        const Meta *meta =
            op->input[i].kind == OPERAND_VALUE ? &trace->value[op->input[i].value].meta : NULL;
        key = meta ? mix_meta(key, meta->dtype, meta->rank, meta->size) : hash_mix(key, 0);
    }
    return key;
}

/* ---- chains ---------------------------------------------------------------------------------- */

static _Atomic(Entry *) *chain_of(Function *function, FindBy by, uint64_t key) {
    return &function->chain[by][key % FIND_CHAINS];
}

static bool is_found(const Entry *entry, FindBy by) {
    return by == FIND_BY_INPUTS ? !entry->resumes : entry->trace->parted < length(entry->trace->op);
}

void find_add(Function *function, Entry *entry) {
    for (FindBy by = 0; by < FIND_WAYS; by++) {
        if (!is_found(entry, by)) continue;
        entry->key[by] = by == FIND_BY_INPUTS ? key_of_guards(entry) : key_of_parting(entry->trace);
        _Atomic(Entry *) *last = chain_of(function, by, entry->key[by]);
        for (Entry *e; (e = atomic_load(last));) last = &e->same[by];
        atomic_store(last, entry);
    }
}

void find_remove(Function *function, Entry *entry) {
    for (FindBy by = 0; by < FIND_WAYS; by++) {
        if (!is_found(entry, by)) continue;
        _Atomic(Entry *) *at = chain_of(function, by, entry->key[by]);
        for (Entry *e; (e = atomic_load(at)) && e != entry;) at = &e->same[by];
        if (atomic_load(at)) atomic_store(at, atomic_load(&entry->same[by]));
    }
}

Entry *find_by(Function *function, FindBy by, uint64_t key, const Entry *behind) {
    Entry *e = atomic_load(behind ? &behind->same[by] : chain_of(function, by, key));
    while (e && e->key[by] != key) e = atomic_load(&e->same[by]);
    return e;
}
