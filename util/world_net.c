/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Finds and examines sockets and network links in the real world.
 *
 * A wait object is an epoll file descriptor, which may contain other epoll file
 * descriptors. The sockets of a wait object are those that its epoll file
 * descriptors watch; /proc/self/fdinfo lists them (proc(5)). If the provider
 * uses no sockets, none is found. If a forked child still has a socket open,
 * the socket stays in the epoll set after this process has closed it. Its
 * number may then belong to another file, so the inode number is compared as
 * well.
 */

#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/world_net.h"

#define NET_DEPTH	4		/* largest number of levels of epoll
					 * file descriptors within each other */
#define NET_REPORTS	64		/* largest number of reports that one
					 * call reads */

/* --- sockets ------------------------------------------------------------- */

/* Calls fn for the socket fd, or for the sockets that the epoll file descriptor
 * fd watches. depth: number of levels still to be searched. */
static void net_search(int fd, unsigned long ino, int depth,
		       tei_net_socket_fn *fn, void *arg)
{
	char path[64], line[256];
	struct statx st;
	int target, n;
	FILE *f;

	/* not fstat, which ThreadSanitizer reports as a race with the thread
	 * that owns the file descriptor */
	if (!depth || fd < 0 ||
	    statx(fd, "", AT_EMPTY_PATH, STATX_TYPE | STATX_INO, &st) ||
	    (ino && st.stx_ino != ino))
		return;
	if (S_ISSOCK(st.stx_mode)) {
		fn(&(struct tei_socket){ fd, st.stx_ino }, arg);
		return;
	}
	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	f = fopen(path, "re");
	if (!f)
		return;
	while (fgets(line, sizeof(line), f)) {
		n = sscanf(line,
			   "tfd: %d events: %*x data: %*x pos:%*d ino:%lx",
			   &target, &ino);
		if (n > 0)
			net_search(target, n > 1 ? ino : 0, depth - 1, fn, arg);
	}
	fclose(f);
}

void world_net_sockets(int fd, unsigned long ino, tei_net_socket_fn *fn,
		       void *arg)
{
	net_search(fd, ino, NET_DEPTH, fn, arg);
}

bool world_net_same(const struct tei_socket *s)
{
	struct statx st;

	return s->fd >= 0 &&
	       !statx(s->fd, "", AT_EMPTY_PATH, STATX_TYPE | STATX_INO, &st) &&
	       S_ISSOCK(st.stx_mode) && st.stx_ino == s->ino;
}

int world_net_own_addr(int fd, struct sockaddr *sa, uint32_t *len)
{
	return getsockname(fd, sa, len) ? errno : 0;
}

int world_net_peer_addr(int fd, struct sockaddr *sa, uint32_t *len)
{
	return getpeername(fd, sa, len) ? errno : 0;
}

bool world_net_listens(int fd)
{
	socklen_t len = sizeof(int);
	int on = 0;

	return !getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &on, &len) && on;
}

void world_net_cut(int fd)
{
	shutdown(fd, SHUT_RDWR);
}

int world_net_dup(int fd)
{
	return fcntl(fd, F_DUPFD_CLOEXEC, 0);
}

void world_net_close(int fd)
{
	close(fd);
}

enum tei_net_bind world_net_bindable(const struct sockaddr *sa, uint32_t len,
				     bool listens)
{
	enum tei_net_bind ret = TEI_NET_BIND_FREE;
	const int one = 1;
	int fd;

	fd = socket(sa->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return TEI_NET_BIND_FREE;
	if (listens)
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fd, sa, (socklen_t)len))
		ret = errno == EADDRNOTAVAIL ? TEI_NET_BIND_ABSENT :
					       TEI_NET_BIND_BUSY;
	else if (listens && listen(fd, 1))
		ret = TEI_NET_BIND_BUSY;
	close(fd);
	return ret;
}

/* --- links --------------------------------------------------------------- */

int world_net_interfaces(struct ifaddrs **out)
{
	return getifaddrs(out);
}

void world_net_interfaces_free(struct ifaddrs *list)
{
	freeifaddrs(list);
}

uint32_t world_net_interface_index(const char *name)
{
	return if_nametoindex(name);
}

bool world_net_interface_name(uint32_t index, char *name)
{
	return if_indextoname(index, name);
}

int world_net_interface_up(uint32_t index)
{
	struct ifreq req;
	int fd, ret;

	memset(&req, 0, sizeof(req));
	if (!if_indextoname(index, req.ifr_name))
		return 0;
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -1;
	ret = ioctl(fd, SIOCGIFFLAGS, &req);
	close(fd);
	return ret ? -1 : (req.ifr_flags & IFF_UP) &&
				  (req.ifr_flags & IFF_RUNNING);
}

int world_net_changes_open(void)
{
	struct sockaddr_nl sa = {
		.nl_family = AF_NETLINK,
		.nl_groups = RTMGRP_LINK | RTMGRP_IPV4_IFADDR |
			     RTMGRP_IPV6_IFADDR,
	};
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK,
			NETLINK_ROUTE);

	if (fd < 0)
		return -1;
	if (!bind(fd, (struct sockaddr *)&sa, sizeof(sa)))
		return fd;
	close(fd);
	return -1;
}

bool world_net_changes_read(int fd)
{
	char buf[8192];
	bool received = false;
	ssize_t n;
	int i;

	for (i = 0; i < NET_REPORTS; i++) {
		n = recv(fd, buf, sizeof(buf), MSG_DONTWAIT);
		/* ENOBUFS means that reports were lost, which counts as a
		 * report */
		if (n < 0 && errno != ENOBUFS)
			break;
		received = true;
	}
	return received;
}
