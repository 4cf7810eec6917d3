/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_FUNCTIONAL_FX_SLOT_H
#define TEI_FABTESTS_FUNCTIONAL_FX_SLOT_H

/*
 * Transfers to and from the GPU memory of another process, which grants remote
 * bounce slots for them. Each process uses the CUDA stand-in. The tests
 * ft_gpu_slot and ft_gpu_host run the same cases: with rails, and with copies
 * inside this host.
 */

#include "fabtests/common/cuda_stand_in.h"
#include "fabtests/functional/fx_gpu.h"

/* more bytes than the slots of one client hold */
#define SLOT_SIZE (17 * FX_MIB + 17)

struct slot_rig {
	const char *transport;			/* of all processes, see
						 * fx_engine */
	struct cuda_stand_in cuda;
	transfer_engine_t engine;
	struct fx_buf mem;			/* host memory, 2 * SLOT_SIZE
						 * bytes */
	/* GPU memory of this process, one buffer on each of two GPUs */
	uint64_t gpu[2];
	struct fx_peer peer;
	uint64_t there;				/* address of the peer's GPU
						 * memory */
	segment_id_t seg;
	uint64_t sequence;
};

/* Handles the commands of a peer; the argument of fx_extend. */
int slot_obey(transfer_engine_t engine, struct fx_buf *mem, const char *verb,
	      const char *args, char *text);

/* Creates the engine, the memory and the first target. "transport" is set. */
bool slot_setup(struct slot_rig *rig);
/* Runs the cases. Returns false if no target is left. After a success, the last
 * target has ended, and the GPU memory of this process is registered. */
bool slot_cases(struct slot_rig *rig);
/* Destroys the engine. */
void slot_end(struct slot_rig *rig);

/* Returns a job between all of the peer's GPU memory and the start of mem. */
struct fx_job slot_job(const struct slot_rig *rig, int op);
/* Moves bytes between memory of this process and the offset off in the peer's
 * GPU memory. */
bool slot_move(struct slot_rig *rig, int op, void *local, uint64_t off,
	       uint64_t len, uint64_t block);
/* Writes host memory to the peer's GPU memory and reads it back. Returns true
 * if the bytes are right and no others have changed. */
bool slot_round(struct slot_rig *rig, uint64_t off, uint64_t len,
		uint64_t block);
/* Registers the GPU memory of this process. */
bool slot_add_gpus(struct slot_rig *rig);
/* Writes the memory of the local GPU 0 to the peer's GPU memory and reads it
 * back into the local GPU 1. Returns true if the bytes are right. */
bool slot_gpus(struct slot_rig *rig, uint64_t off, uint64_t len,
	       uint64_t block);

#endif /* TEI_FABTESTS_FUNCTIONAL_FX_SLOT_H */
