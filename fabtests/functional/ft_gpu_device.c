/* SPDX-License-Identifier: BSD-2-Clause */

/*
 * Copies with real GPUs; skipped on machines without one. The test checks every
 * byte and compares the rate with that of the driver's own copies of the same
 * memory.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fabtests/common/ft_clock.h"
#include "fabtests/functional/ft_gpu_device.h"

#define DEVICE_ROUNDS 25
/* required ratio of the engine's rate to the driver's rate */
#define DEVICE_GOAL 0.9

#define DEVICE_CALL(name, field) { name, offsetof(struct device_driver, field) }

static const struct {
	const char *name;
	size_t at;
} device_calls[] = {
	DEVICE_CALL("cuInit", init),
	DEVICE_CALL("cuDeviceGetCount", count),
	DEVICE_CALL("cuDevicePrimaryCtxRetain", retain),
	DEVICE_CALL("cuCtxPushCurrent_v2", push),
	DEVICE_CALL("cuMemAlloc_v2", alloc),
	DEVICE_CALL("cuMemFree_v2", free),
	DEVICE_CALL("cuMemHostRegister_v2", pin),
	DEVICE_CALL("cuMemHostUnregister", unpin),
	DEVICE_CALL("cuMemcpyHtoD_v2", to_device),
	DEVICE_CALL("cuMemcpyDtoH_v2", to_host),
	DEVICE_CALL("cuMemcpyDtoD_v2", on_device),
	DEVICE_CALL("cuCtxSynchronize", wait),
	DEVICE_CALL("cuMemAllocAsync", pool_alloc),
	DEVICE_CALL("cuMemFreeAsync", pool_free),
	DEVICE_CALL("cuMemGetAllocationGranularity", grain),
	DEVICE_CALL("cuMemCreate", create),
	DEVICE_CALL("cuMemRelease", release),
	DEVICE_CALL("cuMemAddressReserve", reserve),
	DEVICE_CALL("cuMemAddressFree", unreserve),
	DEVICE_CALL("cuMemMap", map),
	DEVICE_CALL("cuMemUnmap", unmap),
	DEVICE_CALL("cuMemSetAccess", access),
	DEVICE_CALL("cuMemAllocManaged", managed),
};

/* Loads the driver. Returns NULL on success, or the reason why no GPU can be
 * used. */
static const char *device_load(struct device_rig *rig)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW), *f;
	size_t i;

	if (!library)
		return "no CUDA driver: libcuda.so.1 is not there";
	for (i = 0; i < sizeof(device_calls) / sizeof(device_calls[0]); i++) {
		f = dlsym(library, device_calls[i].name);
		if (!f)
			return "the CUDA driver is too old";
		memcpy((char *)&rig->cuda + device_calls[i].at, &f, sizeof(f));
	}
	if (rig->cuda.init(0) || rig->cuda.count(&rig->devices) ||
	    !rig->devices)
		return "the CUDA driver finds no GPU";
	return NULL;
}

/* --- the peer ------------------------------------------------------------ */

static struct device_rig child;
static uint64_t child_mapped;	/* size of all chunks, bytes; 0 if the memory is
				 * from cuMemAlloc */

/* Allocates memory on the last GPU: with cuMemAlloc or, if the environment
 * variable FX_CHUNKS is set, in that number of chunks. Returns 0 on failure. */
static uint64_t child_memory(size_t len)
{
	const char *chunks = getenv("FX_CHUNKS");
	unsigned int n = chunks ? (unsigned int)atoi(chunks) : 0;
	uint64_t addr = 0, size;

	if (!n)
		return child.cuda.alloc(&addr, len) ? 0 : addr;
	size = (len / n / (2 * FX_MIB) + 1) * 2 * FX_MIB;
	child_mapped = n * size;
	return device_map(&child.cuda, child.devices - 1, n, size, true);
}

