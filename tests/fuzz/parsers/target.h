/* What the fuzz targets of the parsers share. A target is one parser; libFuzzer hands it bytes,
 * keeps those that reach new code, and AddressSanitizer and UBSan end the program at a fault. */
#ifndef CARBIDE_FUZZ_TARGET_H
#define CARBIDE_FUZZ_TARGET_H

#include "carbide.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Ends the program, so that libFuzzer keeps the input. */
static inline void claim(bool holds, const char *what) {
    if (holds) return;
    fprintf(stderr, "not so: %s (error: %s)\n", what, cb_error() ? cb_error() : "none");
    abort();
}

/* A copy that ends where the input ends, so that a read past it is seen. */
static inline char *exact_text(const uint8_t *data, size_t size) {
    char *text = malloc(size + 1);
    claim(text != NULL, "memory for the text");
    if (size) memcpy(text, data, size);
    text[size] = '\0';
    return text;
}

/* What is refused says why, what is taken leaves no error. */
static inline void claim_error(bool taken) {
    claim(taken == !cb_error(), "an error for what is refused, and for nothing else");
    cb_clear_error();
}

#endif
