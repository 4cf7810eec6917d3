/* SPDX-License-Identifier: BSD-2-Clause */

/*
 * GPU memory that was not allocated with cuMemAlloc: memory from a pool, two
 * allocations mapped to adjacent addresses, managed memory, and memory from
 * te_alloc.
 */
#include "fabtests/functional/ft_gpu_device.h"

#define KIND_SIZE (24 * FX_MIB + 3)
/* size of the mapped range, more than KIND_SIZE */
#define KIND_ROOM (32 * FX_MIB)
/* value of CU_MEM_ALLOCATION_TYPE_PINNED */
#define KIND_PINNED 1
/* value of CU_MEM_LOCATION_TYPE_DEVICE */
#define KIND_DEVICE 1
/* value of CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR */
#define KIND_FD 1
/* value of CU_MEM_ACCESS_FLAGS_PROT_READWRITE */
#define KIND_READ_WRITE 3
#define KIND_ANY_STREAM 1		/* value of CU_MEM_ATTACH_GLOBAL */

struct kind {
	const char *name;
	const char *location;
	/* returns the address, or 0 on failure */
	uint64_t (*make)(struct device_rig *rig);
	void (*give_back)(struct device_rig *rig, uint64_t addr);
};

/* --- how the memory is made ---------------------------------------------- */

static uint64_t pool_make(struct device_rig *rig)
{
	uint64_t addr;

	if (rig->cuda.pool_alloc(&addr, KIND_SIZE, NULL) || rig->cuda.wait())
		return 0;
	return addr;
}

static void pool_give_back(struct device_rig *rig, uint64_t addr)
{
	ft_ok(!rig->cuda.pool_free(addr, NULL) && !rig->cuda.wait(),
	      "memory_is_freed");
}

/* Maps n allocations to the addresses from addr on. Returns true on success. */
static bool mapped_fill(struct device_driver *cuda,
			const struct device_prop *prop, unsigned int n,
			uint64_t size, uint64_t addr)
{
	struct device_access access = { .location = prop->location,
					.flags = KIND_READ_WRITE };
	uint64_t handle;
	unsigned int i;

	for (i = 0; i < n; i++)
		if (cuda->create(&handle, size, prop, 0) ||
		    cuda->map(addr + i * size, size, 0, handle, 0) ||
		    cuda->release(handle))
			return false;
	return !cuda->access(addr, n * size, &access, 1);
}

uint64_t device_map(struct device_driver *cuda, int device, unsigned int n,
		    uint64_t size, bool shared)
{
	struct device_prop prop = { .type = KIND_PINNED,
				    .handles = shared ? KIND_FD : 0,
				    .location = { KIND_DEVICE, device } };
	size_t grain = 0;
	uint64_t addr;

	if (cuda->grain(&grain, &prop, 0) || !grain || size % grain ||
	    cuda->reserve(&addr, n * size, 0, 0, 0))
		return 0;
	return mapped_fill(cuda, &prop, n, size, addr) ? addr : 0;
}

void device_unmap(struct device_driver *cuda, uint64_t addr, uint64_t size)
{
	ft_ok(!cuda->unmap(addr, size) && !cuda->unreserve(addr, size),
	      "memory_is_freed");
}

static uint64_t mapped_make(struct device_rig *rig)
{
	return device_map(&rig->cuda, 0, 2, KIND_ROOM / 2, false);
}

static void mapped_give_back(struct device_rig *rig, uint64_t addr)
{
	device_unmap(&rig->cuda, addr, KIND_ROOM);
}

static uint64_t managed_make(struct device_rig *rig)
{
	uint64_t addr;

	return rig->cuda.managed(&addr, KIND_SIZE, KIND_ANY_STREAM) ? 0 : addr;
}

static void managed_give_back(struct device_rig *rig, uint64_t addr)
{
	ft_ok(!rig->cuda.free(addr), "memory_is_freed");
}

static const struct kind kinds[] = {
	{ "pool", "cuda:0", pool_make, pool_give_back },
	{ "mapped", "cuda:0", mapped_make, mapped_give_back },
	{ "managed", "*", managed_make, managed_give_back },
};

