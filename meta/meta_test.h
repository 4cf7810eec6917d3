/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_META_META_TEST_H
#define TEI_META_META_TEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "meta/tei_meta.h"
#include "util/tei_test.h"

struct tei_secret;
struct tei_settings;

extern const struct tei_test_case json_cases[];
extern const struct tei_test_case desc_cases[];
extern const struct tei_test_case name_cases[];
extern const struct tei_test_case server_cases[];
extern const struct tei_test_case abuse_cases[];
extern const struct tei_test_case share_cases[];
extern const struct tei_test_case auth_cases[];
extern const struct tei_test_case kept_cases[];
extern const struct tei_test_case store_cases[];
extern const struct tei_test_case cache_cases[];
extern const struct tei_test_case zookeeper_cases[];
extern const struct tei_test_case zookeeper_claim_cases[];
extern const struct tei_test_case zookeeper_loss_cases[];
extern const struct tei_test_case zookeeper_trust_cases[];

/* A time limit that is long enough on a slow, sanitized, loaded machine. */
uint64_t meta_test_deadline(void);

/* Bounds on time are this much wider in sanitizer builds, and on a machine with
 * much else to do. */
unsigned int meta_test_slowness(void);

struct tei_settings *meta_test_settings(void);

/* On a free port of host; NULL (case failed, or skipped without IPv6). */
struct tei_meta_server *meta_test_server(const char *host,
					 uint64_t incarnation,
					 uint64_t timeout_ns,
					 uint32_t max_clients);

/* On a free port of 127.0.0.1, for who has the secret (NULL: anybody). */
struct tei_meta_server *meta_test_server_of(const struct tei_secret *secret,
					    uint64_t incarnation);

/* A frozen descriptor with rails and buffers of made-up values. */
struct tei_meta_desc *meta_test_desc(const char *name, uint64_t incarnation,
				     uint32_t rails, uint32_t buffers);

/* Publishes such a descriptor under the server's own name. */
void meta_test_publish(struct tei_meta_server *server, uint32_t buffers);

/* Open descriptors of this process. */
unsigned int meta_test_fds(void);

/* Sends standard error away, and back. META_TEST_LOUD=1 keeps it. */
void meta_test_hush(bool on);

#endif /* TEI_META_META_TEST_H */
