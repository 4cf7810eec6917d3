/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_FUNCTIONAL_FX_GPU_H
#define TEI_FABTESTS_FUNCTIONAL_FX_GPU_H

/*
 * GPU memory of a peer, as large as its host memory, from any driver. The test
 * accesses it through that host memory, which it maps:
 *
 *	gpu REMOTE	allocates and registers it; its address as text
 *	ungpu		unregisterLocalMemory
 *	regpu		registers it again
 *	load OFF LEN	copies from the peer's host memory to the GPU memory
 *	store OFF LEN	copies from the GPU memory to the peer's host memory
 */

#include "fabtests/functional/fx.h"

struct fx_gpu {
	uint64_t addr;			/* 0 if the memory is not allocated */
	int (*to_device)(uint64_t dst, const void *src, size_t len);
	int (*to_host)(void *dst, uint64_t src, size_t len);
};

/* Handles these commands; a fx_obey_fn. The first "gpu" calls make, which
 * returns false if there is no GPU memory. */
int fx_gpu_obey(struct fx_gpu *gpu, bool (*make)(struct fx_gpu *, size_t),
		transfer_engine_t engine, struct fx_buf *mem, const char *verb,
		const char *args, char *text);

/* Starts a target and registers all of its GPU memory as remotely accessible.
 * option: one option of fx_peer_start, or NULL. Returns the address, or 0. */
uint64_t fx_gpu_target(struct fx_peer *peer, size_t len, const char *option);
/* Opens the peer's segment with a new blob, which is passed in the start of the
 * peer's host memory. Returns the result of te_segment_import. */
int fx_gpu_import(transfer_engine_t engine, struct fx_peer *peer);
/* Fills GPU memory of a peer with the pattern, or with poison if sequence is
 * 0. */
bool fx_gpu_put(struct fx_peer *peer, uint64_t off, uint64_t len,
		uint64_t sequence);
/* Returns true if GPU memory of a peer has that content. */
bool fx_gpu_has(struct fx_peer *peer, uint64_t off, uint64_t len,
		uint64_t sequence);

void fx_nap(unsigned int us);

/*
 * Tests the unregistration of a job's local memory while the job is in progress
 * and its target is stopped for a while. The job must complete. read: NULL, or
 * the memory that must hold the pattern as soon as the unregistration returns.
 */
void fx_gpu_leave(struct fx_peer *peer, struct fx_job *job,
		  const struct fx_buf *read, uint64_t sequence);

/*
 * Unregisters len bytes of the peer's GPU memory while jobs read and write it:
 * at any time after their start, or, if sure, before the target has handled any
 * queued request. Returns true if all tasks ended and no byte landed
 * afterwards. Adds the numbers of completed and failed tasks to *completed and
 * *failed.
 */
bool fx_gpu_withdraw(struct fx_peer *peer, const struct fx_job *like, bool sure,
		     unsigned int *completed, unsigned int *failed);

#endif /* TEI_FABTESTS_FUNCTIONAL_FX_GPU_H */
