/* SPDX-License-Identifier: BSD-2-Clause */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fabtests/common/ft_zk.h"
#include "meta/meta_zookeeper_record.h"
#include "meta/meta_zookeeper_servers.h"
#include "meta/meta_zookeeper_test.h"
#include "meta/tei_meta_client.h"
#include "meta/tei_meta_desc.h"
#include "meta/tei_meta_server.h"
#include "meta/tei_meta_store.h"

static void test_connection_strings_are_checked(void)
{
	static const struct {
		const char *text, *servers, *chroot;
	} good[] = {
		{ "zookeeper://h", "h", "" },
		{ "ZooKeeper://h:1,g:2", "h:1,g:2", "" },
		{ "zookeeper://h:1/", "h:1", "" },
		{ "zookeeper://[::1]:1,h/a/b.c/", "[::1]:1,h", "/a/b.c" },
		{ "zookeeper://h:1/a,g:2/a", "h:1,g:2", "/a" },
		{ "zookeeper://h/a/b,g/a/b/,f/a/b", "h,g,f", "/a/b" },
		{ "zookeeper://h/,g/", "h,g", "" },
	};
	static const char *const bad[] = {
		"zookeeper://", "zookeeper:///a", "zookeeper://h:0x",
		"zookeeper://h:1,", "zookeeper://h:99999", "zookeeper://h//a",
		"zookeeper://h/a//b", "zookeeper://h/../a", "zookeeper://h/.",
		"zookeeper://h/a\x01", "zookeeper://h/a,g/b",
		"zookeeper://h/a,g", "zookeeper://h,g/a,f",
		"zookeeper://h/a,g,f/a", "zookeeper://h,g/a,f/a",
		"zookeeper://h/a,/a", "zookeeper://h/a,b",
	};
	char *servers, *chroot, text[1100];
	struct tei_err err;
	size_t i;

	for (i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		CU_ASSERT_EQUAL_FATAL(
			zk_servers_split(good[i].text, &servers, &chroot, NULL),
			0);
		CU_ASSERT_STRING_EQUAL(servers, good[i].servers);
		CU_ASSERT_STRING_EQUAL(chroot, good[i].chroot);
		free(servers);
		free(chroot);
	}
	meta_test_hush(true);
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		CU_ASSERT_EQUAL(
			zk_servers_split(bad[i], &servers, &chroot, &err),
			TEI_ERR_INVALID);
		CU_ASSERT_PTR_NOT_NULL(strstr(err.hint, "zookeeper://host"));
	}
	/* a chroot may have 1024 bytes */
	snprintf(text, sizeof(text), "zookeeper://h/%01023d/", 0);
	CU_ASSERT_EQUAL_FATAL(zk_servers_split(text, &servers, &chroot, NULL),
			      0);
	CU_ASSERT_EQUAL(strlen(chroot), 1024);
	free(servers);
	free(chroot);
	snprintf(text, sizeof(text), "zookeeper://h/%01024d/", 0);
	CU_ASSERT_EQUAL(zk_servers_split(text, &servers, &chroot, &err),
			TEI_ERR_INVALID);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "more than 1024 bytes"));
	meta_test_hush(false);
}

/* Tests that segment and cluster names of the greatest length fit into a path
 * below a chroot of the greatest length. */
static void test_the_longest_chroot_has_room_for_names(void)
{
	char name[TEI_META_NAME_MAX], chroot[1025];
	struct tei_settings settings = *meta_test_settings();
	struct zk zk = { .settings = &settings, .chroot = chroot };
	char *path[3];
	int i;

	snprintf(name, sizeof(name), "%0*d", TEI_META_NAME_MAX - 1, 0);
	snprintf(chroot, sizeof(chroot), "/%01023d", 0);
	snprintf(settings.store.cluster_id, sizeof(settings.store.cluster_id),
		 "%0255d", 0);
	path[0] = zk_path_ram(&zk, name);
	path[1] = zk_path_rpc(&zk, name);
	path[2] = zk_path_ownership(&zk, name, UINT64_MAX);
	for (i = 0; i < 3; i++) {
		CU_ASSERT_PTR_NOT_NULL(path[i]);
		free(path[i]);
	}
}

