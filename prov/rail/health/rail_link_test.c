/* SPDX-License-Identifier: BSD-2-Clause */
/* Tests of links. The test calls the functions of the progress thread, and a
 * socket pair takes the place of the kernel. */

#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <rdma/fabric.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_lane.h"
#include "prov/rail/health/rail_health.h"
#include "prov/rail/rail_test.h"
#include "prov/rail/tei_rail.h"


#define LINK_NONE	0x7fffffffu		/* an interface number that does
						 * not exist */

static void link_address(struct rail *rail, const char *ip)
{
	struct sockaddr_in in = { .sin_family = AF_INET };
	struct tei_rail_addr *a = &rail->rx_lane.addr;

	CU_ASSERT_EQUAL_FATAL(inet_pton(AF_INET, ip, &in.sin_addr), 1);
	memset(a, 0, sizeof(*a));
	a->addr_format = FI_SOCKADDR_IN;
	a->len = sizeof(in);
	memcpy(a->bytes, &in, sizeof(in));
}

static void test_the_interface_of_a_rail_is_found_by_its_address(void)
{
	struct rail rail;

	memset(&rail, 0, sizeof(rail));
	link_address(&rail, "127.0.0.1");
	rail_link_find(&rail);
	CU_ASSERT_EQUAL(rail.nic.ifindex, if_nametoindex("lo"));
	CU_ASSERT(!rail.link.down);
	/* no interface has this address, so the state of the link is unknown,
	 * which counts as up */
	memset(&rail, 0, sizeof(rail));
	link_address(&rail, "192.0.2.1");
	rail_link_find(&rail);
	CU_ASSERT_EQUAL(rail.nic.ifindex, 0);
	CU_ASSERT(!rail.link.down);
	/* an address that is not an IP address belongs to no interface */
	rail.rx_lane.addr.addr_format = FI_ADDR_STR;
	rail_link_find(&rail);
	CU_ASSERT_EQUAL(rail.nic.ifindex, 0);
}

static void link_log(int fd)
{
	CU_ASSERT_EQUAL(send(fd, "x", 1, MSG_NOSIGNAL), 1);
}

static struct tei_rail_stats link_stats(struct test_pair *pair)
{
	struct tei_rail_stats s;

	memset(&s, 0, sizeof(s));
	CU_ASSERT_EQUAL(tei_rail_get_stats(pair->from.dp, 0, &s), 0);
	return s;
}

static void test_a_rail_follows_its_link_down_and_up(void)
{
	struct test_pair pair;
	int s[2];

	test_pair_open(&pair);
	CU_ASSERT_EQUAL_FATAL(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0,
					 s), 0);
	rail_link_close(pair.from.dp);
	pair.from.dp->link.fd = s[0];
	/* the state of the link is not read before the kernel reports a
	 * change */
	pair.rail->nic.ifindex = LINK_NONE;
	rail_link_read(pair.from.dp);
	CU_ASSERT_EQUAL(link_stats(&pair).state, TEI_RAIL_UP);
	link_log(s[1]);
	rail_link_read(pair.from.dp);
	CU_ASSERT_EQUAL(link_stats(&pair).state, TEI_RAIL_DOWN);
	CU_ASSERT_EQUAL(link_stats(&pair).state_changes, 1);
	/* a repeated report changes nothing */
	link_log(s[1]);
	rail_link_read(pair.from.dp);
	CU_ASSERT_EQUAL(link_stats(&pair).state_changes, 1);
	/* without a report by the kernel, the link is found to be up again */
	pair.rail->nic.ifindex = if_nametoindex("lo");
	pair.from.dp->link.next_ns = 0;
	rail_link_read(pair.from.dp);
	CU_ASSERT_EQUAL(link_stats(&pair).state, TEI_RAIL_UP);
	CU_ASSERT_EQUAL(link_stats(&pair).state_changes, 2);
	close(s[1]);
	test_pair_close(&pair);
}

const struct tei_test_case rail_link_cases[] = {
	{ "the_interface_of_a_rail_is_found_by_its_address",
	  test_the_interface_of_a_rail_is_found_by_its_address },
	{ "a_rail_follows_its_link_down_and_up",
	  test_a_rail_follows_its_link_down_and_up },
	{ NULL, NULL },
};
