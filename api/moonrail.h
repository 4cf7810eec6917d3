/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef MOONRAIL_H
#define MOONRAIL_H

/*
 * What moonrail offers beyond the Mooncake API of transfer_engine_c.h. All
 * calls are thread-safe. The ABI grows at the end only: arrays are passed
 * with the size of one element, outputs are filled up to the caller's size.
 */

#include <stddef.h>
#include <stdint.h>

#include "transfer_engine_c.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The library is built with everything else hidden. */
#pragma GCC visibility push(default)

#define TE_VERSION_MAJOR 0
#define TE_VERSION_MINOR 1
#define TE_VERSION_PATCH 0

/* "0.1.0", the library's own version. Never NULL, static. */
const char *te_version(void);

/* "1.17", API version of the libfabric in use. Never NULL, static. */
const char *te_fabric_version(void);

/*
 * The calling thread's last error, or a task's (te_task_error). Plain data,
 * strings terminated.
 */
struct te_error {
	int32_t code;		/* as the set-up calls return; 0: no error */
	int32_t prov_errno;	/* the provider's own errno, 0 if none */
	uint32_t flags;		/* TE_ERROR_… */
	uint32_t reserved;
	char rail[64];		/* "" if not tied to a rail */
	char peer[96];		/* "" if not tied to a peer */
	char provider[32];	/* "" if not tied to a provider */
	char text[160];		/* what happened, provider's text included */
	char hint[160];		/* what to do about it, or "" */
};

/* te_error.flags: the target could not be fenced; its memory may still be
 * written by what was posted. Goes with STATUS_TIMEOUT. */
#define TE_ERROR_UNFENCED 1u

/* Fills *err up to size bytes. 0, or -1 for NULL or size 0. */
int te_last_error(struct te_error *err, size_t size);

/*
 * Error record of a task that ended FAILED or TIMEOUT; code 0 otherwise. 0, or
 * 1 for a stale or invented id or index.
 */
int te_task_error(transfer_engine_t engine, batch_id_t batch_id,
		  size_t task_id, struct te_error *err, size_t size);

enum te_rail_state {
	TE_RAIL_UP = 0,
	TE_RAIL_SUSPECT = 1,	/* slow to answer; probed */
	TE_RAIL_DOWN = 2,	/* carries nothing */
	TE_RAIL_PROBING = 3,	/* on its way back */
};

/* Counters are since the engine's start. */
struct te_rail_stats {
	char name[64];		/* interface or RDMA device */
	char provider[32];	/* libfabric provider */
	char address[96];	/* fabric address in text */
	char transport[16];	/* "tcp", "rdma", "shm", "local", … */
	uint32_t state;		/* enum te_rail_state */
	uint32_t lanes;		/* endpoints open, target lanes included */
	uint64_t tx_bytes;	/* written to peers and completed */
	uint64_t rx_bytes;	/* read from peers and completed */
	uint64_t slices;	/* completed pieces */
	uint64_t retries;	/* pieces posted again */
	uint64_t errors;	/* error completions */
	uint64_t inflight_bytes;
	uint64_t inflight_max;	/* highest value seen, bytes */
	uint64_t window;	/* bytes that may be posted at a time */
	double rate;		/* service rate, bytes per second */
};

/*
 * Fills up to *count elements of elem_size bytes each, then sets *count to the
 * number there are. 0 or -1.
 */
int te_rail_stats(transfer_engine_t engine, struct te_rail_stats *stats,
		  size_t elem_size, size_t *count);

/* A remotely accessible buffer of a segment. */
struct te_buffer {
	uint64_t addr;		/* absolute address there: a target_offset */
	uint64_t length;	/* bytes */
	char location[64];	/* "cpu:0", "cuda:1", "*" */
};

/*
 * Buffers of an open segment as its descriptor lists them. Fills up to *count
 * elements of elem_size bytes each, then sets *count to the number there are.
 * 0, or -1 for a stale id or bad argument.
 */
int te_segment_buffers(transfer_engine_t engine, segment_id_t segment_id,
		       struct te_buffer *bufs, size_t elem_size,
		       size_t *count);

/*
 * Settings in force, one "NAME=value source" line each, truncated to len bytes
 * with its terminator. Returns the length of the whole text, or -1.
 */
int te_settings_text(transfer_engine_t engine, char *buf, size_t len);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif /* MOONRAIL_H */
