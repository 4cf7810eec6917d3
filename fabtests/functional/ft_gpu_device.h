/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_FUNCTIONAL_FT_GPU_DEVICE_H
#define TEI_FABTESTS_FUNCTIONAL_FT_GPU_DEVICE_H

/* Common parts of the tests with real GPUs: the driver's functions, memory on
 * two GPUs (or two buffers on a single GPU), and an engine. */

#include "fabtests/functional/fx_gpu.h"

#define DEVICE_SIZE (128 * FX_MIB + 4097)

struct device_location {		/* like CUmemLocation of cuda.h */
	int type, id;
};

struct device_prop {			/* like CUmemAllocationProp of cuda.h */
	int type, handles;
	struct device_location location;
	void *meta;
	unsigned char flags[8];
};

struct device_access {			/* like CUmemAccessDesc of cuda.h */
	struct device_location location;
	int flags;
};

struct device_driver {
	int (*init)(unsigned int);
	int (*count)(int *);
	int (*retain)(void **, int);
	int (*push)(void *);
	int (*alloc)(uint64_t *, size_t);
	int (*free)(uint64_t);
	int (*pin)(void *, size_t, unsigned int);
	int (*unpin)(void *);
	int (*to_device)(uint64_t, const void *, size_t);
	int (*to_host)(void *, uint64_t, size_t);
	int (*on_device)(uint64_t, uint64_t, size_t);
	int (*wait)(void);

	/* functions for memory of a pool */
	int (*pool_alloc)(uint64_t *, size_t, void *);
	int (*pool_free)(uint64_t, void *);
	/* functions for physical memory that is mapped to addresses */
	int (*grain)(size_t *, const struct device_prop *, int);
	int (*create)(uint64_t *, size_t, const struct device_prop *,
		      unsigned long long);
	int (*release)(uint64_t);
	int (*reserve)(uint64_t *, size_t, size_t, uint64_t,
		       unsigned long long);
	int (*unreserve)(uint64_t, size_t);
	int (*map)(uint64_t, size_t, size_t, uint64_t, unsigned long long);
	int (*unmap)(uint64_t, size_t);
	int (*access)(uint64_t, size_t, const struct device_access *, size_t);
	/* function for memory that the driver moves between host and GPU */
	int (*managed)(uint64_t *, size_t, unsigned int);
};

struct device_rig {
	struct device_driver cuda;
	transfer_engine_t engine;
	struct fx_buf host, back;
	uint64_t gpu[2];	/* addresses of GPU memory; on two GPUs if there
				 * are two */
	int devices;
};

static inline void *device_ptr(uint64_t addr)
{
	return (void *)(uintptr_t)addr;
}

/* --- ft_gpu_device.c ------------------------------------------------------ */
/* Compares the best rate of the engine with the best rate of the driver's own
 * copies, in alternating rounds. ours and driver copy DEVICE_SIZE bytes and
 * return true if this succeeds. what: name of the check. */
void device_compare(const char *what, bool (*ours)(void *arg),
		    bool (*driver)(void *arg), void *arg);

/* --- ft_gpu_device_kinds.c ----------------------------------------------- */
/* Creates n allocations of `size` bytes on a GPU and maps them to adjacent
 * addresses. Other processes can open them if `shared` is true. Returns the
 * address, or 0. */
uint64_t device_map(struct device_driver *cuda, int device, unsigned int n,
		    uint64_t size, bool shared);
void device_unmap(struct device_driver *cuda, uint64_t addr, uint64_t size);
void device_kinds(struct device_rig *rig);

/* --- ft_gpu_device_ipc.c (creates its own engines) ----------------------- */
void device_ipc(struct device_rig *rig);

/* --- ft_gpu_device_files.c (creates its own engines) --------------------- */
void device_files(struct device_rig *rig);

#endif /* TEI_FABTESTS_FUNCTIONAL_FT_GPU_DEVICE_H */
