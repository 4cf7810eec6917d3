/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fabtests/benchmarks/te_security_bench.h"
#include "fabtests/functional/ft_security.h"
#include "fabtests/functional/fx.h"

/* All misbehaving clients connect from this address, which no other client
 * uses, because a target limits the work for each address. */
#define CLIENT_FROM	"127.0.0.66"
#define CLIENT_CONNS	200
#define CLIENT_PEERS	4

static void client_nobody(const char *target)
{
	(void)target;
	for (;;)
		pause();
}

/* Keeps 200 connections open without sending a byte, and replaces one of them
 * every 10 ms. */
static void client_silent(const char *target)
{
	int fd[CLIENT_CONNS], i;

	for (i = 0; i < CLIENT_CONNS; i++)
		fd[i] = -1;
	for (i = 0;; i = (i + 1) % CLIENT_CONNS) {
		if (fd[i] >= 0)
			close(fd[i]);
		fd[i] = sec_connect(target, CLIENT_FROM);
		poll(NULL, 0, 10);
	}
}

/* Sends the head of a request slowly, one byte every 2 ms, then closes the
 * connection and starts again with a new one. */
static void client_dripping(const char *target)
{
	uint8_t frame[SEC_HEAD];
	size_t i;
	int fd;

	sec_frame(frame, 1, SEC_AUTH, 32);
	for (;;) {
		fd = sec_connect(target, CLIENT_FROM);
		for (i = 0; fd >= 0 && i < SEC_HEAD; i++) {
			send(fd, frame + i, 1, MSG_NOSIGNAL);
			poll(NULL, 0, 2);
		}
		if (fd >= 0)
			close(fd);
	}
}

/* Reads a byte of the answer, if one has arrived. Returns false if the
 * connection has ended or failed. */
static bool client_sip(int fd)
{
	uint8_t byte;
	ssize_t n = recv(fd, &byte, 1, MSG_DONTWAIT);

	return n > 0 || (n < 0 && errno == EAGAIN);
}

/* Queries descriptors over 200 connections. Reads the answers byte by byte, one
 * byte per millisecond. */
static void client_slow(const char *target)
{
	uint8_t frame[SEC_HEAD + 64];
	size_t len = strlen(target);
	int fd[CLIENT_CONNS], small = 1, i;

	sec_frame(frame, 1, SEC_GET_DESC, (uint32_t)len);
	memcpy(frame + SEC_HEAD, target, len);
	for (i = 0; i < CLIENT_CONNS; i++)
		fd[i] = -1;
	for (i = 0;; i = (i + 1) % CLIENT_CONNS) {
		poll(NULL, 0, 1);
		if (fd[i] >= 0 && client_sip(fd[i]))
			continue;
		if (fd[i] >= 0)
			close(fd[i]);
		fd[i] = sec_connect(target, CLIENT_FROM);
		if (fd[i] < 0)
			continue;
		setsockopt(fd[i], SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
		send(fd[i], frame, SEC_HEAD + len, MSG_NOSIGNAL);
	}
}

/* Closes `fd` unless it is negative. Opens a new connection, adds it to the
 * epoll instance `ep` and sends a request. Returns the new file descriptor, or
 * a negative value if the connection failed. */
static int client_asks_anew(const char *target, int ep, int fd,
			    const uint8_t *frame)
{
	struct epoll_event ev = { .events = EPOLLIN };

	if (fd >= 0)
		close(fd);
	fd = sec_connect(target, CLIENT_FROM);
	ev.data.fd = fd;
	if (fd >= 0) {
		epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev);
		send(fd, frame, SEC_HEAD, MSG_NOSIGNAL);
	}
	return fd;
}

/* Sends requests over `count` connections: the next request of a connection
 * follows as soon as the previous one is answered. Uses epoll, which leaves
 * most of the CPU to the processes that share it. */
static void client_asks(const char *target, int count)
{
	int ep = epoll_create1(EPOLL_CLOEXEC), n = 0, fd;
	uint8_t frame[SEC_HEAD], junk[4096];
	struct epoll_event ev;

	sec_frame(frame, 1, SEC_PING, 0);
	for (;;) {
		if (n < count)
			n += client_asks_anew(target, ep, -1, frame) >= 0;
		if (epoll_wait(ep, &ev, 1, n < count ? 0 : -1) <= 0)
			continue;
		fd = ev.data.fd;
		if ((recv(fd, junk, sizeof(junk), 0) <= 0 ||
		     send(fd, frame, sizeof(frame), MSG_NOSIGNAL) <= 0) &&
		    client_asks_anew(target, ep, fd, frame) < 0)
			n--;
	}
}

static void client_flooding(const char *target)
{
	client_asks(target, 1);
}

static void client_flooding_many(const char *target)
{
	client_asks(target, CLIENT_CONNS);
}

static void client_connecting(const char *target)
{
	int fd;

	for (;;) {
		fd = sec_connect(target, CLIENT_FROM);
		if (fd >= 0)
			close(fd);
	}
}

