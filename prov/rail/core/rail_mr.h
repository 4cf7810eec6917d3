/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_CORE_RAIL_MR_H
#define TEI_PROV_RAIL_CORE_RAIL_MR_H

/* Local memory: regions and their registrations on the rails. */

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_op.h"
#include "prov/rail/tei_rail.h"
#include "util/list.h"
#include "util/lock.h"
#include "util/range.h"

struct tei_err;

/* Removes the region from dp->memory.mrs. dp->admin is held too. */
void rail_mr_remove(struct tei_rail_dp *dp, struct tei_rail_mr *mr)
	TEI_REQUIRES(rail_sched_held);
/* Frees a region that is no longer in dp->memory.mrs and is registered on no
 * rail. */
void rail_mr_free(struct tei_rail_mr *mr);

/* One registration of memory with a provider. */
struct rail_mr_piece {
	struct fid_mr *mr;
	uint8_t key[RAIL_KEY_MAX];	/* the key: a 64-bit number in native
					 * byte order, or a raw key */
	uint8_t key_len;		/* length of "key", bytes; if 0, peers
					 * cannot use the registration */
};

/*
 * Registration of a memory region on one rail. The region is split into parts
 * of 1 << shift bytes; the last part may be shorter. If the shift is
 * RAIL_MR_WHOLE, the whole region is one part.
 */
#define RAIL_MR_WHOLE	63

struct rail_mr_part {
	struct rail_mr_piece *piece;
	uint32_t n;			/* number of entries of "piece"; 0 if
					 * the region is not registered on the
					 * rail */
	uint8_t shift;
	uint8_t way;			/* how the memory is registered: enum
					 * tei_rail_way */
	void **desc;			/* local memory descriptor (fi_mr_desc)
					 * of each entry of "piece"; NULL if the
					 * rail needs none */
};

/* The ranks of all rails for one NUMA range of a region. */
struct rail_numa_range {
	uint64_t end;			/* offset in the region at which the
					 * range ends */
	uint8_t rank[TEI_RAIL_MAX];	/* guarded by dp->sched: rank of each
					 * rail: 0 preferred, 1 accessible, 2
					 * unused */
};

enum rail_mr_fence {
	RAIL_MR_NO_FENCE,	/* no fence is needed, or it is complete */
	RAIL_MR_FENCE_WANTED,	/* a fence is needed, and the progress thread
				 * has not started it yet */
	RAIL_MR_FENCING,	/* the progress thread closes the rx lanes */
};

enum rail_mr_state {
	RAIL_MR_REGISTERING,		/* being registered; already in
					 * dp->memory.mrs, so that overlapping
					 * registrations are refused */
	RAIL_MR_READY,
	RAIL_MR_REVOKING,		/* being unregistered: no new task may
					 * use the region, and peers get no keys
					 * of it */
	RAIL_MR_CLOSED,			/* unregistered on all rails; the state
					 * is set while dp->admin is held in
					 * addition to dp->sched */
};

/*
 * A registered region. Created by tei_rail_mr_reg, freed by tei_rail_mr_dereg
 * or tei_rail_dp_close.
 */
struct tei_rail_mr {
	/* fixed after registration */
	char *addr;
	uint64_t len;
	struct tei_range range;		/* addr to addr + len;
					 * in dp->memory.mrs */
	uint64_t id;			/* number of the region for peers; never
					 * used again for another region */
	bool remote;			/* peers may access the region */
	bool read_only;			/* peers and local reads must not write
					 * to the region */
	bool gpu;			/* the region is GPU memory; a rail
					 * without a registration of the region
					 * must not access it */
	struct tei_rail_device device;	/* if "gpu" is true: the GPU memory; its
					 * dma-buf file descriptor is closed
					 * when the region is freed */
	char *location;
	struct rail_numa_range *places; /* NUMA ranges in ascending order of
					 * their offsets */
	uint32_t nplaces;

	/* guarded by dp->admin */
	struct rail_mr_part part[TEI_RAIL_MAX];

