/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_TOOLS_TE_META_TABLE_H
#define TEI_TOOLS_TE_META_TABLE_H

/*
 * The keys and values of te_meta serve. They are stored in memory only. Each
 * change of a key gives the key a new version, which is higher than all earlier
 * versions, even those of an earlier server process. All functions are called
 * by one thread.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/list.h"

struct table;
struct table_lease;

#define TABLE_LEASE_MAX 64   /* longest name of a lease, bytes */
/* Special values of table_change.expected, which otherwise is the version that
 * the key must have. */
#define TABLE_ANY	(-2) /* the key may have any version or be absent */
#define TABLE_ABSENT	(-1) /* the key must not exist */

/* A key. Other files only read the members. After a key was removed, its entry
 * remains for a while, with text NULL. */
struct table_key {
	struct tei_list bucket;
	struct tei_list order;	   /* entry of the list of all keys, ordered by
				    * version */
	struct tei_list group;	   /* entry of the list of the lease's keys, or
				    * of the list of removed keys */
	struct table_lease *lease; /* lease to which the key belongs, or NULL */
	int64_t version;
	char *text; /* value of the key, not terminated by a zero byte */
	size_t len;
	char key[];
};

/* One change of a commit. */
struct table_change {
	const char *key;
	int64_t expected; /* TABLE_ANY, TABLE_ABSENT, or the version that the
			   * key must have */
	enum table_what { TABLE_CHECK, TABLE_PUT, TABLE_REMOVE } what;
	char *text;	  /* value of a PUT, allocated. A successful commit
			   * takes the text over and sets this member to
			   * NULL. */
	size_t len;
	bool leased;
	int64_t version; /* written by table_commit: version of the key after
			  * TABLE_PUT */
	/* used only by te_meta_table.c */
	struct table_key *at;
	bool created; /* true if the entry `at` was created for this commit */
};

enum table_result {
	TABLE_DONE,
	TABLE_CONFLICT, /* a key does not have the expected version */
	TABLE_FULL,	/* the table would exceed max_keys or memory */
};

/* Creates an empty table. memory: limit for the size of all keys and values,
 * bytes. Returns NULL if memory is short. */
struct table *table_new(uint64_t max_keys, uint64_t memory);
void table_free(struct table *t);

/* Returns the entry of an existing key, or NULL if the key does not exist. */
const struct table_key *table_get(const struct table *t, const char *key);

/*
 * Makes all changes or none of them. The commit creates or renews the lease;
 * the keys of a lease disappear ttl_ns after its last renewal. A change whose
 * member "leased" is true assigns its key to the lease. If there is no such
 * change, lease may be NULL. A PUT without "leased" removes its key from the
 * lease that the key belongs to.
 */
enum table_result table_commit(struct table *t, struct table_change *changes,
			       size_t count, const char *lease,
			       uint64_t ttl_ns);

/* Renews a lease. Returns false if no such lease exists. */
bool table_renew(struct table *t, const char *lease, uint64_t ttl_ns);
/* Removes the keys of leases that have expired. */
void table_expire(struct table *t);
/* Extends all leases by ns nanoseconds, for which this process was
 * suspended. */
void table_extend(struct table *t, uint64_t ns);

/* Returns the version of the last change. */
int64_t table_version(const struct table *t);
/* Returns true if the removals after the version "since" may not all be known
 * any longer, or if that version is higher than the version of the last
 * change. */
bool table_forgot(const struct table *t, int64_t since);
/*
 * table_first returns the first key whose version is higher than since.
 * table_next returns the key that follows a key in the order of versions. Both
 * include removed keys, and return NULL if there is no such key.
 */
const struct table_key *table_first(const struct table *t, int64_t since);
const struct table_key *table_next(const struct table *t,
				   const struct table_key *key);
/* Returns the memory that all keys and values occupy, bytes. */
uint64_t table_bytes(const struct table *t);

#endif /* TEI_TOOLS_TE_META_TABLE_H */
