/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_META_TEI_META_H
#define TEI_META_TEI_META_H

/*
 * Metadata: segment descriptors and their JSON, the store that finds them,
 * the control channel that serves them, and the cache of opened segments.
 *
 * Common rules. Functions that return int give 0 or an enum tei_code; outputs
 * are written only on success. err may be NULL; on failure it is filled, the
 * thread's last error is set and one line is logged. deadline_ns is absolute,
 * on tei_now_ns()'s clock; blocking calls return by then, TEI_ERR_SOCKET when
 * it passed. Strings passed in are copied. Calls marked "blocks" must not be
 * made from a data thread. Everything is thread-safe unless it says otherwise.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/err.h"

struct addrinfo;
struct tei_secret;
struct tei_settings;
struct tei_meta_server;
struct tei_meta_store;
struct tei_meta_cache;

#define TEI_META_VERSION	2	/* of the descriptor's own fields */
#define TEI_META_NAME_MAX	512	/* segment name, terminator included */
#define TEI_META_HOST_MAX	256	/* host text, terminator included */
#define TEI_META_ENDPOINT_MAX	272	/* "[host]:port", terminator included */
#define TEI_META_ADDRESS_MAX	256	/* bytes of one fabric address */
#define TEI_META_LOCAL_MAX	256	/* identity text, terminator included */
#define TEI_META_KEY_MAX	256	/* bytes of one raw memory key */
#define TEI_META_LOCATION_MAX	4096	/* location text, terminator included */
#define TEI_META_RAILS_MAX	128	/* devices in a descriptor */
#define TEI_META_BUFFERS_MAX	(1u << 20)
#define TEI_META_TEXT_MAX	(64u << 20)	/* bytes of descriptor JSON */

/* --- segment descriptor -------------------------------------------------- */

/* A libfabric address; opaque bytes, len 0 means none. Plain data. */
struct tei_meta_address {
	uint32_t format;		/* FI_SOCKADDR_IN, … as libfabric's */
	uint32_t len;			/* 0 … TEI_META_ADDRESS_MAX */
	uint8_t bytes[TEI_META_ADDRESS_MAX];
};

/* One NIC of the peer ("devices[]"). Plain data. */
struct tei_meta_rail {
	char name[64];			/* interface or RDMA device */
	uint32_t lid;			/* 0 where there is none */
	char gid[64];			/* "" where there is none */
	char provider[64];		/* libfabric provider */
	uint64_t mr_mode;		/* FI_MR_… bits in force at the peer */
	struct tei_meta_address address;
};

/* How to reach the peer's first target lane. Plain data. */
struct tei_meta_first {
	char provider[64];		/* "": no fabric address published */
	struct tei_meta_address address;
};

/* A key that does not fit 64 bits. */
struct tei_meta_key {
	const uint8_t *bytes;
	uint32_t len;			/* 0: use rkey[] for this rail */
};

/* Belongs to its descriptor; read only. */
struct tei_meta_buffer {
	uint64_t addr;			/* in the peer's address space, not 0 */
	uint64_t length;		/* bytes, not 0; the range never wraps */
	const char *location;		/* "cpu:0", "cuda:1", "*", … */
	const uint64_t *rkey;		/* [rail_count] */
	const struct tei_meta_key *raw;	/* [rail_count], or NULL */
};

struct tei_meta_file_path {
	const char *server;
	const char *path;
};

/* A file of a files segment; the segment is its files end to end. */
struct tei_meta_file {
	const char *path;		/* "file_path" */
	uint64_t length;		/* bytes, not 0 */
	uint64_t offset;		/* of its first byte in the segment */
	const struct tei_meta_file_path *local;	/* "local_path_map" */
	uint32_t local_count;
};

/*
 * A descriptor. Made by tei_meta_desc_create (then add, then freeze) or
 * tei_meta_desc_decode, with one reference; freed with the last
 * tei_meta_desc_unref. Before freeze it belongs to one thread; after freeze it
 * is immutable and any thread that holds a reference may read it. Open for
 * reading only: change it through the functions below.
 */
