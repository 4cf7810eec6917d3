/* SPDX-License-Identifier: BSD-2-Clause */

#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "prov/rail/conn/rail_disconnect.h"
#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_lane.h"
#include "prov/rail/rail_test.h"
#include "prov/rail/tei_rail.h"
#include "util/err.h"
#include "util/lock.h"
#include "util/settings.h"

#define PORTS_RANGE	40u

/* Returns a socket that listens at a port chosen by the kernel, and the port in
 * *port. */
static int ports_listen(uint32_t *port)
{
	struct sockaddr_in sa = { .sin_family = AF_INET,
				  .sin_addr = { htonl(INADDR_LOOPBACK) } };
	socklen_t len = sizeof(sa);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	CU_ASSERT_FATAL(fd >= 0);
	CU_ASSERT_FATAL(!bind(fd, (struct sockaddr *)&sa, sizeof(sa)) &&
			!listen(fd, 1));
	CU_ASSERT_FATAL(!getsockname(fd, (struct sockaddr *)&sa, &len));
	*port = ntohs(sa.sin_port);
	return fd;
}

/* Sets a range of ports whose first port is in use. Returns the socket that
 * uses this port. */
static int ports_range(struct test_plane *p)
{
	uint32_t port;
	int fd = ports_listen(&port);

	if (port > UINT16_MAX - PORTS_RANGE) {
		close(fd);
		return ports_range(p);
	}
	p->settings.rails.data_port_low = (uint16_t)port;
	p->settings.rails.data_port_high = (uint16_t)(port + PORTS_RANGE - 1);
	return fd;
}

static uint32_t ports_of(const struct tei_rail_addr *addr)
{
	struct sockaddr_in sa;

	memcpy(&sa, addr->bytes, sizeof(sa));
	return ntohs(sa.sin_port);
}

static bool ports_inside(const struct test_plane *p, const struct rail_lane *l)
{
	uint32_t port = ports_of(&l->addr);

	return port > p->settings.rails.data_port_low &&
	       port <= p->settings.rails.data_port_high;
}

static void ports_open(struct rail_lane *lane)
{
	struct tei_err err;
	int ret;

	tei_mutex_lock(&lane->lock);
	ret = rail_lane_open(lane, &err);
	tei_mutex_unlock(&lane->lock);
	CU_ASSERT_EQUAL_FATAL(ret, 0);
}

/* Opens a data plane that uses a range of ports, and stops its progress thread.
 * Returns the socket that listens at the first port of the range. */
static int ports_plane(struct test_plane *p)
{
	int fd;

	test_plane_init(p);
	fd = ports_range(p);
	test_plane_open(p, "127.0.0.1");
	test_plane_still(p);
	return fd;
}

static void test_all_lanes_listen_inside_the_range(void)
{
	struct test_plane p;
	int fd = ports_plane(&p);
	struct rail *rail = rail_at(p.dp, 0);
	struct rail_lane *lane;
	uint32_t i;

	test_plane_use(&p);
	CU_ASSERT(ports_inside(&p, &rail->rx_lane));
	for (i = 0; i < rail->ntx; i++)
		CU_ASSERT(
			ports_inside(&p, &rail->tx_lanes[i * RAIL_LANE_SLOTS]));
	/* the lane that replaces a fenced lane, and the endpoint of the probes,
	 * use ports of the range too */
	lane = &rail->rx_lane;
	rail_lane_shutdown(lane, false);
	ports_open(lane);
	CU_ASSERT(ports_inside(&p, lane));
	CU_ASSERT_NOT_EQUAL(ports_of(&lane->addr), ports_of(&rail->nic.own));
	lane = &rail->probe.opening.lane;
	ports_open(lane);
	CU_ASSERT(ports_inside(&p, lane));
	rail_lane_shutdown(lane, false);
	test_plane_close(&p);
	close(fd);
}

/* Checks that no other lane gets the port of the contact address while the lane
 * there is closed. */
static void test_port_of_the_contact_address_is_reserved(void)
{
	struct test_plane p;
	int fd = ports_plane(&p);
	struct rail *rail = rail_at(p.dp, 0);
	struct fi_info *info;
	uint32_t i;

	rail_lane_shutdown(&rail->rx_lane, false);
	info = fi_dupinfo(rail->fab.info);
	CU_ASSERT_PTR_NOT_NULL_FATAL(info);
	for (i = 0; i < 2 * PORTS_RANGE; i++) {
		CU_ASSERT_EQUAL_FATAL(
			rail_ports_set(&rail->probe.opening.lane, info), 0);
		CU_ASSERT_NOT_EQUAL(
			ntohs(((struct sockaddr_in *)info->src_addr)->sin_port),
			ports_of(&rail->nic.own));
	}
	fi_freeinfo(info);
	test_plane_close(&p);
	close(fd);
}

static void test_range_without_a_free_port_is_named_in_the_error(void)
{
	struct test_plane p;
	struct tei_err err;
	int fd;

	test_plane_init(&p);
	fd = ports_range(&p);
	p.settings.rails.data_port_high = p.settings.rails.data_port_low;
	test_plane_open(&p, NULL);
	CU_ASSERT_NOT_EQUAL(tei_rail_dp_add_transport(p.dp, "tcp", "127.0.0.1",
						      &err), 0);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.hint, "MOONRAIL_DATA_PORTS="));
	test_plane_close(&p);
	close(fd);
}

const struct tei_test_case rail_ports_cases[] = {
	{ "all_lanes_listen_inside_the_range",
	  test_all_lanes_listen_inside_the_range },
	{ "port_of_the_contact_address_is_reserved",
	  test_port_of_the_contact_address_is_reserved },
	{ "range_without_a_free_port_is_named_in_the_error",
	  test_range_without_a_free_port_is_named_in_the_error },
	{ NULL, NULL },
};