static void test_one_server_stands_for_all_in_texts(void)
{
	static const struct {
		const char *servers, *where;
	} cases[] = {
		{ "h", "h" },
		{ "h:1,g:2,f:3", "h:1,..." },
		{ "0123456789012345678901234567.example,h",
		  "0123456789012345678901234567.exampl..." },
		{ "0123456789012345678901234567.exampl,h",
		  "0123456789012345678901234567.exampl,..." },
	};
	char where[ZK_WHERE];
	size_t i;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		zk_servers_where(cases[i].servers, where);
		CU_ASSERT_STRING_EQUAL(where, cases[i].where);
	}
}

/* Tests that error texts show the first of several servers completely, followed
 * by "...". */
static void test_several_servers_are_not_cut_off_in_texts(void)
{
	char hosts[2 * sizeof(zserver()->hosts)], want[80];
	struct tei_err err;
	struct zrig a;

	if (!zrig_init(&a, 63))
		return;
	snprintf(hosts, sizeof(hosts), "%s,%s", zserver()->hosts,
		 zserver()->hosts);
	a.hosts = hosts;
	if (!zrig_open(&a, "/cut"))
		return;
	CU_ASSERT_EQUAL(zrig_fetch(&a, "none", &err), TEI_ERR_METADATA);
	snprintf(want, sizeof(want), "ZooKeeper %.40s,.../cut",
		 zserver()->hosts);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, want));
	zrig_close(&a);
}

static void test_servers_take_turns(void)
{
	char one[] = "h:1", three[] = "h:1,::1:22,g:3";

	zk_servers_rotate(one);
	CU_ASSERT_STRING_EQUAL(one, "h:1");
	zk_servers_rotate(three);
	CU_ASSERT_STRING_EQUAL(three, "::1:22,g:3,h:1");
	zk_servers_rotate(three);
	CU_ASSERT_STRING_EQUAL(three, "g:3,h:1,::1:22");
}

static void test_absent_servers_are_reported_in_time(void)
{
	struct tei_settings settings = *meta_test_settings();
	uint64_t start = tei_now_ns();
	struct tei_meta_store *store;
	struct tei_err err;

	settings.control.connect_timeout_s = 1;
	CU_ASSERT_EQUAL(tei_meta_store_open("zookeeper://127.0.0.1:1/x",
					    &settings, &store, &err),
			TEI_ERR_METADATA);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "127.0.0.1:1"));
	CU_ASSERT(tei_now_ns() - start < 5 * meta_test_slowness() *
						TEI_NS_PER_SEC);
}

static void test_servers_of_ipv6_are_reached(void)
{
	char hosts[160];
	struct zrig a, b;
	struct ft_zk six;

	if (!zrig_init(&a, 61) || !zrig_init(&b, 62))
		return;
	if (!ft_zk_can_bind("::1")) {
		tei_test_skip("no IPv6 here");
		return;
	}
	if (!ft_zk_start_at(&six, 1, "::1")) {
		CU_FAIL("no ZooKeeper server on ::1");
		return;
	}
	CU_ASSERT_PTR_NOT_NULL(strstr(six.hosts, "[::1]:"));
	/* the second store has a server list whose first server does not
	 * exist */
	snprintf(hosts, sizeof(hosts), "[::1]:1,%s", six.hosts);
	a.hosts = six.hosts;
	b.hosts = hosts;
	if (zrig_open(&a, "/six") && zrig_open(&b, "/six")) {
		CU_ASSERT_EQUAL(zrig_publish(&a, "v6", 6, NULL), 0);
		CU_ASSERT_EQUAL(zrig_fetch(&b, "v6", NULL), 6);
		zrig_close(&b);
		zrig_close(&a);
	}
	ft_zk_stop(&six);
}

static bool zget(zhandle_t *zh, const char *path, char *buf, int len,
		 struct Stat *stat)
{
	int n = len - 1;

	if (zoo_get(zh, path, 0, buf, &n, stat) != ZOK)
		return false;
	buf[n > 0 ? n : 0] = 0;
	return true;
}

