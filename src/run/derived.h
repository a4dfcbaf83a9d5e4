/* What follows from frozen elements alone - a packed weight, a folded constant - made once for the
 * whole process, whichever and however many executables use it.
 *
 * A key says all that it follows from: storages by serial number and version, so that a write to
 * one of them leads to another key, and what is done with them; of a folded constant, which a whole
 * graph may lead to, a digest of 128 bits of that. What was made lives as long as an executable
 * uses it.
 *
 *     const DerivedKey key = {bytes, count};
 *     Derived *packed = derived_take(&key, &by, user);   made by by.make, or found
 *     ... derived_value(packed) ...
 *     derived_give(packed); */
#ifndef CARBIDE_RUN_DERIVED_H
#define CARBIDE_RUN_DERIVED_H

#include <stddef.h>

typedef struct Derived Derived;

typedef struct DerivedKey {
    const char *bytes;
    size_t count;
} DerivedKey;

typedef struct DerivedWay {
    void *(*make)(void *user); /* by one thread at a time; NULL: memory ran out */
    void (*drop)(void *value);
} DerivedWay;

/* Waits while another thread makes it. What is made may itself be derived, but not from a value
 * that is derived from it. NULL: memory ran out, and an error is set. */
Derived *derived_take(const DerivedKey *key, const DerivedWay *way, void *user);
void derived_give(Derived *derived); /* NULL is allowed */
void *derived_value(const Derived *derived);
int derived_users(const Derived *derived);

#endif
