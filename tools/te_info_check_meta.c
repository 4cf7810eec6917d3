/* SPDX-License-Identifier: BSD-2-Clause */
/* Checks whether each metadata server answers, by opening a session with this
 * server alone. The engine of the report uses all servers together. */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fabtests/common/ft_clock.h"
#include "meta/tei_meta_name.h"
#include "tools/te_info.h"

#define META_MS		1000
#define META_SERVERS	16
#define META_SESSION_MS	4000	/* requested session timeout; the check closes
				 * the session at once */

/* Lengths of messages of ZooKeeper's protocol, bytes. */
#define META_CONNECT	45	/* request that opens a session */
#define META_CONNECTED	36	/* shortest valid answer to this request */
#define META_LONGEST	64	/* longest valid answer to this request */
#define META_END	12	/* request that closes the session */

/* Waits until the socket is ready for the events, at most until end_ns. Returns
 * 0 or -ETIMEDOUT. */
static int meta_ready(int fd, short events, uint64_t end_ns)
{
	struct pollfd p = { .fd = fd, .events = events };
	uint64_t now = ft_now_ns();
	int ms = now < end_ns ? (int)((end_ns - now) / 1000000) : 0;

	return poll(&p, 1, ms) > 0 ? 0 : -ETIMEDOUT;
}

/* Waits until a started connection is established. Returns 0 or a negative
 * errno. */
static int meta_wait(int fd, uint64_t end_ns)
{
	socklen_t len = sizeof(int);
	int err = 0;

	if (meta_ready(fd, POLLOUT, end_ns))
		return -ETIMEDOUT;
	if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len))
		return -errno;
	return -err;
}

static int meta_send(int fd, const uint8_t *record, size_t len)
{
	ssize_t n = send(fd, record, len, MSG_NOSIGNAL);

	return n == (ssize_t)len ? 0 : n < 0 ? -errno : -EPIPE;
}

static int meta_receive(int fd, uint8_t *record, size_t len, uint64_t end_ns)
{
	size_t got = 0;
	ssize_t n;

	while (got < len) {
		if (meta_ready(fd, POLLIN, end_ns))
			return -ETIMEDOUT;
		n = recv(fd, record + got, len - got, 0);
		if (n <= 0)
			return n ? -errno : -ECONNRESET;
		got += (size_t)n;
	}
	return 0;
}

static void meta_put(uint8_t *at, uint32_t value)
{
	value = htonl(value);
	memcpy(at, &value, sizeof(value));
}

static uint32_t meta_get(const uint8_t *at)
{
	uint32_t value;

	memcpy(&value, at, sizeof(value));
	return ntohl(value);
}

/* Opens a ZooKeeper session and closes it again. This fails if a server accepts
 * connections but is not part of a majority of servers. Returns 0 or a negative
 * errno. */
static int meta_session(int fd, uint64_t end_ns)
{
	uint8_t ask[4 + META_CONNECT] = { 0 }, answer[META_LONGEST];
	uint8_t end[META_END] = { 0 };
	uint32_t len;
	int ret;

	/* the request: version 0, zxid 0, timeout, session 0, a password of 16
	 * zero bytes, not read-only */
	meta_put(ask, META_CONNECT);
	meta_put(ask + 16, META_SESSION_MS);
	meta_put(ask + 28, 16);
	ret = meta_send(fd, ask, sizeof(ask));
	if (!ret)
		ret = meta_receive(fd, answer, 4, end_ns);
	if (ret)
		return ret;
	len = meta_get(answer);
	if (len < META_CONNECTED || len > META_LONGEST)
		return -EPROTO;
	ret = meta_receive(fd, answer, len, end_ns);
	if (ret)
		return ret;
	if (!meta_get(answer + 4))	/* timeout of the session; 0 means that
					 * the server has refused it */
		return -EPROTO;
	meta_put(end, META_END - 4);
	meta_put(end + 4, 1);
	meta_put(end + 8, (uint32_t)-11);	/* type of the request:
						 * closeSession */
	return meta_send(fd, end, sizeof(end));
}

