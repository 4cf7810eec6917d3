/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_META_TEI_META_STORE_H
#define TEI_META_TEI_META_STORE_H

/*
 * Metadata stores, and the persistent segment records in them. The rules of
 * tei_meta.h apply.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "meta/tei_meta.h"

/*
 * Called when the store learns that name's descriptor has changed or
 * disappeared, on the store's thread with no lock held. Must not block or call
 * the store. tries is the number of earlier notifications of this change, after
 * which the descriptor could not be read. Only stores with TEI_META_REPORTS
 * call this function.
 */
typedef void (*tei_meta_changed_fn)(void *arg, const char *name,
				    uint32_t tries);

/*
 * Returns true if this process uses the segment, or is opening it. The store
 * stops following segments that are not used. Called like
 * tei_meta_changed_fn.
 */
typedef bool (*tei_meta_wanted_fn)(void *arg, const char *name);

/*
 * Opens the back end that conn_string names; settings must outlive the store.
 * Reads the shared secret from the file in settings; returns TEI_ERR_INVALID if
 * that file is unsuitable. "P2PHANDSHAKE" is case-sensitive; schemes
 * ("zookeeper://") are not. A text without a scheme is a list of etcd hosts.
 * Returns TEI_ERR_INVALID for an empty text, TEI_ERR_NOT_IMPLEMENTED for a
 * known back end that is not built in and TEI_ERR_METADATA for an unknown
 * scheme; the error texts list the built-in ones.
 */
int tei_meta_store_open(const char *conn_string,
			const struct tei_settings *settings,
			struct tei_meta_store **out, struct tei_err *err);

/*
 * Withdraws everything that the store published and frees it. Must be the last
 * call. NULL is ignored.
 */
void tei_meta_store_close(struct tei_meta_store *store);

/*
 * Returns the shared secret of the settings, for this process's server, or
 * NULL.
 */
const struct tei_secret *
tei_meta_store_secret(const struct tei_meta_store *store);

/* Properties of a store. */
#define TEI_META_ADDRESSES 1u	/* the name of a segment is the address of its
				 * process's control channel */
/* the store keeps the descriptors that processes publish */
#define TEI_META_KEEPS 2u
/*
 * the store reports changes of descriptors that were read
 * (tei_meta_store_watch)
 */
#define TEI_META_REPORTS 4u

/* Returns the properties of the store, as a set of the bits above. They do not
 * change. */
uint32_t tei_meta_store_caps(const struct tei_meta_store *store);

/* Returns the scheme: "P2PHANDSHAKE", "zookeeper", …. The text is static. */
const char *tei_meta_store_scheme(const struct tei_meta_store *store);

/*
 * Sets the server that serves descriptors of this process; the store publishes
 * its address. Must be called once, before the first publish. The server must
 * outlive the store.
 */
void tei_meta_store_attach(struct tei_meta_store *store,
			   struct tei_meta_server *server);

/*
 * Starts the server of this process at the address and port that the settings,
 * server_name and the kind of store demand, and attaches it. The caller stops
 * *server after it has closed the store. Sets *fixed to true if the server must
 * not move to another address, because the user has given the address or
 * because the address is the segment's name. Returns the codes of
 * tei_meta_local_host and tei_meta_server_start. Blocks in the resolver.
 */
int tei_meta_store_serve(struct tei_meta_store *store, const char *server_name,
			 uint64_t incarnation, struct tei_meta_server **server,
			 bool *fixed, struct tei_err *err);

/*
 * Returns the name of this process's segment: server_name, or the address of
 * the attached server if the store has TEI_META_ADDRESSES.
 */
const char *tei_meta_store_own_name(const struct tei_meta_store *store,
				    const char *server_name);

/*
 * Publishes desc, which is frozen, under its name and replaces what this store
 * published there. Blocks; with P2PHANDSHAKE it only replaces the server's
 * text. If the name was lost to another process, the next call fails, and the
 * call after that registers the name again.
 */
int tei_meta_store_publish(struct tei_meta_store *store,
			   struct tei_meta_desc *desc, uint64_t deadline_ns,
			   struct tei_err *err);
/*
 * Does what tei_meta_store_publish does, for callers whose result the
 * application does not get: a lost name stays lost, and its loss is not
 * reported.
 */
int tei_meta_store_update(struct tei_meta_store *store,
			  struct tei_meta_desc *desc, uint64_t deadline_ns,
			  struct tei_err *err);

/* Flags of tei_meta_store_bring. */
/* The result is returned to the application, so a lost name is reported. */
#define TEI_META_REPORT_LOSS 1u
/* publish a head, which refers to the control channel for the buffers */
#define TEI_META_HEAD 2u

/*
 * Does what tei_meta_store_publish or tei_meta_store_update does, for a process
 * whose control channel already serves the descriptor (tei_meta_server_source).
 * Sets *listed to true if the store itself now lists the buffers, and to false
 * if it refers to the control channel for them. After an error the contents of
 * the store are unknown.
 */
int tei_meta_store_bring(struct tei_meta_store *store,
			 struct tei_meta_desc *desc, uint32_t flags,
			 uint64_t deadline_ns, bool *listed,
			 struct tei_err *err);

/*
 * Returns true if the store is connected and this process still owns name. Does
 * not query the store and never blocks.
 */
bool tei_meta_store_owns(struct tei_meta_store *store, const char *name);

