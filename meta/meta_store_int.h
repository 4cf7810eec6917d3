/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_META_META_STORE_INT_H
#define TEI_META_META_STORE_INT_H

/* What meta_store.c and the back ends share. */

#include "meta/meta_int.h"
#include "util/list.h"
#include "util/lock.h"

/*
 * A back end. Each call may block until deadline_ns, on the caller's thread,
 * and may run on several threads at once. What is published is also served by
 * the process's own control channel, so that a back end may store the address
 * alone. NULL for open, close, publish, withdraw: nothing to do; for watch:
 * never tells.
 */
struct meta_store_ops {
	const char *scheme;
	bool p2p;
	int (*open)(struct tei_meta_store *store, const char *conn_string,
		    struct tei_err *err);
	void (*close)(struct tei_meta_store *store);
	/* json: desc encoded */
	int (*publish)(struct tei_meta_store *store,
		       const struct tei_meta_desc *desc, const char *json,
		       size_t len, uint64_t deadline_ns, struct tei_err *err);
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
};

/* Made by tei_meta_store_open, freed by tei_meta_store_close. */
struct tei_meta_store {
	/* fixed after open, server after attach */
	const struct meta_store_ops *ops;
	const struct tei_settings *settings;	/* the engine's */
	struct tei_meta_server *server;		/* not ours */
	struct tei_secret *secret;		/* NULL: none is set */
	void *back_end;				/* ops' own */
	/* order 2 of util/lock.h; never held over a back end's call */
	struct tei_mutex lock;
	struct tei_list published;		/* lock: struct store_name */
};

extern const struct meta_store_ops meta_p2p_ops;
extern const struct meta_store_ops meta_zookeeper_ops;

#endif /* TEI_META_META_STORE_INT_H */