struct tei_meta_desc {
	/* fixed after freeze */
	const char *name;
	const char *protocol;		/* "tcp", "rdma", "shm", "local", "nvmeof" */
	uint32_t version;		/* TEI_META_VERSION; 0: not written by us */
	uint64_t incarnation;		/* of the process; 0: not written by us */
	uint64_t serial;		/* of two descriptors of a process the
					 * higher one is newer; 0: unknown */
	struct tei_meta_first first;
	char local[TEI_META_LOCAL_MAX];	/* identity for copies inside a host,
					 * opaque; "": none */
	const char *priority_matrix;	/* raw JSON object text, or NULL */
	const struct tei_meta_rail *rails;
	const struct tei_meta_buffer *buffers;	/* ascending addr, disjoint */
	const struct tei_meta_file *files;	/* protocol "nvmeof" only */
	uint32_t rail_count;
	uint32_t buffer_count;
	uint32_t file_count;
	uint64_t size;			/* sum of all lengths, bytes */
};

/*
 * An empty descriptor for name and protocol (both copied, not empty). The add
 * and set calls below are for the creating thread, before freeze, and refuse
 * bad values with TEI_ERR_INVALID (TEI_ERR_TOO_MANY beyond a maximum).
 */
int tei_meta_desc_create(const char *name, const char *protocol,
			 uint64_t incarnation, struct tei_meta_desc **out,
			 struct tei_err *err);
int tei_meta_desc_set_first(struct tei_meta_desc *desc,
			    const struct tei_meta_first *first,
			    struct tei_err *err);
int tei_meta_desc_set_serial(struct tei_meta_desc *desc, uint64_t serial,
			     struct tei_err *err);
int tei_meta_desc_set_local(struct tei_meta_desc *desc, const char *identity,
			    struct tei_err *err);

/* json must be an object; kept as it is. NULL removes it. */
int tei_meta_desc_set_matrix(struct tei_meta_desc *desc, const char *json,
			     struct tei_err *err);

/* All rails come before the first buffer. */
int tei_meta_desc_add_rail(struct tei_meta_desc *desc,
			   const struct tei_meta_rail *rail,
			   struct tei_err *err);

/*
 * rkey: one per rail. raw: NULL, or one per rail with len 0 where rkey is
 * enough. location NULL is "*". Order is free.
 */
int tei_meta_desc_add_buffer(struct tei_meta_desc *desc, const char *location,
			     uint64_t addr, uint64_t length,
			     const uint64_t *rkey,
			     const struct tei_meta_key *raw,
			     struct tei_err *err);

/* protocol "nvmeof" only; in order. */
int tei_meta_desc_add_file(struct tei_meta_desc *desc, const char *path,
			   uint64_t length,
			   const struct tei_meta_file_path *local,
			   uint32_t local_count, struct tei_err *err);

/*
 * Sorts and checks the whole (TEI_ERR_OVERLAP for overlapping buffers). On
 * error the descriptor is still the caller's, not frozen.
 */
int tei_meta_desc_freeze(struct tei_meta_desc *desc, struct tei_err *err);

/*
 * Freezes a descriptor that its creator has filled, and passes it to *out. ret is
 * the result of the calls that filled it. If ret or the result of the freeze is an
 * error, frees the descriptor and returns the error.
 */
int tei_meta_desc_finish(struct tei_meta_desc *desc, int ret,
			 struct tei_meta_desc **out, struct tei_err *err);

struct tei_meta_desc *tei_meta_desc_ref(struct tei_meta_desc *desc);

/* NULL is ignored. Also frees a descriptor that was never frozen. */
void tei_meta_desc_unref(struct tei_meta_desc *desc);

/* Makes a copy of desc without buffers, files and serial. The copy is not frozen. */
int tei_meta_desc_copy_head(const struct tei_meta_desc *desc,
			    struct tei_meta_desc **out, struct tei_err *err);

/* True when both say the same, of whatever serial. Both frozen. */
bool tei_meta_desc_equal(const struct tei_meta_desc *a,
			 const struct tei_meta_desc *b);

/* True when both are of one process and a is known to be older than b. */
bool tei_meta_desc_older(const struct tei_meta_desc *a,
			 const struct tei_meta_desc *b);

/*
 * The buffer that holds all of [addr, addr + len), or NULL. len may be 0. Log
 * time, no lock: fit for data threads.
 */
const struct tei_meta_buffer *
tei_meta_desc_find(const struct tei_meta_desc *desc, uint64_t addr,
		   uint64_t len);

/*
 * True when adjacent buffers together hold all of [addr, addr + len): a region
 * that was split at a device's limit.
 */
bool tei_meta_desc_covers(const struct tei_meta_desc *desc, uint64_t addr,
			  uint64_t len);

