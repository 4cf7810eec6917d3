/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_META_META_SERVER_INT_H
#define TEI_META_META_SERVER_INT_H

/*
 * Declarations that the sources of the control channel server share:
 * meta_server.c (the thread), meta_bind.c, meta_conn.c, meta_rate_limit.c and
 * meta_request.c.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "meta/meta_int.h"
#include "meta/meta_wire.h"
#include "meta/tei_meta_desc.h"
#include "meta/tei_meta_server.h"
#include "util/clock.h"
#include "util/list.h"
#include "util/lock.h"
#include "util/log.h"

#define META_IP_BUCKETS	256
#define META_CONN_HEAD	sizeof(struct meta_wire_header)

/*
 * A JSON text that the server sends: a published descriptor, the present
 * descriptor of the source, or statistics. tei_meta_server_publish creates the
 * first kind; the others are created when a client requests them. The owner
 * (server->snapshots, server->source or server->report) has one reference, and
 * each reply in progress has another one. The last reference frees the
 * snapshot.
 */
struct meta_snapshot {
	uint32_t refs;		/* number of references; atomic */
	/* the following members do not change, except for link */
	struct tei_list link; /* element of server->snapshots; guarded by
			       * server->lock */
	char *name;
	char *json;
	size_t len;
	uint8_t digest[TEI_MAC_SIZE]; /* digest of json; computed only if the
				       * server has a secret */
};

void meta_snapshot_unref(struct meta_snapshot *s);
/*
 * Returns a snapshot that contains copies of name and json and has one
 * reference, or NULL if memory is short. If digest is true, computes the digest
 * of json, which signed replies need.
 */
struct meta_snapshot *meta_snapshot_new(const char *name, const char *json,
					size_t len, bool digest);

/*
 * A client address. The entry exists while the address has connections, or
 * while steps that it has used still count against its rate limit. Used by the
 * server thread only.
 */
struct meta_ip {
	struct tei_list link;	   /* element of the list of its hash bucket */
	struct tei_list age;	   /* element of rate.ages, whose first element
				    * was used least recently */
	struct tei_list wait;	   /* element of rate.waiting while the list
				    * throttled is not empty */
	struct tei_list conns;	   /* list of meta_conn.ip_link; the connection
				    * that has waited longest is the first
				    * one */
	struct tei_list throttled; /* list of meta_conn.throttled_link */
	uint8_t key[16]; /* the address: IPv4-mapped, or the upper 64 bits of an
			  * IPv6 address */
	uint32_t clients;
	bool blocked;		/* the kernel drops packets from this address */
	uint64_t paid_ns;	/* virtual time, ns, that grows by the price of
				 * each step that the address uses; see
				 * meta_rate_limit.c */
};

enum meta_conn_state {
	META_CONN_READING, /* a request, or the rest of it, has not arrived
			    * yet */
	META_CONN_WRITING, /* the reply is not completely sent */
	META_CONN_DEAD,	   /* the connection is closed; the struct is freed when
			    * the present events of epoll have been handled */
};

/* The connection of one client. Used by the server thread only. */
struct meta_conn {
	struct tei_list link; /* element of server->conns, whose first element
			       * has waited longest */
	enum meta_conn_state state;
	int fd;
	bool admitted;	 /* the client may make any request: it has proved that
			  * it knows the secret, or there is no secret */
	bool challenged; /* the session key is derived; the client's proof has
			  * not arrived yet */
	struct meta_session session;
	uint64_t deadline_ns; /* deadline of the present request or reply */
	struct meta_ip *ip;
	struct tei_list ip_link;	/* element of ip->conns */
	struct tei_list throttled_link; /* element of ip->throttled while the
					 * client is throttled */
	uint64_t throttled_ns;		/* time at which the client was
					 * throttled; 0: it is not throttled */
	bool released; /* the client was throttled before, and its next event is
			* served even if the rate limit is used up */
	/* the following members describe the present request */
	struct meta_wire_header head;
	uint8_t body[TEI_META_NAME_MAX + META_WIRE_TAG];
	size_t used;	/* number of bytes of head and body that were
			 * received */
	size_t awaited; /* number of bytes that must have arrived before epoll
			 * reports input (SO_RCVLOWAT) */
	/* The reply consists of out, the snapshot's text if there is one, and
	 * the tag if the frame is signed. */
	uint8_t out[sizeof(struct meta_wire_header) +
		    sizeof(struct meta_wire_error) + META_WIRE_ERROR_TEXT];
	size_t out_len;
	struct meta_snapshot *snapshot;
	uint8_t tag[META_WIRE_TAG];
	size_t tag_len;
	size_t sent; /* number of bytes of the reply that were
		      * sent */
};

/* Size of listener[]. The server binds listener[0] at its start;
 * tei_meta_server_move binds listener[1]. */
#define META_LISTENERS 2

/*
 * An address to which a listener is or was bound. Created by
 * tei_meta_server_start and tei_meta_server_move. Does not change. Freed only
 * with the server, because callers keep pointers to the texts.
 */
