/* The op table's small readers: names, attributes, metas.
 *
 * In: the generated table (op_info). Out: op_find("exp", 3) == OP_exp, default attributes, text.
 * Invariant: equal attributes are equal bytes, so every writer leaves unused words zero. */
#include "op/op.h"

#include <pthread.h>
#include <string.h>

enum { NAME_SLOTS = 1024 }; /* a power of two, several times OP_COUNT */

static Op name_slot[NAME_SLOTS]; /* OP_none: free; written once, under name_once */
static pthread_once_t name_once = PTHREAD_ONCE_INIT;

static uint32_t name_hash(const char *name, size_t length) {
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < length; i++) hash = (hash ^ (unsigned char)name[i]) * 16777619u;
    return hash ^ hash >> 15;
}

static void fill_names(void) {
    for (Op op = OP_none + 1; op < OP_COUNT; op++) {
        const char *name = op_info(op)->name;
        if (!name) continue;
        uint32_t slot = name_hash(name, strlen(name));
        while (name_slot[slot % NAME_SLOTS]) slot++;
        name_slot[slot % NAME_SLOTS] = op;
    }
}

Op op_find(const char *name, size_t length) {
    pthread_once(&name_once, fill_names);
    for (uint32_t slot = name_hash(name, length);; slot++) {
        Op found = name_slot[slot % NAME_SLOTS];
        if (found == OP_none) return OP_none;
        const char *candidate = op_info(found)->name;
        if (strlen(candidate) == length && !memcmp(candidate, name, length)) return found;
    }
}

const Attrs attrs_none = {{0}};

void op_rename_error(const char *name) {
    const char *text = error_text();
    size_t bytes = text ? strcspn(text, ":") : 0;
    if (bytes && op_find(text, bytes) != OP_none) fail_renamed(bytes, name);
}

double attr_float(const Attrs *attrs, int word) {
    double value;
    memcpy(&value, &attrs->word[word], sizeof value);
    return value;
}

void attr_set_float(Attrs *attrs, int word, double value) {
    memcpy(&attrs->word[word], &value, sizeof value);
}

cb_dim_list attr_dims(const Attrs *attrs, int word) {
    cb_dim_list dims = {(int)attrs->word[word], {0}};
    memcpy(dims.at, &attrs->word[word + 1], sizeof dims.at);
    return dims;
}

cb_dim_list size_list(int rank, const int64_t *size) {
    cb_dim_list list = {rank, {0}};
    for (int d = 0; d < rank; d++) list.at[d] = size[d];
    return list;
}

void attr_set_dims(Attrs *attrs, int word, cb_dim_list dims) {
    attrs->word[word] = dims.count;
    for (int i = 0; i < CB_MAX_RANK; i++)
        attrs->word[word + 1 + i] = i < dims.count ? dims.at[i] : 0;
}

cb_float_list attr_floats(const Attrs *attrs, int word) {
    cb_float_list floats = {(int)attrs->word[word], {0}};
    memcpy(floats.at, &attrs->word[word + 1], sizeof floats.at);
    return floats;
}

void attr_set_floats(Attrs *attrs, int word, cb_float_list floats) {
    attrs->word[word] = floats.count;
    for (int i = 0; i < CB_MAX_RANK; i++)
        attr_set_float(attrs, word + 1 + i, i < floats.count ? floats.at[i] : 0);
}

void attrs_copy(Attrs *to, const Attrs *from, Op op) {
    memcpy(to->word, from->word, sizeof *to->word * op_info(op)->word_count);
}

Attrs attrs_default(Op op) {
    Attrs attrs = {{0}};
    const OpInfo *info = op_info(op);
    for (int i = 0; i < info->param_count; i++) {
        const Param *param = &info->param[i];
        if (param->word < 0 || !param->has_default) continue;
        if (param->type == PARAM_NUMBER)
            attr_set_number(&attrs, param->word, param->default_number);
        else if (param->type == PARAM_FLOAT)
            attr_set_float(&attrs, param->word, param->default_float);
        else
            attrs.word[param->word] = param->default_int;
        if (param->type == PARAM_DIMS) attrs.word[param->word + 1] = param->default_at;
    }
    return attrs;
}

int64_t meta_numel(const Meta *meta) { return sizes_numel(meta->rank, meta->size); }

void meta_format(const Meta *meta, char *out, size_t bytes) {
    if (meta->number) {
        cb_dtype dtype = meta->dtype;
        const char *kind = dtype_is_float(dtype) ? "float" : dtype == CB_BOOL ? "bool" : "int";
        snprintf(out, bytes, "%s", kind);
        return;
    }
    size_t used = (size_t)snprintf(out, bytes, "%s[", cb_dtype_name(meta->dtype));
    for (int i = 0; i < meta->rank && used < bytes; i++)
        used += (size_t)snprintf(out + used, bytes - used, i ? ", %lld" : "%lld",
                                 (long long)meta->size[i]);
    if (used < bytes) snprintf(out + used, bytes - used, "]");
}