/* True where every rail there has a key of the buffer, and there is a rail:
 * memory of a GPU without is lent for by its owner. */
bool tei_meta_desc_has_keys(const struct tei_meta_desc *desc,
			    const struct tei_meta_buffer *buffer);

/*
 * JSON text of a frozen descriptor, terminated, *len without the terminator;
 * the caller frees it with free(). 64-bit numbers are written as plain
 * integer literals. TEI_ERR_TOO_MANY beyond TEI_META_TEXT_MAX.
 */
int tei_meta_desc_encode(const struct tei_meta_desc *desc, char **json,
			 size_t *len, struct tei_err *err);

/*
 * Parses and checks text from anywhere; a frozen descriptor with one
 * reference. TEI_ERR_JSON: not JSON, a field of the wrong type, a repeated
 * field, nesting deeper than 32, longer than TEI_META_TEXT_MAX.
 * TEI_ERR_REJECTED: well formed, but an empty name, zero address or length,
 * key count other than the device count, overlapping or wrapping ranges, a
 * maximum exceeded. Integers are exact over all 64 bits, also when given as
 * decimal strings; unknown fields are skipped.
 */
int tei_meta_desc_decode(const char *json, size_t len,
			 struct tei_meta_desc **out, struct tei_err *err);

/* A random incarnation, never 0. */
uint64_t tei_meta_incarnation(void);

/* --- names and addresses ------------------------------------------------- */

/*
 * getaddrinfo for stream sockets that gives up at deadline_ns: numeric hosts
 * are answered at once, names by a thread of their own that outlives a caller
 * who gave up. 0, or a code with *why (static). Free with freeaddrinfo.
 */
int tei_meta_resolve(const char *host, uint16_t port, uint64_t deadline_ns,
		     struct addrinfo **out, const char **why);

/*
 * Splits "host", "host:port", "v6", "[v6]" or "[v6]:port"; port 0 where there
 * is none. host gets no brackets. TEI_ERR_INVALID, nothing logged.
 */
int tei_meta_split(const char *text, char host[TEI_META_HOST_MAX],
		   uint16_t *port);

/*
 * Writes a connection string for a person to read. The text in front of the
 * last '@' may hold a user's name and password and is replaced.
 */
#define TEI_META_SHOWN	64
void tei_meta_conn_shown(const char *text, char out[TEI_META_SHOWN]);

/* Returns what is wrong with a text that tei_meta_split refuses, or whose port
 * is 0. */
const char *tei_meta_split_why(const char *text);

/* "host:port" into out, brackets around a host with colons. */
void tei_meta_join(const char *host, uint16_t port,
		   char out[TEI_META_ENDPOINT_MAX]);

/*
 * The one address the control channel binds, as numeric text or the host name
 * given: MC_TCP_BIND_ADDRESS; else the host part of local_server_name when
 * p2p; else the first address of a running interface that is neither
 * loopback, bridge nor container link (IPv4 first, with MC_USE_IPV6 IPv6
 * first); else loopback. A wildcard counts as not given, and so does a host
 * name, other than localhost, that resolves to loopback only (a warning says
 * so). TEI_ERR_INVALID, TEI_ERR_DNS. Blocks in the resolver.
 */
int tei_meta_local_host(const struct tei_settings *settings,
			const char *local_server_name, bool p2p,
			char out[TEI_META_HOST_MAX], struct tei_err *err);

/*
 * Keys in a store: "mooncake/[cluster/]rpc_meta/<server>" and
 * "mooncake/[cluster/]ram/<segment>", the latter without "ram/" when the
 * segment's name has a slash. TEI_ERR_INVALID when it does not fit.
 */
int tei_meta_rpc_key(const char *cluster, const char *server, char *out,
		     size_t len);
int tei_meta_segment_key(const char *cluster, const char *segment, char *out,
			 size_t len);

/* --- control channel: server --------------------------------------------- */

/* Zero in a field marked (0: n) means n. Read during start only. */
struct tei_meta_server_config {
	const char *host;		/* from tei_meta_local_host */
	uint16_t min_port, max_port;	/* both 0: the kernel's choice */
	uint64_t incarnation;		/* answered to a ping */
	uint64_t frame_timeout_ns;	/* (0: 5 s) for a complete request */
	uint32_t max_clients;		/* (0: 1024) connections at a time, a
					 * quarter of them per address */
	uint32_t client_rate;		/* (0: 896) steps per second and
					 * address, after a burst of 24 s */
	bool ipv6;			/* preferred where host has both */
	uint32_t backlog;		/* (0: SOMAXCONN) of listen(2) */
	const struct tei_secret *secret; /* NULL: anybody is answered */
};