/* Frees memory of child_memory. */
static int child_free(uint64_t addr)
{
	int ret;

	if (!child_mapped)
		return child.cuda.free(addr);
	ret = child.cuda.unmap(addr, child_mapped);
	return ret ? ret : child.cuda.unreserve(addr, child_mapped);
}

/* Allocates len bytes on the last GPU. If there are several GPUs, that is not
 * the first GPU, which the test process uses. */
static bool child_make(struct fx_gpu *gpu, size_t len)
{
	const char *why = device_load(&child);
	void *context;

	if (why || child.cuda.retain(&context, child.devices - 1) ||
	    child.cuda.push(context))
		return false;
	gpu->addr = child_memory(len);
	gpu->to_device = child.cuda.to_device;
	gpu->to_host = child.cuda.to_host;
	gpu->free = child_free;
	return gpu->addr != 0;
}

static int child_obey(transfer_engine_t engine, struct fx_buf *mem,
		      const char *verb, const char *args, char *text)
{
	static struct fx_gpu gpu;

	return fx_gpu_obey(&gpu, child_make, engine, mem, verb, args, text);
}

/* --- this process -------------------------------------------------------- */

static bool device_memory(struct device_rig *rig)
{
	void *context;
	int i;

	for (i = 1; i >= 0; i--)
		if (rig->cuda.retain(&context, rig->devices > 1 ? i : 0) ||
		    rig->cuda.push(context) ||
		    rig->cuda.alloc(&rig->gpu[i], DEVICE_SIZE))
			return false;
	return true;	/* The context of the first GPU stays current. */
}

static bool device_setup(struct device_rig *rig)
{
	rig->engine = fx_engine("tcp");
	rig->host = fx_buf_map(DEVICE_SIZE, -1);
	rig->back = fx_buf_map(DEVICE_SIZE, -1);
	return ft_ok(rig->engine && rig->host.p && rig->back.p &&
			     device_memory(rig),
		     "memory_of_both_kinds") &&
	       ft_ok(fx_register(rig->engine, &rig->host) &&
			     fx_register(rig->engine, &rig->back) &&
			     !registerLocalMemory(rig->engine,
						  device_ptr(rig->gpu[0]),
						  DEVICE_SIZE, "cuda:0", 0) &&
			     !registerLocalMemory(rig->engine,
						  device_ptr(rig->gpu[1]),
						  DEVICE_SIZE, "*", 0),
		     "host_and_gpu_memory_are_registered");
}

static bool device_move(struct device_rig *rig, int op, void *local,
			uint64_t remote, uint64_t len)
{
	return fx_move(rig->engine, LOCAL_SEGMENT, op, local, remote, len, 0);
}

static bool device_round(struct device_rig *rig, uint64_t off, uint64_t len,
			 uint64_t seq)
{
	fx_buf_fill(&rig->host, 0, len, seq);
	fx_buf_poison(&rig->back, 0, DEVICE_SIZE);
	return device_move(rig, OPCODE_WRITE, rig->host.p, rig->gpu[0] + off,
			   len) &&
	       device_move(rig, OPCODE_WRITE, device_ptr(rig->gpu[0] + off),
			   rig->gpu[1] + off, len) &&
	       device_move(rig, OPCODE_READ, rig->back.p, rig->gpu[1] + off,
			   len) &&
	       fx_buf_check(&rig->back, 0, len, seq) &&
	       fx_buf_poisoned(&rig->back, len, DEVICE_SIZE - len);
}

static void device_bytes(struct device_rig *rig)
{
	ft_ok(device_round(rig, 0, DEVICE_SIZE, 1), "host_gpu_gpu_host_large");
	ft_ok(device_round(rig, DEVICE_SIZE - 1, 1, 2) &&
	      device_round(rig, 4095, 4099, 3) &&
	      device_round(rig, 1, 8 * FX_MIB + 1, 4),
	      "host_gpu_gpu_host_odd");
}

/* Writes the memory of GPU 0 to another process and reads it back into GPU 1.
 * Returns true if all bytes are right. */