/* Sends TCP urgent bytes (MSG_OOB), which wake a reader at once, whatever
 * events it waits for. */
static void client_urgent(const char *target)
{
	int fd[CLIENT_CONNS], i;

	for (i = 0; i < CLIENT_CONNS; i++)
		fd[i] = -1;
	for (i = 0;; i = (i + 1) % CLIENT_CONNS) {
		if (fd[i] < 0)
			fd[i] = sec_connect(target, CLIENT_FROM);
		if (fd[i] < 0 ||
		    send(fd[i], "", 1, MSG_OOB | MSG_DONTWAIT | MSG_NOSIGNAL) > 0 ||
		    errno == EAGAIN)
			continue;
		close(fd[i]);
		fd[i] = -1;
	}
}

/* Sends 64 KiB that are not a request, reads until the target closes the
 * connection, and starts again with a new one. */
static void client_junk(const char *target)
{
	static const uint8_t junk[64 << 10];
	const int room = 1 << 20;
	uint8_t answer[512];
	int fd;

	for (;;) {
		fd = sec_connect(target, CLIENT_FROM);
		if (fd < 0)
			continue;
		setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
		send(fd, junk, sizeof(junk), MSG_DONTWAIT | MSG_NOSIGNAL);
		while (recv(fd, answer, sizeof(answer), 0) > 0)
			;
		close(fd);
	}
}

/* --- a client with the secret -------------------------------------------- */

/* Runs an engine that opens a segment again and again. Its requests go to the
 * address `at`, where client_relay listens. */
static void client_peer(const char *at)
{
	transfer_engine_t e;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	e = fx_engine("tcp");
	for (;;)
		closeSegment(e, openSegmentNoCache(e, at));
}

static bool client_forward(int from, int to)
{
	uint8_t buf[4096];
	ssize_t n = recv(from, buf, sizeof(buf), 0);

	return n > 0 && send(to, buf, (size_t)n, MSG_NOSIGNAL) == n;
}

/* Accepts the connections of the engines and forwards their bytes to the target
 * over connections from CLIENT_FROM. Without this relay, the engines would
 * connect from the source address that their routes select, which is also the
 * address of the other clients. */
static void client_relay(int listener, const char *target)
{
	struct pollfd p[1 + 2 * CLIENT_PEERS];
	int i, n = 2 * CLIENT_PEERS;

	for (i = 0; i < n; i++)
		p[i] = (struct pollfd){ .fd = -1, .events = POLLIN };
	p[n] = (struct pollfd){ .fd = listener, .events = POLLIN };
	for (;;) {
		poll(p, (nfds_t)n + 1, -1);
		for (i = 0; i < n; i++) {
			if (p[i].fd < 0 || !p[i].revents ||
			    client_forward(p[i].fd, p[i ^ 1].fd))
				continue;
			close(p[i].fd);
			close(p[i ^ 1].fd);
			p[i].fd = p[i ^ 1].fd = -1;
			p[i ^ 1].revents = 0;
		}
		if (!p[n].revents)
			continue;
		for (i = 0; i < n && p[i].fd >= 0; i += 2)
			;
		if (i == n)
			continue;
		p[i].fd = accept(listener, NULL, NULL);
		p[i + 1].fd = sec_connect(target, CLIENT_FROM);
		if (p[i + 1].fd >= 0)
			continue;
		close(p[i].fd);
		p[i].fd = -1;
	}
}

static void client_peers(const char *target)
{
	char at[64];
	int listener = sec_listen(at, sizeof(at));

	for (int i = 0; i < CLIENT_PEERS; i++)
		if (!fork())
			client_peer(at);
	client_relay(listener, target);
}

/* The clients. The two numbers in each row are settle_ms and spend_s. settle_ms
 * is large if requests wait because of the rate limit, because the target
 * serves them some time after the client was stopped. spend_s is large for
 * engines that open segments, because they use up their rate limit slowly. */
const struct sb_client sb_clients[] = {
	{ "nobody", "nothing: the error of the method", false, 40, 3,
	  client_nobody },
	{ "silent", "200 connections without a byte", false, 40, 3,
	  client_silent },
	{ "slow", "200 replies read byte by byte", false, 40, 3, client_slow },
	{ "dripping", "requests sent byte by byte", false, 40, 3,
	  client_dripping },
	{ "flooding", "requests over one connection", false, 40, 3,
	  client_flooding },
	{ "flooding-200", "requests over 200 connections", false, 700, 3,
	  client_flooding_many },
	{ "connecting", "connections, one after the other", false, 40, 3,
	  client_connecting },
	{ "urgent", "urgent bytes over 200 connections", false, 700, 3,
	  client_urgent },
	{ "junk", "64 KiB that are not a request, repeatedly", false, 40, 3,
	  client_junk },
	{ "peer", "4 engines with the secret that open segments", true, 100,
	  30, client_peers },
};

const int sb_clients_count = sizeof(sb_clients) / sizeof(sb_clients[0]);
