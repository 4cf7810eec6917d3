/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_TEI_RAIL_MR_H
#define TEI_PROV_RAIL_TEI_RAIL_MR_H

/* Registered memory, a part of tei_rail.h. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "prov/rail/tei_rail_base.h"
#include "util/err.h"

/* Returns the NUMA node of the NIC nearest to location, or -1 if it is not
 * known. */
int tei_rail_node_near(struct tei_rail_dp *dp, const char *location);

/*
 * Registers [addr, addr + len) on every rail, including rails opened later.
 * Returns TEI_ERR_OVERLAP if the range overlaps another registered range, or a
 * range whose registration is still in progress. location: a location such as
 * "cpu:0" (tei_topo). access: the flags below; 0 means that only local tasks
 * use the memory. The data plane owns *mr.
 */
#define TEI_RAIL_REMOTE		1u	/* peers may read and
					 * write the memory */
#define TEI_RAIL_READ_ONLY	2u	/* nothing may write to the memory:
					 * peers must not write, and local tasks
					 * must not read into it */
int tei_rail_mr_reg(struct tei_rail_dp *dp, void *addr, uint64_t len,
		    const char *location, uint32_t access, struct tei_err *err,
		    struct tei_rail_mr **mr);

/* How a rail accesses registered memory. */
enum tei_rail_way {
	TEI_RAIL_WAY_HOST,		/* the memory is host memory */
	TEI_RAIL_WAY_DMABUF,		/* the memory is GPU memory, which the
					 * rail accesses through a dma-buf */
	TEI_RAIL_WAY_PEER,		/* the memory is GPU memory, which the
					 * rail accesses through its address
					 * (peer memory) */
};
const char *tei_rail_way_name(enum tei_rail_way way);

/* The GPU that registered memory belongs to, and the dma-buf that exports the
 * memory. */
struct tei_rail_device {
	int cuda;			/* CUDA ordinal of the GPU */
	int dmabuf;			/* file descriptor of the dma-buf, or -1
					 * if there is none */
	uint64_t offset;		/* offset of the region in the dma-buf,
					 * bytes */
};

/*
 * Registers GPU memory on all open rails. On failure this function only fills
 * err. It does not log the error and does not set the thread's last error,
 * because the caller can use GPU staging instead. If a rail that is opened
 * later does not accept the region, other rails move its bytes. Scatter/gather
 * requests and atomics cannot use the region. After success the data plane owns
 * the dma-buf file descriptor in device.
 */
int tei_rail_mr_reg_gpu(struct tei_rail_dp *dp, void *addr, uint64_t len,
			const char *location, uint32_t access,
			const struct tei_rail_device *device,
			struct tei_err *err, struct tei_rail_mr **mr);

/* Returns false and fills err if an open rail is known not to accept GPU
 * memory. This check is cheap. Callers make it before they prepare GPU memory
 * for registration. */
bool tei_rail_may_gpu(struct tei_rail_dp *dp, struct tei_err *err);

/* Returns true if the range is GPU memory, at least one rail is open and all
 * open rails can access the range. */
bool tei_rail_mr_direct(struct tei_rail_dp *dp, const void *addr,
			uint64_t len);

/*
 * Unregisters the region that starts at addr. Returns 0 only when no peer can
 * access it any more: its keys were revoked, the key holders were asked to
 * drain, and those that did not answer within MOONRAIL_FENCE_MS were fenced.
 * Waits up to local_ns for local tasks that use the region; if these tasks do
 * not end, returns TEI_ERR_BUSY and the region stays registered. If no region
 * starts at addr, returns TEI_ERR_NOT_REGISTERED.
 */
int tei_rail_mr_dereg(struct tei_rail_dp *dp, void *addr, uint64_t local_ns,
		      struct tei_err *err);

/*
 * Keeps local memory registered for a sequence of tasks whose member "held" is
 * true. Until tei_rail_mr_let_go is called, tei_rail_mr_dereg waits as if a
 * task used the memory. The range may span several adjacent regions. write:
 * true if the tasks write into the memory. Returns 0, or TEI_ERR_NOT_REGISTERED
 * if a part of the range is not registered, or if a part is read-only and write
 * is true.
 */
int tei_rail_mr_hold(struct tei_rail_dp *dp, const void *addr, uint64_t len,
		     bool write);
void tei_rail_mr_let_go(struct tei_rail_dp *dp, const void *addr,
			uint64_t len);

/* Sets *key to the remote key of the registered byte at addr on the rail with
 * index "rail". Descriptors publish this key. */
int tei_rail_mr_key(struct tei_rail_dp *dp, const void *addr, size_t rail,
		    uint64_t *key);

/* Returns how many bytes, counted from addr, have the same keys as the byte at
 * addr; 0 if addr is not registered. A region that is larger than the largest
 * registration of a device has several keys on that rail. */
uint64_t tei_rail_mr_piece(struct tei_rail_dp *dp, const void *addr);

#endif /* TEI_PROV_RAIL_TEI_RAIL_MR_H */
