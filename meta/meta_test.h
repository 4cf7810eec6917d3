/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_META_META_TEST_H
#define TEI_META_META_TEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "meta/tei_meta_desc.h"
#include "util/tei_test.h"

struct tei_secret;
struct tei_settings;

extern const struct tei_test_case json_cases[];
extern const struct tei_test_case desc_cases[];
extern const struct tei_test_case etcd_cases[];
extern const struct tei_test_case http_client_cases[];
extern const struct tei_test_case name_cases[];
extern const struct tei_test_case mooncake_cases[];
extern const struct tei_test_case kv_cases[];
extern const struct tei_test_case scale_cases[];
extern const struct tei_test_case server_cases[];
extern const struct tei_test_case abuse_cases[];
extern const struct tei_test_case label_cases[];
extern const struct tei_test_case rate_limit_cases[];
extern const struct tei_test_case auth_cases[];
extern const struct tei_test_case persistent_cases[];
extern const struct tei_test_case store_cases[];
extern const struct tei_test_case cache_cases[];
extern const struct tei_test_case zookeeper_cases[];
extern const struct tei_test_case zookeeper_registration_cases[];
extern const struct tei_test_case zookeeper_loss_cases[];
extern const struct tei_test_case zookeeper_acl_cases[];

/* Returns a deadline that is far enough in the future for a slow, loaded
 * machine and for a build with sanitizers. */
uint64_t meta_test_deadline(void);

/* Returns the factor by which time limits are extended in sanitizer builds and
 * on a loaded machine. */
unsigned int meta_test_slowness(void);

struct tei_settings *meta_test_settings(void);

/*
 * Starts a server on a free port of host. If the server cannot be started,
 * returns NULL after it has marked the test case as failed, or as skipped if
 * the machine has no IPv6.
 */
struct tei_meta_server *meta_test_server(const char *host,
					 uint64_t incarnation,
					 uint64_t timeout_ns,
					 uint32_t max_clients);

/* Starts a server on a free port of 127.0.0.1. The server answers only clients
 * that have the secret, or all clients if secret is NULL. */
struct tei_meta_server *meta_test_server_of(const struct tei_secret *secret,
					    uint64_t incarnation);

/* Creates a frozen descriptor with rails and buffers of arbitrary values. */
struct tei_meta_desc *meta_test_desc(const char *name, uint64_t incarnation,
				     uint32_t rails, uint32_t buffers);

/* Creates a descriptor with meta_test_desc and publishes it under the server's
 * own name. */
void meta_test_publish(struct tei_meta_server *server, uint32_t buffers);

/* Returns the number of open file descriptors of this process. */
unsigned int meta_test_fds(void);

/*
 * Redirects standard error to /dev/null if "on" is true, and restores it if
 * "on" is false. Does nothing if the environment variable META_TEST_LOUD is
 * set.
 */
void meta_test_hush(bool on);

#endif /* TEI_META_META_TEST_H */