struct meta_bound {
	struct meta_bound *next;		/* next element of server->all:
						 * the address that was bound
						 * before this one, or NULL */
	char host[TEI_META_HOST_MAX];		/* numeric host */
	char name[TEI_META_ENDPOINT_MAX];	/* "host:port", with the host as
						 * configured */
	char address[TEI_META_ENDPOINT_MAX];	/* "host:port", with a numeric
						 * host */
	uint16_t port;
};

/* The source of the statistics for GET_STATS. Guarded by lock, which is held
 * while fn runs. A thread takes this lock before server->lock. */
struct meta_server_report {
	struct tei_mutex lock;
	tei_meta_report_fn fn; /* function that returns the statistics, or
				* NULL */
	void *arg;
	struct meta_snapshot *last; /* latest statistics, or NULL */
	uint64_t next_ns;	    /* earliest time of the next call of fn */
};

/* The source of this process's own descriptor for GET_DESC. Guarded by lock,
 * which is held while fn runs. A thread takes this lock before server->lock. */
struct meta_server_source {
	struct tei_mutex lock;
	tei_meta_source_fn fn; /* function that returns the descriptor, or
				* NULL */
	void *arg;
	char *name;
	struct tei_meta_desc *desc; /* latest descriptor, or NULL */
	struct meta_snapshot *text; /* JSON text of desc, or NULL */
};

/* The rate limit of client addresses. Used by the server thread only, except
 * for the two constants. */
struct meta_server_rate {
	uint64_t step_ns, burst_ns; /* constant: price of a step and size of the
				     * burst, in ns */
	struct tei_list ips[META_IP_BUCKETS]; /* lists of meta_ip.link */
	struct tei_list ages, waiting;	      /* lists of meta_ip.age and
					       * meta_ip.wait */
	uint32_t ip_count;
	uint32_t blocked_count; /* number of blocked addresses */
	bool blocked_ever;	/* a filter was set on the listening sockets at
				 * some time, so accepted sockets may have
				 * inherited it */
	uint64_t due_ns;	/* time at which the next throttled client or
				 * blocked address is to be released, or 0 if
				 * there is none */
};

/* limits of the rates of log lines, one for each kind of line; atomic */
struct meta_server_log {
	struct tei_log_limit request, throttled, blocked, full;
};

struct tei_meta_server {
	/* the following members do not change after start */
	struct tei_meta_server_config config; /* configuration; config.host
					       * points to first->host */
	struct tei_mac_key auth;	      /* key from which session keys are
					       * derived; valid only if there is
					       * a secret */
	int epoll_fd, wake_fd;
	pthread_t thread;
	struct meta_bound *first; /* address that was bound at the
				   * start */
	/* used by tei_meta_server_start and tei_meta_server_move only */
	struct meta_bound *all, *last; /* all: list of all addresses, the newest
					* one first; last: the address of
					* listener[1], or NULL */
	/* row 2 of docs/LOCKING.md; held briefly only */
	struct tei_mutex lock;
	struct tei_list snapshots; /* list of meta_snapshot.link, guarded by
				    * lock; the first element is the primary
				    * segment */
	struct meta_server_report report;
	struct meta_server_source source;
	/* atomic */
	bool stopping;
	struct meta_bound *bound; /* address that tei_meta_server_address
				   * returns */
	int next_fd; /* the listener that will replace listener[1], or -1; it is
		      * already in the epoll set */
	struct tei_meta_server_stats stats;
	struct meta_server_log log;
	/* the following members are used by the server thread only */
	int listener[META_LISTENERS]; /* listening sockets; -1: there is no such
				       * listener */
	struct tei_list conns, dead;
	struct meta_server_rate rate;
	uint32_t clients;
	uint64_t next_due_ns; /* earliest deadline of all clients, or a time
			       * before it; 0: there is no deadline */
	uint64_t resume_ns;   /* time at which the server accepts connections
			       * again after a pause; 0: there is no pause */
};

/* Returns the statistics of the process, with a reference for the caller, or
 * NULL if there are none. The statistics may be up to 100 ms old. */
struct meta_snapshot *meta_server_report(struct tei_meta_server *server);

/*
 * Binds a port at config->host and stores the address in *out. If port is not 0
 * and that port is free, binds that port; otherwise binds a port of the range
 * in config. Returns the listening socket, or a negative error code.
 */
int meta_server_bind(const struct tei_meta_server_config *config, uint16_t port,
		     struct meta_bound *out, struct tei_err *err);

/*
 * The rate limit of a client address (token bucket). Work is counted in steps.
 * A step is about one system call with the work around it, or 64 KiB sent. An
 * address may use about a thousand steps per second, which is less than 1 % of
 * a CPU.
 */
#define META_RATE_LIMIT_STEP_BYTES ((size_t)64 << 10)
#define META_RATE_LIMIT_STEP_NS	   (10 * TEI_NS_PER_US)
/* least time between two releases of throttled clients */
#define META_RATE_LIMIT_TICK_NS (8 * TEI_NS_PER_MS)

void meta_rate_limit_init(struct tei_meta_server *server);
void meta_rate_limit_fini(struct tei_meta_server *server);

