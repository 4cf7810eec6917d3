/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reads the state of TCP connections of the real world. Only linux/tcp.h
 * declares the receive window of the other end. That header cannot be included
 * together with netinet/tcp.h, so this file is separate.
 */

#include <errno.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "util/clock.h"
#include "util/world_net.h"

/* value of TCP_ESTABLISHED in netinet/tcp.h */
enum { TCP_IS_ESTABLISHED = 1 };

bool world_net_tcp_state(int fd, struct tei_tcp_state *out)
{
	struct tcp_info info;
	socklen_t len = sizeof(info);

	memset(&info, 0, sizeof(info));
	memset(out, 0, sizeof(*out));
	if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len))
		return false;
	out->established = info.tcpi_state == TCP_IS_ESTABLISHED;
	/* older kernels do not report the peer's receive window */
	out->has_window = len > offsetof(struct tcp_info, tcpi_snd_wnd);
	out->unacked = info.tcpi_unacked;
	out->notsent_bytes = info.tcpi_notsent_bytes;
	out->retransmits = info.tcpi_retransmits;
	out->probes = info.tcpi_probes;
	out->snd_wnd = info.tcpi_snd_wnd;
	out->snd_mss = info.tcpi_snd_mss;
	out->last_data_sent = info.tcpi_last_data_sent;
	out->last_data_recv = info.tcpi_last_data_recv;
	out->last_ack_recv = info.tcpi_last_ack_recv;
	out->bytes_acked = info.tcpi_bytes_acked;
	out->bytes_received = info.tcpi_bytes_received;
	return true;
}

/* Waits for at most wait_ns for the result of a connect() that is in progress,
 * and returns this result. */
static enum tei_net_answer tcp_answer(int fd, uint64_t wait_ns)
{
	struct pollfd p = { .fd = fd, .events = POLLOUT };
	socklen_t len = sizeof(int);
	int err = 0;

	if (poll(&p, 1, (int)(wait_ns / TEI_NS_PER_MS)) != 1 ||
	    getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len))
		return TEI_NET_SILENT;
	return err == ECONNREFUSED ? TEI_NET_REFUSED :
	       err ? TEI_NET_SILENT : TEI_NET_ACCEPTED;
}

enum tei_net_answer world_net_connect(const struct sockaddr *sa, uint32_t len,
				      uint64_t wait_ns)
{
	enum tei_net_answer answer = TEI_NET_ACCEPTED;
	int fd;

	fd = socket(sa->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC,
		    0);
	if (fd < 0)
		return TEI_NET_SILENT;
	if (connect(fd, sa, (socklen_t)len))
		answer = errno == EINPROGRESS ? tcp_answer(fd, wait_ns) :
			 errno == ECONNREFUSED ? TEI_NET_REFUSED :
						 TEI_NET_SILENT;
	close(fd);
	return answer;
}
