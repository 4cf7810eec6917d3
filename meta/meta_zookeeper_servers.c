/* SPDX-License-Identifier: BSD-2-Clause */
/* Splits connection strings and resolves the names of the servers. */
#include <inttypes.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "meta/meta_int.h"
#include "meta/meta_json.h"
#include "meta/meta_zookeeper_int.h"
#include "meta/meta_zookeeper_record.h"
#include "meta/meta_zookeeper_servers.h"
#include "meta/tei_meta_name.h"
#include "util/err.h"
#include "util/log.h"
#include "util/secret.h"
#include "util/settings.h"

/* --- connection strings -------------------------------------------------- */

#define ZK_CONN_HINT	"zookeeper://host:port[,host:port...][/chroot]"

/* Length of the longest chroot, bytes. A path with a chroot of this length
 * still has space for the longest segment name. */
#define ZK_CHROOT_MAX	1024

static int zk_conn_refuse(const char *conn, const char *why,
			  struct tei_err *err)
{
	char shown[TEI_META_SHOWN];

	tei_meta_conn_shown(conn, shown);
	return tei_err_fail(err, TEI_ERR_INVALID, "meta",
			    strchr(conn, '@')
				    ? "put user and password into the file "
				      "that MOONRAIL_ZK_AUTH_FILE names"
				    : ZK_CONN_HINT,
			    "metadata '%s': %s", shown, why);
}

static bool zk_servers_fine(const char *servers)
{
	char *copy = strdup(servers), *rest = copy, *one;
	char host[TEI_META_HOST_MAX];
	bool fine = copy != NULL;
	uint16_t port;

	while (fine && (one = strsep(&rest, ",")))
		fine = !tei_meta_split(one, host, &port);
	free(copy);
	return fine;
}

/*
 * Splits the part of a connection string after "://" into the list of servers
 * and the chroot. ZooKeeper's clients expect one chroot, after the last server;
 * other software repeats the chroot after each server. Both forms are accepted.
 * The buffers servers and chroot must each have space for the whole list.
 * Returns the text of an error, or NULL.
 */
static const char *zk_list_split(char *list, char *servers, char *chroot)
{
	size_t count = 0, with = 0, n, len;
	bool differ = false;
	char *one = NULL;

	*servers = *chroot = 0;
	/* An address contains no '@'. A list with '@' is refused, because it
	 * may contain a password. */
	if (strchr(list, '@'))
		return "not a list of servers";
	while ((one = strsep(&list, ","))) {
		n = strcspn(one, "/");
		len = strlen(one);
		while (len > n && one[len - 1] == '/')
			one[--len] = 0;
		if (count++)
			strcat(servers, ",");
		strncat(servers, one, n);
		/* if a server of the list has a chroot, the last server must
		 * have one too */
		if (!list && with && !one[n])
			differ = true;
		if (!one[n])
			continue;
		differ = differ || (with && strcmp(chroot, one + n));
		if (!with++)
			strcpy(chroot, one + n);
	}
	if (!zk_servers_fine(servers))
		return "not a list of servers";
	if (differ || (with > 1 && with < count))
		return "the servers have different chroots";
	if (strlen(chroot) > ZK_CHROOT_MAX)
		return "chroot of more than 1024 bytes";
	return zk_path_fine(chroot) ? NULL : "bad chroot";
}

int zk_servers_split(const char *conn, char **servers, char **chroot,
		     struct tei_err *err)
{
	const char *start = strstr(conn, "://") + 3;
	size_t size = strlen(start) + 1;
	char *list = strdup(start), *s = malloc(size), *c = malloc(size);
	const char *why = NULL;

	if (!list || !s || !c) {
		free(list);
		free(s);
		free(c);
		return tei_err_fail(err, TEI_ERR_MEMORY, "meta", NULL,
				    "no memory for the metadata store");
	}
	why = zk_list_split(list, s, c);
	free(list);
	if (why) {
		free(s);
		free(c);
		return zk_conn_refuse(conn, why, err);
	}
	*servers = s;
	*chroot = c;
	return 0;
}