	/* guarded by dp->sched */
	enum rail_mr_state state;
	uint32_t tasks;			/* number of unfinished local tasks that
					 * use the region */
	uint64_t *holders;		/* incarnations of the key holders */
	uint32_t nholders, holders_cap;
	uint32_t holders_left;		/* in state REVOKING: number of key
					 * holders that have not answered REVOKE
					 * yet */
	bool lost;			/* the data plane has freed a peer
					 * object whose process may still hold a
					 * key of the region */
	struct tei_list revoking;	/* in dp->memory.revoking,
					 * or unlinked */
	enum rail_mr_fence fence;	/* in state REVOKING: whether the rx
					 * lanes must be closed, so that no peer
					 * can access the region any longer */
};

/* Returns the region at index i of dp->memory.mrs. */
static inline struct tei_rail_mr *rail_mr_at(const struct tei_rail_dp *dp,
					     uint32_t i)
{
	return tei_container_of(dp->memory.mrs.at[i], struct tei_rail_mr,
				range);
}

/* rail_mr_open_on registers the region on the rail, rail_mr_close_on closes
 * this registration. The caller must hold dp->admin, unless the rail is not
 * visible to other threads yet. */
int rail_mr_open_on(struct tei_rail_mr *mr, struct rail *rail,
		    struct tei_err *err);
void rail_mr_close_on(struct tei_rail_mr *mr, struct rail *rail);

/* Registers the region on all open rails (rail_mr_open.c). The region's ranks
 * must be known. Returns 0. On failure returns an error code, and the region is
 * registered on no rail. */
int rail_mr_open_all(struct tei_rail_dp *dp, struct tei_rail_mr *mr,
		     struct tei_err *err) TEI_REQUIRES(dp->admin);

/* rail_mr_unbind unregisters the regions that are bound to the rail's rx lane,
 * before the lane is closed. rail_mr_rebind registers them again for the new
 * lane. */
void rail_mr_unbind(struct rail *rail) TEI_REQUIRES(rail->dp->admin);
void rail_mr_rebind(struct rail *rail) TEI_REQUIRES(rail->dp->admin);

/* Determines, before the rail is opened, whether the rail accepts GPU memory,
 * and sets caps.hmem or caps.no_hmem. */
void rail_hmem_ask(struct rail *rail);

/* rail_open_err_fn returns the function that reports errors of opening the
 * rail: usually tei_err_fail. If such errors are not logged, or if the opening
 * of the rail with FI_HMEM is in progress or has failed, the result is a
 * function that only fills err. */
typedef int (*rail_err_fn)(struct tei_err *err, int code, const char *subsys,
			   const char *hint, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));

rail_err_fn rail_open_err_fn(const struct rail *rail);

/*
 * Report the steps of opening a rail with FI_HMEM: rail_hmem_leave records that
 * the opening has failed, before the rail is opened without FI_HMEM. If the
 * second attempt succeeds, rail_hmem_without logs that, with the error of the
 * first attempt ("why"). If the second attempt fails too, rail_hmem_neither
 * reports both errors, that of the first attempt ("why") and that of the second
 * ("err").
 */
void rail_hmem_leave(struct rail *rail);
void rail_hmem_without(struct rail *rail, const struct tei_err *why);
void rail_hmem_neither(const struct tei_err *why, struct tei_err *err);

/* Fills err with the reason why the rail does not accept GPU memory. Returns
 * the error code. */
int rail_hmem_refuse(const struct rail *rail, struct tei_err *err);

/* Returns the reason why the region cannot be registered through dma-buf, or
 * NULL if it can. */
const char *rail_hmem_no_dmabuf(const struct tei_rail_mr *mr);

/* Registers a part of the region, which is GPU memory. way: by dma-buf or by
 * address. Returns 0 or -FI_E*. */
int rail_hmem_reg(struct fid_domain *domain, const struct tei_rail_mr *mr,
		  enum tei_rail_way way, void *addr, size_t len,
		  uint64_t access, uint64_t key, uint64_t flags,
		  struct fid_mr **out);

/* Returns true if the rail must not access the region, because the region is
 * GPU memory that is not registered on the rail. */