static void test_keys_are_mooncakes(void)
{
	struct zrig a, b;
	char endpoint[TEI_META_ENDPOINT_MAX], text[8192];
	struct Stat stat;
	zhandle_t *zh;

	if (!zrig_init(&a, 11) || !zrig_init(&b, 12))
		return;
	strcpy(a.settings.store.cluster_id, "blue");
	strcpy(b.settings.store.cluster_id, "blue");
	if (!zrig_open(&a, "/keys/deep") || !zrig_open(&b, "/keys/deep"))
		return;
	CU_ASSERT_EQUAL(tei_meta_store_caps(a.store),
			TEI_META_KEEPS | TEI_META_REPORTS);
	CU_ASSERT_STRING_EQUAL(tei_meta_store_scheme(a.store), "zookeeper");
	CU_ASSERT_EQUAL(zrig_publish(&a, "one", 3, NULL), 0);
	CU_ASSERT_EQUAL(zrig_publish(&a, "nvmeof/two", 4, NULL), 0);
	CU_ASSERT_EQUAL(zrig_fetch(&b, "one", NULL), 3);
	CU_ASSERT_EQUAL(zrig_fetch(&b, "nvmeof/two", NULL), 4);
	CU_ASSERT_EQUAL(tei_meta_store_resolve(b.store, "one",
					       meta_test_deadline(), endpoint,
					       NULL), 0);
	CU_ASSERT_STRING_EQUAL(endpoint, tei_meta_server_name(a.server));
	zh = zstranger(NULL);
	CU_ASSERT(zget(zh, "/keys/deep/mooncake/blue/ram/one", text,
		       sizeof(text), &stat));
	CU_ASSERT_PTR_NOT_NULL(strstr(text, "\"protocol\""));
	CU_ASSERT_EQUAL(stat.ephemeralOwner, zk_session_id(zrig_zk(&a)));
	CU_ASSERT(zget(zh, "/keys/deep/mooncake/blue/rpc_meta/one", text,
		       sizeof(text), &stat));
	CU_ASSERT_PTR_NOT_NULL(strstr(text,
				      "\"ip_or_host_name\":\"127.0.0.1\""));
	CU_ASSERT_PTR_NOT_NULL(strstr(text, "\"rpc_port\":"));
	CU_ASSERT(zget(zh, "/keys/deep/mooncake/blue/nvmeof/two", text,
		       sizeof(text), &stat));
	CU_ASSERT_EQUAL(tei_meta_store_withdraw(a.store, "nvmeof/two",
						meta_test_deadline(), NULL),
			0);
	CU_ASSERT(!zget(zh, "/keys/deep/mooncake/blue/nvmeof/two", text,
			sizeof(text), &stat));
	CU_ASSERT_EQUAL(zrig_fetch(&b, "nvmeof/two", NULL), TEI_ERR_METADATA);
	zrig_close(&a);
	CU_ASSERT(!zget(zh, "/keys/deep/mooncake/blue/ram/one", text,
			sizeof(text), &stat));
	CU_ASSERT(!zget(zh, "/keys/deep/mooncake/blue/rpc_meta/one", text,
			sizeof(text), &stat));
	zookeeper_close(zh);
	zrig_close(&b);
}

static void test_names_no_node_can_have_are_refused(void)
{
	struct zrig a;

	if (!zrig_init(&a, 21) || !zrig_open(&a, "/odd"))
		return;
	CU_ASSERT_EQUAL(zrig_publish(&a, "a/../b", 1, NULL), TEI_ERR_INVALID);
	CU_ASSERT_EQUAL(zrig_publish(&a, "a//b", 1, NULL), TEI_ERR_INVALID);
	CU_ASSERT_EQUAL(zrig_publish(&a, "x", 1, NULL), 0);
	/* the segment "x" is the node "ram/x", which cannot also be a folder */
	CU_ASSERT(zrig_publish(&a, "ram/x/y", 1, NULL) < 0);
	CU_ASSERT_EQUAL(zrig_fetch(&a, "a/../b", NULL), TEI_ERR_INVALID);
	CU_ASSERT_EQUAL(zrig_fetch(&a, "nobody", NULL), TEI_ERR_METADATA);
	CU_ASSERT_EQUAL(zrig_fetch(&a, "x", NULL), 1);
	zrig_close(&a);
}

