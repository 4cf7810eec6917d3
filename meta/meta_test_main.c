/* SPDX-License-Identifier: BSD-2-Clause */
#include "meta/meta_test.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fabtests/common/ft_test.h"
#include "meta/tei_meta_desc.h"
#include "meta/tei_meta_server.h"
#include "util/clock.h"
#include "util/settings.h"

uint64_t meta_test_deadline(void)
{
	return tei_now_ns() + 20 * ft_load() * TEI_NS_PER_SEC;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TEST_SLOW 20
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define TEST_SLOW 20
#endif
#endif
#ifndef TEST_SLOW
#define TEST_SLOW 1
#endif

unsigned int meta_test_slowness(void)
{
	return TEST_SLOW * ft_load();
}

struct tei_settings *meta_test_settings(void)
{
	static struct tei_settings settings;

	CU_ASSERT_EQUAL_FATAL(tei_settings_load(&settings, NULL), 0);
	return &settings;
}

struct tei_meta_server *meta_test_server(const char *host,
					 uint64_t incarnation,
					 uint64_t timeout_ns,
					 uint32_t max_clients)
{
	struct tei_meta_server_config config = {
		.host = host, .incarnation = incarnation,
		.frame_timeout_ns = timeout_ns, .max_clients = max_clients,
	};
	struct tei_meta_server *server = NULL;
	struct tei_err err;

	if (!tei_meta_server_start(&config, &server, &err))
		return server;
	if (strchr(host, ':') && err.code == TEI_ERR_SOCKET)
		tei_test_skip("no IPv6 here: %s", err.text);
	else
		CU_FAIL("server does not start");
	return NULL;
}

struct tei_meta_server *meta_test_server_of(const struct tei_secret *secret,
					    uint64_t incarnation)
{
	struct tei_meta_server_config config = {
		.host = "127.0.0.1", .incarnation = incarnation,
		.secret = secret,
	};
	struct tei_meta_server *server = NULL;

	CU_ASSERT_EQUAL(tei_meta_server_start(&config, &server, NULL), 0);
	return server;
}

struct tei_meta_desc *meta_test_desc(const char *name, uint64_t incarnation,
				     uint32_t rails, uint32_t buffers)
{
	struct tei_meta_rail rail = {
		.gid = "fe80::1", .lid = 3, .provider = "tcp;ofi_rxm",
		.mr_mode = UINT64_C(1) << 40,
		.address = { .format = 2, .len = 4,
			     .bytes = { 0, 1, 0xfe, 0xff } },
	};
	uint64_t keys[TEI_META_RAILS_MAX];
	struct tei_meta_first first = { .provider = "tcp;ofi_rxm",
					.address = rail.address };
	struct tei_meta_desc *desc;
	uint32_t i, k;

	CU_ASSERT_EQUAL_FATAL(tei_meta_desc_create(name, "tcp", incarnation,
						   &desc, NULL), 0);
	CU_ASSERT_EQUAL(tei_meta_desc_set_first(desc, &first, NULL), 0);
	CU_ASSERT_EQUAL(tei_meta_desc_set_local(desc, "an identity", NULL), 0);
	CU_ASSERT_EQUAL(tei_meta_desc_set_matrix(desc, "{\"*\": [[], []]}",
						 NULL), 0);
	for (i = 0; i < rails; i++) {
		snprintf(rail.name, sizeof(rail.name), "eth%u", i);
		CU_ASSERT_EQUAL(tei_meta_desc_add_rail(desc, &rail, NULL), 0);
	}
	for (i = 0; i < buffers; i++) {
		for (k = 0; k < rails; k++)
			keys[k] = UINT64_MAX - i * 1000 - k;
		CU_ASSERT_EQUAL(tei_meta_desc_add_buffer(desc, "cpu:0",
				UINT64_C(0x7f0000000000) + i * 0x10000, 0x8000,
				keys, NULL, NULL), 0);
	}
	CU_ASSERT_EQUAL(tei_meta_desc_freeze(desc, NULL), 0);
	return desc;
}

void meta_test_publish(struct tei_meta_server *server, uint32_t buffers)
{
	struct tei_meta_desc *desc;
	char *json;
	size_t len;

	desc = meta_test_desc(tei_meta_server_name(server),
			      tei_meta_server_incarnation(server), 2, buffers);
	CU_ASSERT_EQUAL_FATAL(tei_meta_desc_encode(desc, &json, &len, NULL),
			      0);
	CU_ASSERT_EQUAL(tei_meta_server_publish(server, desc->name, json, len,
						NULL), 0);
	free(json);
	tei_meta_desc_unref(desc);
}

unsigned int meta_test_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned int n = 0;

	CU_ASSERT_PTR_NOT_NULL_FATAL(dir);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

void meta_test_hush(bool on)
{
	static int saved = -1;
	int null;

	if (getenv("META_TEST_LOUD"))
		return;
	fflush(stderr);
	if (on && saved < 0) {
		saved = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 10);
		null = open("/dev/null", O_WRONLY | O_CLOEXEC);
		dup2(null, STDERR_FILENO);
		close(null);
	} else if (!on && saved >= 0) {
		dup2(saved, STDERR_FILENO);
		close(saved);
		saved = -1;
	}
}

int main(int argc, char **argv)
{
	const struct tei_test_suite suites[] = {
		{ "json", json_cases },
		{ "desc", desc_cases },
		{ "mooncake", mooncake_cases },
		{ "kv", kv_cases },
		{ "label", label_cases },
		{ "name", name_cases },
#if defined(TEI_HAVE_ETCD) || defined(TEI_HAVE_HTTP)
		{ "http_client", http_client_cases },
#endif
#ifdef TEI_HAVE_ETCD
		{ "etcd", etcd_cases },
#endif
		{ "server", server_cases },
		{ "rate_limit", rate_limit_cases },
		{ "abuse", abuse_cases },
		{ "auth", auth_cases },
		{ "persistent", persistent_cases },
		{ "store", store_cases },
		{ "cache", cache_cases },
		{ "zookeeper", zookeeper_cases },
		{ "zookeeper_registration", zookeeper_registration_cases },
		{ "zookeeper_loss", zookeeper_loss_cases },
		{ "zookeeper_acl", zookeeper_acl_cases },
		{ getenv("TEI_STORE_SCALE") ? "scale" : NULL, scale_cases },
		{ NULL, NULL },
	};

	return tei_test_run(argc, argv, suites);
}
