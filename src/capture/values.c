/* The values of a call: inputs, tensors from outside that it has met, and shells of what its trace
 * computes; and who outlives whom among them.
 *
 * Invariant: call->value[v] is NULL, or a tensor that lives. */
#include "capture/call.h"

#include "base/memory.h"
#include <string.h>

/* Into a list of the thread's, of which nothing is set that is not bound. */
static bool grow(Call *call, int count) {
    int capacity = call->value_capacity * 2;
    while (capacity < count) capacity *= 2;
    ValueList list = values_take(&thread_state, capacity);
    if (!list.value) return false;
    for (int v = 0; v < call->bound; v++) {
        list.value[v] = call->value[v];
        list.handle[v] = call->tracer.handle[v];
        call->value[v] = NULL;
    }
    call_drop_values(call);
    call->value = call->tracer.value = list.value;
    if (!call->seats) call->tracer.seat = call->value;
    call->tracer.handle = list.handle;
    call->value_capacity = list.capacity;
    return true;
}

bool call_reserve(Call *call, int count) {
    if (count > call->value_capacity && !grow(call, count)) return false;
    if (call->value == call->local)
        while (call->bound < count) call->value[call->bound++] = NULL;
    if (call->bound < count) call->bound = count;
    return true;
}

void call_drop_values(Call *call) {
    if (call->value == call->local) return;
    values_give(&thread_state, (ValueList){call->value, call->tracer.handle, call->value_capacity});
}

void call_stand_nowhere(Call *call) {
    call->value = call->tracer.value = call->tracer.seat = call->local;
    call->tracer.survivors.of = 0;
    call->tracer.handle = call->local_handle;
    call->value_capacity = LOCAL_VALUES;
    call->bound = 0;
    call->argument = call->local_argument;
    call->argument_capacity = LOCAL_ARGUMENTS;
}

bool call_reserve_arguments(Call *call, int count) {
    if (count <= call->argument_capacity) return true;
    int capacity = call->argument_capacity * 2;
    while (capacity < count) capacity *= 2;
    bool local = call->argument == call->local_argument;
    int64_t *grown =
        memory_resize(local ? NULL : call->argument, sizeof *grown * 2 * (size_t)capacity);
    if (!grown) return false;
    if (local) memcpy(grown, call->local_argument, sizeof *grown * LOCAL_ARGUMENTS);
    call->argument = grown;
    call->argument_capacity = capacity;
    return true;
}

bool call_reserve_trace(Call *call, const Trace *trace) {
    return call_reserve(call, length(trace->value)) &&
           call_reserve_arguments(call, trace->argument_count);
}

bool call_sit(Call *call) {
    const Trace *trace = call->trace;
    if (!call_reserve_trace(call, trace)) return false;
    call->seats = seats_take(&thread_state, trace->serial, length(trace->value));
    call->tracer.seat = call->seats ? call->seats->slot : call->value;
    call->tracer.seats = call->seats ? call->seats->count : 0;
    call->tracer.first = call->input_count;
    call->tracer.home = call->seats ? &call->frame.own : NULL;
    return true;
}

void call_stand_up(Call *call) {
    residents_join(&call->tracer);
    if (call->seats) seats_leave(call->seats, &call->tracer);
    call->seats = NULL;
    call->tracer.seat = call->value; /* of what has no shell yet: NULL */
    call->tracer.seats = 0;
}

Tensor *call_shell(Call *call, int v) {
    const TraceValue *value = &call->trace->value[v];
    int64_t offset = trace_offset(value, call->argument);
    if (call->trace->value[value->root].kind != VALUE_IS_RESULT)
        offset += call->value[value->root]->offset;
    Tensor *x = call->tracer.seat[v];
    if (x) {
        seat_begin(&thread_state, x, trace_traits(value, v), &call->tracer);
        x->offset = offset;
    } else {
        x = tensor_shell_traced(&value->meta, value->stride, offset, v, call->tracer.serial);
        if (!x) {
            call->failed = true;
            return NULL;
        }
    }
    call->value[v] = x;
    call->tracer.handle[v] = (uintptr_t)tensor_out(x);
    call->tracer.survivors.of = 0;
    call->tracer.alive++;
    return x;
}

/* The function frees one of its inputs, which ops that are still to run read. */
static __attribute__((noinline, cold)) void lose_input(Call *call, const Tensor *x) {
    for (int i = 0; i < call->input_count; i++) {
        if (call->value[i] != x) continue;
        Tensor *own = cb_keep(tensor_double(x));
        if (own) {
            call->value[i] = own;
            call->tracer.handle[i] = NO_HANDLE;
            if (!call->own_inputs++) memset(call->own_input, 0, sizeof call->own_input);
            call->own_input[i / 64] |= UINT64_C(1) << i % 64;
        } else {
            call_break(call, REASON_out_of_memory, "while recording");
        }
    }
}

void call_loses_tensor(Tracer *tracer, Tensor *x) {
    Call *call = call_of(tracer);
    if (x->trace == call->left_serial) {
        call->next = &no_line;
        segment_lost(call, x);
    } else if (x->storage) {
        call->next = &no_line;
        lose_input(call, x);
    } else if (x->trace == tracer->serial) {
        call->value[x->number] = NULL;
        call->tracer.handle[x->number] = NO_HANDLE;
        call->tracer.alive--;
    }
}

/* Of a value that the call computes: the place of its root among the values. */
const void *call_storage_of(Tracer *tracer, const Tensor *x) {
    const Call *call = call_of(tracer);
    if (x->trace == call->left_serial) return segment_storage_of(x);
    int v = call_traced(call, x);
    return v == NO_VALUE ? NULL : value_storage(call->trace, call->value, v);
}

bool call_stand_ins(Call *call, Tensor **stand_in) {
    for (int i = 0; i < call->input_count; i++) {
        int k = input_handle(call->input, i);
        stand_in[i] = k < i ? stand_in[k] : tensor_double(call->value[i]);
        if (!stand_in[i]) return false;
        if (k < i) continue;
        stand_in[i]->trace = call->tracer.serial;
        stand_in[i]->number = i;
    }
    return true;
}

/* The call's own view of it, so that it outlives whatever the function does with its tensor. */
bool call_bind(Call *call, int v, Tensor *x) {
    if (!call_reserve(call, v + 1)) return false;
    call->tracer.survivors.of = 0;
    Tensor *own = call->seats ? seat_double(&thread_state, &call->tracer, v, x) : NULL;
    if (!own) own = tensor_double(x);
    if (!own) return false;
    if (!own->kept) cb_keep(tensor_out(own));
    own->trace = TRACE_OF_DOUBLES;
    own->value = tensor_out(x);
    call->value[v] = own;
    return true;
}

void call_unbind(Call *call, int v) {
    if (call->seats) {
        seat_end_double(&thread_state, &call->tracer, v);
        return;
    }
    Tensor *x = call->value[v];
    call->value[v] = NULL;
    tensor_destroy(x);
}

void call_unbind_from(Call *call, int first) {
    for (int v = first; v < call->bound; v++) {
        const Tensor *x = call->value[v];
        if (x && call_traced(call, x) == NO_VALUE) call_unbind(call, v);
    }
}
