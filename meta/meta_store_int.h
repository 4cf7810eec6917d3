/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_META_META_STORE_INT_H
#define TEI_META_META_STORE_INT_H

/* Shared by meta_store.c and the back ends. */

#include "meta/meta_int.h"
#include "meta/tei_meta_desc.h"
#include "meta/tei_meta_store.h"
#include "util/list.h"
#include "util/lock.h"

struct meta_names;

/*
 * A back end. A call may block until deadline_ns on the caller's thread, and
 * several threads may call at once. Published descriptors are also served by
 * the process's own control channel, so a back end may store only its address.
 * open, close, publish, withdraw and check may be NULL: nothing to do. watch
 * and notify_again may be NULL: changes are not notified.
 */
struct meta_store_ops {
	const char *scheme;
	bool p2p;
	int (*open)(struct tei_meta_store *store, const char *conn_string,
		    struct tei_err *err);
	void (*close)(struct tei_meta_store *store);
	/* json: desc encoded, or NULL to publish it without its buffers. told:
	 * the application sees the result, so a lost name is reported */
	int (*publish)(struct tei_meta_store *store,
		       const struct tei_meta_desc *desc, const char *json,
		       size_t len, bool told, uint64_t deadline_ns,
		       struct tei_err *err);
	/* largest text that it stores with the buffers, bytes; NULL: any */
	size_t (*inline_max)(const struct tei_meta_store *store);
	/* as tei_meta_store_owns; NULL: always */
	bool (*owns)(struct tei_meta_store *store, const char *name);
	int (*withdraw)(struct tei_meta_store *store, const char *name,
			uint64_t deadline_ns, struct tei_err *err);
	/* *json is terminated; the caller frees it with free() */
	int (*fetch)(struct tei_meta_store *store, const char *name,
		     uint64_t deadline_ns, char **json, size_t *len,
		     struct tei_err *err);
	int (*resolve)(struct tei_meta_store *store, const char *server,
		       uint64_t deadline_ns,
		       char endpoint[TEI_META_ENDPOINT_MAX],
		       struct tei_err *err);
	void (*watch)(struct tei_meta_store *store, tei_meta_changed_fn fn,
		      void *arg);
	void (*notify_again)(struct tei_meta_store *store, const char *name);
	int (*check)(struct tei_meta_store *store, uint64_t deadline_ns,
		     struct tei_err *err);
	/*
	 * Persistent segment records. read: *json is NULL if there is none;
	 * *version distinguishes states. write: json NULL removes; returns
	 * META_CONFLICT if version is not the current one. list: names without
	 * TEI_META_PERSISTENT.
	 */
	int (*persistent_read)(struct tei_meta_store *store, const char *name,
			       uint64_t deadline_ns, char **json, size_t *len,
			       int64_t *version, struct tei_err *err);
	int (*persistent_write)(struct tei_meta_store *store, const char *name,
				const char *json, size_t len, int64_t version,
				uint64_t deadline_ns, struct tei_err *err);
	int (*persistent_list)(struct tei_meta_store *store,
			       uint64_t deadline_ns, struct meta_names *names,
			       struct tei_err *err);
};

#define META_ABSENT	(-1)		/* version of a missing record */
#define META_CONFLICT	1		/* differs from all codes */

/* A growing list of names. All zero is the empty list. */
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
int meta_dir_list(struct tei_meta_store *store, uint64_t deadline_ns,
		  struct meta_names *names, struct tei_err *err);

/* Created by tei_meta_store_open, freed by tei_meta_store_close. */
struct tei_meta_store {
	/* constant after open; server: after attach */
	const struct meta_store_ops *ops;
	const struct tei_settings *settings;	/* owned by the engine */
	struct tei_meta_server *server;		/* not owned */
	struct tei_secret *secret;		/* NULL: not set */
	void *backend_state;			/* private to ops */
	/* row 2 of docs/LOCKING.md; not held during calls of a back end */
	struct tei_mutex lock;
	struct tei_list published;		/* lock: struct store_name */
};

extern const struct meta_store_ops meta_p2p_ops;
extern const struct meta_store_ops meta_zookeeper_ops;

#endif /* TEI_META_META_STORE_INT_H */