static bool device_staged(struct device_rig *rig, struct fx_peer *peer,
			  uint64_t len, uint64_t block, uint64_t seq)
{
	segment_id_t seg = openSegment(rig->engine, peer->name);
	bool good;

	fx_buf_fill(&rig->host, 0, len, seq);
	fx_buf_poison(&rig->back, 0, DEVICE_SIZE);
	fx_buf_poison(&peer->mem, 0, DEVICE_SIZE);
	good = seg > 0 &&
	       !rig->cuda.to_device(rig->gpu[0], rig->host.p, len) &&
	       fx_move(rig->engine, seg, OPCODE_WRITE, device_ptr(rig->gpu[0]),
		       peer->mem.addr, len, block) &&
	       fx_buf_check(&peer->mem, 0, len, seq) &&
	       fx_buf_poisoned(&peer->mem, len, DEVICE_SIZE - len) &&
	       fx_move(rig->engine, seg, OPCODE_READ, device_ptr(rig->gpu[1]),
		       peer->mem.addr, len, block) &&
	       !rig->cuda.to_host(rig->back.p, rig->gpu[1], len) &&
	       fx_buf_check(&rig->back, 0, len, seq);
	if (seg > 0)
		closeSegment(rig->engine, seg);
	return good;
}

static void device_others(struct device_rig *rig)
{
	struct fx_peer peer;

	if (!ft_ok(fx_target_start(&peer, DEVICE_SIZE), "a_target_starts"))
		return;
	ft_ok(device_staged(rig, &peer, DEVICE_SIZE, 0, 5) &&
	      device_staged(rig, &peer, 1, 0, 6) &&
	      device_staged(rig, &peer, 4 * FX_MIB, 4096, 7),
	      "gpu_to_another_process_and_back");
	fx_peer_stop(&peer);
}

/* Writes the local buffer `from` to the peer's GPU memory and reads it back
 * into the local buffer `to`. Returns true if the bytes at the peer are
 * right. */
static bool device_there(struct device_rig *rig, segment_id_t seg,
			 struct fx_peer *peer, uint64_t there, void *from,
			 void *to, uint64_t len, uint64_t block, uint64_t seq)
{
	return fx_gpu_put(peer, 0, DEVICE_SIZE, 0) &&
	       fx_move(rig->engine, seg, OPCODE_WRITE, from, there + 1, len,
		       block) &&
	       fx_gpu_has(peer, 1, len, seq) &&
	       fx_gpu_has(peer, 0, 1, 0) &&
	       fx_gpu_has(peer, 1 + len, DEVICE_SIZE - 1 - len, 0) &&
	       fx_move(rig->engine, seg, OPCODE_READ, to, there + 1, len,
		       block);
}

static bool device_aimed(struct device_rig *rig, struct fx_peer *peer,
			 uint64_t there, uint64_t len, uint64_t block,
			 uint64_t seq)
{
	segment_id_t seg = openSegment(rig->engine, peer->name);
	bool good;

	fx_buf_fill(&rig->host, 0, len, seq);
	fx_buf_poison(&rig->back, 0, DEVICE_SIZE);
	good = seg > 0 &&
	       device_there(rig, seg, peer, there, rig->host.p, rig->back.p,
			    len, block, seq) &&
	       fx_buf_check(&rig->back, 0, len, seq) &&
	       fx_buf_poisoned(&rig->back, len, DEVICE_SIZE - len);
	fx_buf_poison(&rig->back, 0, DEVICE_SIZE);
	good = good && !rig->cuda.to_device(rig->gpu[0], rig->host.p, len) &&
	       !rig->cuda.to_device(rig->gpu[1], rig->back.p, DEVICE_SIZE) &&
	       device_there(rig, seg, peer, there, device_ptr(rig->gpu[0]),
			    device_ptr(rig->gpu[1]), len, block, seq) &&
	       !rig->cuda.to_host(rig->back.p, rig->gpu[1], DEVICE_SIZE) &&
	       fx_buf_check(&rig->back, 0, len, seq) &&
	       fx_buf_poisoned(&rig->back, len, DEVICE_SIZE - len);
	if (seg > 0)
		closeSegment(rig->engine, seg);
	return good;
}

