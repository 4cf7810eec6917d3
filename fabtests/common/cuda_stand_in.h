/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_COMMON_CUDA_STAND_IN_H
#define TEI_FABTESTS_COMMON_CUDA_STAND_IN_H

/*
 * A CUDA driver without a GPU, for tests: a shared object with the soname
 * libcuda.so.1 and the calls below. A test loads it, as a GPU program has
 * loaded the real driver, and the library then finds it.
 *
 * The driver has two devices. GPU memory is a mapping that the CPU cannot
 * touch. A thread of the driver copies between GPU memory and host memory, in
 * order and some time after each copy was requested. Like the real driver, the
 * stand-in refuses a call in the wrong context, with a stream or event of
 * another context, or with memory that does not exist.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cuda_stand_in {
	int (*init)(unsigned int flags);
	int (*ctx_create)(void **context, unsigned int flags, int device);
	int (*ctx_destroy)(void *context);
	int (*push)(void *context);
	int (*pop)(void **context);
	/* Allocates in the context on top of the calling thread's stack. */
	int (*alloc)(uint64_t *addr, size_t size);
	int (*free)(uint64_t addr);
	int (*to_device)(uint64_t dst, const void *src, size_t len);
	int (*to_host)(void *dst, uint64_t src, size_t len);

	/* Calls that no real driver has: */

	/* Makes a call fail once with that result, after it has succeeded
	 * `after` times. The call is named as in the real driver, without a
	 * version suffix. */
	void (*fail)(const char *call, unsigned int after, int result);
	/* Returns the address at which a NIC would find the bytes of GPU
	 * memory, or NULL if the memory has not been prepared for NICs. */
	void *(*alias)(uint64_t addr, size_t len);
	/* Starts (on) or ends the capture of a stream. Returns 0, or an error
	 * code if a forbidden call has invalidated the capture. */
	int (*capture)(int on);
	/* Holds queued copies back while it is on. */
	void (*hold)(int on);
	/* Returns the number of streams, events, pinned ranges, retained
	 * primary contexts and contexts on the calling thread's stack, added
	 * up. It is 0 if nothing was left behind. */
	unsigned int (*left)(void);
	/* Returns the number of copies done. */
	unsigned int (*copies)(void);
};

/* Loads the stand-in from the test folder (build/test) next to the folder of
 * the running program, and initialises it. Returns false if it cannot be
 * loaded; a diagnostic line gives the cause. */
bool cuda_stand_in_load(struct cuda_stand_in *cuda);

/* Returns true if this process has loaded the stand-in or a real driver. */
bool cuda_stand_in_mapped(void);

/* Allocates GPU memory on a device, in a new context. Returns its address, or 0
 * on failure. */
uint64_t cuda_stand_in_memory(const struct cuda_stand_in *cuda, int device,
			      size_t size, void **context);

#endif /* TEI_FABTESTS_COMMON_CUDA_STAND_IN_H */