/* Returns the number of bytes that a fetch logs when it fails. */
static ssize_t zlogged(struct zrig *r, const char *name)
{
	int fd[2], saved = dup(STDERR_FILENO);
	char text[1024];
	ssize_t n;

	CU_ASSERT_EQUAL_FATAL(pipe(fd), 0);
	fcntl(fd[0], F_SETFL, O_NONBLOCK);
	dup2(fd[1], STDERR_FILENO);
	CU_ASSERT_EQUAL(zrig_fetch(r, name, NULL), TEI_ERR_METADATA);
	dup2(saved, STDERR_FILENO);
	n = read(fd[0], text, sizeof(text));
	close(fd[0]);
	close(fd[1]);
	close(saved);
	return n > 0 ? n : 0;
}

static void test_change_is_notified_without_a_request(void)
{
	struct zrig a, b;
	uint32_t n;

	if (!zrig_init(&a, 31) || !zrig_init(&b, 32) ||
	    !zrig_open(&a, "/watch") || !zrig_open(&b, "/watch"))
		return;
	CU_ASSERT_EQUAL(zrig_publish(&a, "w", 1, NULL), 0);
	CU_ASSERT_EQUAL(zrig_fetch(&b, "w", NULL), 1);
	n = zrig_changes(&b);
	CU_ASSERT_EQUAL(zrig_publish(&a, "w", 2, NULL), 0);
	CU_ASSERT(zrig_changed(&b, n));
	CU_ASSERT(zrig_notified(&b, "w", 0));
	CU_ASSERT_EQUAL(zrig_fetch(&b, "w", NULL), 2);
	/* the segment disappears and appears again */
	n = zrig_changes(&b);
	tei_meta_store_withdraw(a.store, "w", meta_test_deadline(), NULL);
	CU_ASSERT(zrig_changed(&b, n));
	/* the first fetch that fails after a notification logs no error; the
	 * second one logs an error */
	CU_ASSERT_EQUAL(zlogged(&b, "w"), 0);
	CU_ASSERT(zlogged(&b, "w") > 0);
	n = zrig_changes(&b);
	CU_ASSERT_EQUAL(zrig_publish(&a, "w", 3, NULL), 0);
	CU_ASSERT(zrig_changed(&b, n));
	CU_ASSERT_EQUAL(zrig_fetch(&b, "w", NULL), 3);
	/* after the callback was removed, no notification arrives */
	tei_meta_store_watch(b.store, NULL, NULL, NULL);
	n = zrig_changes(&b);
	CU_ASSERT_EQUAL(zrig_publish(&a, "w", 4, NULL), 0);
	CU_ASSERT_EQUAL(zrig_fetch(&b, "w", NULL), 4);
	CU_ASSERT_EQUAL(zrig_changes(&b), n);
	zrig_close(&b);
	zrig_close(&a);
}

static void test_long_descriptor_is_published_without_its_buffers(void)
{
	struct tei_meta_desc *desc, *got = NULL;
	struct zrig a, b;
	struct Stat stat;
	zhandle_t *zh;
	uint32_t n;

	if (!zrig_init(&a, 0xa5) || !zrig_init(&b, 0xb5) ||
	    !zrig_open(&a, "/long") || !zrig_open(&b, "/long"))
		return;
	desc = meta_test_desc("big", 0xa5, 8, 10000);
	CU_ASSERT_EQUAL(tei_meta_store_publish(a.store, desc,
					       meta_test_deadline(), NULL), 0);
	CU_ASSERT_EQUAL_FATAL(tei_meta_store_fetch(b.store, "big",
						   meta_test_deadline(), &got,
						   NULL), 0);
	CU_ASSERT(tei_meta_desc_equal(desc, got));
	tei_meta_desc_unref(got);
	tei_meta_desc_unref(desc);
	zh = zstranger(NULL);
	CU_ASSERT_EQUAL(zoo_exists(zh, "/long/mooncake/ram/big", 0, &stat),
			ZOK);
	CU_ASSERT(stat.dataLength < 8192);
	zookeeper_close(zh);
	/* a change of a long descriptor is notified although the length stays
	 * the same; after that, a short descriptor is published */
	n = zrig_changes(&b);
	CU_ASSERT_EQUAL(zrig_publish(&a, "big", 5000, NULL), 0);
	CU_ASSERT(zrig_changed(&b, n));
	CU_ASSERT_EQUAL(zrig_fetch(&b, "big", NULL), 5000);
	CU_ASSERT_EQUAL(zrig_publish(&a, "big", 2, NULL), 0);
	CU_ASSERT_EQUAL(zrig_fetch(&b, "big", NULL), 2);
	zrig_close(&b);
	zrig_close(&a);
}

