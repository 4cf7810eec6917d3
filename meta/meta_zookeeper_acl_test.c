/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "meta/meta_zookeeper_test.h"
#include "meta/tei_meta_desc.h"
#include "meta/tei_meta_name.h"
#include "meta/tei_meta_server.h"
#include "meta/tei_meta_store.h"

/*
 * Tests the access control of the ZooKeeper back end: nodes that another user
 * may have created or may change are not trusted, and nodes that another user
 * has deleted are created again.
 */

static const char *const zfolders[] = {
	"", "/ram", "/rpc_meta", "/moonrail",
};

/* Opens three stores with the same chroot. a and b have credentials; c has
 * none. Writes the name of the file with the credentials to file. */
static bool ztrio(struct zrig *a, struct zrig *b, struct zrig *c,
		  const char *chroot, char *file)
{
	if (!zrig_init(a, 0xa1) || !zrig_init(b, 0xb1) || !zrig_init(c, 0xc1))
		return false;
	CU_ASSERT_FATAL(zrig_file(file, "moon:secret\n", 0600));
	strcpy(a->settings.store.zk_auth_file, file);
	strcpy(b->settings.store.zk_auth_file, file);
	return zrig_open(a, chroot) && zrig_open(b, chroot) &&
	       zrig_open(c, chroot);
}

static void ztrio_end(struct zrig *a, struct zrig *b, struct zrig *c,
		      const char *file)
{
	unlink(file);
	zrig_close(c);
	zrig_close(b);
	zrig_close(a);
}

/* Makes the first "count" of the folders below chroot accessible only to the
 * user of a and b, as the hint of the error recommends. */
static void zclose_folders(const char *chroot, size_t count)
{
	zhandle_t *zh = zstranger("moon:secret");
	char path[256];
	size_t i;

	for (i = 0; i < count; i++) {
		snprintf(path, sizeof(path), "%s/mooncake%s", chroot,
			 zfolders[i]);
		CU_ASSERT_EQUAL(zoo_set_acl(zh, path, -1,
					    &ZOO_CREATOR_ALL_ACL), ZOK);
	}
	zookeeper_close(zh);
}

static void test_open_folders_are_refused_with_credentials(void)
{
	struct zrig a, b, c;
	struct tei_err err;
	char file[64];
	zhandle_t *zh;

	if (!ztrio(&a, &b, &c, "/opened", file))
		return;
	CU_ASSERT_EQUAL(zrig_publish(&c, "p", 1, NULL), 0);
	CU_ASSERT_EQUAL(zrig_publish(&a, "s", 7, &err), TEI_ERR_METADATA);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "/opened/mooncake"));
	CU_ASSERT_PTR_NOT_NULL(strstr(err.hint, "setAcl -R /opened/mooncake"));
	zh = zstranger(NULL);
	CU_ASSERT_EQUAL(zoo_exists(zh, "/opened/mooncake/ram/s", 0, NULL),
			ZNONODE);
	zookeeper_close(zh);
	CU_ASSERT_EQUAL(zrig_fetch(&b, "p", &err), TEI_ERR_METADATA);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "may change /opened/mooncake"));
	/* if only the last folder is still open to all users, publishing is
	 * still refused */
	zclose_folders("/opened", 3);
	CU_ASSERT_EQUAL(zrig_publish(&a, "s", 7, &err), TEI_ERR_METADATA);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "/opened/mooncake/moonrail"));
	zclose_folders("/opened", 4);
	CU_ASSERT_EQUAL(zrig_publish(&a, "s", 7, NULL), 0);
	CU_ASSERT_EQUAL(zrig_fetch(&b, "s", NULL), 7);
	/* the node "p" is still refused, because it was created while its
	 * folders were open to all users */
	CU_ASSERT_EQUAL(zrig_fetch(&b, "p", &err), TEI_ERR_METADATA);
	CU_ASSERT_PTR_NOT_NULL(
		strstr(err.text, "another user may have written"));
	ztrio_end(&a, &b, &c, file);
}

/* Tests that a process that only reads also refuses folders that are open to
 * all users, even if the node that it reads does not exist. */
