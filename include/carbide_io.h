/* Weights in files: safetensors, and the state dict of a module in one.
 * Included by carbide.h; include that.
 *
 *     if (cb_module_load_state(net, "model.safetensors", true)) puts(cb_error());
 *
 *     cb_safetensors *file = cb_safetensors_open("model.safetensors");
 *     cb_tensor *weight = cb_safetensors_get(file, "0.weight");
 *     cb_safetensors_close(file);
 *
 * Opening believes nothing: length of the header, JSON, UTF-8, names, dtypes, shapes and offsets
 * are checked before anything is read, and a file that fails one check gives no tensor at all. So
 * is the checksum that cb_safetensors_save writes, for which opening reads such a file once; files
 * of others have none. An open file is mapped: nobody may shorten it meanwhile. */
#ifndef CARBIDE_IO_H
#define CARBIDE_IO_H

typedef struct cb_safetensors cb_safetensors; /* an open file; several threads may read it */

CB_API cb_safetensors *cb_safetensors_open(const char *path); /* NULL with an error */
CB_API void cb_safetensors_close(cb_safetensors *file);
CB_API int cb_safetensors_count(const cb_safetensors *file);
CB_API const char *cb_safetensors_name(const cb_safetensors *file, int index); /* in file order */
/* A copy, in the current scope. NULL with an error when there is no such name. */
CB_API cb_tensor *cb_safetensors_get(const cb_safetensors *file, const char *name);
/* A value of the header's __metadata__, NULL without an error when it is not there. */
CB_API const char *cb_safetensors_metadata(const cb_safetensors *file, const char *key);

/* Writes tensors[0 .. count-1] under their names. The file is written beside path and renamed, so
 * path holds the old file or the whole new one, and files that are open stay what they were. */
CB_API cb_status cb_safetensors_save(const char *path, const char *const *names,
                                     cb_tensor *const *tensors, int count);

/* Copies the file's tensors into the module's parameters and buffers, converted to their dtypes:
 * all of them, or none with an error that lists missing and unexpected keys and sizes that differ,
 * as PyTorch does. strict false: keys may be missing or unexpected, sizes must still agree. Of
 * tied tensors one is enough; num_batches_tracked may be absent. */
CB_API cb_status cb_module_load_state(cb_module *module, const char *path, bool strict);
/* The same. *keys becomes what PyTorch's call gives back, with all keys, also when strict refuses
 * them: "<All keys matched successfully>", or
 * "_IncompatibleKeys(missing_keys=['0.bias'], unexpected_keys=[])". Free it with cb_free_text; NULL
 * when the file could not be read. */
CB_API cb_status cb_module_load_state_keys(cb_module *module, const char *path, bool strict,
                                           char **keys);
/* Tied tensors are written once, under the name that comes first. */
CB_API cb_status cb_module_save_state(cb_module *module, const char *path);

#endif
