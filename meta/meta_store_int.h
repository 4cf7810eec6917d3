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
 * caller's thread, and several threads may call at once. The process's own
 * control channel also serves its descriptors, so a back end may store only the
 * address of that channel. open, close and check may be NULL, which means that
 * nothing needs to be done. publish and withdraw may be NULL if the back end
 * lacks TEI_META_KEEPS, watch and notify_again if it lacks TEI_META_REPORTS.
 */
struct meta_store_ops {
	const char *scheme;
	uint32_t caps; /* properties, as bits TEI_META_ADDRESSES, … */
	bool unbound;  /* true if the processes use no sockets, so that their
			* servers are not bound to an address */
	int (*open)(struct tei_meta_store *store, const char *conn_string,
		    struct tei_err *err);
	void (*close)(struct tei_meta_store *store);
	/*
	 * Publishes desc. json is its JSON text; if json is NULL, the back end
	 * publishes a descriptor head. "report_loss" is true if the application
	 * gets the result of this call, so that the call may report that the
	 * name was lost to another process.
	 */
	int (*publish)(struct tei_meta_store *store,
		       const struct tei_meta_desc *desc, const char *json,
		       size_t len, bool report_loss, uint64_t deadline_ns,
		       struct tei_err *err);
	/*
	 * Returns the length of the longest descriptor that the back end stores
	 * as a whole, bytes. If this member is NULL, the length is not limited.
	 */
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
	/* Does what tei_meta_store_watch does. A back end that reads only
	 * segments whose change the server has reported may ignore "wanted". */
	void (*watch)(struct tei_meta_store *store, tei_meta_changed_fn fn,
		      tei_meta_wanted_fn wanted, void *arg);
	void (*notify_again)(struct tei_meta_store *store, const char *name);
	int (*check)(struct tei_meta_store *store, uint64_t deadline_ns,
		     struct tei_err *err);
	/*
	 * Functions for persistent segment records. persistent_read sets
	 * *version to the version of the record; if there is no record, it sets
	 * *json to NULL and *version to META_ABSENT. persistent_write replaces
	 * the record, or removes it if json is NULL. If the present version of
	 * the record is not "version", persistent_write returns META_CONFLICT.
	 */
	int (*persistent_read)(struct tei_meta_store *store, const char *name,
			       uint64_t deadline_ns, char **json, size_t *len,
			       int64_t *version, struct tei_err *err);
	int (*persistent_write)(struct tei_meta_store *store, const char *name,
				const char *json, size_t len, int64_t version,
				uint64_t deadline_ns, struct tei_err *err);
	/*
	 * Adds to names the names of all segments in folder, which is
	 * TEI_META_PERSISTENT or TEI_META_PROCESSES. The added names do not
	 * contain the folder.
	 */
	int (*list)(struct tei_meta_store *store, const char *folder,
		    uint64_t deadline_ns, struct meta_names *names,
		    struct tei_err *err);
};

/* version of a record that does not exist */
#define META_ABSENT (-1)
/* Result of a write if the version of the record is not the expected one. The
 * value differs from all codes of enum tei_code. */
#define META_CONFLICT 1

/* A growing list of names. A struct of zeros is an empty list. */
struct meta_names {
	char **name;
	size_t count, room;
};

/* Adds a copy of name to the list. Returns false if memory is short. */
bool meta_names_add(struct meta_names *names, const char *name);
void meta_names_free(struct meta_names *names);

/* The functions of P2PHANDSHAKE for persistent segment records, which are files
 * in a folder. */
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
	/* the following members do not change after tei_meta_store_open; server
	 * does not change after tei_meta_store_attach */
	const struct meta_store_ops *ops;
	const struct tei_settings *settings;	/* settings of the process,
						 * which belong to the caller of
						 * tei_meta_store_open */
	/* server of this process, or NULL before tei_meta_store_attach; belongs
	 * to the caller */
	struct tei_meta_server *server;
	struct tei_secret *secret;		/* shared secret, or NULL if
						 * none is set */
	void *backend_state;			/* state of the back end, which
						 * nothing else uses */
	/* row 2 of docs/LOCKING.md; not held during calls of a back end */
	struct tei_mutex lock;
	struct tei_list published; /* names that this process has published:
				    * list of struct store_name; guarded by
				    * lock */
};

extern const struct meta_store_ops meta_etcd_ops;
extern const struct meta_store_ops meta_http_ops;
/* This back end is linked into simulators only. In the library the symbol is
 * undefined, so its address is NULL. */
extern const struct meta_store_ops meta_inside_ops __attribute__((weak));
extern const struct meta_store_ops meta_p2p_ops;
extern const struct meta_store_ops meta_redis_ops;
extern const struct meta_store_ops meta_zookeeper_ops;

#endif /* TEI_META_META_STORE_INT_H */
