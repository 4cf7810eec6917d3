/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_META_TEI_META_CACHE_H
#define TEI_META_TEI_META_CACHE_H

/*
 * The cache of open segments and their descriptors. The rules of tei_meta.h
 * apply.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "meta/tei_meta.h"

/*
 * Maps names to ids. Id 0 is the own segment; others are positive, do not
 * change while the name is open, and become stale with the last close. An id
 * consists of a slot and a generation; a slot is reused only after many others.
 */
#define TEI_META_SLOT_BITS	20
#define TEI_META_SLOTS		(1u << TEI_META_SLOT_BITS)

/*
 * Returns the index of an id's slot, for arrays that the cache's user keeps.
 * Returns 0 for id 0.
 */
static inline uint32_t tei_meta_slot(int32_t id)
{
	return (uint32_t)id & (TEI_META_SLOTS - 1);
}

/*
 * Callbacks for the data that the user of the cache keeps for each open
 * segment. They are called without a lock of the cache. They may call the
 * cache, but must not make a call that attaches the same segment.
 */
struct tei_meta_cache_ops {
	/*
	 * Brings *data up to date with the descriptor of a segment; *data is
	 * NULL at first. Called by every call that opens the segment or fetches
	 * its descriptor, for one segment by one thread at a time. again is
	 * true if tei_meta_cache_attach has made the call; the descriptor may
	 * then be unchanged. If this function returns an error, *data may have
	 * changed nevertheless, and the cache call returns that error. May
	 * block.
	 */
	int (*attach)(void *arg, int32_t id, struct tei_meta_desc *desc,
		      bool again, void **data, struct tei_err *err);
	/* Frees the data. At this time tei_meta_cache_data no longer returns
	 * the data. */
	void (*detach)(void *arg, void *data);
};

/*
 * Creates a cache for at most max_open segments (0: all slots). The store must
 * outlive the cache. ops may be NULL.
 */
int tei_meta_cache_create(struct tei_meta_store *store, uint32_t max_open,
			  const struct tei_meta_cache_ops *ops, void *arg,
			  struct tei_meta_cache **out, struct tei_err *err);

/* Frees the cache. No other call may be running. NULL is ignored. */
void tei_meta_cache_destroy(struct tei_meta_cache *cache);

/* Sets the own segment, which id 0 and its name refer to. Takes a reference. */
void tei_meta_cache_set_local(struct tei_meta_cache *cache,
			      struct tei_meta_desc *desc);

/*
 * Opens name and returns its id with one more reference. A leading slash is
 * ignored. Fetches the descriptor if name is not cached or fresh is true. Only
 * one fetch per name runs at a time; other calls wait for its result. The own
 * name, or an address of this process, is id 0. Returns TEI_ERR_INVALID for an
 * empty name, TEI_ERR_TOO_MANY at max_open, or a code of the store's fetch.
 * Blocks.
 */
int tei_meta_cache_open(struct tei_meta_cache *cache, const char *name,
			bool fresh, uint64_t deadline_ns, int32_t *id,
			struct tei_err *err);

/*
 * Does what tei_meta_cache_open does, with a descriptor from another source
 * instead of a fetch. An older descriptor of the same process changes nothing.
 * A descriptor of another process replaces the known one if replace is true or
 * its serial is higher; otherwise the result is TEI_ERR_CONTEXT. The result is
 * TEI_ERR_CONTEXT, too, if desc has the own name and another incarnation. desc
 * must be frozen; the cache takes a reference. Blocks only in attach.
 */
int tei_meta_cache_put(struct tei_meta_cache *cache,
		       struct tei_meta_desc *desc, bool replace, int32_t *id,
		       struct tei_err *err);

/*
 * Drops one reference. *last (may be NULL) tells whether the id is now stale.
 * Id 0 is accepted and never becomes stale. Returns TEI_ERR_INVALID for a stale
 * or unknown id.
 */
int tei_meta_cache_close(struct tei_meta_cache *cache, int32_t id, bool *last);

/*
 * Returns the descriptor with a reference for the caller, or NULL for a stale
 * or unknown id, without a log line. Holds a lock briefly, never blocks.
 */
struct tei_meta_desc *tei_meta_cache_get(struct tei_meta_cache *cache,
					 int32_t id);

/* Returns true if name is open or being opened. Never blocks. */
bool tei_meta_cache_uses(struct tei_meta_cache *cache, const char *name);

/* Returns the id of an open name without taking a reference, or -1. */
int32_t tei_meta_cache_lookup(struct tei_meta_cache *cache, const char *name);

/*
 * Fetches the descriptor again. Sets *changed to true if the descriptor
 * differs; changed may be NULL. Blocks.
 */
int tei_meta_cache_refresh(struct tei_meta_cache *cache, int32_t id,
			   uint64_t deadline_ns, bool *changed,
			   struct tei_err *err);

/*
 * Does what tei_meta_cache_refresh does, after a notification that name has
 * changed. Also refreshes a name that is just being opened, because the open
 * may have read the old descriptor. Sets *id to -1 if the name is neither open
 * nor being opened; then nothing is fetched. Sets *id to 0 if the name has no
 * id yet or no id any longer.
 */
int tei_meta_cache_refresh_name(struct tei_meta_cache *cache, const char *name,
				uint64_t deadline_ns, int32_t *id,
				struct tei_err *err);

/*
 * Refreshes all open segments, several in parallel, each with a limit of
 * timeout_ns. Continues after errors and returns the first one. Blocks.
 */
int tei_meta_cache_sync(struct tei_meta_cache *cache, uint64_t timeout_ns,
			struct tei_err *err);

/*
 * Discards the cached descriptor of name: ids stay valid, and the next open
 * fetches it again. Returns 0 even if name is unknown, TEI_ERR_INVALID if it is
 * empty.
 */
int tei_meta_cache_forget(struct tei_meta_cache *cache, const char *name);

/*
 * Returns the data of the cache's user for an open segment, or NULL. Takes no
 * lock, so the user must prevent that detach frees the data meanwhile. The data
 * may be that of a later id with the same slot.
 */
void *tei_meta_cache_data(struct tei_meta_cache *cache, int32_t id);

/* Calls the attach function of the cache's user once more, with its argument
 * again set, if the id is open. Blocks. */
int tei_meta_cache_attach(struct tei_meta_cache *cache, int32_t id,
			  struct tei_err *err);

/* Calls detach for all segments. No call that attaches may be made
 * afterwards. NULL is ignored. */
void tei_meta_cache_detach_all(struct tei_meta_cache *cache);

/*
 * Lists up to n ids of open segments, beginning with slot *from. *from must be
 * 0 at first; each call advances it. Returns the number of ids. The listing is
 * complete when the result is less than n.
 */
size_t tei_meta_cache_ids(struct tei_meta_cache *cache, uint32_t *from,
			  int32_t *ids, size_t n);

/* Returns the number of open segments, without the own one. */
uint32_t tei_meta_cache_count(struct tei_meta_cache *cache);

#endif /* TEI_META_TEI_META_CACHE_H */
