/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_CONN_RAIL_KEY_H
#define TEI_PROV_RAIL_CONN_RAIL_KEY_H

/* Remote keys: requested, received and revoked. */

#include <stdbool.h>
#include <stdint.h>

#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_op.h"
#include "util/list.h"
#include "util/lock.h"
#include "util/range.h"

struct rail;
struct rail_raw;
struct rail_rkey_part;

/* A remote key: the keys of a peer's region, or of a part of a region, for each
 * of the peer's rails. Guarded by dp->sched. */
struct rail_rkey {
	struct tei_list link;		/* in peer->keys.all */
	struct rail_rkey *bucket_next;	/* next remote key in the same bucket of
					 * peer->keys.ids */
	struct rail_raw *raw;
	uint32_t nraw;
	struct tei_range range;		/* memory at the peer; in
					 * peer->keys.rkeys */
	uint64_t id;			/* id of the region */
	uint32_t slices;		/* number of unfinished slices that use
					 * the remote key */
	bool read_only;			/* this process must not write to the
					 * region */
	bool revoked;			/* the peer has revoked the key, so it
					 * is not in peer->keys.rkeys; freed
					 * when "slices" is 0 */
	bool unregistered;		/* the peer has unregistered the region:
					 * the key is about to be withdrawn */
	uint16_t nparts;
	struct rail_rkey_part {
		uint16_t rail_id;	/* index of the remote rail at the
					 * peer */
		uint8_t rank;		/* rank of the remote rail for the
					 * peer's memory; 0 means preferred */
		uint8_t key_len;
		uint8_t key[RAIL_KEY_MAX];
		uint64_t key64;		/* the key as a number,
					 * unless it is raw */
		uint64_t offset;	/* offset of the start of `range` in the
					 * peer's registration on the remote
					 * rail */
	} part[];
};

/* Bytes of a peer's region that tasks of a group were allowed to use. */
struct rail_key_use {
	struct rail_key_use *next;	/* next one of the group, or NULL */
	uint64_t id;			/* id of the region */
	struct tei_range range;		/* the smallest range that contains
					 * these bytes */
};

/* Made by its owner without a lock, freed by its owner. Guarded by
 * dp->sched. */
struct tei_rail_group {
	struct tei_rail_peer *peer;	/* does not change */
	struct tei_list link;		/* in peer->keys.groups, or in no list
					 * if the group has no use yet */
	struct rail_key_use *uses;
	bool region_gone;		/* atomic: the peer has unregistered a
					 * region in uses, so no further bytes
					 * of the group are posted */
};

/* Returns the remote key whose range contains addr, or NULL. */
struct rail_rkey *rail_key_find(struct tei_rail_peer *peer, uint64_t addr)
	TEI_REQUIRES(rail_sched_held);

/* Returns true if keys for the whole range are known that allow reading (if
 * "read" is true) or writing. */
bool rail_key_covers(struct tei_rail_peer *peer, uint64_t addr, uint64_t len,
		     bool read)
	TEI_REQUIRES(rail_sched_held);

/* Does what rail_key_covers does. If a key is missing, also requests the keys
 * from the first byte without a key on. */
bool rail_key_covers_or_want(struct tei_rail_peer *peer, uint64_t addr,
			     uint64_t len, bool read)
	TEI_REQUIRES(rail_sched_held);

/* Maps a raw key for one local rail, unless that was done before. Stores the
 * mapped key in *key64. Returns false on failure. */
bool rail_key_raw(struct rail_rkey *key, uint16_t part,
		  const struct rail *rail, uint64_t *key64)
	TEI_REQUIRES(rail_sched_held);

/* Unmaps all raw keys of the rail before its domain is closed. */
void rail_key_unmap(struct rail *rail);

/* Adds a key that the peer has sent, and takes ownership of it. Withdraws the
 * keys of other regions that it overlaps. Returns false if memory is short; the
 * key is then freed. */
bool rail_key_add(struct tei_rail_peer *peer, struct rail_rkey *key)
	TEI_REQUIRES(rail_sched_held);

/* Withdraws the keys of a region that the peer revokes. REVOKED is sent when no
 * slice uses these keys any longer. */
void rail_key_revoked(struct tei_rail_peer *peer, uint64_t id)
	TEI_REQUIRES(rail_sched_held);

