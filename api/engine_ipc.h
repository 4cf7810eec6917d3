/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_API_ENGINE_IPC_H
#define TEI_API_ENGINE_IPC_H

/*
 * GPU memory of other processes of this host: the own GPU memory, which peers
 * map, and the memory of a local process, which this process maps.
 */

#include <stdbool.h>
#include <stdint.h>

#include "prov/gpu/tei_gpu.h"
#include "prov/local/tei_local_gpu.h"
#include "transfer_engine_c.h"

struct engine;
struct engine_ipc;
struct engine_local_process;
struct engine_region;
struct tei_err;

/*
 * Publishes registered GPU memory for the processes of this host and sets
 * r->exported. Logs the reason if that is impossible, if the transport local is
 * not installed or if the function is switched off (MOONRAIL_GPU_IPC).
 * e->control must be held.
 */
void engine_ipc_export(struct engine *e, struct engine_region *r);
/* Publishes the memory that is registered already, after the transport local has
 * been installed. e->control must be held. */
void engine_ipc_export_all(struct engine *e);

/* Creates the state of a local process whose GPU memory may be mapped. Returns
 * NULL if memory is short; the memory is not mapped then. */
struct engine_ipc *engine_ipc_new(struct engine *e,
				  struct engine_local_process *process);
/* Unmaps the memory of the process and frees the state. No task may use it.
 * NULL is ignored. */
void engine_ipc_free(struct engine_ipc *ipc);
/* Returns true if GPU memory of the process is mapped. */
bool engine_ipc_mapped(struct engine_ipc *ipc);

/* A copy from or to GPU memory of a local process. */
struct engine_ipc_op {
	struct tei_gpu_op op;		  /* op.guard is engine_ipc_guard() */
	struct tei_local_gpu_range range; /* range at the process */
};

/*
 * Finds the mapping of a range of the process, and maps the buffer that contains
 * it, unless this has failed within the last second. "near" is an address in GPU
 * memory of this process, or 0. Sets range->place and range->serial, and stores
 * the address of the range in this process in *at. Returns false if the range
 * cannot be mapped. May block in the driver, and for up to a second if copies
 * still use an earlier mapping of the range, which an error of the driver has
 * made invalid.
 */
bool engine_ipc_find(struct engine_ipc *ipc, segment_id_t id, uint64_t near,
		     struct tei_local_gpu_range *range, uint64_t *at);
/* Writes the reason for which engine_ipc_find has returned false to why, an array
 * of TEI_ERR_TEXT bytes. */
void engine_ipc_why(struct engine_ipc *ipc, uint64_t addr, uint64_t len,
		    char *why);
/* Returns the guard of the operations of type struct engine_ipc_op that access
 * memory of the process. */
struct tei_gpu_guard *engine_ipc_guard(struct engine_ipc *ipc);
/* Submits an operation. "at" is the address of op->range that engine_ipc_find has
 * stored. Returns the result of tei_gpu_submit, or TEI_ERR_NOT_REGISTERED if the
 * memory has been unmapped since. */
int engine_ipc_submit(struct engine_ipc *ipc, struct engine_ipc_op *op,
		      uint64_t at);
/* Called after an error of the driver, for example because the program has reset
 * the primary context in which buffers are mapped. The next requests map the
 * buffers of the process again. Takes no lock. */
void engine_ipc_broken(struct engine_ipc *ipc);

/* Returns true if a mapped buffer must be unmapped: its owner has unregistered it
 * or has ended, or engine_ipc_broken was called. Does not call the driver,
 * and returns false if another thread holds the lock. */
bool engine_ipc_stale(struct engine_ipc *ipc);
/* Unmaps the buffers for which engine_ipc_stale returns true, except for buffers
 * that copies use. May block in the driver. */
void engine_ipc_unmap_stale(struct engine_ipc *ipc);

#endif /* TEI_API_ENGINE_IPC_H */
