/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_META_META_STORE_INT_H
#define TEI_META_META_STORE_INT_H

/* Declarations that meta_store.c and the back ends share. */

#include "meta/meta_int.h"
#include "meta/tei_meta_desc.h"
#include "meta/tei_meta_store.h"
#include "util/list.h"
#include "util/lock.h"

struct meta_names;

/*
 * The functions of a back end. A call may block until deadline_ns on the
 * caller's thread, and several threads may call at once. Published descriptors
 * are also served by the process's own control channel, so a back end may store
 * only the address of that channel. open, close and check may be NULL, which
 * means that nothing needs to be done. publish and withdraw may be NULL without
 * TEI_META_KEEPS, watch and notify_again without TEI_META_REPORTS.
 */
struct meta_store_ops {
	const char *scheme;
	uint32_t caps; /* bits TEI_META_ADDRESSES, … */
	int (*open)(struct tei_meta_store *store, const char *conn_string,
		    struct tei_err *err);
	void (*close)(struct tei_meta_store *store);
	/*
	 * Publishes a descriptor. json is the text of desc, or NULL: then desc
	 * is published without its buffers. report_loss is true if the
	 * application gets the result of this call, so that the loss of a name
	 * can be reported.
	 */
	int (*publish)(struct tei_meta_store *store,
		       const struct tei_meta_desc *desc, const char *json,
		       size_t len, bool report_loss, uint64_t deadline_ns,
		       struct tei_err *err);
	/* Returns the length of the longest text with buffers that the back end
	 * stores, bytes. If this member is NULL, the length is not limited. */
	size_t (*inline_max)(const struct tei_meta_store *store);
	/* Does what tei_meta_store_owns does. If this member is NULL, the
	 * process always owns its names. */
	bool (*owns)(struct tei_meta_store *store, const char *name);
	int (*withdraw)(struct tei_meta_store *store, const char *name,
			uint64_t deadline_ns, struct tei_err *err);
	/* Reads a descriptor. *json is terminated; the caller frees it with
	 * free(). */
	int (*fetch)(struct tei_meta_store *store, const char *name,
		     uint64_t deadline_ns, char **json, size_t *len,
		     struct tei_err *err);
	int (*resolve)(struct tei_meta_store *store, const char *server,
		       uint64_t deadline_ns,
		       char endpoint[TEI_META_ENDPOINT_MAX],
		       struct tei_err *err);
	/* Does what tei_meta_store_watch does. A back end that reads only the
	 * segments whose change the server has reported may ignore wanted. */
	void (*watch)(struct tei_meta_store *store, tei_meta_changed_fn fn,
		      tei_meta_wanted_fn wanted, void *arg);
	void (*notify_again)(struct tei_meta_store *store, const char *name);
	int (*check)(struct tei_meta_store *store, uint64_t deadline_ns,
		     struct tei_err *err);
	/*
	 * Functions for persistent segment records. persistent_read sets *json
	 * to NULL if there is no record, and sets *version to the version of
	 * the record. persistent_write removes the record if json is NULL. It
	 * returns META_CONFLICT if the record does not have that version.
	 */
	int (*persistent_read)(struct tei_meta_store *store, const char *name,
			       uint64_t deadline_ns, char **json, size_t *len,
			       int64_t *version, struct tei_err *err);
	int (*persistent_write)(struct tei_meta_store *store, const char *name,
				const char *json, size_t len, int64_t version,
				uint64_t deadline_ns, struct tei_err *err);
	/* Lists a folder, TEI_META_PERSISTENT or TEI_META_PROCESSES. Adds the
	 * names of its segments, without the folder, to names. */
	int (*list)(struct tei_meta_store *store, const char *folder,
		    uint64_t deadline_ns, struct meta_names *names,
		    struct tei_err *err);
};

/* version of a record that does not exist */
#define META_ABSENT (-1)
/* Result of a write: the version is not the expected one. The value differs
 * from all codes. */
#define META_CONFLICT 1

/* A growing list of names. A struct of zeros is an empty list. */
struct meta_names {
	char **name;
	size_t count, room;
};

/* Adds a copy of name. Returns false if memory is short. */
bool meta_names_add(struct meta_names *names, const char *name);
void meta_names_free(struct meta_names *names);

/* Persistent segment records of P2PHANDSHAKE: files in a folder. */
int meta_dir_read(struct tei_meta_store *store, const char *name,
		  uint64_t deadline_ns, char **json, size_t *len,
		  int64_t *version, struct tei_err *err);
int meta_dir_write(struct tei_meta_store *store, const char *name,
		   const char *json, size_t len, int64_t version,
		   uint64_t deadline_ns, struct tei_err *err);
int meta_dir_list(struct tei_meta_store *store, const char *folder,
		  uint64_t deadline_ns, struct meta_names *names,
		  struct tei_err *err);

/* Created by tei_meta_store_open, freed by tei_meta_store_close. */
struct tei_meta_store {
	/* the following members do not change after open; server does not
	 * change after attach */
	const struct meta_store_ops *ops;
	const struct tei_settings *settings;	/* owned by the engine */
	struct tei_meta_server *server;		/* belongs to the caller */
	struct tei_secret *secret;		/* shared secret, or NULL if
						 * none is set */
	void *backend_state;			/* used by the back end only */
	/* row 2 of docs/LOCKING.md; not held during calls of a back end */
	struct tei_mutex lock;
	struct tei_list published; /* list of struct store_name;
				    * guarded by lock */
};

extern const struct meta_store_ops meta_etcd_ops;
extern const struct meta_store_ops meta_http_ops;
extern const struct meta_store_ops meta_p2p_ops;
extern const struct meta_store_ops meta_redis_ops;
extern const struct meta_store_ops meta_zookeeper_ops;

#endif /* TEI_META_META_STORE_INT_H */
