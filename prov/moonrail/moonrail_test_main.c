/* SPDX-License-Identifier: BSD-2-Clause */
#include "prov/moonrail/moonrail_domain.h"
#include "prov/moonrail/moonrail_fabric.h"
#include "prov/moonrail/moonrail_info.h"
#include "prov/moonrail/moonrail_int.h"
#include "prov/moonrail/moonrail_test.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void test_open(struct test_end *t, const char *port)
{
	struct fi_cq_attr cq = { .format = FI_CQ_FORMAT_TAGGED };
	struct fi_av_attr av = { .type = FI_AV_TABLE };
	struct fi_info *hints = fi_allocinfo();

	CU_ASSERT_FATAL(hints != NULL);
	hints->fabric_attr->prov_name = strdup("moonrail");
	CU_ASSERT_EQUAL_FATAL(moonrail_getinfo(MOONRAIL_API, "127.0.0.1", port,
					       FI_SOURCE, hints, &t->info), 0);
	fi_freeinfo(hints);
	CU_ASSERT_EQUAL_FATAL(moonrail_fabric_open(t->info->fabric_attr,
						   &t->fabric, NULL), 0);
	CU_ASSERT_EQUAL_FATAL(fi_domain(t->fabric, t->info, &t->fid, NULL), 0);
	CU_ASSERT_EQUAL_FATAL(fi_av_open(t->fid, &av, &t->av, NULL), 0);
	CU_ASSERT_EQUAL_FATAL(fi_cq_open(t->fid, &cq, &t->cq, NULL), 0);
	CU_ASSERT_EQUAL_FATAL(fi_endpoint(t->fid, t->info, &t->ep, NULL), 0);
	CU_ASSERT_EQUAL(fi_ep_bind(t->ep, &t->av->fid, 0), 0);
	CU_ASSERT_EQUAL(fi_ep_bind(t->ep, &t->cq->fid, FI_TRANSMIT | FI_RECV),
			0);
	CU_ASSERT_EQUAL_FATAL(fi_enable(t->ep), 0);
	t->domain = tei_container_of(t->fid, struct moonrail_domain, fid);
}

void test_close(struct test_end *t)
{
	CU_ASSERT_EQUAL(fi_close(&t->ep->fid), 0);
	CU_ASSERT_EQUAL(fi_close(&t->cq->fid), 0);
	CU_ASSERT_EQUAL(fi_close(&t->av->fid), 0);
	CU_ASSERT_EQUAL(fi_close(&t->fid->fid), 0);
	CU_ASSERT_EQUAL(fi_close(&t->fabric->fid), 0);
	fi_freeinfo(t->info);
}

static struct sockaddr_in test_loopback(uint16_t port)
{
	struct sockaddr_in in;

	memset(&in, 0, sizeof(in));
	in.sin_family = AF_INET;
	in.sin_port = htons(port);
	in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	return in;
}

fi_addr_t test_insert(struct test_end *t, uint16_t port)
{
	struct sockaddr_in in = test_loopback(port);
	fi_addr_t addr = FI_ADDR_NOTAVAIL;

	CU_ASSERT_EQUAL_FATAL(fi_av_insert(t->av, &in, 1, &addr, 0, NULL), 1);
	return addr;
}

uint16_t test_port(void)
{
	struct sockaddr_in in = test_loopback(0);
	socklen_t len = sizeof(in);
	static int fd = -1;

	if (fd >= 0)
		close(fd);
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	CU_ASSERT_FATAL(fd >= 0);
	CU_ASSERT_EQUAL(bind(fd, (struct sockaddr *)&in, len), 0);
	CU_ASSERT_EQUAL(getsockname(fd, (struct sockaddr *)&in, &len), 0);
	return ntohs(in.sin_port);
}

int test_ends(struct test_end *t)
{
	uint64_t end = tei_now_ns() + TEST_WAIT_NS;
	struct fi_cq_tagged_entry e;
	struct fi_cq_err_entry err;
	ssize_t n;

	do
		n = fi_cq_read(t->cq, &e, 1);
	while (n == -FI_EAGAIN && tei_now_ns() < end);
	if (n != -FI_EAVAIL)
		return n == 1 ? 0 : (int)n;
	memset(&err, 0, sizeof(err));
	CU_ASSERT_EQUAL(fi_cq_readerr(t->cq, &err, 0), 1);
	return err.err;
}

int main(int argc, char **argv)
{
	static const struct tei_test_suite suites[] = {
		{ "atomic", moonrail_atomic_cases },
		{ "cq", moonrail_cq_cases },
		{ "fabric", moonrail_fabric_cases },
		{ "init", moonrail_init_cases },
		{ "name", moonrail_name_cases },
		{ "peer", moonrail_peer_cases },
		{ NULL, NULL },
	};

	return tei_test_run(argc, argv, suites);
}