static void test_open_folders_without_node_are_refused(void)
{
	char endpoint[TEI_META_ENDPOINT_MAX], file[64], **names = NULL;
	struct tei_meta_desc *desc;
	struct zrig a, b, c;
	struct tei_err err;
	size_t n;

	if (!ztrio(&a, &b, &c, "/looked", file))
		return;
	/* missing folders do not count as open to all users */
	CU_ASSERT_EQUAL(zrig_fetch(&a, "s", &err), TEI_ERR_METADATA);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "is not in ZooKeeper"));
	CU_ASSERT_EQUAL(zrig_check(&a, &err), 0);
	CU_ASSERT_EQUAL(zrig_publish(&c, "p", 1, NULL), 0);
	CU_ASSERT_EQUAL(zrig_check(&c, &err), 0);
	CU_ASSERT_EQUAL(zrig_fetch(&a, "s", &err), TEI_ERR_METADATA);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "may change /looked/mooncake"));
	CU_ASSERT_PTR_NOT_NULL(strstr(err.hint, "setAcl -R /looked/mooncake"));
	CU_ASSERT_EQUAL(tei_meta_store_resolve(a.store, "s",
					       meta_test_deadline(), endpoint,
					       &err), TEI_ERR_METADATA);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "may change /looked/mooncake"));
	CU_ASSERT_EQUAL(tei_meta_store_fetch(a.store, "nvmeof/k",
					     meta_test_deadline(), &desc,
					     &err), TEI_ERR_METADATA);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "may change /looked/mooncake"));
	CU_ASSERT_EQUAL(tei_meta_store_list(a.store, TEI_META_PERSISTENT,
					    meta_test_deadline(), &names, &n,
					    &err),
			TEI_ERR_METADATA);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "may change /looked/mooncake"));
	CU_ASSERT_EQUAL(zrig_check(&a, &err), TEI_ERR_METADATA);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.hint, "setAcl -R /looked/mooncake"));
	/*
	 * only the folder of the ownership nodes is still open: a fetch, which
	 * does not use this folder, finds its folders closed, but zk_check
	 * fails
	 */
	zclose_folders("/looked", 3);
	CU_ASSERT_EQUAL(zrig_fetch(&a, "s", &err), TEI_ERR_METADATA);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "is not in ZooKeeper"));
	CU_ASSERT_EQUAL(zrig_check(&a, &err), TEI_ERR_METADATA);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "/looked/mooncake/moonrail"));
	zclose_folders("/looked", 4);
	CU_ASSERT_EQUAL(zrig_check(&a, &err), 0);
	/* the error for a process without credentials says that it has none */
	CU_ASSERT_EQUAL(zrig_check(&c, &err), TEI_ERR_METADATA);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.hint, "MOONRAIL_ZK_AUTH_FILE"));
	ztrio_end(&a, &b, &c, file);
}

/* Tests that a folder is refused if another user has made it accessible only to
 * that user. */
static void test_folders_of_another_user_are_refused(void)
{
	struct zrig a, b, c;
	struct tei_err err;
	char file[64];
	zhandle_t *zh;

	if (!ztrio(&a, &b, &c, "/squat", file))
		return;
	zh = zstranger("stranger:own");
	CU_ASSERT_EQUAL(zoo_create(zh, "/squat", "", 0, &ZOO_OPEN_ACL_UNSAFE,
				   0, NULL, 0), ZOK);
	CU_ASSERT_EQUAL(zoo_create(zh, "/squat/mooncake", "", 0,
				   &ZOO_CREATOR_ALL_ACL, 0, NULL, 0), ZOK);
	CU_ASSERT_EQUAL(zrig_publish(&a, "s", 7, &err), TEI_ERR_METADATA);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "/squat/mooncake"));
	zookeeper_close(zh);
	ztrio_end(&a, &b, &c, file);
}

/* Tests that the error for a wrong password says so, and does not say that a
 * folder is open to other users. */
static void test_wrong_password_is_reported_as_such(void)
{
	struct zrig a, b, c, d;
	char file[64], wrong[64];
	struct tei_err err;

	if (!ztrio(&a, &b, &c, "/wrong", file) || !zrig_init(&d, 0xd7))
		return;
	CU_ASSERT_FATAL(zrig_file(wrong, "moon:sekret\n", 0600));
	strcpy(d.settings.store.zk_auth_file, wrong);
	CU_ASSERT_EQUAL(zrig_publish(&a, "s", 1, NULL), 0);
	if (!zrig_open(&d, "/wrong"))
		return;
	CU_ASSERT_EQUAL(zrig_publish(&d, "d", 1, &err), TEI_ERR_METADATA);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "does not let"));
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "read /wrong/mooncake"));
	CU_ASSERT_PTR_NOT_NULL(strstr(err.hint, "a wrong password"));
	CU_ASSERT_PTR_NULL(strstr(err.hint, "setAcl"));
	CU_ASSERT_EQUAL(zrig_fetch(&d, "s", &err), TEI_ERR_METADATA);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.hint, "a wrong password"));
	CU_ASSERT_EQUAL(zrig_check(&d, &err), TEI_ERR_METADATA);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.hint, "a wrong password"));
	zrig_close(&d);
	unlink(wrong);
	ztrio_end(&a, &b, &c, file);
}