/* Since start. Plain data. */
struct tei_meta_server_stats {
	uint64_t accepted;		/* connections */
	uint64_t served;		/* requests answered, errors included */
	uint64_t rejected;		/* malformed or unknown frames */
	uint64_t timed_out;		/* connections dropped at their deadline */
	uint64_t evicted;		/* dropped or refused at max_clients */
	uint64_t denied;		/* no secret, or another one */
	uint64_t held;			/* times that a client had to wait
					 * for its address's share */
	uint64_t shut;			/* times that an address's connections
					 * were not taken at all */
	uint32_t clients;		/* connected now */
};

/* From settings and a host; the rest zero. */
void tei_meta_server_defaults(const struct tei_settings *settings,
			      const char *host, uint64_t incarnation,
			      struct tei_meta_server_config *out);

/*
 * Binds one address and one port of the range (random start, then the next
 * free one) and starts one thread that serves it, all signals blocked.
 * TEI_ERR_DNS, TEI_ERR_SOCKET (address not ours, range taken: the text names
 * it), TEI_ERR_MEMORY.
 */
int tei_meta_server_start(const struct tei_meta_server_config *config,
			  struct tei_meta_server **out, struct tei_err *err);

/* Drops the clients, joins the thread, frees. NULL is ignored. Last call. */
void tei_meta_server_stop(struct tei_meta_server *server);

/* What was really bound. "host:port" with the host as given in config (the
 * name of a P2P segment), and its numeric form. Valid until stop. */
const char *tei_meta_server_name(const struct tei_meta_server *server);
const char *tei_meta_server_address(const struct tei_meta_server *server);
const char *tei_meta_server_host(const struct tei_meta_server *server);
uint16_t tei_meta_server_port(const struct tei_meta_server *server);
uint64_t tei_meta_server_incarnation(const struct tei_meta_server *server);

/*
 * Serves json under name from now on, replacing what was there in one step;
 * replies under way finish with the old text. The first name published is the
 * primary: it is also what a client gets that asks for the process behind an
 * address rather than for a name. Never blocks.
 */
int tei_meta_server_publish(struct tei_meta_server *server, const char *name,
			    const char *json, size_t len, struct tei_err *err);

/*
 * Returns the present descriptor, frozen, with one reference for the server, or
 * NULL. If nothing has changed, returns the same descriptor as before, whose text
 * the server has. The server's thread calls it for each request for the descriptor.
 * It must not call the server and must not block.
 */
typedef struct tei_meta_desc *(*tei_meta_source_fn)(void *arg);

/*
 * Makes the server answer requests for name with the descriptor that fn returns.
 * Only one name, the primary one, can have such a function. fn NULL ends that; when
 * the call returns, the function is not running.
 */
void tei_meta_server_source(struct tei_meta_server *server, const char *name,
			    tei_meta_source_fn fn, void *arg);

/* Stops serving name. TEI_ERR_METADATA, nothing logged, if it was not. */
int tei_meta_server_withdraw(struct tei_meta_server *server, const char *name);

/*
 * The process's statistics as JSON text, malloc'ed, or NULL; on the server's
 * thread, which waits for it, ten times a second at most. It must not call the
 * server.
 */
typedef char *(*tei_meta_report_fn)(void *arg);

/* Asks fn from now on; NULL: nobody, and no call is under way any more. */
void tei_meta_server_report(struct tei_meta_server *server,
			    tei_meta_report_fn fn, void *arg);

void tei_meta_server_stats(struct tei_meta_server *server,
			   struct tei_meta_server_stats *out);

/* --- control channel: client --------------------------------------------- */

/*
 * One exchange with the control channel at endpoint ("host:port"). Blocks, at
 * most until deadline_ns, resolver included. TEI_ERR_DNS; TEI_ERR_SOCKET:
 * refused, unreachable, no answer in time, cut short; TEI_ERR_REJECTED: it
 * answered with an error (its text in err->text, its code in err->prov_errno)
 * or with something else than this protocol.
 *
 * secret: both sides have the same one, or both NULL; else TEI_ERR_REJECTED
 * with TEI_META_DENIED in err->prov_errno.
 */
#define TEI_META_DENIED		13