static inline bool rail_hmem_foreign(const struct tei_rail_mr *mr,
				     const struct rail *rail)
{
	return mr && mr->gpu && !mr->part[rail->index].n;
}

/* Registers memory of the data plane itself, for messages. Returns 0 or
 * -FI_E*. */
int rail_reg_own(struct rail *rail, struct fid_domain *domain, void *mem,
		 size_t len, uint64_t access, struct fid_mr **out);

/* The failed attempts to register a region on a rail. */
struct rail_reg_tried {
	uint64_t most, least;		/* bytes per registration: `most` at the
					 * first attempt, `least` at the last
					 * one */
	uint32_t done, pieces;		/* at the last attempt: number of
					 * registrations that succeeded, and
					 * number needed for the region */
};

/* Limits that a failed registration may have reached. */
struct rail_limits {
	uint64_t memlock;		/* limit of locked memory, bytes;
					 * UINT64_MAX if there is no limit */
	uint64_t pinned_kib;		/* memory pinned by this process, KiB */
	uint64_t count;			/* number of registrations on the
					 * rail */
	uint64_t max_count;		/* limit of the number of registrations
					 * on the device; 0 if unknown */
	uint64_t max_size;		/* limit of bytes per registration; 0 if
					 * unknown */
	size_t key_size;		/* length of a key that moonrail
					 * chooses, bytes */
};

/* Fills *out with the limits that apply to the rail. If the error "ret" does
 * not mean that a limit was reached, fills *out with zeros. */
void rail_limits_get(const struct rail *rail, int ret, struct rail_limits *out);

/* Writes to "out" which limit may have caused the error "ret", and the value of
 * this limit. Writes "" if no limit is known to cause this error. */
void rail_limits_text(const struct rail_limits *l,
		      const struct rail_reg_tried *t, int ret, char *out,
		      size_t cap);

/* Does what rail_limits_text does, but for memory that a provider pins for
 * itself, such as the queues of an endpoint. Only the memlock limit is named.
 * May be called with any lock held. */
void rail_limits_memory(int ret, char *out, size_t cap);

/* Returns the number of bytes from addr to the end of the registration that
 * contains addr. */
static inline uint64_t rail_mr_room(const struct tei_rail_mr *mr,
				    const struct rail_mr_part *part,
				    const char *addr)
{
	uint64_t off = (uint64_t)(addr - mr->addr);

	return (((off >> part->shift) + 1) << part->shift) - off;
}

/* Returns the region that contains [addr, addr + len), or NULL if there is none
 * or its state is not READY. */
struct tei_rail_mr *rail_mr_find(struct tei_rail_dp *dp, const void *addr,
				 uint64_t len) TEI_REQUIRES(rail_sched_held);

/* Does what rail_mr_find does, but also finds a region that is being
 * unregistered. For a caller that holds the region (tei_rail_mr_hold). */
struct tei_rail_mr *rail_mr_find_held(struct tei_rail_dp *dp, const void *addr,
				      uint64_t len)
	TEI_REQUIRES(rail_sched_held);

/* Returns the lowest rail_mr_part.shift of the region on any rail: the log2 of
 * the smallest size of its registrations. */
uint8_t rail_mr_shift(struct tei_rail_dp *dp, const struct tei_rail_mr *mr);

/* Computes the rank of each rail for each NUMA range of the region. */
void rail_mr_rank(struct tei_rail_dp *dp, struct tei_rail_mr *mr)
	TEI_REQUIRES(rail_sched_held);

/* Returns the ranks of the rails for the byte at addr. */
const uint8_t *rail_mr_ranks(const struct tei_rail_mr *mr, const char *addr)
	TEI_REQUIRES(rail_sched_held);
void rail_mr_free_all(struct tei_rail_dp *dp);
int rail_mr_open_placeholder(struct tei_rail_dp *dp, struct tei_err *err);
void rail_mr_close_placeholder(struct tei_rail_dp *dp);

#endif /* TEI_PROV_RAIL_CORE_RAIL_MR_H */
