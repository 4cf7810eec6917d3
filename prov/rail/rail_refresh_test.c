/* SPDX-License-Identifier: BSD-2-Clause */
/* Tests of devices that appear after a data plane was opened. Loopback
 * addresses stand for devices. */

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <string.h>

#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_lane.h"
#include "prov/rail/core/rail_op.h"
#include "prov/rail/core/rail_peer_struct.h"
#include "prov/rail/health/rail_health.h"
#include "prov/rail/peer/rail_hello_msg.h"
#include "prov/rail/peer/rail_peer.h"
#include "prov/rail/rail_test.h"
#include "prov/rail/tei_rail.h"
#include "util/err.h"


#define REFRESH_ONE	"127.0.0.1"
#define REFRESH_BOTH	"127.0.0.1,127.0.0.2"

static struct tei_rail_desc refresh_describe(struct tei_rail_dp *dp, size_t i)
{
	struct tei_rail_desc d;

	CU_ASSERT_EQUAL_FATAL(tei_rail_describe(dp, i, &d), 0);
	return d;
}

static void test_refresh_without_new_devices_does_nothing(void)
{
	struct test_plane p;
	uint32_t table;

	test_plane_init(&p);
	test_plane_open(&p, REFRESH_ONE);
	table = p.dp->peers.table;
	CU_ASSERT_EQUAL(tei_rail_dp_refresh(p.dp, "tcp", REFRESH_ONE), 0);
	CU_ASSERT_EQUAL(tei_rail_count(p.dp), 1);
	CU_ASSERT_EQUAL(p.dp->peers.table, table);
	test_plane_close(&p);
}

static void test_refresh_of_unknown_device_does_nothing(void)
{
	struct test_plane p;

	test_plane_init(&p);
	test_plane_open(&p, REFRESH_ONE);
	CU_ASSERT_EQUAL(tei_rail_dp_refresh(p.dp, "tcp", "no-such-device"), 0);
	/* no rail is opened for an address that this host does not have */
	CU_ASSERT_EQUAL(tei_rail_dp_refresh(p.dp, "tcp", "192.0.2.1"), 0);
	CU_ASSERT_EQUAL(tei_rail_count(p.dp), 1);
	test_plane_close(&p);
}

static void test_new_device_gets_the_registered_memory(void)
{
	static char mem[4096];
	struct tei_rail_mr *mr;
	struct test_plane p;
	struct tei_err err;
	uint64_t key = 0;

	test_plane_init(&p);
	test_plane_open(&p, REFRESH_ONE);
	CU_ASSERT_EQUAL_FATAL(tei_rail_mr_reg(p.dp, mem, sizeof(mem), "*",
					      TEI_RAIL_REMOTE, &err, &mr), 0);
	CU_ASSERT_EQUAL(tei_rail_dp_refresh(p.dp, "tcp", REFRESH_BOTH),
			TEI_RAIL_REFRESHED);
	CU_ASSERT_EQUAL_FATAL(tei_rail_count(p.dp), 2);
	CU_ASSERT(refresh_describe(p.dp, 0).open);
	CU_ASSERT(refresh_describe(p.dp, 1).open);
	CU_ASSERT_EQUAL(tei_rail_mr_key(p.dp, mem, 1, &key), 0);
	CU_ASSERT_NOT_EQUAL(key, 0);
	CU_ASSERT_EQUAL(tei_rail_dp_refresh(p.dp, "tcp", REFRESH_BOTH), 0);
	test_plane_close(&p);
}

static void test_fallback_is_closed_when_no_peer_knows_it(void)
{
	struct test_plane p;

	test_plane_init(&p);
	test_plane_open(&p, REFRESH_ONE);
	rail_at(p.dp, 0)->nic.fallback = true;
	CU_ASSERT_EQUAL(tei_rail_dp_refresh(p.dp, "tcp", "127.0.0.2"),
			TEI_RAIL_REFRESHED);
	CU_ASSERT_EQUAL_FATAL(tei_rail_count(p.dp), 2);
	CU_ASSERT(!refresh_describe(p.dp, 0).open);
	CU_ASSERT(refresh_describe(p.dp, 1).open);
	test_plane_close(&p);
}