struct zthere {
	zhandle_t *zh;
	const char *path;
	int64_t before; /* creation number (czxid) of an old node, which does
			 * not count */
};

static bool zis_there(void *arg)
{
	const struct zthere *t = arg;
	struct Stat stat;

	return zoo_exists(t->zh, t->path, 0, &stat) == ZOK &&
	       stat.czxid != t->before;
}

/* Replaces the nodes by nodes of another user, in one transaction: if they were
 * first deleted, the owner would create them again. */
static void zplant(zhandle_t *zh, const char *const *paths,
		   const char *const *texts, int count)
{
	zoo_op_result_t results[4];
	zoo_op_t ops[4];
	int i;

	for (i = 0; i < count; i++) {
		zoo_delete_op_init(&ops[2 * i], paths[i], -1);
		zoo_create_op_init(&ops[2 * i + 1], paths[i], texts[i],
				   (int)strlen(texts[i]), &ZOO_OPEN_ACL_UNSAFE,
				   ZOO_EPHEMERAL, NULL, 0);
	}
	CU_ASSERT_EQUAL(zoo_multi(zh, 2 * count, ops, results), ZOK);
}

struct zshows {
	struct zrig *reader;
	int buffers;
};

static bool zshows(void *arg)
{
	const struct zshows *s = arg;

	return zrig_fetch(s->reader, "s", NULL) == s->buffers;
}

static void test_owner_notices_what_others_remove(void)
{
	static const char ram[] = "/taken/mooncake/ram/s";
	static const char rpc[] = "/taken/mooncake/rpc_meta/s";
	static const char *const both[] = { ram, rpc };
	char text[128], host[TEI_META_HOST_MAX];
	const char *texts[] = {
		"{\"name\":\"s\",\"protocol\":\"tcp\",\"devices\":[],\"buffers\":[]}",
		text,
	};
	struct zthere t = { .path = ram };
	struct zshows shows;
	struct zrig a, b, c;
	uint16_t port;
	struct Stat stat;

	if (!zrig_init(&a, 0xa2) || !zrig_init(&b, 0xb2) ||
	    !zrig_init(&c, 0xc2) || !zrig_open(&a, "/taken") ||
	    !zrig_open(&b, "/taken") || !zrig_open(&c, "/taken"))
		return;
	shows = (struct zshows){ &b, 7 };
	CU_ASSERT_EQUAL(zrig_publish(&a, "s", 7, NULL), 0);
	t.zh = zstranger(NULL);
	CU_ASSERT_EQUAL(zoo_delete(t.zh, ram, -1), ZOK);
	CU_ASSERT(zwait(zis_there, &t));
	t.path = rpc;
	CU_ASSERT_EQUAL(zoo_exists(t.zh, rpc, 0, &stat), ZOK);
	t.before = stat.czxid;
	CU_ASSERT_EQUAL(zoo_delete(t.zh, rpc, -1), ZOK);
	CU_ASSERT(zwait(zis_there, &t));
	/* the other user replaces one node and overwrites one */
	zplant(t.zh, both, texts, 1);
	CU_ASSERT(zwait(zshows, &shows));
	CU_ASSERT_EQUAL(zoo_set(t.zh, ram, "{}", 2, -1), ZOK);
	CU_ASSERT(zwait(zshows, &shows));
	CU_ASSERT_EQUAL(zrig_publish(&a, "s", 8, NULL), 0);
	CU_ASSERT_EQUAL(zrig_fetch(&b, "s", NULL), 8);
	/*
	 * the other user replaces both nodes by nodes with the address of a
	 * process that is alive; that process then owns the name, and the
	 * former owner finds that it has lost it
	 */
	tei_meta_split(tei_meta_server_name(c.server), host, &port);
	snprintf(text, sizeof(text),
		 "{\"ip_or_host_name\":\"%.40s\",\"rpc_port\":%u}", host,
		 port);
	zplant(t.zh, both, texts, 2);
	CU_ASSERT(zwait(zrig_lost, &a));
	zookeeper_close(t.zh);
	zrig_close(&c);
	zrig_close(&b);
	zrig_close(&a);
}

/* Deletes all given nodes in one transaction, with the credentials of a and b,
 * as an operator may do. */
