/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_META_META_SERVER_INT_H
#define TEI_META_META_SERVER_INT_H

/* Shared by meta_server.c (the thread) and the other sources of the server. */

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
 * A text that is served under a name, or a report. Created by publish or on
 * request. Freed with its last reference: the table of names (or last_report)
 * holds one, each reply in progress another.
 */
struct meta_snapshot {
	uint32_t refs;		/* atomic */
	/* constant */
	struct tei_list link;	/* server->lock: in server->snapshots */
	char *name;
	char *json;
	size_t len;
	uint8_t digest[TEI_MAC_SIZE];	/* only with a secret */
};

void meta_snapshot_unref(struct meta_snapshot *s);
/*
 * Copies json. Returns a snapshot with one reference, or NULL. digest: compute
 * the digest for signed replies.
 */
struct meta_snapshot *meta_snapshot_new(const char *name, const char *json,
					size_t len, bool digest);

/*
 * A client address. Exists while it has clients or has used part of its rate
 * limit. Server thread only.
 */
struct meta_ip {
	struct tei_list link;	/* in its bucket */
	struct tei_list age;	/* rate.ages, least recently used first */
	struct tei_list wait;	/* server->rate.waiting, while throttled is not
				 * empty */
	struct tei_list conns;	/* meta_conn.ip_link, longest waiting first */
	struct tei_list throttled; /* meta_conn.throttled_link */
	uint8_t key[16]; /* IPv4-mapped address; for IPv6, the upper half
			  * of the address */
	uint32_t clients;
	bool blocked;		/* the kernel drops its packets */
	uint64_t paid_ns;	/* time up to which its steps are paid */
};

enum meta_conn_state {
	META_CONN_READING,	/* waits for a request or the rest of it */
	META_CONN_WRITING,	/* the reply is not completely sent */
	META_CONN_DEAD,		/* closed; freed after this round of events */
};