static void test_fallback_stays_without_a_better_rail(void)
{
	struct test_plane p;

	test_plane_init(&p);
	test_plane_open(&p, REFRESH_ONE);
	rail_at(p.dp, 0)->nic.fallback = true;
	CU_ASSERT_EQUAL(tei_rail_dp_refresh(p.dp, "tcp", "no-such-device"), 0);
	CU_ASSERT(refresh_describe(p.dp, 0).open);
	CU_ASSERT(!refresh_describe(p.dp, 0).hidden);
	test_plane_close(&p);
}

/* Tests that a replaced fallback rail stays open, but hidden, as long as a peer
 * that knows it has not gone. */
static void test_known_fallback_is_hidden_until_the_peer_has_gone(void)
{
	uint8_t buf[RAIL_MSG_MAX];
	struct tei_rail_peer *other;
	struct test_pair pair;
	struct rail_done done;
	struct tei_rail_desc d;
	struct test_plane third;
	struct tei_err err;
	size_t known, unknown;

	test_pair_open(&pair);
	test_plane_init(&third);
	test_plane_open(&third, "127.0.0.3");
	pair.rail->nic.fallback = true;
	CU_ASSERT_EQUAL(tei_rail_dp_refresh(pair.from.dp, "tcp", "127.0.0.4"),
			TEI_RAIL_REFRESHED | TEI_RAIL_REFRESH_AGAIN);
	d = refresh_describe(pair.from.dp, 0);
	CU_ASSERT(d.open && d.hidden);
	CU_ASSERT(!refresh_describe(pair.from.dp, 1).hidden);
	/* a hello lists the replaced rail only if its receiver knows this
	 * rail */
	CU_ASSERT_EQUAL_FATAL(tei_rail_peer_get(
		pair.from.dp, "other", third.dp->incarnation,
		&(struct tei_rail_addr){ .len = 1 }, 1, &err, &other), 0);
	known = rail_msg_hello(pair.peer, false, buf);
	unknown = rail_msg_hello(other, false, buf);
	CU_ASSERT(unknown && known > unknown);
	CU_ASSERT_EQUAL(tei_rail_dp_refresh(pair.from.dp, "tcp", "127.0.0.4"),
			TEI_RAIL_REFRESH_AGAIN);
	rail_done_init(&done);
	rail_sched_enter(pair.from.dp);
	rail_peer_set_gone(pair.peer, "it ends", RAIL_GONE_OVER, &done);
	rail_sched_leave(pair.from.dp);
	rail_done_run(pair.from.dp, &done);
	CU_ASSERT_EQUAL(tei_rail_dp_refresh(pair.from.dp, "tcp", "127.0.0.4"),
			TEI_RAIL_REFRESHED);
	CU_ASSERT(!refresh_describe(pair.from.dp, 0).open);
	tei_rail_peer_put(other);
	test_plane_close(&third);
	test_pair_close(&pair);
}

static void test_rail_whose_address_is_gone_is_replaced(void)
{
	struct test_plane p;
	struct sockaddr_in *in;
	struct rail *rail;

	test_plane_init(&p);
	test_plane_open(&p, REFRESH_ONE);
	rail = rail_at(p.dp, 0);
	CU_ASSERT_NOT_EQUAL(rail->nic.ifindex, 0);
	in = (void *)rail->nic.own.bytes;
	CU_ASSERT_EQUAL_FATAL(inet_pton(AF_INET, "192.0.2.1", &in->sin_addr), 1);
	/* a rail whose address is gone stays if its device has no other
	 * address */
	CU_ASSERT_EQUAL(tei_rail_dp_refresh(p.dp, "tcp", "no-such-device"), 0);
	CU_ASSERT(refresh_describe(p.dp, 0).open);
	CU_ASSERT_EQUAL(tei_rail_dp_refresh(p.dp, "tcp", REFRESH_ONE),
			TEI_RAIL_REFRESHED);
	CU_ASSERT_EQUAL_FATAL(tei_rail_count(p.dp), 2);
	CU_ASSERT(!refresh_describe(p.dp, 0).open);
	CU_ASSERT(refresh_describe(p.dp, 1).open);
	test_plane_close(&p);
}

