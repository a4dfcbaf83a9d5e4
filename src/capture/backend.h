/* Backends of the user's (include/carbide_backend.h): who they are, what they are given, what they
 * made. */
#ifndef CARBIDE_CAPTURE_BACKEND_H
#define CARBIDE_CAPTURE_BACKEND_H

#include "capture/function.h"
#include "fx/fx.h"

typedef struct Backend {
    char name[CB_MAX_OP_NAME + 1];
    cb_backend_compile *compile;
    void *user;
} Backend;

enum { NO_BACKEND = -1 };
int backend_find(const char *name, size_t length); /* its number, or NO_BACKEND */
/* That the options name; NULL: Carbide's own compiler is asked for. */
const Backend *backend_of(const FunctionOptions *options);

/* backend_graph.c: the entry's graph, not yet optimized, for a backend. NULL with an error. */
FxGraph *backend_graph(const Entry *entry, Graph *graph);

/* The recording's graph becomes the entry's code. False, with a note: the graph is still the
 * recording's, for Carbide's own compiler. */
bool backend_take(Entry *entry, const Call *call);
void backend_free(BackendCode *code);
/* entry_run's part, of an entry that has code. False with an error: nothing has happened. */
bool backend_run(const Entry *entry, Tensor *const *input, Tensor **output);

#endif
