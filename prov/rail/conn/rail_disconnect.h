/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_CONN_RAIL_DISCONNECT_H
#define TEI_PROV_RAIL_CONN_RAIL_DISCONNECT_H

/* The sockets of a lane, and the state of their TCP connections. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "prov/rail/core/rail_lane.h"
#include "util/lock.h"

struct rail_disconnect_seen;
struct tei_socket;

/* Cuts the connections of a lane and closes the lane, on which no slices may be
 * posted. throttled: if true, a closer thread closes the lane
 * (rail_closing_start). */
void rail_lane_shutdown(struct rail_lane *lane, bool throttled);

/* Shuts down all connections of the lane and polls it until the errors have
 * been read, so that its endpoint can be closed. Returns after a bounded
 * time. */
void rail_disconnect(struct rail_lane *lane, struct rail_done *done)
	TEI_REQUIRES(lane->lock);

enum rail_disconnect {
	RAIL_CUT_NONE, /* no connection to that address */
	RAIL_CUT_SOME,
	RAIL_CUT_UNKNOWN, /* the result is unknown: the provider's sockets
			   * cannot be found, a socket has no remote address
			   * yet, or a socket was accepted from a peer */
};

/* Shuts down the lane's connections to that address (a sockaddr). If the result
 * is RAIL_CUT_SOME and "which" is not NULL, *which is set to the socket of one
 * of them. */
enum rail_disconnect rail_disconnect_one(struct rail_lane *lane,
					 const void *addr, size_t len,
					 struct tei_socket *which)
	TEI_REQUIRES(lane->lock);

/* Returns true if the provider has not closed the socket *which yet. */
bool rail_disconnect_there(const struct tei_socket *which);

/* Returns what rail_disconnect_one would return, but does not shut down any
 * connection. */
enum rail_disconnect rail_disconnect_find(struct rail_lane *lane,
					  const void *addr, size_t len)
	TEI_REQUIRES(lane->lock);

/* The connections of a lane as one scan found them. A scan of a thousand
 * connections takes milliseconds, so the list is kept for several look-ups.
 * Only the progress thread makes, uses and frees such lists. */
struct rail_disconnect_list {
	struct rail_lane *lane;
	struct rail_disconnect_seen *seen; /* sorted by address */
	uint32_t n, cap;
};

/* Scans the connections of a lane, and holds the lane's lock only for a moment.
 * Progress thread, because only this thread closes lanes. */
void rail_disconnect_list(struct rail_lane *lane,
			  struct rail_disconnect_list *list);
void rail_disconnect_list_free(struct rail_disconnect_list *list);

/*
 * Returns true if the kernel received anything from that address in the last
 * "ms" milliseconds, or if the receive window of the other end is closed
 * because the process there does not read its socket. asked: a message was sent
 * to the address for this check, so the function also returns true if
 * everything sent has been acknowledged.
 */
bool rail_disconnect_received(const struct rail_disconnect_list *list,
			      const void *addr, size_t len, uint32_t ms,
			      bool asked);

/* Returns the number of bytes that the other end's kernel has acknowledged on
 * the connections of the list to that address. Connections on which it has
 * acknowledged everything are not counted. */
uint64_t rail_disconnect_acked(const struct rail_disconnect_list *list,
			       const void *addr, size_t len);

/* Does what rail_disconnect_one does, but faster if "list", which must be a
 * list of this lane, contains the connection. */
void rail_disconnect_listed(struct rail_lane *lane,
			    const struct rail_disconnect_list *list,
			    const void *addr, size_t len)
	TEI_REQUIRES(lane->lock);

/* Returns RAIL_CUT_SOME if a connection to that address exists that could still
 * carry data, otherwise RAIL_CUT_NONE. RAIL_CUT_UNKNOWN: the provider's sockets
 * cannot be found, or a socket was accepted from a peer. */
enum rail_disconnect rail_disconnect_lives(struct rail_lane *lane,
					   const void *addr, size_t len)
	TEI_REQUIRES(lane->lock);

/* Returns true if the provider's sockets can be found and the provider uses
 * sockets for addresses of this format. */
bool rail_disconnect_shows(struct rail_lane *lane, const void *addr, size_t len)
	TEI_REQUIRES(lane->lock);

/* Returns true if a connection to that address awaits an answer
 * (rail_tcp_pending). */
bool rail_disconnect_pending(struct rail_lane *lane, const void *addr,
			     size_t len) TEI_REQUIRES(lane->lock);

/* Returns true if the lane has a connection to that address and every such
 * connection is silent (rail_tcp_silent). */
bool rail_disconnect_silent(struct rail_lane *lane, const void *addr,
			    size_t len) TEI_REQUIRES(lane->lock);

/* Returns the number of the lane's connections whose sockets can be found. */
uint32_t rail_disconnect_count(struct rail_lane *lane) TEI_REQUIRES(lane->lock);

/* Does what rail_disconnect_received does, for one socket. If "ms" is 0,
 * ignores what the kernel has received. */
bool rail_tcp_received(int fd, uint32_t ms, bool asked);

/* Returns the number of bytes that the other end has acknowledged since the
 * connection was made, or 0 if it has acknowledged everything. */
uint64_t rail_tcp_acked(int fd);

/* Returns true if the other end's kernel acknowledged everything some time ago,
 * but the process there has not answered, or has answered only a moment ago. */
bool rail_tcp_pending(int fd);

/*
 * Returns true if the other end's kernel has acknowledged nothing through two
 * retransmission timeouts, or has answered neither of two window probes.
 * Returns false for a stopped process, because its kernel continues to
 * acknowledge.
 */
bool rail_tcp_silent(int fd);

#endif /* TEI_PROV_RAIL_CONN_RAIL_DISCONNECT_H */