static void zwipe(const char *const *paths, int count)
{
	zhandle_t *zh = zstranger("moon:secret");
	zoo_op_result_t results[16];
	zoo_op_t ops[16];
	int i;

	for (i = 0; i < count; i++)
		zoo_delete_op_init(&ops[i], paths[i], -1);
	CU_ASSERT_EQUAL(zoo_multi(zh, count, ops, results), ZOK);
	zookeeper_close(zh);
}

static int zpersistent_one(void *arg, const struct tei_meta_desc *now,
		     struct tei_meta_desc **next, struct tei_err *err)
{
	struct tei_meta_file_path at = { "host:1", "/b" };

	CU_ASSERT_PTR_NULL(now);
	++*(int *)arg;
	CU_ASSERT_EQUAL_FATAL(tei_meta_desc_create("nvmeof/k", "nvmeof", 0,
						   next, err), 0);
	CU_ASSERT_EQUAL(tei_meta_desc_add_file(*next, "/a", 4096, &at, 1, err),
			0);
	return tei_meta_desc_freeze(*next, err);
}

static int zkeep(struct zrig *r, int *calls)
{
	*calls = 0;
	return tei_meta_store_change(r->store, "nvmeof/k", zpersistent_one, calls,
				     meta_test_deadline(), NULL);
}

/*
 * Tests that the folders are created again, with the same permissions, after an
 * operator has deleted all of them. Store a publishes a segment; store b writes
 * a persistent segment record.
 */
static void test_deleted_folders_are_created_again(void)
{
	static const char *const all[] = {
		"/wiped/mooncake/ram/s", "/wiped/mooncake/rpc_meta/s",
		"/wiped/mooncake/moonrail/s.00000000000000a1",
		"/wiped/mooncake/nvmeof/k", "/wiped/mooncake/nvmeof",
		"/wiped/mooncake/ram", "/wiped/mooncake/rpc_meta",
		"/wiped/mooncake/moonrail", "/wiped/mooncake",
	};
	struct zthere t = { .path = all[2] };
	struct zrig a, b, c;
	char file[64];
	int calls;

	if (!ztrio(&a, &b, &c, "/wiped", file))
		return;
	CU_ASSERT_EQUAL(zrig_publish(&a, "s", 7, NULL), 0);
	CU_ASSERT_EQUAL(zkeep(&b, &calls), 0);
	zwipe(all, 9);
	t.zh = zstranger("moon:secret");
	CU_ASSERT(zwait(zis_there, &t));
	CU_ASSERT_EQUAL(zkeep(&b, &calls), 0);
	CU_ASSERT(calls <= 2);
	CU_ASSERT_EQUAL(zrig_fetch(&b, "s", NULL), 7);
	/* the nodes are created again, with their folders, by the caller or by
	 * the keeper */
	zwipe(all, 9);
	CU_ASSERT_EQUAL(zrig_publish(&a, "s", 8, NULL), 0);
	CU_ASSERT(zwait(zis_there, &t));
	CU_ASSERT_EQUAL(zoo_exists(t.zh, all[0], 0, NULL), ZOK);
	/* other users have no access to the new folders, as to the first
	 * ones */
	CU_ASSERT_EQUAL(zrig_publish(&c, "p", 1, NULL), TEI_ERR_METADATA);
	zookeeper_close(t.zh);
	ztrio_end(&a, &b, &c, file);
}

#define ZEMPTY "{\"name\":\"s\",\"protocol\":\"tcp\",\"devices\":[],\"buffers\":[]}"

/*
 * Replaces the folders by folders that are open to all users, in one
 * transaction, so that no other process sees a state without folders. The three
 * nodes of store a are deleted, and one of the new folders contains a node that
 * only the user of a and b can have created.
 */
static void zswap(const char *const *nodes, const char *const *folders)
{
	zhandle_t *zh = zstranger("moon:secret");
	zoo_op_result_t results[12];
	zoo_op_t ops[12];
	int n = 0, i;

	for (i = 0; i < 3; i++)
		zoo_delete_op_init(&ops[n++], nodes[i], -1);
	for (i = 3; i >= 0; i--)
		zoo_delete_op_init(&ops[n++], folders[i], -1);
	for (i = 0; i < 4; i++)
		zoo_create_op_init(&ops[n++], folders[i], "", 0,
				   &ZOO_OPEN_ACL_UNSAFE, 0, NULL, 0);
	zoo_create_op_init(&ops[n++], nodes[0], ZEMPTY, sizeof(ZEMPTY) - 1,
			   &ZOO_CREATOR_ALL_ACL, 0, NULL, 0);
	CU_ASSERT_EQUAL(zoo_multi(zh, n, ops, results), ZOK);
	zookeeper_close(zh);
}

