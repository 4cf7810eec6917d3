/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Whether the metadata servers answer: each alone by a TCP connection, all
 * together by the engine that was made with them.
 */
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fabtests/common/ft_clock.h"
#include "meta/tei_meta.h"
#include "tools/te_info.h"

#define META_MS		1000
#define META_SERVERS	16

/* Waits for a connection under way. 0 or a negative errno. */
static int meta_wait(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLOUT };
	socklen_t len = sizeof(int);
	int err = 0;

	if (poll(&p, 1, META_MS) <= 0)
		return -ETIMEDOUT;
	if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len))
		return -errno;
	return -err;
}

static int meta_connect(const struct addrinfo *a)
{
	int fd = socket(a->ai_family,
			SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	int ret;

	if (fd < 0)
		return -errno;
	ret = connect(fd, a->ai_addr, a->ai_addrlen) ? -errno : 0;
	if (ret == -EINPROGRESS)
		ret = meta_wait(fd);
	close(fd);
	return ret;
}

/* One "host:port". 0, or -1 with why. */
static int meta_try(const char *server, double *us, char *why, size_t len)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *list = NULL, *a;
	char host[TEI_META_HOST_MAX], service[8];
	uint64_t start = ft_now_ns();
	uint16_t port;
	int ret;

	if (tei_meta_split(server, host, &port)) {
		snprintf(why, len, "not host:port");
		return -1;
	}
	snprintf(service, sizeof(service), "%u", port ? port : 2181);
	ret = getaddrinfo(host, service, &hints, &list);
	if (ret) {
		snprintf(why, len, "%s", gai_strerror(ret));
		return -1;
	}
	ret = -EHOSTUNREACH;
	for (a = list; a && ret; a = a->ai_next)
		ret = meta_connect(a);
	freeaddrinfo(list);
	*us = (double)(ft_now_ns() - start) / 1e3;
	snprintf(why, len, "%s", strerror(-ret));
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
		info_fine(info, "metadata", server, "it takes connections, in %.0f us",
			  us);
		return;
	}
	info_text(o, "error", "%s", why);
	f = info_find(info, INFO_WARN, "metadata", server);
	info_what(f, "no connection: %s", why);
	info_why(f, "a cluster lives on without one server, and stops to find new segments without all");
	info_cure(f, "start it, or look at address, port and firewall of %s",
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