int tei_meta_ping(const char *endpoint, const struct tei_secret *secret,
		  uint64_t deadline_ns, uint64_t *incarnation,
		  struct tei_err *err);

/*
 * Returns true if the control channel at endpoint refuses connections: no process
 * listens there. Logs nothing. Blocks, at most until deadline_ns.
 */
bool tei_meta_refused(const char *endpoint, uint64_t deadline_ns);

/*
 * Descriptor text of name, terminated, freed with free(). any: the primary
 * will do where name is not published there.
 */
int tei_meta_get_desc(const char *endpoint, const struct tei_secret *secret,
		      const char *name, bool any, uint64_t deadline_ns,
		      char **json, size_t *len, struct tei_err *err);

/*
 * As tei_meta_get_desc, for callers that have settings: refuses an answer of more
 * than max bytes, which is MC_HANDSHAKE_MAX_LENGTH; 0: TEI_META_TEXT_MAX.
 */
int tei_meta_get_desc_max(const char *endpoint, const struct tei_secret *secret,
			  const char *name, bool any, size_t max,
			  uint64_t deadline_ns, char **json, size_t *len,
			  struct tei_err *err);

/*
 * The statistics of the process that serves endpoint, see api/engine_report.c;
 * terminated, freed with free(). TEI_ERR_REJECTED also where it has none, or
 * none for us: without a secret only processes of its host are told.
 */
int tei_meta_get_stats(const char *endpoint, const struct tei_secret *secret,
		       uint64_t deadline_ns, char **json, struct tei_err *err);

/* --- store --------------------------------------------------------------- */

/*
 * Called when the store learns that name's descriptor changed or went, on the
 * store's own thread, no lock held; must not block nor call the store. tries:
 * how often that change was told before, and unread. Never called by
 * P2PHANDSHAKE.
 */
typedef void (*tei_meta_changed_fn)(void *arg, const char *name,
				    uint32_t tries);

/*
 * Opens the back end that conn_string names; settings must outlive the store.
 * The shared secret is read from the file that they name, TEI_ERR_INVALID
 * where that is not as it should be. "P2PHANDSHAKE" must be written
 * so; schemes ("zookeeper://") are matched without regard to case. A text
 * without scheme is a list of etcd hosts. TEI_ERR_INVALID for an empty text,
 * TEI_ERR_NOT_IMPLEMENTED for a known back end that is not built in and
 * TEI_ERR_METADATA for an unknown scheme; both texts list those built in.
 */
int tei_meta_store_open(const char *conn_string,
			const struct tei_settings *settings,
			struct tei_meta_store **out, struct tei_err *err);

/* Withdraws what it published. NULL is ignored. Last call. */
void tei_meta_store_close(struct tei_meta_store *store);

/* What the store's settings name, for this process's server; NULL: none. */
const struct tei_secret *
tei_meta_store_secret(const struct tei_meta_store *store);

/* True for P2PHANDSHAKE: names are addresses, nothing is published. */
bool tei_meta_store_p2p(const struct tei_meta_store *store);

/* "P2PHANDSHAKE", "zookeeper", …: static. */
const char *tei_meta_store_scheme(const struct tei_meta_store *store);

/*
 * The server that serves descriptors for this process; its address is what
 * the store publishes. Call once, before the first publish; the server must
 * outlive the store.
 */
void tei_meta_store_attach(struct tei_meta_store *store,
			   struct tei_meta_server *server);

/*
 * Makes desc (frozen) visible under its name, replacing what this store
 * published there. Blocks; P2PHANDSHAKE only swaps the server's snapshot. Of a
 * name that was lost to another process the next call is told, and the one
 * after that asks for it again.
 */
int tei_meta_store_publish(struct tei_meta_store *store,
			   struct tei_meta_desc *desc, uint64_t deadline_ns,
			   struct tei_err *err);
/* The same for a caller whom nobody tells: a lost name stays lost, untold. */
int tei_meta_store_update(struct tei_meta_store *store,
			  struct tei_meta_desc *desc, uint64_t deadline_ns,
			  struct tei_err *err);

/* Flags of tei_meta_store_bring. */
#define TEI_META_TOLD	1u	/* the application gets the result, see above */
#define TEI_META_HEAD	2u	/* the text refers to the control channel for the
				 * buffers */

/*
 * Publishes as the two calls above, for a process whose control channel serves the
 * descriptor already (tei_meta_server_source). Sets *listed to true if the store
 * itself now lists the buffers, and to false if it refers to the control channel for
 * them. After an error the contents of the store are unknown.
 */