static void test_unauthenticated_clients_neither_read_nor_change(void)
{
	static const char *const paths[] = {
		"/closed/mooncake/ram/s", "/closed/mooncake/rpc_meta/s",
		"/closed/mooncake/moonrail/s.00000000000000a6",
	};
	struct zrig a, b, c;
	struct Stat stat;
	char text[8192], file[64];
	zhandle_t *zh;
	size_t i;
	int n;

	if (!zrig_init(&a, 0xa6) || !zrig_init(&b, 0xb6) ||
	    !zrig_init(&c, 0xc6))
		return;
	CU_ASSERT_FATAL(zrig_file(file, "moon:secret\n", 0600));
	strcpy(a.settings.store.zk_auth_file, file);
	strcpy(b.settings.store.zk_auth_file, file);
	if (!zrig_open(&a, "/closed") || !zrig_open(&b, "/closed") ||
	    !zrig_open(&c, "/closed"))
		return;
	CU_ASSERT_EQUAL(zrig_publish(&a, "s", 7, NULL), 0);
	CU_ASSERT_EQUAL(zrig_fetch(&b, "s", NULL), 7);
	CU_ASSERT_EQUAL(zrig_fetch(&c, "s", NULL), TEI_ERR_METADATA);
	CU_ASSERT_EQUAL(zrig_publish(&c, "other", 1, NULL), TEI_ERR_METADATA);
	zh = zstranger("moon:guessed");
	for (i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
		n = sizeof(text);
		CU_ASSERT_EQUAL(zoo_get(zh, paths[i], 0, text, &n, &stat),
				ZNOAUTH);
		CU_ASSERT_EQUAL(zoo_set(zh, paths[i], "x", 1, -1), ZNOAUTH);
		CU_ASSERT_EQUAL(zoo_delete(zh, paths[i], -1), ZNOAUTH);
	}
	CU_ASSERT_EQUAL(zoo_create(zh, "/closed/mooncake/ram/new", "x", 1,
				   &ZOO_OPEN_ACL_UNSAFE, 0, NULL, 0), ZNOAUTH);
	zookeeper_close(zh);
	zh = zstranger("moon:secret");
	CU_ASSERT(zget(zh, paths[0], text, sizeof(text), &stat));
	zookeeper_close(zh);
	unlink(file);
	zrig_close(&c);
	zrig_close(&b);
	zrig_close(&a);
}

/*
 * Tests a shared secret without ZooKeeper credentials, so that all users can
 * read and write the nodes. Nevertheless, only processes with the secret get
 * keys and addresses, and these processes do not trust nodes of processes
 * without the secret.
 */
