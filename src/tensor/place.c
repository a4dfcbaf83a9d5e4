/* Where tensors lie: moves between devices, the device of an op, the public API of both.
 *
 *     cb_to_device(x: f32[3, 2] on cpu, "guarded")  ->  the bytes that x spans, uploaded, under x's
 *                                                       strides
 *
 * An op runs where its operands lie. Tensors without dimensions on the host are numbers, which any
 * device takes; what is made of nothing else lies on the default device. */
#include "tensor/place.h"

#include "tensor/tracer.h"

/* ---- the device of an op --------------------------------------------------------------------- */

bool place_operand(int *place, const char *op, const Meta *x) {
    if (device_is_host(x->device) && x->rank == 0) {
        if (*place == PLACE_NOWHERE) *place = PLACE_NUMBERS;
        return true;
    }
    if (*place >= 0 && *place != x->device) {
        fail(CB_ERR_ARGUMENT, "%s: operands lie on %s and on %s; move one with cb_to_device", op,
             devices[*place]->name, devices[x->device]->name);
        return false;
    }
    *place = x->device;
    return true;
}

int place_device(int place, int made_on) {
    if (place == PLACE_NOWHERE) return made_on;
    return place == PLACE_NUMBERS ? DEVICE_cpu : place;
}

/* ---- moves ----------------------------------------------------------------------------------- */

/* The bytes that x spans, to memory of another device, of which one is the host. */
static bool transfer(const Tensor *x, int device, void *to) {
    size_t bytes = tensor_span_bytes(x);
    if (device_is_host(device)) return devices[x->device]->download(to, tensor_data(x), bytes);
    return devices[device]->upload(to, tensor_data(x), bytes);
}

Tensor *tensor_to(const Tensor *x, int device) {
    Meta meta = tensor_meta(x);
    if (!device_is_host(device) && !device_is_host(x->device)) {
        const Tensor *local = tensor_to(x, DEVICE_cpu);
        Tensor *there = local ? tensor_to(local, device) : NULL;
        tensor_destroy((Tensor *)local);
        return there;
    }
    meta.device = (uint8_t)device;
    Storage *storage = storage_new_on(device, tensor_span_bytes(x));
    if (!storage) return NULL;
    Tensor *there = transfer(x, device, storage->data) ? tensor_shell(&meta) : NULL;
    if (!there) {
        storage_release(storage);
        return NULL;
    }
    there->storage = storage;
    for (int i = 0; i < x->rank; i++) there->stride[i] = x->stride[i];
    return there;
}

Tensor *tensor_placed(Tensor *x) {
    int device = device_default();
    if (!x || device_is_host(device)) return x;
    Tensor *there = tensor_to(x, device);
    tensor_destroy(x);
    return there;
}

const Tensor *tensor_local(const Tensor *x) {
    return device_is_host(x->device) ? x : tensor_to(x, DEVICE_cpu);
}

void tensor_local_end(const Tensor *local, const Tensor *x) {
    if (local != x) tensor_destroy((Tensor *)local);
}

bool tensor_write_back(const Tensor *local, const Tensor *x) {
    return local == x ||
           devices[x->device]->upload(tensor_data(x), tensor_data(local), tensor_span_bytes(x));
}

/* ---- the public API -------------------------------------------------------------------------- */

cb_tensor *cb_to_device(cb_tensor *handle, const char *name) {
    Tensor *x = tensor_in(handle, "to_device");
    int device = x ? device_find(name) : -1;
    if (device < 0 || !tensor_materialize(x)) return NULL;
    if (x->history && grad_mode()) {
        fail(CB_ERR_ARGUMENT,
             "to_device: x requires a gradient, and a move has none: cb_detach it");
        return NULL;
    }
    return tensor_out(device == x->device ? tensor_alias(x) : tensor_to(x, device));
}

const char *cb_device(const cb_tensor *handle) {
    const Tensor *x = tensor_in(handle, "device");
    if (!x && !handle) fail(CB_ERR_ARGUMENT, "device: x is NULL");
    return x ? devices[x->device]->name : NULL;
}

cb_status cb_synchronize(void) { return devices_wait(); }
