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
	const char *host;	     /* host that tei_meta_local_host has
				      * chosen */
	uint16_t min_port, max_port; /* range of ports; both 0: the kernel
				      * chooses a port */
	uint64_t incarnation;	     /* incarnation of this process, for
				      * replies to PING */
	uint64_t frame_timeout_ns;   /* (0: 5 s) time limit of one request */
	/*
	 * (0: 1024) greatest number of connections; one address may have a
	 * quarter of them
	 */
	uint32_t max_clients;
	/*
	 * (0: 896) steps per second and address, after a burst of 24 s;
	 * meta_server_int.h defines the step
	 */
	uint32_t client_rate;
	bool ipv6;	  /* prefer IPv6 if the host has both IPv4
			   * and IPv6 */
	uint32_t backlog; /* (0: SOMAXCONN) backlog of
			   * listen(2) */
	const struct tei_secret *secret; /* NULL: every client is served */
};

/* Counters since the start. Plain data. */
struct tei_meta_server_stats {
	uint64_t accepted;  /* accepted connections */
	uint64_t served;    /* requests that were answered, also
			     * with an error */
	uint64_t rejected;  /* requests that were malformed or
			     * unknown */
	uint64_t timed_out; /* connections that were dropped at
			     * their deadline */
	uint64_t evicted;   /* connections that were dropped or
			     * refused because of max_clients */
	uint64_t denied;    /* requests with a missing or wrong
			     * secret */
	/*
	 * number of times that a client was throttled by the rate limit of its
	 * address
	 */
	uint64_t throttled;
	uint64_t blocked; /* number of times that an address was
			   * blocked */
	uint32_t clients; /* clients that are connected now */
};

/* Sets the members of *out that come from the settings, and host. The other
 * members become zero. */
void tei_meta_server_defaults(const struct tei_settings *settings,
			      const char *host, uint64_t incarnation,
			      struct tei_meta_server_config *out);

/*
 * Binds one address and one port of the range: a random port or, if that is in
 * use, the next free one. Starts the thread of the server, with all signals
 * blocked. Returns TEI_ERR_DNS, TEI_ERR_SOCKET (foreign address, or no free
 * port; the text says which) or TEI_ERR_MEMORY on failure.
 */
int tei_meta_server_start(const struct tei_meta_server_config *config,
			  struct tei_meta_server **out, struct tei_err *err);

/*
 * Drops the clients, joins the thread and frees the server. Must be the last
 * call. NULL is ignored.
 */
void tei_meta_server_stop(struct tei_meta_server *server);

/*
 * Makes the server also listen at another address of this host, with the same
 * port if that port is free, and makes this address the bound address. The
 * listener of tei_meta_server_start stays; the listener of an earlier move is
 * closed. host is numeric. Returns TEI_ERR_SOCKET or TEI_ERR_MEMORY on failure,
 * and the bound address stays. One thread at a time.
 */
int tei_meta_server_move(struct tei_meta_server *server, const char *host,
			 struct tei_err *err);

/*
 * tei_meta_server_name returns "host:port" with the host as given in config;
 * this is the name of a P2PHANDSHAKE segment. The functions after it return the
 * address with a numeric host, and its host and port. The texts are valid until
 * tei_meta_server_stop.
 */
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
 * NULL. If nothing has changed, the function returns the same descriptor as
 * before, whose text the server has already. The server's thread calls the
 * function each time that a client requests the descriptor. The function must
 * not call the server and must not block.
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
 * Returns the statistics of the process as JSON text from malloc, or NULL. The
 * server's thread calls the function, at most ten times a second, and waits for
 * its result. The function must not call the server.
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