/* Makes the progress thread send REVOKE to the peer for the region of this
 * process with that id. Returns 0 or TEI_ERR_MEMORY. */
int rail_key_revoke(struct tei_rail_peer *peer, uint64_t id)
	TEI_REQUIRES(rail_sched_held);

/* Handles REVOKED from the peer: the peer no longer uses the region of this
 * process with that id. */
void rail_key_drained(struct tei_rail_peer *peer, uint64_t id)
	TEI_REQUIRES(rail_sched_held);

/* Makes the progress thread send REVOKED to the peer for the peer's region with
 * that id. */
void rail_key_owe(struct tei_rail_peer *peer, uint64_t id)
	TEI_REQUIRES(rail_sched_held);

/* Records that REVOKED, which could not be sent, must be sent later. The caller
 * chooses the time; the peer is not put on the attention list. */
void rail_key_owe_again(struct tei_rail_peer *peer, uint64_t id)
	TEI_REQUIRES(rail_sched_held);

/* Records that the process was given the key of the region. Returns 0 or
 * TEI_ERR_MEMORY. */
int rail_key_add_holder(struct tei_rail_mr *mr, uint64_t incarnation)
	TEI_REQUIRES(rail_sched_held);

/* Removes a process from the key holders of all regions. sure: true if the
 * process certainly holds no key any longer; false if it may still hold keys,
 * but the data plane no longer has a peer object for it. */
void rail_key_holder_gone(struct tei_rail_dp *dp, uint64_t incarnation,
			  bool sure) TEI_REQUIRES(rail_sched_held);

/* Makes the progress thread request the keys of the range with KEY_REQ. */
void rail_key_want(struct tei_rail_peer *peer, uint64_t addr, uint64_t len)
	TEI_REQUIRES(rail_sched_held);

/* Decrements the number of slices that use the key. Frees a revoked key after
 * its last slice. */
void rail_key_slice_done(struct tei_rail_peer *peer, struct rail_rkey *key)
	TEI_REQUIRES(rail_sched_held);

/* Withdraws all remote keys that the peer has sent. Their regions stay
 * registered. */
void rail_key_drop_all(struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held);

/* Returns a key of the region with that id: the first one if prev is NULL,
 * otherwise the one after prev. Returns NULL if there is none. */
struct rail_rkey *rail_key_of_region(struct tei_rail_peer *peer, uint64_t id,
				     const struct rail_rkey *prev)
	TEI_REQUIRES(rail_sched_held);

/* --- rail_key_use.c: tasks that have used a region ------------------------ */
/*
 * The following functions find the tasks of which bytes were cut to a region
 * that the peer has unregistered. rail_key_unregistered takes the id of such a
 * region, and rail_key_replaces a key that the peer has sent and that is not
 * added yet: all other regions that the key overlaps are unregistered. Both
 * return true if there may be such tasks. The caller then calls
 * rail_sched_unregistered before it withdraws the keys.
 */
bool rail_key_unregistered(struct tei_rail_peer *peer, uint64_t id)
	TEI_REQUIRES(rail_sched_held);
bool rail_key_replaces(struct tei_rail_peer *peer, const struct rail_rkey *key)
	TEI_REQUIRES(rail_sched_held);
/* Sets tei_rail_task.region_gone of these tasks. */
void rail_key_mark_tasks(struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held);
/* Returns true if the task, which has a group, may be cut into slices: the keys
 * of its request are known, and all regions that the group has used are
 * registered. Records which regions the task uses. Requests the missing
 * keys. */
bool rail_key_group_ready(struct tei_rail_peer *peer,
			  const struct tei_rail_task *task)
	TEI_REQUIRES(rail_sched_held);
/* Returns true if the task has a group, and the peer has unregistered a region
 * that the group has used. */
bool rail_key_group_gone(const struct tei_rail_task *task);
/* Notes in the tasks which regions they have used, because the keys of all
 * regions are about to be withdrawn. */
void rail_key_forget(struct tei_rail_peer *peer) TEI_REQUIRES(rail_sched_held);

/* Frees all keys during tear-down, even keys that slices still use. */
void rail_key_free_all(struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held);

#endif /* TEI_PROV_RAIL_CONN_RAIL_KEY_H */
