/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_META_META_SERVER_INT_H
#define TEI_META_META_SERVER_INT_H

/* What meta_server.c (the thread) and the sources around it share. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "meta/meta_int.h"
#include "meta/meta_wire.h"
#include "util/clock.h"
#include "util/list.h"
#include "util/lock.h"
#include "util/log.h"

#define META_IP_BUCKETS	256
#define META_CONN_HEAD	sizeof(struct meta_wire_header)

/*
 * Text served under a name, or a report. Made by publish, or when it is asked
 * for; freed with its last reference, one of which is the table's (for a report
 * last_report), the others those of replies under way.
 */
struct meta_snapshot {
	uint32_t refs;		/* atomic */
	/* fixed */
	struct tei_list link;	/* server->lock: in server->snapshots */
	char *name;
	char *json;
	size_t len;
	uint8_t digest[TEI_MAC_SIZE];	/* where there is a secret */
};

void meta_snapshot_unref(struct meta_snapshot *s);
/* A copy of json with one reference, or NULL. digest: for a signed reply. */
struct meta_snapshot *meta_snapshot_new(const char *name, const char *json,
					size_t len, bool digest);

/*
 * One address, as long as it has clients or has used up some of its share.
 * Server thread only.
 */
struct meta_ip {
	struct tei_list link;	/* in its bucket */
	struct tei_list age;	/* server->ages, least recently used first */
	struct tei_list wait;	/* server->waiting while held is not empty */
	struct tei_list conns;	/* meta_conn.ip_link, longest waiting first */
	struct tei_list held;	/* meta_conn.held_link */
	uint8_t key[16];	/* IPv4 mapped; of IPv6 the upper half */
	uint32_t clients;
	bool shut;		/* its connections are not taken */
	uint64_t paid_ns;	/* its steps are paid for until then */
};

enum meta_conn_state {
	META_CONN_READING,	/* waits for (the rest of) a request */
	META_CONN_WRITING,	/* a reply is not all in the socket yet */
	META_CONN_DEAD,		/* closed, freed after this round of events */
};

/* One client. Server thread only. */
struct meta_conn {
	struct tei_list link;	/* server->conns, longest waiting first */
	enum meta_conn_state state;
	int fd;
	bool admitted;		/* may ask for anything */
	bool challenged;	/* session is derived, the proof not there */
	struct meta_session session;
	uint64_t deadline_ns;	/* for the request, or the reply */
	struct meta_ip *ip;
	struct tei_list ip_link;	/* ip->conns */
	struct tei_list held_link;	/* ip->held, or alone */
	uint64_t held_ns;	/* since when, 0: not held */
	bool let_go;		/* it was: its next event is served */
	/* request */
	struct meta_wire_header head;
	uint8_t body[TEI_META_NAME_MAX + META_WIRE_TAG];
	size_t used;		/* bytes of head and body so far */
	size_t awaited;		/* bytes that it is reported with, or its end */
	/* reply: out, the snapshot's text if there is one, the tag if signed */
	uint8_t out[sizeof(struct meta_wire_header) +
		    sizeof(struct meta_wire_error) + META_WIRE_ERROR_TEXT];
	size_t out_len;
	struct meta_snapshot *snapshot;
	uint8_t tag[META_WIRE_TAG];
	size_t tag_len;
	size_t sent;		/* of all three */
};

struct tei_meta_server {
	/* fixed after start */
	struct tei_meta_server_config config;	/* host points to name parts */
	char host[TEI_META_HOST_MAX];		/* numeric */
	char name[TEI_META_ENDPOINT_MAX];
	char address[TEI_META_ENDPOINT_MAX];
	uint16_t port;
	struct tei_mac_key auth;		/* where config.secret is */
	uint64_t step_ns, burst_ns;		/* price of a step; credit */
	int listen_fd, epoll_fd, wake_fd, alarm_fd;
	pthread_t thread;
	/* row 2 of docs/LOCKING.md; short holds only */
	struct tei_mutex lock;
	struct tei_list snapshots;	/* lock: primary first */
	struct tei_mutex report_lock;	/* outside of lock; held over a call */
	tei_meta_report_fn report;	/* report_lock: or NULL */
	void *report_arg;		/* report_lock */
	/* report_lock: what it said last, or NULL; not asked again before */
	struct meta_snapshot *last_report;
	uint64_t next_report_ns;
	struct tei_mutex source_lock;	/* outside of lock; held over a call */
	tei_meta_source_fn source;	/* source_lock: or NULL */
	void *source_arg;		/* source_lock */
	char *source_name;		/* source_lock */
	/* source_lock: the last descriptor of source, and its text; or NULL */
	struct tei_meta_desc *source_desc;
	struct meta_snapshot *source_text;
	/* atomic */
	bool stopping;
	struct tei_meta_server_stats stats;
	struct tei_log_limit log_limit, held_limit, shut_limit, full_limit;
	/* server thread only */
	struct tei_list conns, dead;
	struct tei_list ips[META_IP_BUCKETS], ages, waiting;
	uint32_t ip_count, shut_count;
	bool shut_ever;		/* clients may have inherited the filter */
	uint32_t clients;
	uint64_t next_due_ns;	/* no deadline passes before; 0: none */
	uint64_t share_due_ns;	/* somebody's turn comes then; 0: nobody's */
	uint64_t resume_ns;	/* accepting paused until then; 0: not */
	uint64_t alarm_ns;	/* alarm_fd goes off then; 0: not set */
};

