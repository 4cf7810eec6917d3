/* SPDX-License-Identifier: BSD-2-Clause */
/* Evaluates what the kernel knows about the other end of a TCP connection. */

#include "prov/rail/conn/rail_disconnect.h"
#include "util/world.h"

#define TCP_SLOW_MS	100	/* time after which a missing answer counts as
				 * pending */
/* An answer that arrived less than this time ago may not have been read by this
 * process yet. */
#define TCP_ANSWERED_MS 100
#define TCP_SILENT_RETRIES 2	/* number of consecutive retransmission timeouts
				 * after which a connection is silent; 600 ms on
				 * a fast link */

/*
 * Returns true if the other end's receive window is closed: the kernel there
 * has acknowledged everything that it had room for, more data waits in this
 * host's send queue, and no window probe is unanswered (RFC 9293, 3.8.6.1). If
 * a filter drops packets before they leave this host, data waits although the
 * window is open.
 */
static bool tcp_full(const struct tei_tcp_state *tcp)
{
	return !tcp->unacked && tcp->notsent_bytes && !tcp->probes &&
	       tcp->snd_wnd < tcp->snd_mss;
}

/* Returns true if the other end's kernel has acknowledged all data, so that
 * only an answer of the process there is missing. */
static bool tcp_taken(const struct tei_tcp_state *tcp)
{
	return tcp->established && !tcp->unacked && !tcp->notsent_bytes;
}

bool rail_tcp_pending(int fd)
{
	struct tei_tcp_state tcp;

	if (!tei_world->net.tcp_state(fd, &tcp))
		return false;
	/* a connection that the peer refuses is never old enough, because each
	 * attempt makes a new one */
	return tcp_taken(&tcp) && tcp.last_data_sent >= TCP_SLOW_MS &&
	       (!tcp.bytes_received || tcp.last_data_recv < TCP_ANSWERED_MS);
}

uint64_t rail_tcp_acked(int fd)
{
	struct tei_tcp_state tcp;

	if (!tei_world->net.tcp_state(fd, &tcp) || tcp_taken(&tcp))
		return 0;
	return tcp.bytes_acked;
}

bool rail_tcp_received(int fd, uint32_t ms, bool asked)
{
	struct tei_tcp_state tcp;

	if (!tei_world->net.tcp_state(fd, &tcp))
		return false;
	if (tcp.last_ack_recv < ms || tcp.last_data_recv < ms)
		return true;
	if (asked && tcp_taken(&tcp))
		return true;
	return tcp.has_window && tcp_full(&tcp);
}

bool rail_tcp_silent(int fd)
{
	struct tei_tcp_state tcp;

	if (!tei_world->net.tcp_state(fd, &tcp) || !tcp.established)
		return false;
	/* A packet filter of this host may drop packets before they count as
	 * sent. The kernel then sends probes as for a closed window. */
	return (tcp.unacked && tcp.retransmits >= TCP_SILENT_RETRIES) ||
	       (tcp.notsent_bytes && tcp.probes >= TCP_SILENT_RETRIES);
}
