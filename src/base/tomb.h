/* Objects that the user has freed, remembered for a while, so that a second free, or a call, is an
 * error that says where the first one was. For compiled functions, modules and graphs: the struct
 * of the last MOST_TOMBS freed ones stays allocated. (Tensors have handles, tensor/handle.c.)
 *
 *     struct cb_function { Tomb tomb; ... };       first
 *     if (!tomb_lives(&function->tomb, "call: the compiled function")) return ...;
 *     tomb_bury(&function->tomb);                  in place of memory_free */
#ifndef CARBIDE_BASE_TOMB_H
#define CARBIDE_BASE_TOMB_H

#include "base/error.h"
#include <stdatomic.h>

enum { MOST_TOMBS = 64 };

typedef struct Tomb Tomb;
struct Tomb {
    atomic_bool dead;
    uint64_t freed; /* where: site_pack */
    int holders;    /* tomb_hold, less tomb_drop */
    Tomb *next;     /* buried after it */
};

/* False with an error, "what was freed at photo.c:31", or for NULL "what: NULL". */
bool tomb_lives(const Tomb *tomb, const char *what);
/* The object that begins with its tomb is freed when MOST_TOMBS others were buried, and nobody
 * holds it. */
void tomb_bury(Tomb *tomb);
/* Keeps the struct of an object allocated beyond its end, so that tomb_is_dead may be asked. */
void tomb_hold(Tomb *tomb);
void tomb_drop(Tomb *tomb);
static inline bool tomb_is_dead(const Tomb *tomb) {
    return atomic_load_explicit(&tomb->dead, memory_order_acquire);
}
void tombs_cleanup(void); /* frees them all, for cb_cleanup */

#endif