struct zopen {
	struct zrig *a; /* a store that publishes, or NULL */
	struct zrig *b; /* a store that fetches, or NULL; exactly one of a and b
			 * is set */
	bool never;	/* all calls so far have failed */
};

/*
 * Publishes or fetches once. Returns true if this fails because a folder is
 * open to all users. Earlier calls may have failed for another reason, because
 * the nodes do not exist.
 */
static bool zopen_gets_error(void *arg)
{
	struct zopen *o = arg;
	struct tei_err err;
	int ret;

	memset(&err, 0, sizeof(err));
	ret = o->a ? zrig_publish(o->a, "s", 8, &err) :
		     zrig_fetch(o->b, "s", &err);
	o->never &= ret == TEI_ERR_METADATA;
	return strstr(err.text, "may change /swapped/mooncake") != NULL;
}

static void test_folders_that_others_made_since_are_refused(void)
{
	static const char *const nodes[] = {
		"/swapped/mooncake/ram/s", "/swapped/mooncake/rpc_meta/s",
		"/swapped/mooncake/moonrail/s.00000000000000a1",
	};
	static const char *const folders[] = {
		"/swapped/mooncake", "/swapped/mooncake/ram",
		"/swapped/mooncake/rpc_meta", "/swapped/mooncake/moonrail",
	};
	struct zrig a, b, c;
	struct zopen publisher = { .a = &a, .never = true };
	struct zopen reader = { .b = &b, .never = true };
	char file[64];
	zhandle_t *zh;
	int ret;

	if (!ztrio(&a, &b, &c, "/swapped", file))
		return;
	CU_ASSERT_EQUAL(zrig_publish(&a, "s", 7, NULL), 0);
	CU_ASSERT_EQUAL(zrig_fetch(&b, "s", NULL), 7);
	zswap(nodes, folders);
	CU_ASSERT(zwait(zopen_gets_error, &publisher) && publisher.never);
	CU_ASSERT(zwait(zopen_gets_error, &reader) && reader.never);
	zh = zstranger("moon:secret");
	CU_ASSERT_EQUAL(zoo_exists(zh, nodes[1], 0, NULL), ZNONODE);
	CU_ASSERT_EQUAL(zoo_exists(zh, nodes[2], 0, NULL), ZNONODE);
	/*
	 * nodes[0] may be missing: if the publisher has not noticed yet that
	 * the folders were replaced, it may take nodes[0] for its own node,
	 * write it, and then delete it
	 */
	ret = zoo_delete(zh, nodes[0], -1);
	CU_ASSERT(ret == ZOK || ret == ZNONODE);
	zookeeper_close(zh);
	zclose_folders("/swapped", 4);
	CU_ASSERT_EQUAL(zrig_publish(&a, "s", 8, NULL), 0);
	CU_ASSERT_EQUAL(zrig_fetch(&b, "s", NULL), 8);
	ztrio_end(&a, &b, &c, file);
}

static void test_a_bad_descriptor_is_named(void)
{
	struct tei_err err;
	zhandle_t *zh;
	struct zrig a;

	if (!zrig_init(&a, 0xa3) || !zrig_open(&a, "/bad"))
		return;
	CU_ASSERT_EQUAL(zrig_publish(&a, "s", 7, NULL), 0);
	zh = zstranger(NULL);
	CU_ASSERT_EQUAL(zoo_create(zh, "/bad/mooncake/ram/bad", "{\"x", 3,
				   &ZOO_OPEN_ACL_UNSAFE, ZOO_EPHEMERAL, NULL,
				   0), ZOK);
	CU_ASSERT_EQUAL(zrig_fetch(&a, "bad", &err), TEI_ERR_JSON);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "segment 'bad'"));
	zookeeper_close(zh);
	zrig_close(&a);
}

const struct tei_test_case zookeeper_acl_cases[] = {
	{ "open_folders_are_refused_with_credentials",
	  test_open_folders_are_refused_with_credentials },
	{ "open_folders_without_node_are_refused",
	  test_open_folders_without_node_are_refused },
	{ "folders_of_another_user_are_refused",
	  test_folders_of_another_user_are_refused },
	{ "wrong_password_is_reported_as_such",
	  test_wrong_password_is_reported_as_such },
	{ "owner_notices_what_others_remove",
	  test_owner_notices_what_others_remove },
	{ "deleted_folders_are_created_again",
	  test_deleted_folders_are_created_again },
	{ "folders_that_others_made_since_are_refused",
	  test_folders_that_others_made_since_are_refused },
	{ "a_bad_descriptor_is_named", test_a_bad_descriptor_is_named },
	{ NULL, NULL },
};
