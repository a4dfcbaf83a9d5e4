/* The table of devices (device.h). */
#include "device/device.h"

#include "base/error.h"

#include <string.h>

#define DEVICE_ROW(id, device) &device,
const Device *const devices[DEVICE_COUNT] = {DEVICES(DEVICE_ROW)};
#undef DEVICE_ROW

int device_find(const char *name) {
    char known[64] = "";
    for (int id = 0; id < DEVICE_COUNT; id++) {
        if (name && !strcmp(name, devices[id]->name)) return id;
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", id ? ", " : "", devices[id]->name);
    }
    fail(CB_ERR_ARGUMENT, "there is no device '%s'; there are %s", name ? name : "NULL", known);
    return -1;
}

cb_status device_tell(int id, const DeviceFault *fault) {
    char text[sizeof fault->text + 64];
    if (fault->status == CB_OK) return CB_OK;
    snprintf(text, sizeof text, "%s (on device %s)", fault->text, devices[id]->name);
    fail_again(fault->status, text);
    return fault->status;
}

cb_status devices_wait(void) {
    cb_status first = CB_OK;
    for (int id = 0; id < DEVICE_COUNT; id++) {
        cb_status fault = devices[id]->wait();
        if (first == CB_OK) first = fault;
    }
    return first;
}

void devices_close(void) {
    for (int id = 0; id < DEVICE_COUNT; id++) devices[id]->close();
}
