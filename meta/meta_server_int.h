/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_META_META_SERVER_INT_H
#define TEI_META_META_SERVER_INT_H

/* What meta_server.c (thread, clients) and meta_bind.c, meta_conn.c share. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "meta/meta_int.h"
#include "meta/meta_wire.h"
#include "util/list.h"
#include "util/lock.h"
#include "util/log.h"

#define META_IP_BUCKETS	256

/*
 * Text served under a name. Made by publish; freed with its last reference,
 * one of which is the table's, the others those of replies under way.
 */
struct meta_snapshot {
	uint32_t refs;		/* atomic */
	/* fixed */
	struct tei_list link;	/* server->lock: in server->snapshots */
	char *name;
	char *json;
	size_t len;
};

void meta_snapshot_unref(struct meta_snapshot *s);

/* Clients of one address; server thread only. */
struct meta_ip {
	struct tei_list link;	/* in its bucket */
	uint8_t key[16];	/* IPv4 mapped; of IPv6 the upper half */
	uint32_t clients;
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
	bool admitted;		/* may ask for descriptors */
	uint64_t deadline_ns;	/* for the request, or the reply */
	struct meta_ip *ip;
	/* request */
	struct meta_wire_header head;
	uint8_t body[TEI_META_NAME_MAX];
	size_t used;		/* bytes of head and body so far */
	/* reply: out, then the snapshot's text if there is one */
	uint8_t out[sizeof(struct meta_wire_header) +
		    sizeof(struct meta_wire_error) + META_WIRE_ERROR_TEXT];
	size_t out_len;
	struct meta_snapshot *snapshot;
	size_t sent;		/* of both */
};

struct tei_meta_server {
	/* fixed after start */
	struct tei_meta_server_config config;	/* host points to name parts */
	char host[TEI_META_HOST_MAX];		/* numeric */
	char name[TEI_META_ENDPOINT_MAX];
	char address[TEI_META_ENDPOINT_MAX];
	uint16_t port;
	int listen_fd, epoll_fd, wake_fd;
	pthread_t thread;
	/* order 2 of util/lock.h; short holds only */
	struct tei_mutex lock;
	struct tei_list snapshots;	/* lock: primary first */
	/* atomic */
	bool stopping;
	struct tei_meta_server_stats stats;
	struct tei_log_limit log_limit;
	/* server thread only */
	struct tei_list conns, dead;
	struct tei_list ips[META_IP_BUCKETS];
	uint32_t clients;
	uint64_t next_due_ns;	/* no deadline passes before; 0: none */
	uint64_t resume_ns;	/* accepting paused until then; 0: not */
};

/* meta_bind.c: fills listen_fd, port, host, address. */
int meta_server_bind(struct tei_meta_server *server, struct tei_err *err);

/* meta_conn.c */

/* Takes fd over. */
void meta_conn_add(struct tei_meta_server *server, int fd,
		   const struct sockaddr *peer, uint64_t now_ns);
void meta_conn_event(struct tei_meta_server *server, struct meta_conn *conn,
		     uint64_t now_ns);

/* Drops what is over its deadline and finds the next one. */
void meta_conn_expire(struct tei_meta_server *server, uint64_t now_ns);

/* Drops the longest waiting client of the address with the most; or false. */
bool meta_conn_evict(struct tei_meta_server *server);

/* Answers with an error frame as far as the socket takes it, and closes. */
void meta_conn_refuse_fd(int fd, int code, const char *text);

/* Frees the dead. */
void meta_conn_reap(struct tei_meta_server *server);
void meta_conn_drop_all(struct tei_meta_server *server);

/* A reference to what is served under name, or NULL. */
struct meta_snapshot *meta_server_find(struct tei_meta_server *server,
				       const char *name, size_t len, bool any);

#define META_COUNT(server, field) \
	__atomic_fetch_add(&(server)->stats.field, 1, __ATOMIC_RELAXED)

#endif /* TEI_META_META_SERVER_INT_H */