/* Makes the new listening socket fd drop the packets of blocked addresses as
 * well. */
void meta_rate_limit_cover(const struct tei_meta_server *server, int fd);

/*
 * Counts one more client of the address sa and returns the entry of the
 * address. Returns NULL if memory is short. Each call needs one call of
 * meta_rate_limit_leave.
 */
struct meta_ip *meta_rate_limit_join(struct tei_meta_server *server,
				     const struct sockaddr *sa,
				     uint64_t now_ns);
void meta_rate_limit_leave(struct tei_meta_server *server, struct meta_ip *ip);
void meta_rate_limit_charge(struct tei_meta_server *server, struct meta_ip *ip,
			    uint64_t steps, uint64_t now_ns);
/* Charges the CPU time cpu_ns, for work whose cost varies. */
void meta_rate_limit_charge_cpu(struct tei_meta_server *server,
				struct meta_ip *ip, uint64_t cpu_ns,
				uint64_t now_ns);

/* Returns true if the address has used up its rate limit. */
bool meta_rate_limit_spent(const struct tei_meta_server *server,
			   const struct meta_ip *ip, uint64_t now_ns);

/* Throttles a client: the server ignores its events until
 * meta_rate_limit_release releases it. */
void meta_rate_limit_throttle(struct tei_meta_server *server,
			      struct meta_conn *conn, uint64_t now_ns);

/* Releases the throttled clients and the blocked addresses that are due.
 * Returns the time at which the next one is due, or 0 if none is left. */
uint64_t meta_rate_limit_release(struct tei_meta_server *server,
				 uint64_t now_ns);

/*
 * Blocks an address that connects too often: the kernel drops its packets for a
 * while.
 */
void meta_rate_limit_block(struct tei_meta_server *server, struct meta_ip *ip,
			   uint64_t now_ns);

/* Writes the address to out as numeric text. */
void meta_rate_limit_text(const struct meta_ip *ip,
			  char out[TEI_META_HOST_MAX]);

/* The following functions handle the connections of clients (meta_conn.c). */

/*
 * meta_conn_add serves a new connection from now on and owns fd.
 * meta_conn_turn_away sends the error that the server has too many connections,
 * and closes fd.
 */
void meta_conn_add(struct tei_meta_server *server, int fd,
		   const struct sockaddr *peer, uint64_t now_ns);
void meta_conn_turn_away(struct tei_meta_server *server, int fd,
			 const struct sockaddr *peer, uint64_t now_ns);
void meta_conn_event(struct tei_meta_server *server, struct meta_conn *conn,
		     uint32_t events, uint64_t now_ns);

/* Closes the connections whose deadline has passed. Sets
 * server->next_due_ns. */
void meta_conn_expire(struct tei_meta_server *server, uint64_t now_ns);

/*
 * Closes the connection of ip that has waited longest. If ip is NULL, chooses
 * the address with the most connections. Returns false if there is no
 * connection.
 */
bool meta_conn_evict(struct tei_meta_server *server, struct meta_ip *ip);

/* Makes epoll report input only after the given number of bytes has arrived. */
void meta_conn_await(struct meta_conn *conn, size_t bytes);

/* Sets the events that epoll reports for the client. While the client is
 * throttled, epoll reports none. */
void meta_conn_watch(struct tei_meta_server *server, struct meta_conn *conn);

/*
 * Sends the reply: the first out_len bytes of conn->out, then the text of
 * conn->snapshot if there is one. Signs the reply if conn->session.on is true.
 */
void meta_conn_reply(struct tei_meta_server *server, struct meta_conn *conn,
		     uint64_t now_ns);
void meta_conn_reply_error(struct tei_meta_server *server,
			   struct meta_conn *conn, int code, const char *text,
			   uint64_t now_ns);

/* Sends an error, charges its cost to the client's address, and closes the
 * connection. Must not be called while a reply is partly sent. */
void meta_conn_refuse(struct tei_meta_server *server, struct meta_conn *conn,
		      int code, const char *text);
void meta_conn_close(struct tei_meta_server *server, struct meta_conn *conn);

/* Frees the connections that were closed. */
void meta_conn_reap(struct tei_meta_server *server);
void meta_conn_drop_all(struct tei_meta_server *server);

/* Reads and handles at most one request. Returns true if a complete request was
 * handled that needs no reply, so that the next request may be read at once. */
bool meta_request_read(struct tei_meta_server *server, struct meta_conn *conn,
		       uint64_t now_ns);
/* Counts and logs an invalid request, and sends an error. */
void meta_request_reject(struct tei_meta_server *server,
			 struct meta_conn *conn, const char *why);

/*
 * Returns the text that is published under name, with a reference for the
 * caller, or NULL if there is none. If "any" is true and name is unknown,
 * returns the primary text.
 */
struct meta_snapshot *meta_server_find(struct tei_meta_server *server,
				       const char *name, size_t len, bool any);

#define META_COUNT(server, field) \
	__atomic_fetch_add(&(server)->stats.field, 1, __ATOMIC_RELAXED)

#endif /* TEI_META_META_SERVER_INT_H */
