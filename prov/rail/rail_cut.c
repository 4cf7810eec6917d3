/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Cutting a lane's connections before its endpoint is closed.
 *
 * Providers over sockets have trouble closing an endpoint in mid-operation:
 * libfabric 1.17's tcp frees a half received read response twice, 2.x's tcp
 * keeps a half accepted connection that points to the closed listener. Both
 * handle the loss of a connection well. So the sockets are shut down first and
 * the loss is progressed; then the endpoint closes with nothing under way.
 *
 * The sockets are those that the lane's wait object watches: epoll descriptors
 * within epoll descriptors, listed by /proc/self/fdinfo (proc(5)). A provider
 * without sockets has none there, and nothing is done.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "prov/rail/rail_int.h"

#define CUT_DEPTH	4			/* epoll in epoll in … */
#define CUT_NS		(50 * TEI_NS_PER_MS)	/* bound of the draining */
#define CUT_QUIET	8			/* polls without any event */

static void cut_socket(int fd)
{
	struct sockaddr_storage sa;
	socklen_t len = sizeof(sa);

	/* only the network's; descriptors for signalling are sockets too */
	if (getsockname(fd, (struct sockaddr *)&sa, &len) ||
	    (sa.ss_family != AF_INET && sa.ss_family != AF_INET6))
		return;
	shutdown(fd, SHUT_RDWR);
}

static void cut_watched(int fd, int depth)
{
	char path[64], line[256];
	struct stat st;
	FILE *f;
	int target;

	if (!depth || fd < 0 || fstat(fd, &st))
		return;
	if (S_ISSOCK(st.st_mode)) {
		cut_socket(fd);
		return;
	}
	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	f = fopen(path, "re");
	if (!f)
		return;
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "tfd: %d", &target) == 1)
			cut_watched(target, depth - 1);
	fclose(f);
}

void rail_cut(struct rail_lane *lane, struct rail_done *done)
{
	uint64_t end = tei_now_ns() + CUT_NS;
	int quiet = 0;

	if (!lane->ep || lane->wait_fd < 0)
		return;
	cut_watched(lane->wait_fd, CUT_DEPTH);
	while (tei_now_ns() < end &&
	       (quiet < CUT_QUIET || !tei_list_empty(&lane->posted)))
		quiet = rail_lane_poll(lane, done) ? 0 : quiet + 1;
}
