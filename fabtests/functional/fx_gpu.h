/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_FUNCTIONAL_FX_GPU_H
#define TEI_FABTESTS_FUNCTIONAL_FX_GPU_H

/*
 * GPU memory of a peer, as large as its host memory. The test accesses it
 * through that host memory, which the test has mapped. Commands of the peer:
 *
 *	gpu REMOTE	allocates and registers GPU memory; the text of the
 *			answer is its address
 *	ungpu		unregisterLocalMemory
 *	regpu		registers the memory again
 *	newgpu		unregisters and frees the memory, then does what
 *			"gpu 1" does
 *	load OFF LEN	copies from the peer's host memory to the GPU memory
 *	store OFF LEN	copies from the GPU memory to the peer's host memory
 */

#include "fabtests/functional/fx.h"

struct fx_gpu {
	uint64_t addr;			/* address of the memory; 0 if it is not
					 * allocated */
	int (*to_device)(uint64_t dst, const void *src, size_t len);
	int (*to_host)(void *dst, uint64_t src, size_t len);
	int (*free)(uint64_t addr);	/* frees the memory; NULL if "newgpu" is
					 * not used */
};

/* Handles the commands above for the peer; called by a function of type
 * fx_obey_fn. The command "gpu" calls `make`, which allocates the memory. make
 * returns false if there is no GPU memory. */
int fx_gpu_obey(struct fx_gpu *gpu, bool (*make)(struct fx_gpu *, size_t),
		transfer_engine_t engine, struct fx_buf *mem, const char *verb,
		const char *args, char *text);

/* Starts a target and registers all of its GPU memory as remotely accessible.
 * `option` is one option of fx_peer_start, or NULL. Returns the address of the
 * GPU memory, or 0 on failure. */
uint64_t fx_gpu_target(struct fx_peer *peer, size_t len, const char *option);
/* Opens the peer's segment with a new blob. The peer exports the blob to the
 * start of its host memory. Returns the segment id, the code of
 * te_segment_import, or -1 if the peer cannot export. */
int fx_gpu_import(transfer_engine_t engine, struct fx_peer *peer);
/* Lets the peer free its GPU memory and allocate other memory, and reads its
 * descriptor again. Returns the address of the new memory, or 0 on failure. */
uint64_t fx_gpu_renew(transfer_engine_t engine, struct fx_peer *peer);
/* Fills a range of a peer's GPU memory with the pattern of `sequence`, or with
 * poison if it is 0. */
bool fx_gpu_put(struct fx_peer *peer, uint64_t off, uint64_t len,
		uint64_t sequence);
/* Returns true if a range of a peer's GPU memory contains the pattern of
 * `sequence`, or poison if it is 0. */
bool fx_gpu_has(struct fx_peer *peer, uint64_t off, uint64_t len,
		uint64_t sequence);

void fx_nap(unsigned int us);

/*
 * Tests the unregistration of a job's local memory while the job is in
 * progress. The target is stopped for 300 ms. Checks that the unregistration
 * waits for the target and that the job completes. `read` is NULL, or memory
 * that must contain the pattern when the unregistration returns.
 */
void fx_gpu_leave(struct fx_peer *peer, struct fx_job *job,
		  const struct fx_buf *read, uint64_t sequence);

/*
 * Unregisters the peer's GPU memory while jobs like `like` access it. If `sure`
 * is true, the target is stopped before, so that it handles the unregistration
 * before any queued request. Otherwise the unregistration follows the start of
 * the job after a random time. Returns true if all tasks end and no byte lands
 * after the unregistration. Adds the numbers of completed and failed tasks to
 * *completed and *failed.
 */
bool fx_gpu_withdraw(struct fx_peer *peer, const struct fx_job *like, bool sure,
		     unsigned int *completed, unsigned int *failed);

#endif /* TEI_FABTESTS_FUNCTIONAL_FX_GPU_H */
