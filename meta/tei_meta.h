/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_META_TEI_META_H
#define TEI_META_TEI_META_H

/*
 * Metadata: segment descriptors and their JSON, the store that finds them, the
 * control channel that serves them, and the cache of open segments.
 *
 * Common rules. Functions that return int return 0 or an enum tei_code. Outputs
 * are written only on success. err may be NULL; on failure it is filled, the
 * thread's last error is set and one line is logged. deadline_ns is an absolute
 * time of tei_now_ns(); blocking calls return by then, with TEI_ERR_SOCKET if
 * it has passed. Strings passed in are copied. Calls marked "blocks" must not
 * be made from a data thread. All functions are thread-safe unless stated
 * otherwise.
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

#define TEI_META_VERSION	2	/* version of the descriptor format */
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

/* A libfabric address: opaque bytes; len 0 means none. Plain data. */
struct tei_meta_address {
	uint32_t format;		/* FI_SOCKADDR_IN, … of libfabric */
	uint32_t len;			/* 0 … TEI_META_ADDRESS_MAX */
	uint8_t bytes[TEI_META_ADDRESS_MAX];
};

/* One NIC of the peer ("devices[]"). Plain data. */
struct tei_meta_rail {
	char name[64];			/* interface or RDMA device */
	uint32_t lid;			/* 0 if there is none */
	char gid[64];			/* "" if there is none */
	char provider[64];		/* libfabric provider */
	uint64_t mr_mode;		/* FI_MR_… bits required by the peer */
	struct tei_meta_address address;
};

/* Contact address of a peer, which accepts first hellos. Plain data. */
struct tei_meta_first {
	char provider[64];		/* "": no fabric address published */
	struct tei_meta_address address;
};

/* A memory key of more than 64 bits. */
struct tei_meta_key {
	const uint8_t *bytes;
	uint32_t len;			/* 0: use rkey[] for this rail */
};

/* Owned by its descriptor; read only. */
struct tei_meta_buffer {
	uint64_t addr;			/* address in the peer, not 0 */
	uint64_t length;		/* bytes, not 0; never wraps around */
	const char *location;		/* "cpu:0", "cuda:1", "*", … */
	const uint64_t *rkey;		/* [rail_count] */
	const struct tei_meta_key *raw;	/* [rail_count], or NULL */
};

struct tei_meta_file_path {
	const char *server;
	const char *path;
};

/* A file of a file segment. The segment is the concatenation of its files. */
struct tei_meta_file {
	const char *path;		/* "file_path" */
	uint64_t length;		/* bytes, not 0 */
	uint64_t offset;		/* of its first byte in the segment */
	const struct tei_meta_file_path *local;	/* "local_path_map" */
	uint32_t local_count;
};

/*
 * A descriptor. Created by tei_meta_desc_create (then filled, then frozen) or
 * by tei_meta_desc_decode, with one reference; freed with the last
 * tei_meta_desc_unref. Before it is frozen it belongs to one thread. Afterwards
 * it is immutable, and any thread with a reference may read it. Members are
 * public for reading only; change it through the functions below.
 */
