/* Thread-local state that every call of the library reads: NEAR makes an access one load from the
 * thread pointer instead of a call.
 *
 *     extern _Thread_local Site thread_site NEAR __attribute__((visibility("hidden")));
 *
 * UBSan compares such addresses with NULL. gcc takes the flags of the addition that makes one, and
 * the linker of a program puts an lea there, which sets no flags: the comparison may end the
 * program for nothing (gcc 12 does so for additions of its own, too). So there the address comes
 * out of a call, whose flags nobody takes. */
#ifndef CARBIDE_BASE_NEAR_H
#define CARBIDE_BASE_NEAR_H

#if defined(CARBIDE_UNDEFINED_SANITIZER)
#define NEAR __attribute__((tls_model("global-dynamic")))
#else
#define NEAR __attribute__((tls_model("initial-exec")))
#endif

#endif
