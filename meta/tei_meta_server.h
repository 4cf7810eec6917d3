/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_META_TEI_META_SERVER_H
#define TEI_META_TEI_META_SERVER_H

/*
 * The server of the control channel, which answers for this process. The rules
 * of tei_meta.h apply.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "meta/tei_meta.h"

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
	uint64_t throttled;		/* times that a client was throttled by
					 * its address's rate limit */
	uint64_t blocked;		/* times that an address was blocked */
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
 * primary one: a client that requests the process at an address, and not a
 * name, gets this text. Never blocks.
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
 * returns. Only one name, the primary one, can have such a function. If fn is
 * NULL, the server no longer calls the earlier function; when the call returns,
 * that function is not running.
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

#endif /* TEI_META_TEI_META_SERVER_H */