/* Transfers between local memory (host and GPU) and the GPU memory of another
 * process. */
static void device_target(struct device_rig *rig)
{
	struct fx_peer peer;
	uint64_t there = fx_gpu_target(&peer, DEVICE_SIZE, NULL);

	if (!ft_ok(there, "a_target_with_gpu_memory_starts"))
		return;
	ft_ok(device_aimed(rig, &peer, there, DEVICE_SIZE - 1, 0, 8) &&
	      device_aimed(rig, &peer, there, 1, 0, 9) &&
	      device_aimed(rig, &peer, there, 2 * FX_MIB, 8192, 10),
	      "host_and_gpu_to_anothers_gpu_and_back");
	fx_peer_stop(&peer);
}

void device_compare(const char *what, bool (*ours)(void *arg),
		    bool (*driver)(void *arg), void *arg)
{
	double best[2] = { 0, 0 }, rate;
	bool good = true;
	uint64_t start;
	int i;

	for (i = 0; i < 2 * DEVICE_ROUNDS; i++) {
		start = ft_now_ns();
		good &= i & 1 ? ours(arg) : driver(arg);
		rate = (double)DEVICE_SIZE * 1e9 /
		       (double)(ft_now_ns() - start);
		if (rate > best[i & 1])
			best[i & 1] = rate;
	}
	ft_diag("%s: moonrail %.2f GB/s, the driver alone %.2f GB/s", what,
		best[1] / 1e9, best[0] / 1e9);
	ft_ok(good && best[1] >= DEVICE_GOAL * best[0],
	      "%s_as_fast_as_the_driver", what);
}

static bool rate_write(void *arg)
{
	struct device_rig *rig = arg;

	return device_move(rig, OPCODE_WRITE, rig->host.p, rig->gpu[0],
			   DEVICE_SIZE);
}

static bool rate_read(void *arg)
{
	struct device_rig *rig = arg;

	return device_move(rig, OPCODE_READ, rig->host.p, rig->gpu[0],
			   DEVICE_SIZE);
}

static bool rate_to_device(void *arg)
{
	struct device_rig *rig = arg;

	return !rig->cuda.to_device(rig->gpu[0], rig->host.p, DEVICE_SIZE);
}

static bool rate_to_host(void *arg)
{
	struct device_rig *rig = arg;

	return !rig->cuda.to_host(rig->host.p, rig->gpu[0], DEVICE_SIZE);
}

static void device_rates(struct device_rig *rig)
{
	device_compare("pageable_to_gpu", rate_write, rate_to_device, rig);
	device_compare("gpu_to_pageable", rate_read, rate_to_host, rig);
	if (!ft_ok(!rig->cuda.pin(rig->host.p, DEVICE_SIZE, 1),
		   "host_memory_is_pinned"))
		return;
	device_compare("pinned_to_gpu", rate_write, rate_to_device, rig);
	device_compare("gpu_to_pinned", rate_read, rate_to_host, rig);
	rig->cuda.unpin(rig->host.p);
}

int main(int argc, char **argv)
{
	struct device_rig rig = { .engine = NULL };
	const char *why;

	fx_extend(child_obey);
	fx_init(argc, argv);
	why = device_load(&rig);
	if (why)
		return ft_skip("%s", why);
	if (!device_setup(&rig))
		return ft_result();
	device_bytes(&rig);
	device_others(&rig);
	device_target(&rig);
	device_kinds(&rig);
	device_rates(&rig);
	destroyTransferEngine(rig.engine);
	device_ipc(&rig);
	device_files(&rig);
	ft_ok(fx_buf_guards(&rig.host) && fx_buf_guards(&rig.back),
	      "guard_zones_are_unchanged");
	return ft_result();
}
