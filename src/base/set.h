/* Sets of numbers that are not 0, such as serials and addresses: what has been met. */
#ifndef CARBIDE_BASE_SET_H
#define CARBIDE_BASE_SET_H

#include <stdbool.h>
#include <stdint.h>

typedef struct Set { /* all zero: empty */
    uint64_t *place; /* owned, 0 where nothing is */
    int count, room;
} Set;

bool set_has(const Set *set, uint64_t number);
bool set_add(Set *set, uint64_t number); /* false: no memory */
void set_free(Set *set);                 /* it is empty then */

#endif
