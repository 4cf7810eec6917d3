/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/te_meta_serve.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "meta/tei_meta_name.h"

/* Time limit of a request. A connection that is idle for this time is
 * closed. */
#define SERVE_IDLE_NS (60 * TEI_NS_PER_SEC)
/* The limit that replaces SERVE_IDLE_NS while as many connections exist as are
 * allowed. */
#define SERVE_CROWD_NS TEI_NS_PER_SEC
/* If the pause between two iterations of the main loop is longer, this process
 * was suspended. */
#define SERVE_LATE_NS TEI_NS_PER_SEC
/* File descriptors that are not available for connections of clients: those of
 * connections to owners, and all others. */
#define SERVE_SPARE_FDS 64

static int serve_fail(const char *what, const char *why)
{
	fprintf(stderr, "te_meta: serve: %s: %s\n", what, why);
	return META_EXIT_FAILED;
}

/* --- the listening socket ------------------------------------------------ */

static int serve_bind(const struct addrinfo *a)
{
	const int one = 1;
	int fd = socket(a->ai_family,
			SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -1;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (!bind(fd, a->ai_addr, a->ai_addrlen) && !listen(fd, SOMAXCONN))
		return fd;
	close(fd);
	return -1;
}

static int serve_listen(struct serve *s)
{
	const struct addrinfo hints = {
		.ai_flags = AI_PASSIVE | AI_NUMERICSERV,
		.ai_socktype = SOCK_STREAM,
	};
	const struct meta_opts *o = s->opts;
	struct addrinfo *all;
	char port[8], what[TEI_META_HOST_MAX + 16];
	int rc;

	snprintf(port, sizeof(port), "%u", (unsigned int)o->port);
	snprintf(what, sizeof(what), "%.255s port %s", o->host, port);
	rc = getaddrinfo(o->host, port, &hints, &all);
	if (rc)
		return serve_fail(what, gai_strerror(rc));
	s->listener = serve_bind(all);
	rc = errno;
	freeaddrinfo(all);
	return s->listener < 0 ? serve_fail(what, strerror(rc)) : 0;
}

/* Prints the URL of the server. With --port=0, the URL has the port that the
 * kernel has chosen. */
static int serve_print(const struct serve *s)
{
	struct sockaddr_storage at;
	socklen_t len = sizeof(at);
	char host[NI_MAXHOST], port[NI_MAXSERV], where[TEI_META_ENDPOINT_MAX];

	if (getsockname(s->listener, (struct sockaddr *)&at, &len) ||
	    getnameinfo((struct sockaddr *)&at, len, host, sizeof(host), port,
			sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV))
		return serve_fail("listening socket", strerror(errno));
	host[TEI_META_HOST_MAX - 1] = 0;
	tei_meta_join(host, (uint16_t)atoi(port), where);
	printf("http://%s/metadata\n", where);
	return fflush(stdout) ? serve_fail("stdout", strerror(errno)) : 0;
}

/* --- connections --------------------------------------------------------- */

static void serve_connection(void *arg, struct MHD_Connection *conn,
			     void **context,
			     enum MHD_ConnectionNotificationCode code)
{
	struct serve *s = arg;
	struct serve_socket *k = *context;
	const union MHD_ConnectionInfo *fd;

	if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
		if (k) {
			tei_list_del(&k->link);
			s->socket_count--;
		}
		free(k);
		*context = NULL;
		return;
	}
	fd = MHD_get_connection_info(conn, MHD_CONNECTION_INFO_CONNECTION_FD);
	k = calloc(1, sizeof(*k));
	if (!k)
		return;
	k->fd = fd ? fd->connect_fd : -1;
	k->since_ns = tei_now_ns();
	tei_list_add_tail(&s->sockets, &k->link);
	s->socket_count++;
	*context = k;
}

/* Returns true if the client of a long poll (a watch) has closed its
 * connection. This check is necessary because libmicrohttpd does not watch the
 * socket while the connection is suspended. */
static bool serve_left(const struct serve_socket *k)
{
	char byte;
	ssize_t n = recv(k->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);

	return !n || (n < 0 && errno != EAGAIN && errno != EINTR);
}

/* Closes connections that have been idle, or busy with one request, for longer
 * than SERVE_IDLE_NS. While as many connections exist as are allowed, also
 * closes the oldest of them after SERVE_CROWD_NS. */
static void serve_sockets_run(struct serve *s)
{
	uint64_t now = tei_now_ns();
	struct serve_socket *k, *oldest = NULL;

	tei_list_foreach (k, &s->sockets, struct serve_socket, link) {
		if (k->suspended)
			continue;
		if (now - k->since_ns > SERVE_IDLE_NS)
			shutdown(k->fd, SHUT_RDWR);
		else if (!oldest || k->since_ns < oldest->since_ns)
			oldest = k;
	}
	if (s->socket_count >= s->max_sockets && oldest &&
	    now - oldest->since_ns > SERVE_CROWD_NS)
		shutdown(oldest->fd, SHUT_RDWR);
}

