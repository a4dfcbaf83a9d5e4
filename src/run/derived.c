/* The table of derived values (derived.h), and who uses them.
 *
 *     take(w#7.0 panels)   not there: a row {users 1, making}, made outside of the lock
 *     take(w#7.0 panels)   by another thread meanwhile: waits, then users 2
 *     give, give           users 0: the row goes, then the value
 *
 * Invariant: a row with a value has users. One without is being made, by a thread of the process
 * `making`; in a forked child that one does not exist, and who asks next makes it. */
#include "run/derived.h"

#include "base/error.h"
#include "base/lock.h"
#include "base/map.h"
#include "base/memory.h"

#include <string.h>

enum { BUCKETS = 256 };

struct Derived {
    Derived *next;
    uint64_t hash;
    void *value; /* NULL: it is being made */
    void (*drop)(void *value);
    uint32_t making; /* process_number of whoever does */
    int users;
    size_t count;
    char key[];
};

/* The process's derived values: a documented singleton. */
static Derived *table[BUCKETS];

static Derived **bucket_of(uint64_t hash) { return &table[hash % BUCKETS]; }

static Derived *find(const DerivedKey *key, uint64_t hash) {
    Derived *row = *bucket_of(hash);
    while (row && (row->hash != hash || row->count != key->count ||
                   memcmp(row->key, key->bytes, key->count) != 0))
        row = row->next;
    return row;
}

static void unlink_row(const Derived *row) {
    Derived **at = bucket_of(row->hash);
    while (*at != row) at = &(*at)->next;
    *at = row->next;
}

static Derived *row_new(const DerivedKey *key, uint64_t hash) {
    Derived *row = memory_zalloc(sizeof *row + key->count);
    if (!row) {
        fail_memory(sizeof *row + key->count);
        return NULL;
    }
    row->hash = hash, row->count = key->count;
    memcpy(row->key, key->bytes, key->count);
    return row;
}

/* The row to use, with one user more; or, when there is no value of the key yet and nobody makes
 * it, a row to make it for: `spare`, which is in the table then, or one that a fork has left. */
static Derived *claim(const DerivedKey *key, Derived *spare) {
    lock_take(LOCK_derived);
    Derived *row = find(key, spare->hash);
    while (row && !row->value && row->making == process_number()) {
        lock_wait(LOCK_derived);
        row = find(key, spare->hash);
    }
    if (row && row->value) {
        row->users++;
    } else {
        if (!row) {
            row = spare;
            row->next = *bucket_of(row->hash);
            *bucket_of(row->hash) = row;
        }
        row->making = process_number();
        row->users = 1;
    }
    lock_give(LOCK_derived);
    return row;
}

static void finish(Derived *row, void *value) {
    lock_take(LOCK_derived);
    row->value = value;
    if (!value) unlink_row(row);
    lock_wake(LOCK_derived);
    lock_give(LOCK_derived);
}

/* ---- entry -------------------------------------------------------------------------------- */

Derived *derived_take(const DerivedKey *key, const DerivedWay *way, void *user) {
    Derived *spare = row_new(key, hash_bytes(key->bytes, key->count, 0));
    if (!spare) return NULL;
    Derived *row = claim(key, spare);
    if (row != spare) memory_free(spare);
    if (row->value) return row;
    row->drop = way->drop;
    void *value = way->make(user);
    finish(row, value);
    if (value) return row;
    memory_free(row);
    return NULL;
}

void derived_give(Derived *derived) {
    if (!derived) return;
    lock_take(LOCK_derived);
    bool last = --derived->users == 0;
    if (last) unlink_row(derived);
    lock_give(LOCK_derived);
    if (!last) return;
    derived->drop(derived->value);
    memory_free(derived);
}

void *derived_value(const Derived *derived) { return derived->value; }

int derived_users(const Derived *derived) {
    lock_take(LOCK_derived);
    int users = derived->users;
    lock_give(LOCK_derived);
    return users;
}
