/* SPDX-License-Identifier: BSD-2-Clause */

/*
 * Copies from and to real GPU memory of another process of this host, which this
 * process maps. The memory is from cuMemAlloc, or consists of chunks
 * (cuMemCreate). There are no rails, so no other transport can move the bytes.
 */
#include <stdlib.h>
#include <string.h>

#include "fabtests/common/ft_clock.h"
#include "fabtests/functional/ft_gpu_device.h"

#define IPC_RENEWALS 20

/* A target with GPU memory, and an engine that has the memory of the rig. */
struct device_ipc {
	struct device_rig *rig;
	const char *kind;	/* option of the target: its kind of memory */
	transfer_engine_t engine;
	struct fx_peer peer;
	uint64_t there;
	segment_id_t seg;
};

static bool ipc_move(struct device_ipc *x, int op, void *local, uint64_t off,
		     uint64_t len)
{
	return fx_move(x->engine, x->seg, op, local, x->there + off, len, 0);
}

/* Starts a target. Returns the address of its GPU memory, or 0. */
static uint64_t ipc_target(struct device_ipc *x)
{
	if (!fx_peer_start(&x->peer, DEVICE_SIZE, "transport=local", x->kind,
			   NULL) ||
	    fx_ask(&x->peer, "gpu 1"))
		return 0;
	return strtoull(x->peer.text, NULL, 10);
}

static bool ipc_start(struct device_ipc *x)
{
	x->engine = fx_engine("local");
	x->there = ipc_target(x);
	return ft_ok(x->engine && x->there &&
			     fx_register(x->engine, &x->rig->host) &&
			     fx_register(x->engine, &x->rig->back) &&
			     !registerLocalMemory(x->engine,
						  device_ptr(x->rig->gpu[0]),
						  DEVICE_SIZE, "*", 0) &&
			     (x->seg = openSegment(x->engine,
						   x->peer.name)) > 0,
		     "engine_and_target_without_rails_start");
}

/* Returns true if the driver lets this process map the target's memory. */
static bool ipc_possible(struct device_ipc *x)
{
	struct fx_job job = { .engine = x->engine, .seg = x->seg,
			      .op = OPCODE_READ, .local = x->rig->host.p,
			      .remote = x->there, .len = 1 };
	struct te_error err = { 0 };

	if (!fx_job_start(&job)) {
		fx_job_wait(&job, FX_LONG_MS);
		fx_job_free(&job);
		return true;
	}
	te_last_error(&err, sizeof(err));
	ft_diag("skipped: the GPU memory of another process cannot be mapped: %s",
		err.text);
	return false;
}

/* Writes host memory, or GPU memory with the same bytes, to the target and reads
 * it back. Returns true if the bytes are right. */
static bool ipc_bytes(struct device_ipc *x, bool gpu, uint64_t off,
		      uint64_t len, uint64_t seq)
{
	struct device_rig *rig = x->rig;
	void *from = gpu ? device_ptr(rig->gpu[0]) : rig->host.p;

	fx_buf_fill(&rig->host, 0, len, seq);
	fx_buf_poison(&rig->back, 0, DEVICE_SIZE);
	return (!gpu || !rig->cuda.to_device(rig->gpu[0], rig->host.p, len)) &&
	       fx_gpu_put(&x->peer, 0, DEVICE_SIZE, 0) &&
	       ipc_move(x, OPCODE_WRITE, from, off, len) &&
	       fx_gpu_has(&x->peer, off, len, seq) &&
	       fx_gpu_has(&x->peer, 0, off, 0) &&
	       fx_gpu_has(&x->peer, off + len, DEVICE_SIZE - off - len, 0) &&
	       ipc_move(x, OPCODE_READ, rig->back.p, off, len) &&
	       fx_buf_check(&rig->back, 0, len, seq) &&
	       fx_buf_poisoned(&rig->back, len, DEVICE_SIZE - len);
}

/* The writes to the target, and the driver's own copies within this process with
 * which they are compared. */
static bool ipc_rate_gpu(void *arg)
{
	struct device_ipc *x = arg;

	return ipc_move(x, OPCODE_WRITE, device_ptr(x->rig->gpu[0]), 0,
			DEVICE_SIZE);
}

