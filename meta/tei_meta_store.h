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
 * Notifies the user of the store that the descriptor of name has changed or
 * disappeared. A thread of the store calls the function without a lock. The
 * function must not block or call the store. "tries" is the number of earlier
 * notifications of the same change after which the descriptor could not be
 * read. Only stores with TEI_META_REPORTS call this function.
 */
typedef void (*tei_meta_changed_fn)(void *arg, const char *name,
				    uint32_t tries);

/*
 * Returns true if this process uses the segment, or is opening it. The store no
 * longer reports changes of a segment that is not used. The rules of
 * tei_meta_changed_fn apply.
 */
typedef bool (*tei_meta_wanted_fn)(void *arg, const char *name);

/*
 * Opens the back end that conn_string names; settings must outlive the store.
 * Reads the shared secret from the file that the settings name, and returns
 * TEI_ERR_INVALID if the file is not suitable. "P2PHANDSHAKE" is
 * case-sensitive; schemes ("zookeeper://") are not. A list of hosts without a
 * scheme stands for etcd. Returns TEI_ERR_INVALID for an empty conn_string,
 * TEI_ERR_NOT_IMPLEMENTED for a known back end that is not built in, and
 * TEI_ERR_METADATA for an unknown scheme. The error text lists the built-in
 * schemes.
 */
int tei_meta_store_open(const char *conn_string,
			const struct tei_settings *settings,
			struct tei_meta_store **out, struct tei_err *err);

/* Withdraws all names that this process has published and frees the store. No
 * other function may be called with the store afterwards. NULL is ignored. */
void tei_meta_store_close(struct tei_meta_store *store);

/* Returns the shared secret that tei_meta_store_open has read, or NULL if the
 * settings name no file. The process's own server needs it. */
const struct tei_secret *
tei_meta_store_secret(const struct tei_meta_store *store);

/* properties of a store, as bits */
#define TEI_META_ADDRESSES 1u	/* the name of a segment is the address of its
				 * process's control channel */
/* the store keeps the descriptors that processes publish */
#define TEI_META_KEEPS 2u
/*
 * the store reports changes of descriptors that were read
 * (tei_meta_store_watch)
 */
#define TEI_META_REPORTS 4u

/* Returns the bits TEI_META_ADDRESSES, TEI_META_KEEPS and TEI_META_REPORTS that
 * apply to the store. The result is always the same for one store. */
uint32_t tei_meta_store_caps(const struct tei_meta_store *store);

/* Returns the scheme: "P2PHANDSHAKE", "zookeeper", …. The text is static. */
const char *tei_meta_store_scheme(const struct tei_meta_store *store);

/*
 * Sets the server that serves the descriptors of this process. The store
 * publishes the server's address. Must be called once, before the first call of
 * tei_meta_store_publish. The server must outlive the store.
 */
void tei_meta_store_attach(struct tei_meta_store *store,
			   struct tei_meta_server *server);

/*
 * Starts the server of this process and attaches it to the store. The settings,
 * server_name and the kind of store determine its address and port. The caller
 * stops *server after it has closed the store. Sets *fixed to true if the
 * server must not move to another address, because the user has given the
 * address or because the address is the segment's name. Returns the codes of
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
 * Publishes desc, which is frozen, under its name, and replaces the descriptor
 * that this process has published under that name before. With P2PHANDSHAKE,
 * only replaces the text on the process's own server. If another process has
 * taken the name over, the next call for this name fails, and the call after
 * that one registers the name again. Blocks.
 */
int tei_meta_store_publish(struct tei_meta_store *store,
			   struct tei_meta_desc *desc, uint64_t deadline_ns,
			   struct tei_err *err);
/*
 * Does what tei_meta_store_publish does, for a caller that does not pass the
 * result on to the application. If another process has taken the name over,
 * every call fails, and the name is not registered again; a later
 * tei_meta_store_publish still reports the loss.
 */
int tei_meta_store_update(struct tei_meta_store *store,
			  struct tei_meta_desc *desc, uint64_t deadline_ns,
			  struct tei_err *err);

/* The following two are flags of tei_meta_store_bring. */
/* the application gets the result, so the loss of a name may be reported by
 * it */
#define TEI_META_REPORT_LOSS 1u
/* publish a descriptor head, even if the whole descriptor is short enough */
#define TEI_META_HEAD 2u

/*
 * Does what tei_meta_store_publish or tei_meta_store_update does, for a process
 * whose control channel already serves the descriptor (tei_meta_server_source).
 * Sets *listed to true if the store now contains the whole descriptor, and to
 * false if it contains a head. After an error the content of the store is not
 * known.
 */
int tei_meta_store_bring(struct tei_meta_store *store,
			 struct tei_meta_desc *desc, uint32_t flags,
			 uint64_t deadline_ns, bool *listed,
			 struct tei_err *err);

/* Returns true if the store is connected and this process owned name at the
 * last check. Sends no request to the store and never blocks. */
bool tei_meta_store_owns(struct tei_meta_store *store, const char *name);

int tei_meta_store_withdraw(struct tei_meta_store *store, const char *name,
			    uint64_t deadline_ns, struct tei_err *err);

/* Reads the descriptor of name from the store. *out has one reference, which
 * belongs to the caller. Blocks. */
int tei_meta_store_fetch(struct tei_meta_store *store, const char *name,
			 uint64_t deadline_ns, struct tei_meta_desc **out,
			 struct tei_err *err);

