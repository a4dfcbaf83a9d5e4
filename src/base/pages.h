/* Memory for large blocks: whole pages, huge ones where the system has them. */
#ifndef CARBIDE_BASE_PAGES_H
#define CARBIDE_BASE_PAGES_H

#include <stddef.h>

void *pages_alloc(size_t bytes);            /* NULL when out of memory, without an error message */
void pages_free(void *pages, size_t bytes); /* bytes: as at pages_alloc */
/* Asks for huge pages in a block that is not from here: in the pages that it has for itself. */
void pages_advise(void *block, size_t bytes);

#endif