static int meta_connect(const struct addrinfo *a, const char **what)
{
	int fd = socket(a->ai_family,
			SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	uint64_t end_ns = ft_now_ns() + META_MS * UINT64_C(1000000);
	int ret;

	*what = "no connection";
	if (fd < 0)
		return -errno;
	ret = connect(fd, a->ai_addr, a->ai_addrlen) ? -errno : 0;
	if (ret == -EINPROGRESS)
		ret = meta_wait(fd, end_ns);
	if (!ret) {
		*what = "no session";
		ret = meta_session(fd, end_ns);
	}
	close(fd);
	return ret;
}

/* Checks one server "host:port". On success returns 0 and writes the time that
 * this took to *us. Otherwise returns -1 and writes the reason to why. */
static int meta_try(const char *server, double *us, char *why, size_t len)
{
	struct addrinfo *list = NULL, *a;
	char host[TEI_META_HOST_MAX];
	const char *what = "";
	uint64_t start = ft_now_ns();
	uint16_t port;
	int ret;

	if (tei_meta_split(server, host, &port)) {
		snprintf(why, len, "not host:port");
		return -1;
	}
	if (tei_meta_resolve(host, port ? port : 2181,
			     start + META_MS * UINT64_C(1000000), &list,
			     &what)) {
		snprintf(why, len, "%s", what);
		return -1;
	}
	ret = -EHOSTUNREACH;
	for (a = list; a && ret; a = a->ai_next)
		ret = meta_connect(a, &what);
	freeaddrinfo(list);
	*us = (double)(ft_now_ns() - start) / 1e3;
	snprintf(why, len, "%s: %s", what,
		 ret == -ETIMEDOUT ? "no answer within 1 s" : strerror(-ret));
	return ret ? -1 : 0;
}

static void meta_server(struct info *info, cJSON *list, const char *server)
{
	cJSON *o = info_object(list, NULL), *f;
	char why[128];
	double us = 0;
	int ret = meta_try(server, &us, why, sizeof(why));

	info_text(o, "server", "%s", server);
	info_bool(o, "answers", !ret);
	if (!ret) {
		info_num(o, "connect_us", us);
		info_fine(info, "metadata", server, "the server opened a session in %.0f us",
			  us);
		return;
	}
	info_text(o, "error", "%s", why);
	f = info_find(info, INFO_WARN, "metadata", server);
	info_what(f, "%s", why);
	info_why(f, "moonrail works while a majority of the servers does; without it, no new segment can be found");
	info_cure(f, "start this server and a majority of all servers; check address, port, firewall and log of %s",
		  server);
}

static void meta_servers(struct info *info, const char *hosts)
{
	cJSON *list = info_array(info->doc, "metadata_servers");
	char *copy = strdup(hosts), *save = NULL, *one, *slash;
	size_t n = 0;

	if (!copy)
		return;
	slash = strchr(copy, '/');
	if (slash)
		*slash = '\0';
	for (one = strtok_r(copy, ", ", &save); one && n < META_SERVERS;
	     one = strtok_r(NULL, ", ", &save), n++)
		meta_server(info, list, one);
	free(copy);
}

void info_check_metadata(struct info *info)
{
	const char *scheme = "zookeeper://";
	const char *text = info->opts.metadata_server;

	if (!strncasecmp(text, scheme, strlen(scheme)))
		meta_servers(info, text + strlen(scheme));
	else if (!strcmp(text, "P2PHANDSHAKE") &&
		 cJSON_HasObjectItem(info->doc, "engine"))
		info_fine(info, "metadata", text,
			  "no server is needed; an engine listens at %s",
			  info_get(cJSON_GetObjectItemCaseSensitive(
					   info->doc, "engine"),
				   "control_channel"));
}
