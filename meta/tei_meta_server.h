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
 * Configuration of a server. "(0: n)" in the comment of a member means that the
 * value 0 stands for n. tei_meta_server_start reads the struct and does not
 * keep it.
 */
struct tei_meta_server_config {
	const char *host;	     /* address to bind, as tei_meta_local_host
				      * writes it */
	uint16_t min_port, max_port; /* first and last port of the range; both
				      * 0: the kernel chooses a port */
	uint64_t incarnation;	     /* incarnation of this process, for
				      * replies to PING */
	uint64_t frame_timeout_ns;   /* (0: 5 s) time limit of one request */
	/* (0: 1024) greatest number of connections; one client address may have
	 * a quarter of them */
	uint32_t max_clients;
	/*
	 * (0: 896) steps per second that one client address may use
	 * continuously, in addition to a burst of 24 s; meta_server_int.h
	 * defines the step
	 */
	uint32_t client_rate;
	bool ipv6;	  /* true: if the host name has IPv4 and IPv6 addresses,
			   * an IPv6 address is bound */
	uint32_t backlog; /* (0: SOMAXCONN) backlog of
			   * listen(2) */
	bool unbound;	  /* true: the server has no socket and no thread, so
			   * no client can reach it, and "host" is any text */
	const struct tei_secret *secret; /* shared secret that clients must
					  * prove to have; NULL: every client is
					  * served */
};

/* Counters, which begin at 0 when the server starts. Plain data. */
struct tei_meta_server_stats {
	uint64_t accepted;  /* connections that were accepted */
	uint64_t served;    /* requests that were answered; an answer may be an
			     * error */
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
	uint32_t clients; /* number of clients that are connected at present */
};

/* Sets host, incarnation and the members of *out that come from the settings.
 * The other members become zero. */
void tei_meta_server_defaults(const struct tei_settings *settings,
			      const char *host, uint64_t incarnation,
			      struct tei_meta_server_config *out);

/*
 * Binds one address and one port of the range: a random port or, if that port
 * is in use, the next free one. Starts the thread of the server, with all
 * signals blocked. Returns TEI_ERR_DNS if the host cannot be resolved,
 * TEI_ERR_SOCKET if the address is not of this host or no port is free (the
 * error text says which), or TEI_ERR_MEMORY.
 */
int tei_meta_server_start(const struct tei_meta_server_config *config,
			  struct tei_meta_server **out, struct tei_err *err);

/* Closes all connections, joins the thread and frees the server. No other
 * function may be called with the server afterwards. NULL is ignored. */
void tei_meta_server_stop(struct tei_meta_server *server);

/*
 * Makes the server also listen at "host", another address of this machine, with
 * the same port if that port is free there. From then on, tei_meta_server_name,
 * tei_meta_server_address, tei_meta_server_host and tei_meta_server_port return
 * the new address. The listener of tei_meta_server_start stays open; the
 * listener of an earlier move is closed. host is numeric. After a failure
 * (TEI_ERR_SOCKET or TEI_ERR_MEMORY) the address stays the old one. Only one
 * thread at a time may call this function.
 */
int tei_meta_server_move(struct tei_meta_server *server, const char *host,
			 struct tei_err *err);

/*
 * tei_meta_server_name returns "host:port" with the host as the configuration
 * spells it; this is the name of a P2PHANDSHAKE segment.
 * tei_meta_server_address returns "host:port" with a numeric host.
 * tei_meta_server_host and tei_meta_server_port return the parts of that
 * address. The texts are valid until tei_meta_server_stop.
 */
const char *tei_meta_server_name(const struct tei_meta_server *server);
const char *tei_meta_server_address(const struct tei_meta_server *server);
const char *tei_meta_server_host(const struct tei_meta_server *server);
uint16_t tei_meta_server_port(const struct tei_meta_server *server);
uint64_t tei_meta_server_incarnation(const struct tei_meta_server *server);

/*
 * Makes the server answer requests for name with the text json. An earlier text
 * of that name is replaced atomically; replies in progress finish with the old
 * text. The first name that is published is the primary one. A client that
 * knows only the address of a process sets the flag META_WIRE_ANY in its
 * request; the server then sends the text of the primary name if the requested
 * name is unknown. Never blocks.
 */
int tei_meta_server_publish(struct tei_meta_server *server, const char *name,
			    const char *json, size_t len, struct tei_err *err);

/*
 * Returns the present descriptor, frozen, with one reference for the server, or
 * NULL if there is none. If nothing has changed, the function returns the same
 * pointer as before; the server then does not encode the descriptor again. The
 * server's thread calls the function each time that a client requests the
 * descriptor. The function must not call the server and must not block.
 */
typedef struct tei_meta_desc *(*tei_meta_source_fn)(void *arg);

/*
 * Makes the server answer requests for name with the descriptor that fn
 * returns. There is only one such name, and it becomes the primary one. The new
 * function replaces the previous one; if fn is NULL, there is no function
 * afterwards. When tei_meta_server_source returns, the previous function is not
 * running.
 */
void tei_meta_server_source(struct tei_meta_server *server, const char *name,
			    tei_meta_source_fn fn, void *arg);

/* Makes the server answer requests for name with an error again. Returns
 * TEI_ERR_METADATA, without a log line, if name was not published. */
int tei_meta_server_withdraw(struct tei_meta_server *server, const char *name);

/*
 * Returns the statistics of the process as JSON text, or NULL if memory is
 * short. The server frees the text with free(). The server's thread calls this
 * function at most ten times a second, and serves no client meanwhile. The
 * function must not call the server.
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
