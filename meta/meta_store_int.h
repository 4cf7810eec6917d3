/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_META_META_STORE_INT_H
#define TEI_META_META_STORE_INT_H

/* What meta_store.c and the back ends share. */

#include "meta/meta_int.h"
#include "util/list.h"
#include "util/lock.h"

struct meta_names;

/*
 * A back end. Each call may block until deadline_ns, on the caller's thread,
 * and may run on several threads at once. What is published is also served by
 * the process's own control channel, so that a back end may store the address
 * alone. NULL for open, close, publish, withdraw, check: nothing to do; for
 * watch and unread: never tells.
 */
struct meta_store_ops {
	const char *scheme;
	bool p2p;
	int (*open)(struct tei_meta_store *store, const char *conn_string,
		    struct tei_err *err);
	void (*close)(struct tei_meta_store *store);
	/* json: desc encoded, or NULL to publish it without its buffers; told:
	 * the application gets the result, also that its name was lost */
	int (*publish)(struct tei_meta_store *store,
		       const struct tei_meta_desc *desc, const char *json,
		       size_t len, bool told, uint64_t deadline_ns,
		       struct tei_err *err);
	/* longest text that it stores with the buffers, bytes; NULL: any */
	size_t (*inline_max)(const struct tei_meta_store *store);
	/* as tei_meta_store_sound; NULL: always */
	bool (*sound)(struct tei_meta_store *store, const char *name);
	int (*withdraw)(struct tei_meta_store *store, const char *name,
			uint64_t deadline_ns, struct tei_err *err);
	/* *json: terminated, freed with free() by the caller */
	int (*fetch)(struct tei_meta_store *store, const char *name,
		     uint64_t deadline_ns, char **json, size_t *len,
		     struct tei_err *err);
	int (*resolve)(struct tei_meta_store *store, const char *server,
		       uint64_t deadline_ns,
		       char endpoint[TEI_META_ENDPOINT_MAX],
		       struct tei_err *err);
	void (*watch)(struct tei_meta_store *store, tei_meta_changed_fn fn,
		      void *arg);
	void (*unread)(struct tei_meta_store *store, const char *name);
	int (*check)(struct tei_meta_store *store, uint64_t deadline_ns,
		     struct tei_err *err);
	/*
	 * Kept segments. read: *json NULL where there is none; *version tells
	 * states apart. write: json NULL removes; META_CONFLICT where version
	 * is not what is there. list: names without TEI_META_KEPT.
	 */
	int (*kept_read)(struct tei_meta_store *store, const char *name,
			 uint64_t deadline_ns, char **json, size_t *len,
			 int64_t *version, struct tei_err *err);
	int (*kept_write)(struct tei_meta_store *store, const char *name,
			  const char *json, size_t len, int64_t version,
			  uint64_t deadline_ns, struct tei_err *err);
	int (*kept_list)(struct tei_meta_store *store, uint64_t deadline_ns,
			 struct meta_names *names, struct tei_err *err);
};

#define META_ABSENT	(-1)		/* version of what is not there */
#define META_CONFLICT	1		/* no code of the others */

/* A growing list of names. Zero at first. */
struct meta_names {
	char **name;
	size_t count, room;
};

/* False without memory. */
bool meta_names_add(struct meta_names *names, const char *name);
void meta_names_free(struct meta_names *names);

/* Kept segments of P2PHANDSHAKE: files of a folder. */
int meta_dir_read(struct tei_meta_store *store, const char *name,
		  uint64_t deadline_ns, char **json, size_t *len,
		  int64_t *version, struct tei_err *err);
int meta_dir_write(struct tei_meta_store *store, const char *name,
		   const char *json, size_t len, int64_t version,
		   uint64_t deadline_ns, struct tei_err *err);
int meta_dir_list(struct tei_meta_store *store, uint64_t deadline_ns,
		  struct meta_names *names, struct tei_err *err);

/* Made by tei_meta_store_open, freed by tei_meta_store_close. */
struct tei_meta_store {
	/* fixed after open, server after attach */
	const struct meta_store_ops *ops;
	const struct tei_settings *settings;	/* the engine's */
	struct tei_meta_server *server;		/* not ours */
	struct tei_secret *secret;		/* NULL: none is set */
	void *back_end;				/* ops' own */
	/* row 2 of docs/LOCKING.md; never held over a back end's call */
	struct tei_mutex lock;
	struct tei_list published;		/* lock: struct store_name */
};

extern const struct meta_store_ops meta_p2p_ops;
extern const struct meta_store_ops meta_zookeeper_ops;

#endif /* TEI_META_META_STORE_INT_H */
