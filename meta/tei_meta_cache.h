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
 * The cache maps names of segments to ids. Id 0 is the segment of this process.
 * All other ids are positive. The id of a name does not change while the name
 * is open, and becomes stale with the last close. An id consists of the index
 * of a slot and a generation. A freed slot is used again only after many other
 * slots, so that a stale id is recognized for a long time.
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
 * segment. The cache holds no lock while it calls them. They may call functions
 * of the cache, except those that call attach for the same segment.
 */
struct tei_meta_cache_ops {
	/*
	 * Brings *data up to date with the descriptor of a segment; *data is
	 * NULL at first. Every function of the cache that opens the segment or
	 * fetches its descriptor calls attach. For one segment, one thread at a
	 * time calls it. "again" is true if tei_meta_cache_attach has made the
	 * call; then the descriptor may be the one of the previous call. If
	 * attach returns an error, the function of the cache returns that
	 * error; *data may have changed nevertheless. May block.
	 */
	int (*attach)(void *arg, int32_t id, struct tei_meta_desc *desc,
		      bool again, void **data, struct tei_err *err);
	/* Frees the data. When detach is called, tei_meta_cache_data does not
	 * return the data any longer. */
	void (*detach)(void *arg, void *data);
};

/* Creates a cache for at most max_open open segments; 0 stands for
 * TEI_META_SLOTS. The store must outlive the cache. ops may be NULL. */
int tei_meta_cache_create(struct tei_meta_store *store, uint32_t max_open,
			  const struct tei_meta_cache_ops *ops, void *arg,
			  struct tei_meta_cache **out, struct tei_err *err);

/* Frees the cache. No other call may be running. NULL is ignored. */
void tei_meta_cache_destroy(struct tei_meta_cache *cache);

/* Sets the descriptor of this process's segment, whose id is 0. Takes a
 * reference. */
void tei_meta_cache_set_local(struct tei_meta_cache *cache,
			      struct tei_meta_desc *desc);

/*
 * Opens the segment "name", sets *id to its id and adds a reference to the id.
 * A leading slash is ignored. Fetches the descriptor if it is not cached, or if
 * "fresh" is true. Only one fetch per name runs at a time; other calls wait for
 * its result. If name is the segment of this process or an address of this
 * process, *id becomes 0. Returns TEI_ERR_INVALID for an empty name,
 * TEI_ERR_TOO_MANY if max_open segments are open, or a code of
 * tei_meta_store_fetch. Blocks.
 */
int tei_meta_cache_open(struct tei_meta_cache *cache, const char *name,
			bool fresh, uint64_t deadline_ns, int32_t *id,
			struct tei_err *err);

/*
 * Does what tei_meta_cache_open does, but with the descriptor desc of the
 * caller instead of a fetched one. If the cached descriptor is of the same
 * process and newer, it stays. If the cached descriptor is of another process,
 * desc replaces it if "replace" is true or desc has the higher serial;
 * otherwise the function returns TEI_ERR_CONTEXT. Also returns TEI_ERR_CONTEXT
 * if desc has the name of this process's segment and another incarnation. desc
 * must be frozen; the cache takes a reference. Blocks only in attach.
 */
int tei_meta_cache_put(struct tei_meta_cache *cache,
		       struct tei_meta_desc *desc, bool replace, int32_t *id,
		       struct tei_err *err);

/*
 * Drops one reference to the id. Sets *last, unless last is NULL, to true if
 * the id is now stale. Id 0 is accepted and never becomes stale. Returns
 * TEI_ERR_INVALID for a stale or unknown id.
 */
int tei_meta_cache_close(struct tei_meta_cache *cache, int32_t id, bool *last);

/*
 * Returns the descriptor with a reference for the caller. Returns NULL, without
 * a log line, if the id is stale or unknown. Holds a lock briefly, never
 * blocks.
 */
struct tei_meta_desc *tei_meta_cache_get(struct tei_meta_cache *cache,
					 int32_t id);

/* Returns true if name is open or being opened. Never blocks. */
bool tei_meta_cache_uses(struct tei_meta_cache *cache, const char *name);

/* Returns the id of name without taking a reference, or -1 if name is not
 * open. */
int32_t tei_meta_cache_lookup(struct tei_meta_cache *cache, const char *name);

/*
 * Fetches the descriptor of an open segment again. Sets *changed, unless
 * changed is NULL, to true if the new descriptor differs from the old one.
 * Blocks.
 */
int tei_meta_cache_refresh(struct tei_meta_cache *cache, int32_t id,
			   uint64_t deadline_ns, bool *changed,
			   struct tei_err *err);

/*
 * Does what tei_meta_cache_refresh does, after a notification that name has
 * changed. Also refreshes a name that is just being opened, because the open
 * may have read the old descriptor. If the name is neither open nor being
 * opened, fetches nothing and sets *id to -1. If the name has no id, because an
 * open has not ended yet or the last close was just made, sets *id to 0.
 */
int tei_meta_cache_refresh_name(struct tei_meta_cache *cache, const char *name,
				uint64_t deadline_ns, int32_t *id,
				struct tei_err *err);

/*
 * Refreshes all open segments, several in parallel. Each refresh has a time
 * limit of timeout_ns. Continues after an error, and returns the code of the
 * first one. Blocks.
 */
int tei_meta_cache_sync(struct tei_meta_cache *cache, uint64_t timeout_ns,
			struct tei_err *err);

/*
 * Makes the next open of name fetch the descriptor again. The id of name stays
 * valid. Returns TEI_ERR_INVALID if name is empty, otherwise 0, also for a name
 * that is not cached.
 */
int tei_meta_cache_forget(struct tei_meta_cache *cache, const char *name);

/*
 * Returns the data that the user of the cache has for an open segment, or NULL
 * if there is none. Takes no lock, so the user must make sure that detach does
 * not free the data during the call. If id is stale, the result may be the data
 * of a newer id with the same slot.
 */
void *tei_meta_cache_data(struct tei_meta_cache *cache, int32_t id);

/* Calls attach with "again" set to true if the id is open. Blocks. */
int tei_meta_cache_attach(struct tei_meta_cache *cache, int32_t id,
			  struct tei_err *err);

/* Calls detach for all segments. Afterwards, no function that calls attach may
 * be called. If cache is NULL, does nothing. */
void tei_meta_cache_detach_all(struct tei_meta_cache *cache);

/*
 * Writes the ids of up to n open segments to ids and returns their number. The
 * caller sets *from to 0 before the first call; each call advances *from to the
 * slot at which the next call continues. There are no further ids if the result
 * is less than n.
 */
size_t tei_meta_cache_ids(struct tei_meta_cache *cache, uint32_t *from,
			  int32_t *ids, size_t n);

/* Returns the number of open segments. The segment of this process is not
 * counted. */
uint32_t tei_meta_cache_count(struct tei_meta_cache *cache);

#endif /* TEI_META_TEI_META_CACHE_H */
