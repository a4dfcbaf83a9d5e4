/* Entries found by a hash of what tells them apart (find.c). */
#ifndef CARBIDE_CAPTURE_FIND_H
#define CARBIDE_CAPTURE_FIND_H

#include "capture/function.h"

/* A new entry, or one that leaves; under the function's lock. The first entry with a key,
 * or the next one behind another; NULL: there are no more. */
void find_add(Function *function, Entry *entry);
void find_remove(Function *function, Entry *entry);
Entry *find_by(Function *function, FindBy by, uint64_t key, const Entry *behind);
uint64_t find_key_of_inputs(Tensor *const *input, int count);
/* Of the op behind `at` others, with attributes as traces have them. */
uint64_t find_key_of_op(int at, int op, const cb_operand *input, int input_count,
                        const int64_t *word, int word_count);

#endif