struct tei_meta_desc {
	/* constant after freeze */
	const char *name;
	const char *protocol;		/* "tcp", "rdma", "shm", "local", "nvmeof" */
	uint32_t version;		/* TEI_META_VERSION; 0: another
					 * writer */
	uint64_t incarnation;		/* of the process; 0: another writer */
	uint64_t serial;		/* of two descriptors of one process,
					 * the newer one has the higher serial;
					 * 0: unknown */
	struct tei_meta_first first;
	char local[TEI_META_LOCAL_MAX];	/* identity for copies within a host,
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
 * Creates an empty descriptor; name and protocol must not be empty. The add and
 * set functions below are for the creating thread, before the freeze. They
 * refuse invalid values with TEI_ERR_INVALID, or TEI_ERR_TOO_MANY beyond a
 * maximum.
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

/* json must be an object; it is kept unchanged. NULL removes it. */
int tei_meta_desc_set_matrix(struct tei_meta_desc *desc, const char *json,
			     struct tei_err *err);

/* All rails must be added before the first buffer. */
int tei_meta_desc_add_rail(struct tei_meta_desc *desc,
			   const struct tei_meta_rail *rail,
			   struct tei_err *err);

/*
 * Adds a buffer, in any order. rkey: one key per rail. raw: NULL, or one key
 * per rail, with len 0 if rkey suffices. location NULL means "*".
 */
int tei_meta_desc_add_buffer(struct tei_meta_desc *desc, const char *location,
			     uint64_t addr, uint64_t length,
			     const uint64_t *rkey,
			     const struct tei_meta_key *raw,
			     struct tei_err *err);

/* Adds a file; protocol "nvmeof" only. Files are added in their order. */
int tei_meta_desc_add_file(struct tei_meta_desc *desc, const char *path,
			   uint64_t length,
			   const struct tei_meta_file_path *local,
			   uint32_t local_count, struct tei_err *err);

/*
 * Sorts the buffers, checks the whole descriptor and freezes it. Returns
 * TEI_ERR_OVERLAP for overlapping buffers. After an error the caller still owns
 * the descriptor, which is not frozen.
 */
int tei_meta_desc_freeze(struct tei_meta_desc *desc, struct tei_err *err);

/*
 * Freezes a descriptor that its creator has filled, and passes it to *out. ret
 * is the result of the calls that filled it. If ret or the result of the freeze
 * is an error, frees the descriptor and returns the error.
 */
int tei_meta_desc_finish(struct tei_meta_desc *desc, int ret,
			 struct tei_meta_desc **out, struct tei_err *err);

struct tei_meta_desc *tei_meta_desc_ref(struct tei_meta_desc *desc);

/* Drops a reference; also frees an unfrozen descriptor. NULL is ignored. */
void tei_meta_desc_unref(struct tei_meta_desc *desc);

/*
 * Makes a copy of desc without buffers, files and serial. The copy is not
 * frozen.
 */
int tei_meta_desc_copy_head(const struct tei_meta_desc *desc,
			    struct tei_meta_desc **out, struct tei_err *err);

/*
 * Returns true if both have the same content except for the serial. Both are
 * frozen.
 */
bool tei_meta_desc_equal(const struct tei_meta_desc *a,
			 const struct tei_meta_desc *b);

/*
 * Returns true if both belong to one process and a is known to be older than b.
 */
bool tei_meta_desc_older(const struct tei_meta_desc *a,
			 const struct tei_meta_desc *b);

/*
 * Returns the buffer that holds all of [addr, addr + len), or NULL. len may be
 * 0. Logarithmic time, no lock: suitable for data threads.
 */
const struct tei_meta_buffer *
tei_meta_desc_find(const struct tei_meta_desc *desc, uint64_t addr,
		   uint64_t len);

/*
 * Returns true if adjacent buffers together hold all of [addr, addr + len). A
 * region is split into several buffers if a device limits their size.
 */
bool tei_meta_desc_covers(const struct tei_meta_desc *desc, uint64_t addr,
			  uint64_t len);

/* Returns true if the peer has at least one rail and the buffer has a key for
 * each rail. GPU memory without keys is reached through remote bounce slots of
 * its owner. */
bool tei_meta_desc_has_keys(const struct tei_meta_desc *desc,
			    const struct tei_meta_buffer *buffer);

/*
 * Writes the JSON text of a frozen descriptor, terminated; *len excludes the
 * terminator. The caller frees it with free(). 64-bit numbers are plain integer
 * literals. Returns TEI_ERR_TOO_MANY beyond TEI_META_TEXT_MAX.
 */
int tei_meta_desc_encode(const struct tei_meta_desc *desc, char **json,
			 size_t *len, struct tei_err *err);

/*
 * Parses and checks text from any source. *out is a frozen descriptor with one
 * reference. Returns TEI_ERR_JSON if the text is not JSON, a field has the
 * wrong type or is repeated, the nesting is deeper than 32 or the text is
 * longer than TEI_META_TEXT_MAX. Returns TEI_ERR_REJECTED for well-formed text
 * with an empty name, a zero address or length, a key count that differs from
 * the device count, ranges that overlap or wrap around, or more elements than
 * the maximum. Integers are exact in all 64 bits, also as decimal strings.
 * Unknown fields are skipped.
 */
int tei_meta_desc_decode(const char *json, size_t len,
			 struct tei_meta_desc **out, struct tei_err *err);

/* Returns a random incarnation, never 0. */
uint64_t tei_meta_incarnation(void);

/* --- names and addresses ------------------------------------------------- */

/*
 * As getaddrinfo for stream sockets, with a time limit. Numeric hosts are
 * resolved at once. Names are resolved by a detached thread, which continues
 * after the caller has given up. Returns 0, or a code with *why (static). The
 * caller frees *out with freeaddrinfo.
 */
int tei_meta_resolve(const char *host, uint16_t port, uint64_t deadline_ns,
		     struct addrinfo **out, const char **why);

/*
 * Splits "host", "host:port", "v6", "[v6]" or "[v6]:port". port is 0 if there
 * is none; host has no brackets. Returns TEI_ERR_INVALID without a log line.
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

/* Writes "host:port", with brackets around a host that contains colons. */
void tei_meta_join(const char *host, uint16_t port,
		   char out[TEI_META_ENDPOINT_MAX]);

/*
 * Chooses the address that the control channel binds, as numeric text or the
 * given host name. The first of these that applies: MC_TCP_BIND_ADDRESS; the
 * host part of local_server_name if p2p is true; the first address of a running
 * interface that is neither loopback, bridge nor container link (IPv4 first, or
 * IPv6 first with MC_USE_IPV6); loopback. Ignores a wildcard, and, with a
 * warning, a host name other than localhost that resolves only to loopback.
 * *given (may be NULL): the address is that of a name or address that the user
 * has given. Returns TEI_ERR_INVALID or TEI_ERR_DNS on failure. Blocks in the resolver.
 */
int tei_meta_local_host(const struct tei_settings *settings,
			const char *local_server_name, bool p2p,
			char out[TEI_META_HOST_MAX], bool *given,
			struct tei_err *err);

/*
 * Returns true if a control channel that is bound to host, and whose address was
 * not given, is to be bound to another one: host is loopback and an interface has
 * an address that other hosts may reach, or no interface has the address host any
 * longer. Writes the address to out. host and out are numeric.
 */
bool tei_meta_host_outdated(const struct tei_settings *settings,
			    const char *host, char out[TEI_META_HOST_MAX]);

/*
 * Writes keys of the store: "mooncake/[cluster/]rpc_meta/<server>" and
 * "mooncake/[cluster/]ram/<segment>". The latter has no "ram/" if the segment's
 * name contains a slash. Returns TEI_ERR_INVALID if the key does not fit.
 */
int tei_meta_rpc_key(const char *cluster, const char *server, char *out,
		     size_t len);
int tei_meta_segment_key(const char *cluster, const char *segment, char *out,
			 size_t len);

/* --- control channel: server --------------------------------------------- */

/*
 * Configuration of a server. Zero in a member marked (0: n) means n. Read
 * during start only.
 */
struct tei_meta_server_config {
	const char *host;		/* from tei_meta_local_host */
	uint16_t min_port, max_port;	/* both 0: chosen by the kernel */
	uint64_t incarnation;		/* sent in reply to a ping */
	uint64_t frame_timeout_ns;	/* (0: 5 s) limit of one request */
	uint32_t max_clients;		/* (0: 1024) connections, a quarter of
					 * them per address */
	uint32_t client_rate;		/* (0: 896) steps per second and
					 * address, after a burst of 24 s */
	bool ipv6;			/* preferred if host has both */
	uint32_t backlog;		/* (0: SOMAXCONN) for listen(2) */
	const struct tei_secret *secret; /* NULL: every client is served */
};

/* Counters since the start. Plain data. */
struct tei_meta_server_stats {
	uint64_t accepted;		/* connections */
	uint64_t served;		/* requests answered, also with an
					 * error */
	uint64_t rejected;		/* malformed or unknown frames */
	uint64_t timed_out;		/* connections dropped at their deadline */
	uint64_t evicted;		/* dropped or refused at max_clients */
	uint64_t denied;		/* missing or wrong secret */
	uint64_t held;			/* times that a client was throttled by
					 * its address's rate limit */
	uint64_t shut;			/* times that an address was blocked */
	uint32_t clients;		/* connected now */
};

/* Fills *out from settings and a host; other members are zero. */
void tei_meta_server_defaults(const struct tei_settings *settings,
			      const char *host, uint64_t incarnation,
			      struct tei_meta_server_config *out);

/*
 * Binds one address and one port of the range (a random one, then the next free
 * one) and starts one thread that serves it, with all signals blocked. Returns
 * TEI_ERR_DNS, TEI_ERR_SOCKET (foreign address, or no free port; the text says
 * which) or TEI_ERR_MEMORY on failure.
 */
int tei_meta_server_start(const struct tei_meta_server_config *config,
			  struct tei_meta_server **out, struct tei_err *err);

/*
 * Drops the clients, joins the thread and frees the server. Must be the last
 * call. NULL is ignored.
 */
void tei_meta_server_stop(struct tei_meta_server *server);

/*
 * Makes the server listen at another address of this host too, with the same port
 * if that is free there, and makes that the bound address. The listener of the
 * start stays; that of an earlier move ends. host: numeric. Returns
 * TEI_ERR_SOCKET or TEI_ERR_MEMORY on failure, and the bound address stays.
 * One thread at a time.
 */
int tei_meta_server_move(struct tei_meta_server *server, const char *host,
			 struct tei_err *err);

/* The bound address: "host:port" with the host as given in config, which is the
 * name of a P2P segment; its numeric form; its parts. The texts are valid until
 * stop. */
const char *tei_meta_server_name(const struct tei_meta_server *server);
const char *tei_meta_server_address(const struct tei_meta_server *server);
const char *tei_meta_server_host(const struct tei_meta_server *server);
uint16_t tei_meta_server_port(const struct tei_meta_server *server);
uint64_t tei_meta_server_incarnation(const struct tei_meta_server *server);

/*
 * Serves json under name from now on and replaces an earlier text atomically;
 * replies in progress finish with the old text. The first name published is the
 * primary one: a client gets it if it asks for the process at an address and
 * not for a name. Never blocks.
 */
int tei_meta_server_publish(struct tei_meta_server *server, const char *name,
			    const char *json, size_t len, struct tei_err *err);

/*
 * Returns the present descriptor, frozen, with one reference for the server, or
 * NULL. If nothing has changed, returns the same descriptor as before, whose
 * text the server has. The server's thread calls it for each request for the
 * descriptor. It must not call the server and must not block.
 */
typedef struct tei_meta_desc *(*tei_meta_source_fn)(void *arg);

/*
 * Makes the server answer requests for name with the descriptor that fn
 * returns. Only one name, the primary one, can have such a function. fn NULL
 * ends that; when the call returns, the function is not running.
 */
void tei_meta_server_source(struct tei_meta_server *server, const char *name,
			    tei_meta_source_fn fn, void *arg);

/*
 * Stops serving name. Returns TEI_ERR_METADATA, without a log line, if it was
 * not served.
 */
int tei_meta_server_withdraw(struct tei_meta_server *server, const char *name);

/*
 * Returns the statistics of the process as JSON text from malloc, or NULL.
 * Called on the server's thread, which waits for it, at most ten times a
 * second. Must not call the server.
 */
typedef char *(*tei_meta_report_fn)(void *arg);

/*
 * Sets the function that reports statistics, or removes it if fn is NULL. When
 * the call returns, the previous function is not running.
 */
void tei_meta_server_report(struct tei_meta_server *server,
			    tei_meta_report_fn fn, void *arg);

void tei_meta_server_stats(struct tei_meta_server *server,
			   struct tei_meta_server_stats *out);

/* --- control channel: client --------------------------------------------- */

/* Hint of an error: the control port of a peer belongs to another process. */
#define TEI_META_PEER_ENDED \
	"the peer has ended, and another process has its port"

/*
 * Sends one request to the control channel at endpoint ("host:port"). Blocks
 * until deadline_ns at most, name resolution included. Returns TEI_ERR_DNS;
 * TEI_ERR_SOCKET if the connection is refused or lost, the host is unreachable
 * or does not answer in time; TEI_ERR_REJECTED if the peer answers with an
 * error (its text is in err->text, its code in err->prov_errno) or does not use
 * this protocol.
 *
 * secret: the same secret as the server's, or NULL if it has none. Otherwise
 * the result is TEI_ERR_REJECTED with TEI_META_DENIED in err->prov_errno.
 */
#define TEI_META_DENIED		13

int tei_meta_ping(const char *endpoint, const struct tei_secret *secret,
		  uint64_t deadline_ns, uint64_t *incarnation,
		  struct tei_err *err);

/*
 * Returns true if the control channel at endpoint refuses connections: no
 * process listens there. Logs nothing. Blocks, at most until deadline_ns.
 */
bool tei_meta_refused(const char *endpoint, uint64_t deadline_ns);

/*
 * Gets the descriptor of name as terminated text, which the caller frees with
 * free(). any: accept the primary descriptor if name is not published there.
 */
int tei_meta_get_desc(const char *endpoint, const struct tei_secret *secret,
		      const char *name, bool any, uint64_t deadline_ns,
		      char **json, size_t *len, struct tei_err *err);

/*
 * As tei_meta_get_desc, for callers that have settings: refuses an answer of
 * more than max bytes, which is MC_HANDSHAKE_MAX_LENGTH; 0: TEI_META_TEXT_MAX.
 */
int tei_meta_get_desc_max(const char *endpoint, const struct tei_secret *secret,
			  const char *name, bool any, size_t max,
			  uint64_t deadline_ns, char **json, size_t *len,
			  struct tei_err *err);

/*
 * Gets the statistics of the process at endpoint (see api/engine_report.c) as
 * terminated text, which the caller frees with free(). Returns TEI_ERR_REJECTED
 * also if the process has none or refuses them: without a secret, it only sends
 * them to processes of its host.
 */
int tei_meta_get_stats(const char *endpoint, const struct tei_secret *secret,
		       uint64_t deadline_ns, char **json, struct tei_err *err);

/* --- store --------------------------------------------------------------- */

/*
 * Called when the store learns that name's descriptor has changed or
 * disappeared, on the store's thread with no lock held. Must not block or call
 * the store. tries: number of earlier notifications of this change whose result
 * could not be read. Never called by P2PHANDSHAKE.
 */
typedef void (*tei_meta_changed_fn)(void *arg, const char *name,
				    uint32_t tries);

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

/*
 * Returns true for P2PHANDSHAKE: names are addresses and nothing is published.
 */
bool tei_meta_store_p2p(const struct tei_meta_store *store);

/* Returns "P2PHANDSHAKE", "zookeeper", …; static. */
const char *tei_meta_store_scheme(const struct tei_meta_store *store);

/*
 * Sets the server that serves descriptors of this process; the store publishes
 * its address. Must be called once, before the first publish. The server must
 * outlive the store.
 */
void tei_meta_store_attach(struct tei_meta_store *store,
			   struct tei_meta_server *server);

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
 * As tei_meta_store_publish, for callers whose result the application does not
 * see: a lost name stays lost, and its loss is not reported.
 */
int tei_meta_store_update(struct tei_meta_store *store,
			  struct tei_meta_desc *desc, uint64_t deadline_ns,
			  struct tei_err *err);

/* Flags of tei_meta_store_bring. */
#define TEI_META_TOLD	1u	/* the application sees the result */
#define TEI_META_HEAD	2u	/* the text refers to the control channel for
				 * the buffers */

/*
 * Publishes as the two calls above, for a process whose control channel serves
 * the descriptor already (tei_meta_server_source). Sets *listed to true if the
 * store itself now lists the buffers, and to false if it refers to the control
 * channel for them. After an error the contents of the store are unknown.
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
 * Returns true if the store is connected and this process still owns name. Does
 * not query the store and never blocks.
 */
bool tei_meta_store_sound(struct tei_meta_store *store, const char *name);

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
 * Finds the control channel of a server: rpc_meta/<server>; with P2PHANDSHAKE,
 * the name itself. Blocks.
 */
int tei_meta_store_resolve(struct tei_meta_store *store, const char *server,
			   uint64_t deadline_ns,
			   char endpoint[TEI_META_ENDPOINT_MAX],
			   struct tei_err *err);

/*
 * Checks that the store's content can be read and trusted: with credentials, no
 * other user may change it. Blocks.
 */
int tei_meta_store_check(struct tei_meta_store *store, uint64_t deadline_ns,
			 struct tei_err *err);

/*
 * Sets the only function that is called on changes; must precede the first
 * fetch. fn NULL removes it.
 */
void tei_meta_store_watch(struct tei_meta_store *store, tei_meta_changed_fn fn,
			  void *arg);
/*
 * Reports that a notified change could not be read. The store notifies it again
 * after a while, or as soon as a lost connection is restored. If the segment no
 * longer exists, the store notifies its next appearance. Any thread, does not
 * block.
 */
void tei_meta_store_unread(struct tei_meta_store *store, const char *name);

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
 * Creates *next, which the store then owns, from the current descriptor (NULL:
 * none). *next NULL removes the record. A return value other than 0 cancels the
 * change. May be called several times if others change the same record.
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
 * Removes a persistent segment record, even if this version cannot read its
 * content. *found tells whether it existed. Codes as above. Blocks.
 */
int tei_meta_store_remove(struct tei_meta_store *store, const char *name,
			  uint64_t deadline_ns, bool *found,
			  struct tei_err *err);

/*
 * Lists the names of all persistent segment records, sorted. The caller frees
 * *names and each name with free(); *names is NULL if there are none. Blocks.
 */
int tei_meta_store_list(struct tei_meta_store *store, uint64_t deadline_ns,
			char ***names, size_t *count, struct tei_err *err);

/* --- segment cache ------------------------------------------------------- */

/*
 * Maps names to ids. Id 0 is the own segment; others are positive, do not
 * change while the name is open, and become stale with the last close. An id
 * consists of a slot and a generation; a slot is reused only after many others.
 */
#define TEI_META_SLOT_BITS	20
#define TEI_META_SLOTS		(1u << TEI_META_SLOT_BITS)

/*
 * Returns the index of an id's slot, for arrays of the cache's user; 0 for id
 * 0.
 */
static inline uint32_t tei_meta_slot(int32_t id)
{
	return (uint32_t)id & (TEI_META_SLOTS - 1);
}

/*
 * Called after a segment's descriptor was replaced by a different one, on the
 * thread that replaced it, with no lock held. May call the cache. The
 * descriptors are valid during the call.
 */
typedef void (*tei_meta_refreshed_fn)(void *arg, int32_t id,
				      struct tei_meta_desc *before,
				      struct tei_meta_desc *now);

/*
 * Creates a cache for at most max_open segments (0: all slots). The store must
 * outlive the cache. fn may be NULL.
 */
int tei_meta_cache_create(struct tei_meta_store *store, uint32_t max_open,
			  tei_meta_refreshed_fn fn, void *arg,
			  struct tei_meta_cache **out, struct tei_err *err);

/* Frees the cache. No other call may be running. NULL is ignored. */
void tei_meta_cache_destroy(struct tei_meta_cache *cache);

/* Sets the own segment, which id 0 and its name refer to. Takes a reference. */
void tei_meta_cache_set_local(struct tei_meta_cache *cache,
			      struct tei_meta_desc *desc);

/*
 * Opens name and returns its id with one more reference. A leading slash is
 * ignored. Fetches the descriptor if name is not cached or fresh is true. Only
 * one fetch per name runs at a time; other calls wait for its result. The own
 * name, or an address of this process, is id 0. Returns TEI_ERR_INVALID for an
 * empty name, TEI_ERR_TOO_MANY at max_open, or a code of the store's fetch.
 * Blocks.
 */
int tei_meta_cache_open(struct tei_meta_cache *cache, const char *name,
			bool fresh, uint64_t deadline_ns, int32_t *id,
			struct tei_err *err);

/*
 * As tei_meta_cache_open, with a descriptor from another source, without a
 * fetch. An older descriptor of the same process changes nothing. One of
 * another process replaces the known one if replace is true or its serial is
 * higher; otherwise the result is TEI_ERR_CONTEXT, as it is for the own name
 * with another incarnation. desc is frozen; the cache takes a reference. Never
 * blocks.
 */
int tei_meta_cache_put(struct tei_meta_cache *cache,
		       struct tei_meta_desc *desc, bool replace, int32_t *id,
		       struct tei_err *err);

/*
 * Drops one reference. *last (may be NULL) tells whether the id is now stale.
 * Id 0 is accepted and never becomes stale. Returns TEI_ERR_INVALID for a stale
 * or unknown id.
 */
int tei_meta_cache_close(struct tei_meta_cache *cache, int32_t id, bool *last);

/*
 * Returns the descriptor with a reference for the caller, or NULL for a stale
 * or unknown id, without a log line. Holds a lock briefly, never blocks.
 */
struct tei_meta_desc *tei_meta_cache_get(struct tei_meta_cache *cache,
					 int32_t id);

/* Returns the id of an open name without taking a reference, or -1. */
int32_t tei_meta_cache_lookup(struct tei_meta_cache *cache, const char *name);

/*
 * Fetches the descriptor again. *changed (may be NULL) tells whether it
 * differs. Blocks.
 */
int tei_meta_cache_refresh(struct tei_meta_cache *cache, int32_t id,
			   uint64_t deadline_ns, bool *changed,
			   struct tei_err *err);

/*
 * As tei_meta_cache_refresh, after a notification that name has changed. Also
 * refreshes a name that is just being opened, because the open may have read
 * the old descriptor. *id is -1 if the name is neither open nor being opened;
 * then nothing is fetched. *id is 0 if it has no id yet or any longer.
 */
int tei_meta_cache_refresh_name(struct tei_meta_cache *cache, const char *name,
				uint64_t deadline_ns, int32_t *id,
				struct tei_err *err);

/*
 * Refreshes all open segments, several in parallel, each with a limit of
 * timeout_ns. Continues after errors and returns the first one. Blocks.
 */
int tei_meta_cache_sync(struct tei_meta_cache *cache, uint64_t timeout_ns,
			struct tei_err *err);

/*
 * Discards the cached descriptor of name: ids stay valid, and the next open
 * fetches it again. Returns 0 even if name is unknown, TEI_ERR_INVALID if it is
 * empty.
 */
int tei_meta_cache_forget(struct tei_meta_cache *cache, const char *name);

/* Returns the number of open segments, without the own one. */
uint32_t tei_meta_cache_count(struct tei_meta_cache *cache);

#endif /* TEI_META_TEI_META_H */
