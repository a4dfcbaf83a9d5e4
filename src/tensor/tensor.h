/* Tensors: a strided view of a reference-counted storage, owned by a scope.
 * The thread's state (scope, tracer, free list) is in thread.h; apply.h is the door of op calls. */
#ifndef CARBIDE_TENSOR_TENSOR_H
#define CARBIDE_TENSOR_TENSOR_H

#include "device/device.h"
#include "op/op.h"
#include <stdatomic.h>
#include <stddef.h>

typedef struct cb_tensor Tensor;
typedef struct Scope Scope;

/* Bytes with a reference count. Freed blocks go back to the storage cache (tensor/storage.c), so
 * that a loop of ops does not fault in fresh pages at every step. Blocks are 64-byte aligned. */
typedef struct Storage {
    _Atomic int references;
    size_t bytes;    /* capacity, a size class */
    void *data;      /* on the device: the host may touch it where that is the host's */
    uint8_t device;  /* DeviceId */
    bool parameter;  /* of a module: what is computed from it may be kept, by version */
    uint64_t serial; /* unique in the process: alias guards and traces name storages by it */
    _Atomic uint64_t version; /* in-place writes so far: what was computed from frozen elements is
                               * stale after one */
} Storage;

Storage *storage_new(size_t bytes); /* of the host; NULL and an error when out of memory */
Storage *storage_new_on(int device, size_t bytes);
Storage *storage_retain(Storage *storage);
void storage_release(Storage *storage);
void storage_written(Storage *storage); /* after every in-place write: raises the version */
static inline uint64_t storage_version(const Storage *storage) {
    return atomic_load_explicit(&storage->version, memory_order_relaxed);
}
void storage_trim(void); /* gives the cached blocks back to the heap */

/* What a tensor was computed from, when somebody wants its gradient (eager/tape.h). */
typedef struct History History;
struct History {
    _Atomic int references;
    void (*free)(History *history);
};
History *history_retain(History *history);
void history_release(History *history);

/* What users hold is no address: it is the tensor's handle, its address with a number in the bits
 * that are free there (tensor/handle.c). Inside the library a Tensor * is the address. Public
 * functions let handles in with tensor_in() and out with tensor_out(), and so does what calls
 * functions of the user's. An address may stand for a handle where it is a slot's, so the library
 * may call its own public functions that give back no tensor. */
struct cb_tensor {            /* what an op of a replay writes comes first: a line of the cache */
    _Atomic uintptr_t handle; /* of the tensor, or, while the slot is free, of its next one */
    uint64_t made;            /* where: site_pack */
    Storage *storage;         /* NULL: traced, has no value yet */
    union {
        struct {
            cb_dtype dtype; /* CB_SAME: a stand-in of a symbolic trace, dtype and shape unknown */
            uint8_t rank;
            uint8_t device : 6; /* DeviceId: of its storage, or where that will be */
            bool kept : 1;      /* out of every scope */
            uint8_t dynamic;    /* bit per dim: cb_mark_dynamic */
            int number;         /* traced by a call: of the trace's value */
        };
        uint64_t traits; /* these, as one */
    };
    Scope *scope; /* NULL: kept; of a resident of a call no address (tensor/thread.h) */
    union {
        Tensor *previous;  /* in the scope */
        Tensor **gradient; /* of a leaf's: where the leaf has it */
        uint64_t freed;    /* of a free slot or a seat (tensor/thread.h): where its last tensor
                            * was, site_pack */
    };
    union {
        Tensor *next;     /* in the scope, or among the free slots */
        uintptr_t seated; /* of a seat: from this handle on its tensors were residents */
    };
    uint64_t trace;   /* serial of the trace that number, or value, belongs to; 0: none.
                       * TRACE_OF_DOUBLES: value is the handle of whose elements these are */
    int64_t offset;   /* elements */
    uint32_t owners;  /* slots of modules, the last of which frees it. 0 in a scope */
    bool is_gradient; /* a leaf's, which frees it: in no scope, and no module's */
    bool is_buffer;   /* where it has owners: it was last registered as a buffer, not a parameter */
    History *history; /* NULL: it needs no gradient */
    History *paused;  /* that of a leaf, which is none at present; NULL: it never was one, or is */
    void *value;      /* traced: what the tracer knows it by, where that is no number */
    int64_t size[CB_MAX_RANK], stride[CB_MAX_RANK]; /* stride 0 where expanded */
    struct Slab *slab;                              /* of the slot, for good */
};

#define TRACE_OF_DOUBLES UINT64_MAX
enum { SLOT_BYTES = 256 };
#define HANDLE_ADDRESS ((uintptr_t)0x0000FFFFFFFFFF00)
/* In their highest bits, 0 is for other pointers and integers, 0xFFFF for negative ones. */
#define HANDLE_FIRST ((uintptr_t)0x0001000000000000)
#define HANDLE_LAST ((uintptr_t)0xFFFEFFFFFFFFFFFF)
_Static_assert(sizeof(uintptr_t) == 8, "handles need 64 bits, of which an address has 48");
_Static_assert(sizeof(Tensor) <= SLOT_BYTES, "the lowest bits of a slot's address are free");
_Static_assert(offsetof(Tensor, offset) == 64, "what opens a slot is one line");
_Static_assert(offsetof(Tensor, number) == offsetof(Tensor, traits) + 4, "traits are one word");