/*
 * Reads the descriptor of name as terminated JSON text, which the caller frees
 * with free(). Does not check the fields of the descriptor, and accepts one of
 * a Mooncake process. name may begin with TEI_META_PROCESSES. Returns
 * TEI_ERR_JSON if the text is not JSON. Blocks.
 */
int tei_meta_store_text(struct tei_meta_store *store, const char *name,
			uint64_t deadline_ns, char **json, size_t *len,
			struct tei_err *err);

/*
 * Finds the address of the control channel of a process. The store has it under
 * the key rpc_meta/<server>; with P2PHANDSHAKE, "server" is the address.
 * Blocks.
 */
int tei_meta_store_resolve(struct tei_meta_store *store, const char *server,
			   uint64_t deadline_ns,
			   char endpoint[TEI_META_ENDPOINT_MAX],
			   struct tei_err *err);

/*
 * Checks that the process that has published name is alive and answers on its
 * control channel. Returns TEI_ERR_REJECTED if another process answers there,
 * or a code of tei_meta_store_fetch, tei_meta_store_resolve or tei_meta_ping.
 * Blocks.
 */
int tei_meta_store_probe(struct tei_meta_store *store, const char *name,
			 uint64_t deadline_ns, struct tei_err *err);

/* Returns true if the control channel of the process that owns name refuses
 * connections. Blocks for about a second at most. */
bool tei_meta_store_refused(struct tei_meta_store *store, const char *name);

/* Checks that the store can be read. If credentials are set, also checks that
 * no other user may change the store's content. Blocks. */
int tei_meta_store_check(struct tei_meta_store *store, uint64_t deadline_ns,
			 struct tei_err *err);

/*
 * Sets fn as the function that the store calls for changes of segments that
 * were fetched. A store has only one such function. Must be called before the
 * first fetch. If fn is NULL, removes the function. If "wanted" is NULL, all
 * fetched segments are taken as used.
 */
void tei_meta_store_watch(struct tei_meta_store *store, tei_meta_changed_fn fn,
			  tei_meta_wanted_fn wanted, void *arg);
/*
 * Tells the store that the descriptor could not be read after the notification
 * of a change. The store calls the function of tei_meta_store_watch again after
 * a while, or as soon as a lost connection is restored. If the segment no
 * longer exists, the store calls the function when the segment exists again.
 * Any thread may call this function. It does not block.
 */
void tei_meta_store_notify_again(struct tei_meta_store *store,
				 const char *name);

/* --- persistent segment records ------------------------------------------ */

/*
 * Persistent segment records are descriptors that belong to no process and stay
 * until they are removed. They describe file segments. Their names start with
 * "nvmeof/" and contain no other slash. ZooKeeper stores them as persistent
 * nodes. P2PHANDSHAKE stores them as files in the folder MOONRAIL_SEGMENT_DIR;
 * if that setting is empty, the functions below return TEI_ERR_UNSUPPORTED.
 */
#define TEI_META_PERSISTENT "nvmeof/"

/* Returns true if name is the name of a persistent segment record. */
bool tei_meta_persistent_name(const char *name);

/*
 * Creates the new descriptor *next from the current descriptor "now", which is
 * NULL if there is no record. The store then owns *next. If the function sets
 * *next to NULL, the record is removed. If the function returns an error code,
 * the record stays unchanged. One change may call the function several times,
 * because other processes may change the same record meanwhile.
 */
typedef int (*tei_meta_change_fn)(void *arg, const struct tei_meta_desc *now,
				  struct tei_meta_desc **next,
				  struct tei_err *err);

/*
 * Changes a persistent segment record atomically: the new descriptor replaces
 * exactly the one that fn has received. Returns the code of fn, TEI_ERR_INVALID
 * if name is not the name of a persistent segment record, TEI_ERR_TOO_MANY if
 * the new descriptor has more than TEI_META_PERSISTENT_MAX bytes, or another
 * code of the store. Blocks.
 */
#define TEI_META_PERSISTENT_MAX (900u << 10) /* greatest length of a persistent
					      * segment record, bytes of JSON
					      * text */
int tei_meta_store_change(struct tei_meta_store *store, const char *name,
			  tei_meta_change_fn fn, void *arg,
			  uint64_t deadline_ns, struct tei_err *err);

/*
 * Removes a persistent segment record, even if its content is not a valid
 * descriptor for this version of the library. Sets *found to true if the record
 * existed. Returns the codes of tei_meta_store_change. Blocks.
 */
int tei_meta_store_remove(struct tei_meta_store *store, const char *name,
			  uint64_t deadline_ns, bool *found,
			  struct tei_err *err);

/* Folder of the store in which moonrail and Mooncake processes publish their
 * segments. */
#define TEI_META_PROCESSES "ram/"

/*
 * Lists all segments of folder, which is TEI_META_PERSISTENT or
 * TEI_META_PROCESSES. Sets *names to a sorted array of names, each of which
 * begins with the folder, and *count to their number. The caller frees *names
 * and each name with free(); *names becomes NULL if there are no segments.
 * Returns TEI_ERR_UNSUPPORTED if the store cannot list the folder. Blocks.
 */
int tei_meta_store_list(struct tei_meta_store *store, const char *folder,
			uint64_t deadline_ns, char ***names, size_t *count,
			struct tei_err *err);

#endif /* TEI_META_TEI_META_STORE_H */