int tei_meta_store_withdraw(struct tei_meta_store *store, const char *name,
			    uint64_t deadline_ns, struct tei_err *err);

/*
 * Reads name's descriptor from the store. The caller owns one reference.
 * Blocks.
 */
int tei_meta_store_fetch(struct tei_meta_store *store, const char *name,
			 uint64_t deadline_ns, struct tei_meta_desc **out,
			 struct tei_err *err);

/*
 * Reads name's descriptor as terminated JSON text, which the caller frees with
 * free(): also that of a Mooncake process, and without a check of its fields.
 * name may begin with TEI_META_PROCESSES. Returns TEI_ERR_JSON if the text is
 * not JSON. Blocks.
 */
int tei_meta_store_text(struct tei_meta_store *store, const char *name,
			uint64_t deadline_ns, char **json, size_t *len,
			struct tei_err *err);

/*
 * Finds the control channel of a server: rpc_meta/<server>; with P2PHANDSHAKE,
 * the name itself. Blocks.
 */
int tei_meta_store_resolve(struct tei_meta_store *store, const char *server,
			   uint64_t deadline_ns,
			   char endpoint[TEI_META_ENDPOINT_MAX],
			   struct tei_err *err);

/*
 * Checks that the process that published name answers on its control channel.
 * Returns TEI_ERR_REJECTED if another process answers there, or a code of
 * tei_meta_store_fetch, tei_meta_store_resolve or tei_meta_ping. Blocks.
 */
int tei_meta_store_probe(struct tei_meta_store *store, const char *name,
			 uint64_t deadline_ns, struct tei_err *err);

/*
 * Returns true if the control channel of the process with that name refuses
 * connections. Blocks, for about a second at most.
 */
bool tei_meta_store_refused(struct tei_meta_store *store, const char *name);

/*
 * Checks that the store's content can be read and trusted: with credentials, no
 * other user may change it. Blocks.
 */
int tei_meta_store_check(struct tei_meta_store *store, uint64_t deadline_ns,
			 struct tei_err *err);

/*
 * Sets the callback for changes; a store has only one. Must be called before
 * the first fetch. fn NULL removes the callback. If wanted is NULL, the store
 * follows all segments that were fetched.
 */
void tei_meta_store_watch(struct tei_meta_store *store, tei_meta_changed_fn fn,
			  tei_meta_wanted_fn wanted, void *arg);
/*
 * Reports that a notified change could not be read. The store notifies the
 * change again after a while, or as soon as a lost connection is restored. If
 * the segment no longer exists, the store notifies when it exists again. Any
 * thread may call this function. It does not block.
 */
void tei_meta_store_notify_again(struct tei_meta_store *store,
				 const char *name);

/* --- persistent segment records ------------------------------------------ */

/*
 * Descriptors that belong to no process and stay until they are removed: those
 * of file segments, whose names start with "nvmeof/" and contain no other
 * slash. ZooKeeper stores them as persistent nodes, P2PHANDSHAKE as files in
 * the folder MOONRAIL_SEGMENT_DIR; without that folder, calls return
 * TEI_ERR_UNSUPPORTED.
 */
#define TEI_META_PERSISTENT "nvmeof/"

/* Returns true if name is the name of a persistent segment record. */
bool tei_meta_persistent_name(const char *name);

/*
 * Creates the new descriptor *next from the current one, which is NULL if there
 * is no record. The store then owns *next. If *next is NULL, the record is
 * removed. A return value other than 0 cancels the change. May be called
 * several times if others change the same record.
 */
typedef int (*tei_meta_change_fn)(void *arg, const struct tei_meta_desc *now,
				  struct tei_meta_desc **next,
				  struct tei_err *err);

/*
 * Changes a persistent segment record atomically: the descriptor that fn saw is
 * the one that is replaced. Returns fn's code, TEI_ERR_INVALID for another kind
 * of name, TEI_ERR_TOO_MANY for a descriptor of more than
 * TEI_META_PERSISTENT_MAX bytes, or a code of the store's other calls. Blocks.
 */
#define TEI_META_PERSISTENT_MAX (900u << 10) /* bytes of JSON */
int tei_meta_store_change(struct tei_meta_store *store, const char *name,
			  tei_meta_change_fn fn, void *arg,
			  uint64_t deadline_ns, struct tei_err *err);

/*
 * Removes a persistent segment record, even if this version of the library
 * cannot read its content. Sets *found to true if the record existed. Returns
 * the codes of tei_meta_store_change. Blocks.
 */
int tei_meta_store_remove(struct tei_meta_store *store, const char *name,
			  uint64_t deadline_ns, bool *found,
			  struct tei_err *err);

/* The folder in the store for the segments of processes. Processes that use
 * Mooncake publish their segments there too. */
#define TEI_META_PROCESSES "ram/"

/*
 * Lists all segments of a folder, TEI_META_PERSISTENT or TEI_META_PROCESSES:
 * sorted names that begin with the folder. The caller frees *names and each
 * name with free(); *names is NULL if there are none. Returns
 * TEI_ERR_UNSUPPORTED if the store cannot list the folder. Blocks.
 */
int tei_meta_store_list(struct tei_meta_store *store, const char *folder,
			uint64_t deadline_ns, char ***names, size_t *count,
			struct tei_err *err);

#endif /* TEI_META_TEI_META_STORE_H */