/* --- how the memory is used ---------------------------------------------- */

static bool kind_move(struct device_rig *rig, segment_id_t seg, int op,
		      uint64_t local, uint64_t remote)
{
	return fx_move(rig->engine, seg, op, device_ptr(local), remote,
		       KIND_SIZE, 0);
}

/* Copies from host memory to the GPU memory at addr and back. Returns true if
 * the bytes are right. */
static bool kind_here(struct device_rig *rig, uint64_t addr, uint64_t seq)
{
	fx_buf_fill(&rig->host, 0, KIND_SIZE, seq);
	fx_buf_poison(&rig->back, 0, KIND_SIZE);
	return kind_move(rig, LOCAL_SEGMENT, OPCODE_WRITE,
			 (uintptr_t)rig->host.p, addr) &&
	       kind_move(rig, LOCAL_SEGMENT, OPCODE_READ,
			 (uintptr_t)rig->back.p, addr) &&
	       fx_buf_check(&rig->back, 0, KIND_SIZE, seq);
}

/* Writes the GPU memory at addr to another process and reads it back. Returns
 * true if the bytes are right. */
static bool kind_there(struct device_rig *rig, uint64_t addr,
		       struct fx_peer *peer, uint64_t seq)
{
	segment_id_t seg = openSegment(rig->engine, peer->name);
	bool good;

	fx_buf_poison(&peer->mem, 0, KIND_SIZE);
	good = seg > 0 && kind_move(rig, seg, OPCODE_WRITE, addr,
				    peer->mem.addr) &&
	       fx_buf_check(&peer->mem, 0, KIND_SIZE, seq);
	fx_buf_poison(&rig->back, 0, KIND_SIZE);
	good = good && kind_move(rig, LOCAL_SEGMENT, OPCODE_WRITE,
				 (uintptr_t)rig->back.p, addr) &&
	       kind_move(rig, seg, OPCODE_READ, addr, peer->mem.addr) &&
	       kind_move(rig, LOCAL_SEGMENT, OPCODE_READ,
			 (uintptr_t)rig->back.p, addr) &&
	       fx_buf_check(&rig->back, 0, KIND_SIZE, seq);
	if (seg > 0)
		closeSegment(rig->engine, seg);
	return good;
}

static void kind_used(struct device_rig *rig, const char *name,
		      const char *location, uint64_t addr, struct fx_peer *peer)
{
	if (location &&
	    !ft_ok(!registerLocalMemory(rig->engine, device_ptr(addr),
					KIND_SIZE, location, 0),
		   "%s_memory_is_registered", name))
		return;
	ft_ok(kind_here(rig, addr, 50) && kind_there(rig, addr, peer, 50),
	      "%s_memory_here_and_there", name);
	if (location)
		ft_ok(!unregisterLocalMemory(rig->engine, device_ptr(addr)),
		      "memory_is_unregistered");
}

static void kind_allocated(struct device_rig *rig, struct fx_peer *peer)
{
	struct te_memory memory = { .addr = 0 };

	if (!ft_ok(!te_alloc(rig->engine, KIND_SIZE, "cuda:0", 0, &memory,
			     sizeof(memory)),
		   "te_alloc_has_memory_of_a_gpu"))
		return;
	kind_used(rig, "te_alloc", NULL, memory.addr, peer);
	ft_ok(!te_free(rig->engine, device_ptr(memory.addr)),
	      "memory_is_freed");
}

void device_kinds(struct device_rig *rig)
{
	struct fx_peer peer;
	uint64_t addr;
	size_t i;

	if (!ft_ok(fx_target_start(&peer, KIND_SIZE), "another_target_starts"))
		return;
	for (i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		addr = kinds[i].make(rig);
		if (!ft_ok(addr, "%s_memory_is_made", kinds[i].name))
			continue;
		kind_used(rig, kinds[i].name, kinds[i].location, addr, &peer);
		kinds[i].give_back(rig, addr);
	}
	kind_allocated(rig, &peer);
	fx_peer_stop(&peer);
}