/* --- duties -------------------------------------------------------------- */

static void serve_watches_drop(struct serve *s)
{
	struct serve_request *r;

	tei_list_foreach (r, &s->watches, struct serve_request, link)
		if (serve_left(r->socket))
			r->until_ns = 0;
}

static void serve_tick(struct serve *s)
{
	uint64_t now = tei_now_ns(), pause = now - s->tick_ns;

	if (pause < SERVE_TICK_NS)
		return;
	s->tick_ns = now;
	if (pause > SERVE_LATE_NS)
		table_extend(s->table, pause);
	table_expire(s->table);
	serve_watches_drop(s);
	serve_sockets_run(s);
}

/* Waits for requests, signals and the results of probe threads. Returns at the
 * latest when the periodic duties are due. */
static void serve_wait(struct serve *s, int epoll)
{
	struct pollfd p[] = { { .fd = epoll, .events = POLLIN },
			      { .fd = s->signals, .events = POLLIN },
			      { .fd = s->answers[0], .events = POLLIN } };
	int ms = (int)(SERVE_TICK_NS / TEI_NS_PER_MS);
	MHD_UNSIGNED_LONG_LONG most;

	if (MHD_get_timeout(s->daemon, &most) == MHD_YES && most < (uint64_t)ms)
		ms = (int)most;
	poll(p, 3, ms);
	if (p[1].revents)
		s->stopping = true;
}

static int serve_run(struct serve *s)
{
	const union MHD_DaemonInfo *info =
		MHD_get_daemon_info(s->daemon, MHD_DAEMON_INFO_EPOLL_FD);

	if (!info)
		return serve_fail("libmicrohttpd", "no epoll descriptor");
	s->tick_ns = tei_now_ns();
	while (!s->stopping) {
		serve_wait(s, info->epoll_fd);
		MHD_run(s->daemon);
		serve_tick(s);
		serve_probes_run(s);
		serve_watches_run(s);
		/* answers the requests that were resumed in this iteration */
		MHD_run(s->daemon);
	}
	return META_EXIT_OK;
}

/* Answers the suspended requests, so that the library can be stopped. */
static void serve_finish(struct serve *s)
{
	struct pollfd p = { .fd = s->answers[0], .events = POLLIN };

	s->stopping = true;
	while (s->probes) {
		poll(&p, 1, -1);
		serve_probes_run(s);
	}
	serve_watches_run(s);
	MHD_run(s->daemon);
	MHD_stop_daemon(s->daemon);
}

/* --- start --------------------------------------------------------------- */

/* Blocks SIGTERM and SIGINT, which the main loop reads from a file
 * descriptor. */
static int serve_signals(struct serve *s)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigprocmask(SIG_BLOCK, &set, NULL);
	s->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (s->signals < 0 || pipe2(s->answers, O_CLOEXEC | O_NONBLOCK))
		return serve_fail("descriptors", strerror(errno));
	return 0;
}

/* Returns the largest number of connections: --max_connections, or less if the
 * limit of open files is too low for it. */
static size_t serve_connections(const struct meta_opts *o)
{
	struct rlimit limit;
	uint64_t n = o->max_connections;

	if (!getrlimit(RLIMIT_NOFILE, &limit)) {
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_NOFILE, &limit);
		if (n + SERVE_SPARE_FDS > limit.rlim_cur)
			n = limit.rlim_cur > 2 * SERVE_SPARE_FDS
				    ? limit.rlim_cur - SERVE_SPARE_FDS
				    : SERVE_SPARE_FDS;
	}
	return n;
}

static int serve_start(struct serve *s)
{
	s->table = table_new(s->opts->max_keys, s->opts->memory);
	if (!s->table)
		return serve_fail("memory", strerror(ENOMEM));
	s->max_sockets = serve_connections(s->opts);
	s->daemon = MHD_start_daemon(
		MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL,
		serve_request, s, MHD_OPTION_LISTEN_SOCKET, s->listener,
		MHD_OPTION_CONNECTION_LIMIT, (unsigned int)s->max_sockets,
		MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)32768,
		MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1,
		MHD_OPTION_NOTIFY_COMPLETED, serve_request_end, s,
		MHD_OPTION_NOTIFY_CONNECTION, serve_connection, s,
		MHD_OPTION_END);
	if (!s->daemon)
		return serve_fail("libmicrohttpd", "cannot be started");
	s->listener = -1; /* the daemon has taken over the listening socket */
	return 0;
}

int meta_serve(const struct meta_opts *opts)
{
	static struct serve s;
	int ret;

	s.opts = opts;
	s.listener = s.signals = s.answers[0] = s.answers[1] = -1;
	tei_list_init(&s.sockets);
	tei_list_init(&s.watches);
	ret = serve_signals(&s);
	if (!ret)
		ret = serve_listen(&s);
	if (!ret)
		ret = serve_print(&s);
	if (!ret)
		ret = serve_start(&s);
	if (!ret) {
		ret = serve_run(&s);
		serve_finish(&s);
	}
	table_free(s.table);
	return ret;
}