static void test_a_secret_keeps_keys_out_of_zookeeper(void)
{
	static const char *const hidden[] = {
		"rkey", "devices\":[{", "buffers\":[{", "tcp;ofi_rxm",
	};
	char file[64], text[8192] = "";
	struct zrig a, b, c;
	struct tei_err err;
	struct Stat stat;
	zhandle_t *zh;
	size_t i;

	if (!zrig_init(&a, 0xa7) || !zrig_init(&b, 0xb7) ||
	    !zrig_init(&c, 0xc7))
		return;
	CU_ASSERT_FATAL(zrig_file(file, "a secret of enough bytes\n", 0600));
	strcpy(a.settings.control.secret_file, file);
	strcpy(b.settings.control.secret_file, file);
	if (!zrig_open(&a, "/shared") || !zrig_open(&b, "/shared") ||
	    !zrig_open(&c, "/shared"))
		return;
	CU_ASSERT_EQUAL(zrig_publish(&a, "s", 7, NULL), 0);
	CU_ASSERT_EQUAL(zrig_fetch(&b, "s", NULL), 7);
	CU_ASSERT_EQUAL(zrig_fetch(&c, "s", &err), TEI_ERR_REJECTED);
	CU_ASSERT_EQUAL(err.prov_errno, TEI_META_DENIED);
	zh = zstranger(NULL);
	CU_ASSERT(zget(zh, "/shared/mooncake/ram/s", text, sizeof(text),
		       &stat));
	for (i = 0; i < sizeof(hidden) / sizeof(hidden[0]); i++)
		CU_ASSERT_PTR_NULL(strstr(text, hidden[i]));
	zookeeper_close(zh);
	/* changes are notified in the same way as without a secret */
	CU_ASSERT_EQUAL(zrig_publish(&a, "s", 8, NULL), 0);
	CU_ASSERT(zrig_changed(&b, 0));
	CU_ASSERT_EQUAL(zrig_fetch(&b, "s", NULL), 8);
	/* nodes of other users are not trusted */
	CU_ASSERT_EQUAL(zrig_publish(&c, "planted", 1, NULL), 0);
	CU_ASSERT_EQUAL(zrig_fetch(&b, "planted", &err), TEI_ERR_REJECTED);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "without the shared secret"));
	unlink(file);
	zrig_close(&c);
	zrig_close(&b);
	zrig_close(&a);
}

static void test_bad_credentials_files_are_refused(void)
{
	static const char *const bad[] = { "", "\n", "user", ":x", "user:\n" };
	struct tei_settings settings = *meta_test_settings();
	struct tei_meta_store *store;
	struct tei_err err;
	char file[64];
	size_t i;

	strcpy(settings.store.zk_auth_file, "/nonexistent/file");
	CU_ASSERT_EQUAL(tei_meta_store_open("zookeeper://127.0.0.1:1",
					    &settings, &store, &err),
			TEI_ERR_INVALID);
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		CU_ASSERT_FATAL(zrig_file(file, bad[i], 0600));
		strcpy(settings.store.zk_auth_file, file);
		CU_ASSERT_EQUAL(tei_meta_store_open("zookeeper://127.0.0.1:1",
						    &settings, &store, &err),
				TEI_ERR_INVALID);
		CU_ASSERT_PTR_NOT_NULL(strstr(err.text, file));
		unlink(file);
	}
}

const struct tei_test_case zookeeper_cases[] = {
	{ "connection_strings_are_checked",
	  test_connection_strings_are_checked },
	{ "the_longest_chroot_has_room_for_names",
	  test_the_longest_chroot_has_room_for_names },
	{ "one_server_stands_for_all_in_texts",
	  test_one_server_stands_for_all_in_texts },
	{ "several_servers_are_not_cut_off_in_texts",
	  test_several_servers_are_not_cut_off_in_texts },
	{ "bad_credentials_files_are_refused",
	  test_bad_credentials_files_are_refused },
	{ "servers_take_turns", test_servers_take_turns },
	{ "absent_servers_are_reported_in_time",
	  test_absent_servers_are_reported_in_time },
	{ "servers_of_ipv6_are_reached", test_servers_of_ipv6_are_reached },
	{ "keys_are_mooncakes", test_keys_are_mooncakes },
	{ "names_no_node_can_have_are_refused",
	  test_names_no_node_can_have_are_refused },
	{ "change_is_notified_without_a_request",
	  test_change_is_notified_without_a_request },
	{ "long_descriptor_is_published_without_its_buffers",
	  test_long_descriptor_is_published_without_its_buffers },
	{ "unauthenticated_clients_neither_read_nor_change",
	  test_unauthenticated_clients_neither_read_nor_change },
	{ "a_secret_keeps_keys_out_of_zookeeper",
	  test_a_secret_keeps_keys_out_of_zookeeper },
	{ NULL, NULL },
};
