/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_TOOLS_TE_META_TABLE_H
#define TEI_TOOLS_TE_META_TABLE_H

/*
 * The keys and values of te_meta serve. They are in memory only. Each change of
 * a key gives the key a new version, which is higher than all earlier versions,
 * even those of an earlier server process. All functions are called by one
 * thread.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/list.h"

struct table;
struct table_lease;

#define TABLE_LEASE_MAX 64   /* length of the name of a lease */
/* Values of the parameter expected, besides the version that a key must have. */
#define TABLE_ANY	(-2) /* the key may have any version or be absent */
#define TABLE_ABSENT	(-1) /* the key must not exist */

/*
 * A key. The members are public only for reading. After the key was removed, a
 * record of the removal remains for a while; its member text is NULL.
 */
struct table_key {
	struct tei_list bucket;
	struct tei_list order;	   /* in the list of all keys, ordered by
				    * version */
	struct tei_list group;	   /* in the list of the lease's keys, or of the
				    * removed keys */
	struct table_lease *lease; /* NULL if the key has no lease */
	int64_t version;
	char *text; /* value of the key, not terminated by a zero byte */
	size_t len;
	char key[];
};

/* One change of a commit. */
struct table_change {
	const char *key;
	int64_t expected; /* TABLE_ANY, TABLE_ABSENT or a version */
	enum table_what { TABLE_CHECK, TABLE_PUT, TABLE_REMOVE } what;
	char *text;	  /* value of a PUT, allocated. A successful commit
			   * takes the text over and sets this member to
			   * NULL. */
	size_t len;
	bool leased;
	int64_t version; /* set by table_commit: version of the key after a
			  * PUT */
	/* private: */
	struct table_key *at;
	bool created; /* the key `at` was created for this commit */
};

enum table_result {
	TABLE_DONE,
	TABLE_CONFLICT, /* a version is not the expected one */
	TABLE_FULL,	/* max_keys or memory is exceeded */
};

/* Creates an empty table. memory is the limit of the bytes of all keys and
 * values. Returns NULL if memory is short. */
struct table *table_new(uint64_t max_keys, uint64_t memory);
void table_free(struct table *t);

/* Returns an existing key, or NULL. */
const struct table_key *table_get(const struct table *t, const char *key);

/*
 * Makes all changes or none of them. The commit creates or renews the lease;
 * the keys of a lease disappear ttl_ns after its last renewal. A change with
 * the member leased set assigns its key to the lease; lease may be NULL if no
 * change has it set. Any other PUT removes its key from the key's lease.
 */
enum table_result table_commit(struct table *t, struct table_change *changes,
			       size_t count, const char *lease,
			       uint64_t ttl_ns);

/* Renews a lease. Returns false if no key belongs to it. */
bool table_renew(struct table *t, const char *lease, uint64_t ttl_ns);
/* Removes the keys of leases that have expired. */
void table_expire(struct table *t);
/* Extends all leases by ns nanoseconds, the time for which this process did not
 * run. */
void table_extend(struct table *t, uint64_t ns);

/* Returns the version of the last change. */
int64_t table_version(const struct table *t);
/* Returns true if removals after that version may have been forgotten, or if
 * that version is higher than that of the last change. */
bool table_forgot(const struct table *t, int64_t since);
/*
 * table_first returns the first key whose version is higher than since.
 * table_next returns the key that follows a key in the order of versions. Both
 * include removed keys, and return NULL if there is no such key.
 */
const struct table_key *table_first(const struct table *t, int64_t since);
const struct table_key *table_next(const struct table *t,
				   const struct table_key *key);
/* Returns the bytes that the keys and values occupy. */
uint64_t table_bytes(const struct table *t);

#endif /* TEI_TOOLS_TE_META_TABLE_H */