/* Tests an interface whose address changes until the data plane has opened
 * TEI_RAIL_MAX rails. */
static void test_refresh_at_the_limit_of_rails_gives_up(void)
{
	struct test_plane p;
	struct sockaddr_in *in;
	struct tei_err err;
	uint32_t i;

	test_plane_init(&p);
	test_plane_open(&p, REFRESH_ONE);
	for (i = 1; i <= TEI_RAIL_MAX + 2; i++) {
		in = (void *)rail_at(p.dp, tei_rail_count(p.dp) - 1)
			     ->nic.own.bytes;
		CU_ASSERT_EQUAL_FATAL(inet_pton(AF_INET, "192.0.2.1",
						&in->sin_addr), 1);
		CU_ASSERT_EQUAL(tei_rail_dp_refresh(p.dp, "tcp", REFRESH_ONE),
				i < TEI_RAIL_MAX ? TEI_RAIL_REFRESHED : 0);
	}
	CU_ASSERT_EQUAL(tei_rail_count(p.dp), TEI_RAIL_MAX);
	/* the last rail stays, because its address may come back */
	CU_ASSERT(refresh_describe(p.dp, TEI_RAIL_MAX - 1).open);
	CU_ASSERT(p.dp->devices.warned_full);
	CU_ASSERT_EQUAL(tei_rail_dp_add_transport(p.dp, "tcp", "127.0.0.2",
						  &err), TEI_ERR_TOO_MANY);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "64 rails"));
	CU_ASSERT_PTR_NOT_NULL(strstr(err.hint, "create the engine again"));
	test_plane_close(&p);
}

static void test_rail_finds_its_interface_after_it_was_made_again(void)
{
	struct ifaddrs *ifs = NULL;
	struct test_plane p;
	uint32_t index;

	test_plane_init(&p);
	test_plane_open(&p, REFRESH_ONE);
	CU_ASSERT_EQUAL_FATAL(getifaddrs(&ifs), 0);
	index = rail_at(p.dp, 0)->nic.ifindex;
	rail_at(p.dp, 0)->nic.ifindex = 0x7fffffffu;
	CU_ASSERT(rail_link_has_address(rail_at(p.dp, 0), ifs));
	CU_ASSERT_EQUAL(rail_at(p.dp, 0)->nic.ifindex, index);
	freeifaddrs(ifs);
	test_plane_close(&p);
}

static void test_changed_devices_are_noticed(void)
{
	struct test_plane p;

	test_plane_init(&p);
	test_plane_open(&p, NULL);
	CU_ASSERT(tei_rail_dp_devices_changed(p.dp));
	p.dp->devices.seen++;
	CU_ASSERT(tei_rail_dp_devices_changed(p.dp));
	test_plane_close(&p);
}

const struct tei_test_case rail_refresh_cases[] = {
	{ "refresh_without_new_devices_does_nothing",
	  test_refresh_without_new_devices_does_nothing },
	{ "refresh_of_unknown_device_does_nothing",
	  test_refresh_of_unknown_device_does_nothing },
	{ "new_device_gets_the_registered_memory",
	  test_new_device_gets_the_registered_memory },
	{ "fallback_is_closed_when_no_peer_knows_it",
	  test_fallback_is_closed_when_no_peer_knows_it },
	{ "fallback_stays_without_a_better_rail",
	  test_fallback_stays_without_a_better_rail },
	{ "known_fallback_is_hidden_until_the_peer_has_gone",
	  test_known_fallback_is_hidden_until_the_peer_has_gone },
	{ "rail_whose_address_is_gone_is_replaced",
	  test_rail_whose_address_is_gone_is_replaced },
	{ "refresh_at_the_limit_of_rails_gives_up",
	  test_refresh_at_the_limit_of_rails_gives_up },
	{ "rail_finds_its_interface_after_it_was_made_again",
	  test_rail_finds_its_interface_after_it_was_made_again },
	{ "changed_devices_are_noticed", test_changed_devices_are_noticed },
	{ NULL, NULL },
};
