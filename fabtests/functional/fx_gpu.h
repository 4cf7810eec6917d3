/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_FUNCTIONAL_FX_GPU_H
#define TEI_FABTESTS_FUNCTIONAL_FX_GPU_H

/*
 * A peer's GPU memory: as much as its memory of the host, by any driver. The
 * test sees it by way of that host memory, which it maps:
 *
 *	gpu REMOTE	makes and registers it; its address as text
 *	ungpu		unregisterLocalMemory
 *	regpu		registers it again
 *	load OFF LEN	from the peer's host memory to the GPU's, by the driver
 *	store OFF LEN	the other way
 */

#include "fabtests/functional/fx.h"

struct fx_gpu {
	uint64_t addr;			/* 0: it was not made */
	int (*to_device)(uint64_t dst, const void *src, size_t len);
	int (*to_host)(void *dst, uint64_t src, size_t len);
};

/* As a fx_obey_fn; make is called for "gpu", once, and returns false where there
 * is no memory. */
int fx_gpu_obey(struct fx_gpu *gpu, bool (*make)(struct fx_gpu *, size_t),
		transfer_engine_t engine, struct fx_buf *mem, const char *verb,
		const char *args, char *text);

/* The test's side: a target with GPU memory, all of it registered for others;
 * its address, or 0. Options as fx_peer_start has them, one or NULL. */
uint64_t fx_gpu_target(struct fx_peer *peer, size_t len, const char *option);
/* Opens its segment by a blob of now, for which the start of its host memory is
 * used; as te_segment_import. */
int fx_gpu_import(transfer_engine_t engine, struct fx_peer *peer);
/* Bytes of the pattern into a peer's GPU memory, or poison (sequence 0). */
bool fx_gpu_put(struct fx_peer *peer, uint64_t off, uint64_t len,
		uint64_t sequence);
/* Whether they are there. */
bool fx_gpu_has(struct fx_peer *peer, uint64_t off, uint64_t len,
		uint64_t sequence);

void fx_nap(unsigned int us);

/*
 * Tests: unregisters the job's local memory while the job is under way to a
 * target that is stopped meanwhile. read: NULL, or the memory that is to hold
 * len bytes of the pattern as soon as that returns; the job completes.
 */
void fx_gpu_leave(struct fx_peer *peer, struct fx_job *job,
		  const struct fx_buf *read, uint64_t sequence);

/*
 * Unregisters the peer's GPU memory, of len bytes, while jobs that read and
 * write it are on their way: at any time after their start, or with sure when
 * the target has taken none of what is queued. True if all ended and nothing
 * landed from then on. *completed and *failed are raised by the tasks that did.
 */
bool fx_gpu_withdraw(struct fx_peer *peer, const struct fx_job *like, bool sure,
		     unsigned int *completed, unsigned int *failed);

#endif /* TEI_FABTESTS_FUNCTIONAL_FX_GPU_H */