int tei_meta_store_bring(struct tei_meta_store *store,
			 struct tei_meta_desc *desc, uint32_t flags,
			 uint64_t deadline_ns, bool *listed,
			 struct tei_err *err);

/*
 * Returns false if the store keeps no descriptors, so that nothing needs to be
 * written to it: P2PHANDSHAKE.
 */
bool tei_meta_store_keeps(const struct tei_meta_store *store);

/*
 * Returns true if the store is connected and this process still owns name. Does not
 * query the store and never blocks.
 */
bool tei_meta_store_sound(struct tei_meta_store *store, const char *name);

int tei_meta_store_withdraw(struct tei_meta_store *store, const char *name,
			    uint64_t deadline_ns, struct tei_err *err);

/* Reads name's descriptor anew; the caller owns one reference. Blocks. */
int tei_meta_store_fetch(struct tei_meta_store *store, const char *name,
			 uint64_t deadline_ns, struct tei_meta_desc **out,
			 struct tei_err *err);

/*
 * The control channel of a server: rpc_meta/<server>, for P2PHANDSHAKE the
 * name itself. Blocks.
 */
int tei_meta_store_resolve(struct tei_meta_store *store, const char *server,
			   uint64_t deadline_ns,
			   char endpoint[TEI_META_ENDPOINT_MAX],
			   struct tei_err *err);

/*
 * Whether what is there can be read and believed: with credentials nobody else
 * may change it. Blocks.
 */
int tei_meta_store_check(struct tei_meta_store *store, uint64_t deadline_ns,
			 struct tei_err *err);

/* At most one; before the first fetch. NULL fn removes it. */
void tei_meta_store_watch(struct tei_meta_store *store, tei_meta_changed_fn fn,
			  void *arg);
/*
 * A change that was told could not be read. It is told again after a while, at
 * once where a lost connection is back, unless the segment is gone: then its
 * coming back is told. Any thread, does not block.
 */
void tei_meta_store_unread(struct tei_meta_store *store, const char *name);

/* --- kept segments ------------------------------------------------------- */

/*
 * Descriptors that belong to no process and stay until they are removed: those
 * of files segments, whose names start with "nvmeof/" and have no other slash.
 * ZooKeeper holds them as persistent nodes; P2PHANDSHAKE as files of the
 * folder that MOONRAIL_SEGMENT_DIR names, TEI_ERR_UNSUPPORTED without it.
 */
#define TEI_META_KEPT		"nvmeof/"

/* True where name is one of a kept segment. */
bool tei_meta_kept_name(const char *name);

/*
 * Makes *next, which the store takes over, from what there is (NULL: nothing);
 * *next NULL removes it. Not 0: nothing is changed. It may be called several
 * times, when others change the same segment.
 */
typedef int (*tei_meta_change_fn)(void *arg, const struct tei_meta_desc *now,
				  struct tei_meta_desc **next,
				  struct tei_err *err);

/*
 * Changes a kept segment in one step: what fn saw is what is replaced. fn's
 * code; TEI_ERR_INVALID for another name; TEI_ERR_TOO_MANY for a descriptor
 * longer than TEI_META_KEPT_MAX; else as the store's other calls. Blocks.
 */
#define TEI_META_KEPT_MAX	(900u << 10)	/* bytes of JSON */
int tei_meta_store_change(struct tei_meta_store *store, const char *name,
			  tei_meta_change_fn fn, void *arg,
			  uint64_t deadline_ns, struct tei_err *err);

/*
 * Takes a kept segment away, also where what is there is no descriptor that
 * this version reads. *found: there was one. Codes as above. Blocks.
 */
int tei_meta_store_remove(struct tei_meta_store *store, const char *name,
			  uint64_t deadline_ns, bool *found,
			  struct tei_err *err);

/*
 * The names of all kept segments, sorted; *names and each of them is freed
 * with free(), NULL where there is none. Blocks.
 */
int tei_meta_store_list(struct tei_meta_store *store, uint64_t deadline_ns,
			char ***names, size_t *count, struct tei_err *err);

/* --- segment cache ------------------------------------------------------- */

/*
 * Names to ids. Id 0 is the own segment; others count from 1, stay the same
 * for a name while it is open, and go stale with the last close. An id holds a
 * slot and a generation; a slot is used again only after many others.
 */
