/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_MOONRAIL_MOONRAIL_TEST_H
#define TEI_PROV_MOONRAIL_MOONRAIL_TEST_H

#include <rdma/fi_endpoint.h>

#include "prov/moonrail/moonrail_domain.h"
#include "util/tei_test.h"

#define TEST_WAIT_NS	(20 * TEI_NS_PER_SEC)

/* An endpoint on loopback with its fabric, domain, address vector and
 * completion queue. */
struct test_end {
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *fid;
	struct fid_av *av;
	struct fid_cq *cq;
	struct fid_ep *ep;
	struct moonrail_domain *domain;
};

/* Opens all objects. port: port of the contact address, or NULL for any
 * port. */
void test_open(struct test_end *t, const char *port);
void test_close(struct test_end *t);
/* Inserts the address 127.0.0.1:port. */
fi_addr_t test_insert(struct test_end *t, uint16_t port);
/* Returns a port that refuses connections until the next call. */
uint16_t test_port(void);
/* Waits for the next completion and returns its error, FI_E* or 0. Returns
 * -FI_EAGAIN if there is none within TEST_WAIT_NS. */
int test_ends(struct test_end *t);

extern const struct tei_test_case moonrail_atomic_cases[];
extern const struct tei_test_case moonrail_cq_cases[];
extern const struct tei_test_case moonrail_fabric_cases[];
extern const struct tei_test_case moonrail_init_cases[];
extern const struct tei_test_case moonrail_name_cases[];
extern const struct tei_test_case moonrail_peer_cases[];

#endif /* TEI_PROV_MOONRAIL_MOONRAIL_TEST_H */
