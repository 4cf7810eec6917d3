/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_COMMON_CUDA_STAND_IN_H
#define TEI_FABTESTS_COMMON_CUDA_STAND_IN_H

/*
 * A CUDA driver without a GPU, for tests: a shared object with the soname
 * libcuda.so.1 and the calls below. A test loads it, as a program for GPUs has
 * the real one loaded, and so it is what the library finds.
 *
 * There are two devices. GPU memory is a mapping that the CPU cannot touch;
 * copies between it and host memory are done by a thread of the driver's own,
 * in order, some time after they were asked for. A call in the wrong context,
 * with a stream or event of another context, or with memory that there is none,
 * is refused as the real driver does.
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
	int (*alloc)(uint64_t *addr, size_t size);	/* in what is pushed */
	int (*free)(uint64_t addr);
	int (*to_device)(uint64_t dst, const void *src, size_t len);
	int (*to_host)(void *dst, uint64_t src, size_t len);

	/* not of the real one */

	/* The call (by its name there, without a version) fails once with that
	 * result, after so many that do as they are told. */
	void (*fail)(const char *call, unsigned int after, int result);
	/* Where a NIC would find the bytes of GPU memory that was made ready for
	 * it; NULL: nowhere. */
	void *(*alias)(uint64_t addr, size_t len);
	/* A stream is being captured, or that ends; 0, or that a call has ended
	 * it. */
	int (*capture)(int on);
	/* Copies that were asked for are not begun while it is on. */
	void (*hold)(int on);
	/* Streams, events, pinned ranges that live, primary contexts that were
	 * retained, and what is pushed by this thread, all summed: 0 where
	 * nothing was left behind. */
	unsigned int (*left)(void);
	/* Copies done. */
	unsigned int (*copies)(void);
};

/*
 * Loads it and initialises it: from the folder of tests beside that of this
 * program. False, with a line that tells why, where it is not there.
 */
bool cuda_stand_in_load(struct cuda_stand_in *cuda);

/* Whether this process has it, or a real one, loaded. */
bool cuda_stand_in_mapped(void);

/* GPU memory on a device, in a context of its own; 0: none. */
uint64_t cuda_stand_in_memory(const struct cuda_stand_in *cuda, int device,
			      size_t size, void **context);

#endif /* TEI_FABTESTS_COMMON_CUDA_STAND_IN_H */