#define TEI_META_SLOT_BITS	20
#define TEI_META_SLOTS		(1u << TEI_META_SLOT_BITS)

/* Index of an id's slot, for arrays kept beside the cache; 0 for id 0. */
static inline uint32_t tei_meta_slot(int32_t id)
{
	return (uint32_t)id & (TEI_META_SLOTS - 1);
}

/*
 * Called after a segment's descriptor was replaced by one that differs, on
 * the thread that did it, no lock held; may call the cache. The descriptors
 * are valid during the call.
 */
typedef void (*tei_meta_refreshed_fn)(void *arg, int32_t id,
				      struct tei_meta_desc *before,
				      struct tei_meta_desc *now);

/*
 * max_open (0: all slots) segments at a time. The store must outlive the
 * cache. fn may be NULL.
 */
int tei_meta_cache_create(struct tei_meta_store *store, uint32_t max_open,
			  tei_meta_refreshed_fn fn, void *arg,
			  struct tei_meta_cache **out, struct tei_err *err);

/* No other call may run. NULL is ignored. */
void tei_meta_cache_destroy(struct tei_meta_cache *cache);

/* The own segment (takes a reference), what id 0 and its name stand for. */
void tei_meta_cache_set_local(struct tei_meta_cache *cache,
			      struct tei_meta_desc *desc);

/*
 * Id of name, one reference more; a leading slash is dropped. Fetches the
 * descriptor if name is not cached, or in any case with fresh. One fetch per
 * name at a time: others wait for its result. The own name, or an address
 * that leads to this very process, is 0. TEI_ERR_INVALID for an empty name,
 * TEI_ERR_TOO_MANY at max_open, else as the store's fetch. Blocks.
 */
int tei_meta_cache_open(struct tei_meta_cache *cache, const char *name,
			bool fresh, uint64_t deadline_ns, int32_t *id,
			struct tei_err *err);

/*
 * As open, with a descriptor that came another way: nothing is fetched. One
 * of the same process that is older than what is known changes nothing. One
 * of another process replaces what is known where replace is set or its serial
 * is higher; else TEI_ERR_CONTEXT, as for the own name and another
 * incarnation. desc is frozen; a reference is taken. Never blocks.
 */
int tei_meta_cache_put(struct tei_meta_cache *cache,
		       struct tei_meta_desc *desc, bool replace, int32_t *id,
		       struct tei_err *err);

/*
 * Drops one reference; *last (may be NULL) tells that the id is stale now. Id
 * 0 is accepted and never goes stale. TEI_ERR_INVALID for a stale or invented
 * id.
 */
int tei_meta_cache_close(struct tei_meta_cache *cache, int32_t id, bool *last);

/*
 * The descriptor with a reference for the caller, or NULL for a stale or
 * invented id (nothing logged). Short lock, never blocks.
 */
struct tei_meta_desc *tei_meta_cache_get(struct tei_meta_cache *cache,
					 int32_t id);

/* Id of an open name without taking a reference, or -1. */
int32_t tei_meta_cache_lookup(struct tei_meta_cache *cache, const char *name);

/* Fetches anew; *changed (may be NULL) tells if it differed. Blocks. */
int tei_meta_cache_refresh(struct tei_meta_cache *cache, int32_t id,
			   uint64_t deadline_ns, bool *changed,
			   struct tei_err *err);

/*
 * The same for whoever was told that name has changed: also where it is only
 * being opened, since that open may have read what was there before. *id: -1
 * where it is neither open nor being opened, and nothing was fetched; 0 where it
 * has no id yet, or none any more.
 */
int tei_meta_cache_refresh_name(struct tei_meta_cache *cache, const char *name,
				uint64_t deadline_ns, int32_t *id,
				struct tei_err *err);

/*
 * Refreshes every open segment, several at a time, each with timeout_ns of its
 * own. Goes on past errors and returns the first. Blocks.
 */
int tei_meta_cache_sync(struct tei_meta_cache *cache, uint64_t timeout_ns,
			struct tei_err *err);

/*
 * Forgets the cached descriptor of name: ids stay good, the next open fetches
 * again. 0 even where absent, TEI_ERR_INVALID if empty.
 */
int tei_meta_cache_forget(struct tei_meta_cache *cache, const char *name);

/* Open segments, the own one not counted. */
uint32_t tei_meta_cache_count(struct tei_meta_cache *cache);

#endif /* TEI_META_TEI_META_H */