void zk_servers_where(const char *servers, char out[ZK_WHERE])
{
	size_t n = strcspn(servers, ","), most = ZK_WHERE - sizeof(",...");

	if (n > most)
		snprintf(out, ZK_WHERE, "%.*s...", (int)most, servers);
	else
		snprintf(out, ZK_WHERE, "%.*s%s", (int)n, servers,
			 servers[n] ? ",..." : "");
}

/*
 * Appends the numeric address of a server to the list "out". Writes an IPv6
 * address without brackets, because the client library splits the address at
 * the last colon and passes the part before it to getaddrinfo.
 */
static void zk_server_text(struct meta_buf *out, const struct addrinfo *ai)
{
	char text[TEI_META_ENDPOINT_MAX], host[TEI_META_HOST_MAX];
	uint16_t port;

	meta_address_text(ai->ai_addr, ai->ai_addrlen, text);
	if (tei_meta_split(text, host, &port))
		return;
	if (out->len)
		meta_buf_text(out, ",");
	meta_buf_text(out, host);
	meta_buf_text(out, ":");
	meta_buf_u64(out, port);
}

static bool zk_stopped(void *arg)
{
	struct zk *zk = arg;
	bool stop;

	tei_mutex_lock(&zk->lock);
	stop = zk->stop;
	tei_mutex_unlock(&zk->lock);
	return stop;
}

static void zk_resolve_one(struct zk *zk, const char *one,
			   uint64_t deadline_ns, struct meta_buf *out,
			   const char **why)
{
	char host[TEI_META_HOST_MAX];
	struct addrinfo *list, *ai;
	uint16_t port;

	if (tei_meta_split(one, host, &port) ||
	    meta_resolve_unless(host, port ? port : ZK_DEFAULT_PORT,
				deadline_ns, zk_stopped, zk, &list, why))
		return;
	for (ai = list; ai; ai = ai->ai_next)
		zk_server_text(out, ai);
	freeaddrinfo(list);
}

void zk_servers_rotate(char *addresses)
{
	size_t n = strcspn(addresses, ","), rest = strlen(addresses) - n;
	char first[TEI_META_ENDPOINT_MAX];

	if (!addresses[n] || n >= sizeof(first))
		return;
	memcpy(first, addresses, n);
	memmove(addresses, addresses + n + 1, rest - 1);
	addresses[rest - 1] = ',';
	memcpy(addresses + rest, first, n);
}

/* Shuffles the list: chooses for each position one of the remaining addresses
 * at random. */
static void zk_text_mix(char *addresses)
{
	uint32_t left = 1, turns;
	const char *p;

	for (p = addresses; *p; p++)
		left += *p == ',';
	for (; left > 1; left--) {
		turns = 0;
		tei_random(&turns, sizeof(turns));
		for (turns %= left; turns; turns--)
			zk_servers_rotate(addresses);
		addresses += strcspn(addresses, ",") + 1;
	}
}

/* Resolves the names of all servers. Fails only if none of them can be
 * resolved. */
int zk_servers_resolve(struct zk *zk, uint64_t deadline_ns, char **out,
		       struct tei_err *err)
{
	char *copy = strdup(zk->servers), *rest = copy, *one;
	struct meta_buf list = { 0 };
	const char *why = "no memory";

	while (copy && (one = strsep(&rest, ",")))
		zk_resolve_one(zk, one, deadline_ns, &list, &why);
	free(copy);
	if (list.len)
		meta_buf_bytes(&list, "", 1);
	if (list.len && !list.failed) {
		zk_text_mix(list.text);
		*out = list.text;
		return 0;
	}
	free(list.text);
	return tei_err_fail(err, TEI_ERR_DNS, "meta", NULL,
			    "ZooKeeper servers '%s': %s", zk->where,
			    why);
}

/* Returns true if the comma-separated list contains the address "one", which
 * has len bytes. */
static bool zk_text_has(const char *list, const char *one, size_t len)
{
	size_t n;

	for (;; list += n + 1) {
		n = strcspn(list, ",");
		if (n == len && !strncmp(list, one, n))
			return true;
		if (!list[n])
			return false;
	}
}

bool zk_servers_changed(const char *addresses, const char *known)
{
	size_t n;

	for (;; addresses += n + 1) {
		n = strcspn(addresses, ",");
		if (!zk_text_has(known, addresses, n))
			return true;
		if (!addresses[n])
			return false;
	}
}