/*
 * The process's statistics, made now or a short time ago, with one reference;
 * or NULL: there are none.
 */
struct meta_snapshot *meta_server_report(struct tei_meta_server *server);

/* meta_bind.c: fills listen_fd, port, host, address. */
int meta_server_bind(struct tei_meta_server *server, struct tei_err *err);

/*
 * meta_share.c: what an address may use up. Work is counted in steps: about
 * one system call with what belongs to it, or 64 KiB sent. A thousand of them
 * are less than 1 % of a second of CPU time: what an address may have.
 */
#define META_SHARE_STEP_BYTES	((size_t)64 << 10)
#define META_SHARE_STEP_NS	(10 * TEI_NS_PER_US)
#define META_SHARE_TICK_NS	(8 * TEI_NS_PER_MS) /* between releases */

void meta_share_init(struct tei_meta_server *server);
void meta_share_fini(struct tei_meta_server *server);

/* The address's, with one client more; NULL without memory. */
struct meta_ip *meta_share_join(struct tei_meta_server *server,
				const struct sockaddr *sa, uint64_t now_ns);
void meta_share_leave(struct tei_meta_server *server, struct meta_ip *ip);
void meta_share_charge(struct tei_meta_server *server, struct meta_ip *ip,
		       uint64_t steps, uint64_t now_ns);
/* For work that differs too much to be counted: by the CPU time it took. */
void meta_share_charge_cpu(struct tei_meta_server *server, struct meta_ip *ip,
			   uint64_t cpu_ns, uint64_t now_ns);

/* Whether the address has used up its share. */
bool meta_share_spent(const struct tei_meta_server *server,
		      const struct meta_ip *ip, uint64_t now_ns);

/* Not served until its turn comes; meta_share_due says when. */
void meta_share_hold(struct tei_meta_server *server, struct meta_conn *conn,
		     uint64_t now_ns);

/* Lets those go on whose turn it is; for the next ones: 0, or when. */
uint64_t meta_share_release(struct tei_meta_server *server, uint64_t now_ns);

/* More connections than it may make: the kernel drops them for a while. */
void meta_share_shut(struct tei_meta_server *server, struct meta_ip *ip,
		     uint64_t now_ns);

/* Numeric. */
void meta_share_text(const struct meta_ip *ip, char out[TEI_META_HOST_MAX]);

/* meta_conn.c */

/* Takes fd over, or tells it that there is no room. */
void meta_conn_add(struct tei_meta_server *server, int fd,
		   const struct sockaddr *peer, uint64_t now_ns);
void meta_conn_turn_away(struct tei_meta_server *server, int fd,
			 const struct sockaddr *peer, uint64_t now_ns);
void meta_conn_event(struct tei_meta_server *server, struct meta_conn *conn,
		     uint32_t events, uint64_t now_ns);

/* Drops what is over its deadline and finds the next one. */
void meta_conn_expire(struct tei_meta_server *server, uint64_t now_ns);

/*
 * Drops the longest waiting client of ip, or (NULL) of the address with the
 * most; or false.
 */
bool meta_conn_evict(struct tei_meta_server *server, struct meta_ip *ip);

/* Nothing is reported of what is read before that many bytes are there. */
void meta_conn_await(struct meta_conn *conn, size_t bytes);

/* Tells epoll what the client waits for now; nothing while it is held. */
void meta_conn_watch(struct tei_meta_server *server, struct meta_conn *conn);

/* Sends what out, out_len and snapshot say, signed where the session is on. */
void meta_conn_reply(struct tei_meta_server *server, struct meta_conn *conn,
		     uint64_t now_ns);
void meta_conn_reply_error(struct tei_meta_server *server,
			   struct meta_conn *conn, int code, const char *text,
			   uint64_t now_ns);

/* A last word, paid for, then the end; only where no reply is half written. */
void meta_conn_refuse(struct tei_meta_server *server, struct meta_conn *conn,
		      int code, const char *text);
void meta_conn_close(struct tei_meta_server *server, struct meta_conn *conn);

/* Frees the dead. */
void meta_conn_reap(struct tei_meta_server *server);
void meta_conn_drop_all(struct tei_meta_server *server);

/* meta_request.c: at most one request; true if it wants no reply. */
bool meta_request_read(struct tei_meta_server *server, struct meta_conn *conn,
		       uint64_t now_ns);
/* Counts, logs and refuses what is no request. */
void meta_request_reject(struct tei_meta_server *server,
			 struct meta_conn *conn, const char *why);

/* A reference to what is served under name, or NULL. */
struct meta_snapshot *meta_server_find(struct tei_meta_server *server,
				       const char *name, size_t len, bool any);

#define META_COUNT(server, field) \
	__atomic_fetch_add(&(server)->stats.field, 1, __ATOMIC_RELAXED)

#endif /* TEI_META_META_SERVER_INT_H */