static bool ipc_rate_host(void *arg)
{
	struct device_ipc *x = arg;

	return ipc_move(x, OPCODE_WRITE, x->rig->host.p, 0, DEVICE_SIZE);
}

static bool ipc_driver_gpu(void *arg)
{
	struct device_rig *rig = ((struct device_ipc *)arg)->rig;

	return !rig->cuda.on_device(rig->gpu[1], rig->gpu[0], DEVICE_SIZE) &&
	       !rig->cuda.wait();
}

static bool ipc_driver_host(void *arg)
{
	struct device_rig *rig = ((struct device_ipc *)arg)->rig;

	return !rig->cuda.to_device(rig->gpu[1], rig->host.p, DEVICE_SIZE);
}

/* The target frees memory that this process still maps, and allocates other
 * memory, which may have the same address or the same pages. NVIDIA does not
 * define what happens. Later transfers must be correct. */
static void ipc_renewed(struct device_ipc *x)
{
	bool good = true;
	int i;

	for (i = 0; i < IPC_RENEWALS && good; i++) {
		x->there = fx_gpu_renew(x->engine, &x->peer);
		good = x->there && ipc_bytes(x, i & 1, 3, FX_MIB, 30 + i);
	}
	ft_ok(good, "memory_that_is_freed_while_mapped_is_replaced: round %d",
	      i);
}

/* The target is killed while its memory is mapped. */
static void ipc_killed(struct device_ipc *x)
{
	fx_peer_kill(&x->peer);
	closeSegment(x->engine, x->seg);
	fx_peer_drop(&x->peer);
	x->there = ipc_target(x);
	ft_ok(x->there &&
		      (x->seg = openSegment(x->engine, x->peer.name)) > 0 &&
		      ipc_bytes(x, true, 1, FX_MIB, 25),
	      "gpu_to_another_target_after_a_kill");
}

static void ipc_kind(struct device_rig *rig, const char *kind)
{
	struct device_ipc x = { .rig = rig, .kind = kind };

	ft_diag("GPU memory of the target: %s", kind);

	if (!ipc_start(&x))
		return;
	if (ipc_possible(&x)) {
		ft_ok(ipc_bytes(&x, false, 0, DEVICE_SIZE, 21) &&
			      ipc_bytes(&x, false, 4095, 4099, 22),
		      "host_to_mapped_gpu_and_back");
		ft_ok(ipc_bytes(&x, true, 0, DEVICE_SIZE, 23) &&
			      ipc_bytes(&x, true, 1, 1, 24),
		      "gpu_to_mapped_gpu_and_back");
		device_compare("gpu_to_mapped_gpu", ipc_rate_gpu,
			       ipc_driver_gpu, &x);
		if (ft_ok(!rig->cuda.pin(rig->host.p, DEVICE_SIZE, 1),
			  "host_memory_is_pinned_for_mapped_gpu")) {
			device_compare("pinned_to_mapped_gpu", ipc_rate_host,
				       ipc_driver_host, &x);
			rig->cuda.unpin(rig->host.p);
		}
		ipc_renewed(&x);
		ipc_killed(&x);
	}
	destroyTransferEngine(x.engine);
	fx_peer_stop(&x.peer);
}

/* Returns true if the GPUs have physical memory that can be exported. */
static bool ipc_chunks(struct device_rig *rig)
{
	uint64_t addr = device_map(&rig->cuda, rig->devices - 1, 1, 2 * FX_MIB,
				   true);

	if (addr)
		device_unmap(&rig->cuda, addr, 2 * FX_MIB);
	else
		ft_diag("skipped: the driver does not create memory (cuMemCreate) that can be exported as a file descriptor");
	return addr != 0;
}

void device_ipc(struct device_rig *rig)
{
	ipc_kind(rig, "FX_CHUNKS=0");
	if (!ipc_chunks(rig))
		return;
	ipc_kind(rig, "FX_CHUNKS=1");
	ipc_kind(rig, "FX_CHUNKS=7");
}