static inline bool handle_is_one(uintptr_t bits) {
    return (bits >> 48) - (HANDLE_FIRST >> 48) <= (HANDLE_LAST - HANDLE_FIRST) >> 48;
}
/* Where slots have lain, by the highest 4 bits of their addresses, of 48: heap and mappings are far
 * apart, and nothing is read between them. They only grow (handle.c). */
typedef struct SlotRange {
    _Atomic uintptr_t first, end; /* 0: none has */
} SlotRange;
extern SlotRange slot_ranges[16];
static inline bool slot_may_lie(uintptr_t address) {
    const SlotRange *range = &slot_ranges[address >> 44];
    return address >= atomic_load_explicit(&range->first, memory_order_relaxed) &&
           address < atomic_load_explicit(&range->end, memory_order_relaxed);
}
/* What every op pays, for each of its operands: three loads and four branches. */
static inline bool handle_lives(const cb_tensor *handle, Tensor **x) {
    uintptr_t bits = (uintptr_t)handle;
    *x = (Tensor *)(bits & HANDLE_ADDRESS);
    return handle_is_one(bits) && slot_may_lie(bits & HANDLE_ADDRESS) &&
           atomic_load_explicit(&(*x)->handle, memory_order_relaxed) == bits;
}
/* The tensor of what is no living handle: of an address. NULL for NULL, and, with an error that
 * names what, where it was made and where it was freed, for the handle of a tensor that is gone. C
 * lets a number or another pointer stand for a tensor with a warning: those are refused, too. Of a
 * pointer between slots that is a multiple of 256 the first word is read for it, else nothing. */
Tensor *handle_other(const cb_tensor *handle, const char *what) __attribute__((cold));
static inline Tensor *tensor_in(const cb_tensor *handle, const char *what) {
    Tensor *x;
    return handle_lives(handle, &x) ? x : handle_other(handle, what);
}
static inline cb_tensor *tensor_out(const Tensor *x) {
    return x ? (cb_tensor *)atomic_load_explicit(&x->handle, memory_order_relaxed) : NULL;
}
/* The same for an array, into another one or in place; false with an error that says which. */
bool tensors_in(cb_tensor *const *handle, int count, const char *what, Tensor **out);
void tensors_out(Tensor *const *x, int count, cb_tensor **out);

Tensor *tensor_new(const Meta *meta);   /* contiguous, uninitialized, in the current scope */
Tensor *tensor_shell(const Meta *meta); /* without storage: for tracers */
/* The same for a value of a trace, in an op: the thread is as thread_now leaves it. meta and stride
 * have room for CB_MAX_RANK. offset: of the first element, in elements from the start of the
 * storage. */
Tensor *tensor_shell_traced(const Meta *meta, const int64_t *stride, int64_t offset, int number,
                            uint64_t trace);
Tensor *tensor_view_of(const Tensor *base, const Meta *meta, const int64_t *stride, int64_t offset);
Tensor *tensor_alias(const Tensor *x);  /* another one over the same elements, without a history */
Tensor *tensor_double(const Tensor *x); /* with its history */
Meta tensor_meta(const Tensor *x);
/* False with an error when dtype and shape are unknown; what is the call that asks for them. */
bool tensor_known(const Tensor *x, const char *what);
/* False with an error: the caller's pointer is to elements of another dtype (cb_data_dtype). */
bool tensor_data_fits(const char *what, cb_dtype dtype);
bool tensor_contiguous(const Tensor *x);
bool same_tensor(const Tensor *x, const Tensor *y); /* dtype, sizes, strides, place and history
                                                     * are */
/* True when no two of count lie in one storage: of many by a table, in place of comparing some of
 * them with all. False, too, when that is cheap, or when they are more than MOST_APART. */
enum { MOST_APART = 2 * CB_MAX_ARGS };
bool tensors_apart(Tensor *const *x, int count, int some);
/* True when the bytes that x and y span overlap: a write to one may show in the other. */
bool tensors_overlap(const Tensor *x, const Tensor *y);
/* By tensor, whether it overlaps any other one: by sorting them, in place of comparing each with
 * each. At most MOST_APART. */
void tensors_mark_overlaps(Tensor *const *x, int count, bool *overlaps);
bool tensors_differ(Tensor *const *x, int count); /* no two are one handle; at most MOST_APART */
void *tensor_data(const Tensor *x); /* no value request: NULL for a traced tensor. On its
                                          * device, which may be none of the host's */
size_t tensor_span_bytes(const Tensor *x);
/* Out of its scope; into the innermost one. As cb_keep and cb_scope_add, of a tensor that lives and
 * has no other owner. */
void tensor_keep(Tensor *x);
void tensor_scope_add(Tensor *x);
/* A tensor dies: leaves its scope, drops its storage. */
void tensor_destroy(Tensor *x);

/* False with an error that begins with what: the thread is inside of a function. */
bool tensor_may_cleanup(const char *what);
void tensor_cleanup(void); /* for cb_cleanup: this thread's scopes and shells, then storage_trim */

/* A traced or eager tensor is brought to a value: the public readers go through this. */
bool tensor_materialize(Tensor *x);
extern const char never_computed[]; /* of a tensor without a value, and what to do */
bool tensor_overwritten(Tensor *x); /* the same, before its elements are written at once */

#endif
