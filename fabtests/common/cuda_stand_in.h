/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_COMMON_CUDA_STAND_IN_H
#define TEI_FABTESTS_COMMON_CUDA_STAND_IN_H

/*
 * A CUDA driver without a GPU, for tests: a shared object with the soname
 * libcuda.so.1 that exports the driver's functions. If a test has loaded it,
 * the library finds it instead of a real driver.
 *
 * The driver has two devices. GPU memory is a mapping that the CPU cannot
 * access. A thread of the driver copies between GPU memory and host memory, in
 * order and some time after each copy was requested. Like the real driver, the
 * stand-in refuses a call in the wrong context, a stream or event of another
 * context, and memory that does not exist.
 *
 * Another process can open GPU memory with a handle of CUDA IPC, and mapped
 * memory with file descriptors. The environment variable CUDA_STAND_IN_NO_IPC
 * refuses that: with the value "export", at the process that has the memory,
 * with "open" at the process that opens it.
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
	/* Allocates memory in the calling thread's current context. Returns 0
	 * or a CUDA error code. */
	int (*alloc)(uint64_t *addr, size_t size);
	int (*free)(uint64_t addr);
	int (*to_device)(uint64_t dst, const void *src, size_t len);
	int (*to_host)(void *dst, uint64_t src, size_t len);

	/* Calls that no real driver has: */

	/* Makes a function of the driver fail once with `result`, after `after`
	 * calls that succeed. `call` is its name without a version suffix:
	 * "cuMemAlloc". */
	void (*fail)(const char *call, unsigned int after, int result);
	/* Returns true if that error has not occurred yet. */
	bool (*failing)(void);
	/* Returns the address at which a NIC accesses the bytes of GPU memory,
	 * or NULL if the memory has not been prepared for NICs. */
	void *(*alias)(uint64_t addr, size_t len);
	/* Begins the capture of a stream if `on` is 1, and ends it if `on` is
	 * 0. Returns 0, or an error code if a forbidden call has invalidated
	 * the capture. */
	int (*capture)(int on);
	/* If `on` is 1, holds back all queued copies until it is called with
	 * 0. If `on` is 2, no call of cuIpcCloseMemHandle returns until then,
	 * nor does a call of cuMemUnmap for chunks of another process. */
	void (*hold)(int on);
	/* Returns the sum of all streams, events, pinned ranges, retained
	 * primary contexts, opened handles and chunks of other processes,
	 * retained handles, reserved ranges and contexts on the calling
	 * thread's stack. The sum is 0 if the library has released
	 * all of them. */
	unsigned int (*left)(void);
	/* Returns the number of copies done so far. */
	unsigned int (*copies)(void);
	/* Returns the number of copies that were requested and are not done. */
	unsigned int (*queued)(void);
	/* Creates memory of n chunks, each of `size` bytes (a multiple of
	 * 64 KiB), which cuMemMap maps to adjacent addresses. It lies in the
	 * primary context of the device, which stays active. Other processes
	 * can open the chunks if `shared` is 1. Returns the address, or 0. */
	uint64_t (*map)(int device, unsigned int n, size_t size, int shared);
	/* Unmaps and frees memory of `map`. */
	void (*unmap)(uint64_t addr);
};

/* Loads the stand-in from the test folder (build/test) next to the folder of
 * the running program, and initialises it. Returns false if it cannot be
 * loaded; a diagnostic line gives the cause. */
bool cuda_stand_in_load(struct cuda_stand_in *cuda);

/* Waits up to 10 s until copies are queued (`queued` is true; copies are held
 * back) or until all requested copies are done (false). Returns false if that
 * does not happen. */
bool cuda_stand_in_await(const struct cuda_stand_in *cuda, bool queued);

/* Returns true if this process has loaded a CUDA driver, real or stand-in. */
bool cuda_stand_in_mapped(void);

/* Creates a context on a device and allocates GPU memory in it. Returns the
 * address of the memory, or 0 on failure. */
uint64_t cuda_stand_in_memory(const struct cuda_stand_in *cuda, int device,
			      size_t size, void **context);

#endif /* TEI_FABTESTS_COMMON_CUDA_STAND_IN_H */