/* One client connection. Server thread only. */
struct meta_conn {
	struct tei_list link;	/* server->conns, longest waiting first */
	enum meta_conn_state state;
	int fd;
	bool admitted;	 /* the client may send any request */
	bool challenged; /* the session key is derived, and the proof has
			  * not been received */
	struct meta_session session;
	uint64_t deadline_ns; /* time limit for the present request or
			       * reply */
	struct meta_ip *ip;
	struct tei_list ip_link;	/* ip->conns */
	struct tei_list throttled_link; /* ip->throttled, or in no list */
	uint64_t throttled_ns;		/* time since which the client is
					 * throttled, or 0 */
	bool released; /* throttling ended: serve the next event */
	/* request */
	struct meta_wire_header head;
	uint8_t body[TEI_META_NAME_MAX + META_WIRE_TAG];
	size_t used;		/* bytes of head and body received */
	size_t awaited;		/* received bytes that epoll waits for */
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

/* listener[0] is bound at the start, listener[1] by the last move. */
#define META_LISTENERS 2

/*
 * An address that a listener is or was bound to. Created by start and move,
 * freed with the server, because callers keep pointers to the texts. Constant.
 */
struct meta_bound {
	struct meta_bound *next;		/* address that was bound
						 * before, or NULL */
	char host[TEI_META_HOST_MAX];		/* numeric */
	char name[TEI_META_ENDPOINT_MAX];	/* text with the host as
						 * configured */
	char address[TEI_META_ENDPOINT_MAX];	/* numeric */
	uint16_t port;
};

/* The statistics that GET_STATS returns. Guarded by lock, which is taken before
 * server->lock and held while fn runs. */
struct meta_server_report {
	struct tei_mutex lock;
	tei_meta_report_fn fn; /* or NULL */
	void *arg;
	struct meta_snapshot *last; /* latest result, or NULL */
	uint64_t next_ns;	    /* earliest time of the next call */
};

/* The own descriptor, which GET_DESC returns. Guarded by lock, which is taken
 * before server->lock and held while fn runs. */
struct meta_server_source {
	struct tei_mutex lock;
	tei_meta_source_fn fn; /* or NULL */
	void *arg;
	char *name;
	struct tei_meta_desc *desc; /* latest result, or NULL */
	struct meta_snapshot *text; /* JSON text of desc, or NULL */
};

/* The rate limit of client addresses. Server thread only, except for the two
 * constants. */
struct meta_server_rate {
	uint64_t step_ns, burst_ns; /* constant: price of a step; size of
				     * the burst */
	struct tei_list ips[META_IP_BUCKETS]; /* meta_ip.link */
	struct tei_list ages, waiting;	      /* meta_ip.age, meta_ip.wait */
	uint32_t ip_count;
	uint32_t blocked_count; /* blocked addresses */
	bool blocked_ever;	/* clients may have inherited the
				 * filter */
	uint64_t due_ns;	/* time at which the next throttled client is
				 * due, 0: none */
};

/* Rate limits of log lines. Atomic. */
struct meta_server_log {
	struct tei_log_limit request, throttled, blocked, full;
};

struct tei_meta_server {
	/* constant after start */
	struct tei_meta_server_config config;	/* host: that of first */
	struct tei_mac_key auth;		/* if config.secret is set */
	int epoll_fd, wake_fd;
	pthread_t thread;
	struct meta_bound *first;		/* bound at start */
	/* used by start and move only */
	struct meta_bound *all, *last; /* last: the address of
					* listener[1], or NULL */
	/* row 2 of docs/LOCKING.md; held briefly only */
	struct tei_mutex lock;
	struct tei_list snapshots; /* guarded by lock; the primary segment
				    * comes first */
	struct meta_server_report report;
	struct meta_server_source source;
	/* atomic */
	bool stopping;
	struct meta_bound *bound;	/* the address to publish */
	int next_fd; /* listener that will replace listener[1] and is
		      * already in the epoll set, or -1 */
	struct tei_meta_server_stats stats;
	struct meta_server_log log;
	/* server thread only */
	int listener[META_LISTENERS];	/* or -1 */
	struct tei_list conns, dead;
	struct meta_server_rate rate;
	uint32_t clients;
	uint64_t next_due_ns;	/* no deadline passes before this time, 0: there
				 * is no deadline */
	uint64_t resume_ns;	/* end of a pause of accepting, or 0 */
};

/*
 * Returns the statistics of the process, at most a short time old, with one
 * reference, or NULL if there are none.
 */
struct meta_snapshot *meta_server_report(struct tei_meta_server *server);

/*
 * Binds that port at the host if port is not 0 and the port is free; otherwise
 * binds a port of the range. Stores the address in *out. Returns the listening
 * socket, or an error below 0.
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
#define META_RATE_LIMIT_TICK_NS	   (8 * TEI_NS_PER_MS) /* interval of releases */

void meta_rate_limit_init(struct tei_meta_server *server);
void meta_rate_limit_fini(struct tei_meta_server *server);

/* Makes a new listener drop the packets of blocked addresses as well. */
void meta_rate_limit_cover(const struct tei_meta_server *server, int fd);

/*
 * Returns the entry of the address with its client count increased, or NULL if
 * memory is short.
 */
struct meta_ip *meta_rate_limit_join(struct tei_meta_server *server,
				     const struct sockaddr *sa,
				     uint64_t now_ns);
void meta_rate_limit_leave(struct tei_meta_server *server, struct meta_ip *ip);
void meta_rate_limit_charge(struct tei_meta_server *server, struct meta_ip *ip,
			    uint64_t steps, uint64_t now_ns);
/* Charges work for its CPU time, because its cost varies. */
void meta_rate_limit_charge_cpu(struct tei_meta_server *server,
				struct meta_ip *ip, uint64_t cpu_ns,
				uint64_t now_ns);

/* Returns true if the address has used up its rate limit. */
bool meta_rate_limit_spent(const struct tei_meta_server *server,
			   const struct meta_ip *ip, uint64_t now_ns);

/*
 * Throttles a client: it is not served until meta_rate_limit_release lets it
 * continue.
 */
void meta_rate_limit_throttle(struct tei_meta_server *server,
			      struct meta_conn *conn, uint64_t now_ns);

/*
 * Lets the throttled clients continue that are due. Returns the time at which
 * the next one is due, or 0.
 */
uint64_t meta_rate_limit_release(struct tei_meta_server *server,
				 uint64_t now_ns);

/*
 * Blocks an address that connects too often: the kernel drops its packets for a
 * while.
 */
void meta_rate_limit_block(struct tei_meta_server *server, struct meta_ip *ip,
			   uint64_t now_ns);

/* Writes the address as numeric text. */
void meta_rate_limit_text(const struct meta_ip *ip,
			  char out[TEI_META_HOST_MAX]);

/* meta_conn.c */

/*
 * meta_conn_add takes ownership of fd. meta_conn_turn_away reports that there
 * is no room and closes it.
 */
void meta_conn_add(struct tei_meta_server *server, int fd,
		   const struct sockaddr *peer, uint64_t now_ns);
void meta_conn_turn_away(struct tei_meta_server *server, int fd,
			 const struct sockaddr *peer, uint64_t now_ns);
void meta_conn_event(struct tei_meta_server *server, struct meta_conn *conn,
		     uint32_t events, uint64_t now_ns);

/* Drops clients whose deadline has passed and finds the next deadline. */
void meta_conn_expire(struct tei_meta_server *server, uint64_t now_ns);

/*
 * Drops the longest waiting client of ip, or, if ip is NULL, of the address
 * with the most clients. Returns false if there is none.
 */
bool meta_conn_evict(struct tei_meta_server *server, struct meta_ip *ip);

/* Makes epoll report input only when that many bytes have arrived. */
void meta_conn_await(struct meta_conn *conn, size_t bytes);

/* Sets the events that epoll reports for the client; none while the client is
 * throttled. */
void meta_conn_watch(struct tei_meta_server *server, struct meta_conn *conn);

/* Sends the reply in out, out_len and snapshot. Signs it if the session is
 * on. */
void meta_conn_reply(struct tei_meta_server *server, struct meta_conn *conn,
		     uint64_t now_ns);
void meta_conn_reply_error(struct tei_meta_server *server,
			   struct meta_conn *conn, int code, const char *text,
			   uint64_t now_ns);

/*
 * Sends an error, charges it, and closes the connection. Only valid if no reply
 * is partly sent.
 */
void meta_conn_refuse(struct tei_meta_server *server, struct meta_conn *conn,
		      int code, const char *text);
void meta_conn_close(struct tei_meta_server *server, struct meta_conn *conn);

/* Frees closed connections. */
void meta_conn_reap(struct tei_meta_server *server);
void meta_conn_drop_all(struct tei_meta_server *server);

/*
 * Reads at most one request. Returns true if the request needs no reply.
 */
bool meta_request_read(struct tei_meta_server *server, struct meta_conn *conn,
		       uint64_t now_ns);
/* Counts, logs and refuses an invalid request. */
void meta_request_reject(struct tei_meta_server *server,
			 struct meta_conn *conn, const char *why);

/* Returns a reference to the text served under name, or NULL. */
struct meta_snapshot *meta_server_find(struct tei_meta_server *server,
				       const char *name, size_t len, bool any);

#define META_COUNT(server, field) \
	__atomic_fetch_add(&(server)->stats.field, 1, __ATOMIC_RELAXED)

#endif /* TEI_META_META_SERVER_INT_H */
