/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the kernel knows about the other end of a TCP connection. Only
 * linux/tcp.h has the other end's receive window. That header cannot be
 * included together with netinet/tcp.h.
 */

#include <errno.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "prov/rail/conn/rail_disconnect.h"
#include "util/clock.h"

/* TCP_ESTABLISHED of netinet/tcp.h */
enum { TCP_IS_ESTABLISHED = 1 };

#define TCP_SLOW_MS	100	/* time after which a missing answer counts as
				 * pending */
/* An answer that is newer than this may not have been read yet. */
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
static bool tcp_full(const struct tcp_info *info)
{
	return !info->tcpi_unacked && info->tcpi_notsent_bytes &&
	       !info->tcpi_probes && info->tcpi_snd_wnd < info->tcpi_snd_mss;
}

/* Returns true if all data sent was acknowledged, so that only the process at
 * the other end has yet to answer. */
static bool tcp_taken(const struct tcp_info *info)
{
	return info->tcpi_state == TCP_IS_ESTABLISHED && !info->tcpi_unacked &&
	       !info->tcpi_notsent_bytes;
}

bool rail_tcp_pending(int fd)
{
	struct tcp_info info;
	socklen_t len = sizeof(info);

	memset(&info, 0, sizeof(info));
	if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len))
		return false;
	/* a refused connection never waits long, because it is made again at
	 * each attempt */
	return tcp_taken(&info) && info.tcpi_last_data_sent >= TCP_SLOW_MS &&
	       (!info.tcpi_bytes_received ||
		info.tcpi_last_data_recv < TCP_ANSWERED_MS);
}

uint64_t rail_tcp_acked(int fd)
{
	struct tcp_info info;
	socklen_t len = sizeof(info);

	memset(&info, 0, sizeof(info));
	if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) ||
	    tcp_taken(&info))
		return 0;
	return info.tcpi_bytes_acked;
}

bool rail_tcp_received(int fd, uint32_t ms, bool asked)
{
	struct tcp_info info;
	socklen_t len = sizeof(info);

	memset(&info, 0, sizeof(info));
	if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len))
		return false;
	if (info.tcpi_last_ack_recv < ms || info.tcpi_last_data_recv < ms)
		return true;
	if (asked && tcp_taken(&info))
		return true;
	/* older kernels do not report the window */
	return len > offsetof(struct tcp_info, tcpi_snd_wnd) &&
	       tcp_full(&info);
}

bool rail_tcp_silent(int fd)
{
	struct tcp_info info;
	socklen_t len = sizeof(info);

	memset(&info, 0, sizeof(info));
	if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) ||
	    info.tcpi_state != TCP_IS_ESTABLISHED)
		return false;
	/* A packet filter of this host may drop packets before they count as
	 * sent. The kernel then sends probes as for a closed window. */
	return (info.tcpi_unacked &&
		info.tcpi_retransmits >= TCP_SILENT_RETRIES) ||
	       (info.tcpi_notsent_bytes &&
		info.tcpi_probes >= TCP_SILENT_RETRIES);
}

/* Waits for the result of an attempt to connect, and returns it. */
static enum rail_tcp_answer tcp_answer(int fd, uint64_t wait_ns)
{
	struct pollfd p = { .fd = fd, .events = POLLOUT };
	socklen_t len = sizeof(int);
	int err = 0;

	if (poll(&p, 1, (int)(wait_ns / TEI_NS_PER_MS)) != 1 ||
	    getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len))
		return RAIL_TCP_SILENT;
	return err == ECONNREFUSED ? RAIL_TCP_REFUSED :
	       err ? RAIL_TCP_SILENT : RAIL_TCP_ACCEPTED;
}

enum rail_tcp_answer rail_tcp_ask(const void *addr, size_t len,
				  uint64_t wait_ns)
{
	const struct sockaddr *sa = addr;
	enum rail_tcp_answer answer = RAIL_TCP_ACCEPTED;
	int fd;

	fd = socket(sa->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC,
		    0);
	if (fd < 0)
		return RAIL_TCP_SILENT;
	if (connect(fd, sa, (socklen_t)len))
		answer = errno == EINPROGRESS ? tcp_answer(fd, wait_ns) :
			 errno == ECONNREFUSED ? RAIL_TCP_REFUSED :
						 RAIL_TCP_SILENT;
	close(fd);
	return answer;
}
