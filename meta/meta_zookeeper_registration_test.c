/* SPDX-License-Identifier: BSD-2-Clause */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "meta/meta_zookeeper_test.h"
#include "meta/tei_meta_desc.h"
#include "meta/tei_meta_name.h"
#include "meta/tei_meta_server.h"
#include "meta/tei_meta_store.h"

/* Tests the registration of a name that several processes want: one of them
 * owns it, and the other ones get an error that describes the owner. */

static void test_living_owner_is_named(void)
{
	struct zrig a, b;
	struct tei_err err;

	if (!zrig_init(&a, 0xa1) || !zrig_init(&b, 0xb1) ||
	    !zrig_open(&a, "/held") || !zrig_open(&b, "/held"))
		return;
	CU_ASSERT_EQUAL(zrig_publish(&a, "n", 1, NULL), 0);
	CU_ASSERT_EQUAL(zrig_publish(&b, "n", 2, &err), TEI_ERR_METADATA);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text,
				      tei_meta_server_name(a.server)));
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "00000000000000a1"));
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "since 20"));
	CU_ASSERT_EQUAL(zrig_fetch(&b, "n", NULL), 1);
	/* if the refused process withdraws the name, no node is deleted */
	tei_meta_store_withdraw(b.store, "n", meta_test_deadline(), NULL);
	CU_ASSERT_EQUAL(zrig_fetch(&b, "n", NULL), 1);
	CU_ASSERT_EQUAL(zrig_publish(&a, "n", 3, NULL), 0);
	tei_meta_store_withdraw(a.store, "n", meta_test_deadline(), NULL);
	CU_ASSERT_EQUAL(zrig_publish(&b, "n", 2, NULL), 0);
	zrig_close(&b);
	zrig_close(&a);
}

/* Tests that b takes a name over at once if nothing answers at the address of
 * its owner a, although the session of a still exists. */
static void test_dead_owner_is_replaced_at_once(void)
{
	struct zrig a, b, c;
	uint64_t start;

	if (!zrig_init(&a, 0xa2) || !zrig_init(&b, 0xb2) ||
	    !zrig_init(&c, 0xc2) || !zrig_open(&a, "/dead") ||
	    !zrig_open(&b, "/dead") || !zrig_open(&c, "/dead"))
		return;
	CU_ASSERT_EQUAL(zrig_publish(&a, "d", 1, NULL), 0);
	CU_ASSERT_EQUAL(zrig_fetch(&c, "d", NULL), 1);
	zrig_mute(&a);
	start = tei_now_ns();
	CU_ASSERT_EQUAL(zrig_publish(&b, "d", 2, NULL), 0);
	/* long before the session of the owner expires */
	CU_ASSERT(tei_now_ns() - start <
		  b.settings.store.zk_session_ms / 2 * TEI_NS_PER_MS);
	CU_ASSERT(zrig_changed(&c, 0));
	CU_ASSERT_EQUAL(zrig_fetch(&c, "d", NULL), 2);
	/* the end of a's session does not delete the nodes, because they belong
	 * to b now */
	zk_session_close(zrig_zk(&a));
	CU_ASSERT_EQUAL(zrig_fetch(&c, "d", NULL), 2);
	CU_ASSERT_EQUAL(zrig_publish(&c, "d", 9, NULL), TEI_ERR_METADATA);
	zrig_close(&a);
	zrig_close(&b);
	zrig_close(&c);
}

struct zplant {
	char ram[512], rpc[128];
	zhandle_t *zh;
};

/* Creates the nodes of the name "f" as other software does: without an
 * incarnation and without an ownership node. */
static void zplant(struct zplant *p, const char *chroot, const char *endpoint)
{
	char host[TEI_META_HOST_MAX], path[256];
	uint16_t port;

	tei_meta_split(endpoint, host, &port);
	snprintf(p->ram, sizeof(p->ram),
		 "{\"name\":\"f\",\"protocol\":\"tcp\",\"devices\":[],\"buffers\":[]}");
	snprintf(p->rpc, sizeof(p->rpc),
		 "{\"ip_or_host_name\":\"%.40s\",\"rpc_port\":%u}", host,
		 port);
	p->zh = zstranger(NULL);
	snprintf(path, sizeof(path), "%s/mooncake/ram/f", chroot);
	CU_ASSERT_EQUAL(zoo_create(p->zh, path, p->ram, (int)strlen(p->ram),
				   &ZOO_OPEN_ACL_UNSAFE, 0, NULL, 0), ZOK);
	snprintf(path, sizeof(path), "%s/mooncake/rpc_meta/f", chroot);
	CU_ASSERT_EQUAL(zoo_create(p->zh, path, p->rpc, (int)strlen(p->rpc),
				   &ZOO_OPEN_ACL_UNSAFE, 0, NULL, 0), ZOK);
}

/* Tests that a name is taken over if its owner has ended and another process,
 * c, answers at the owner's address. */
static void test_another_process_at_that_address_is_no_owner(void)
{
	struct tei_meta_desc *desc;
	struct zrig b, c;
	struct zplant p;
	char *json;
	size_t len;

	if (!zrig_init(&b, 0xb3) || !zrig_init(&c, 0xc3) ||
	    !zrig_open(&b, "/other") || !zrig_open(&c, "/other"))
		return;
	CU_ASSERT_EQUAL(zrig_publish(&c, "folders", 1, NULL), 0);
	zplant(&p, "/other", tei_meta_server_name(c.server));
	desc = meta_test_desc("f", 0x72, 2, 1);
	CU_ASSERT_EQUAL_FATAL(tei_meta_desc_encode(desc, &json, &len, NULL), 0);
	CU_ASSERT_EQUAL(zoo_set(p.zh, "/other/mooncake/ram/f", json, (int)len,
				-1), ZOK);
	CU_ASSERT_EQUAL(zrig_publish(&b, "f", 2, NULL), 0);
	CU_ASSERT_EQUAL(zrig_fetch(&c, "f", NULL), 2);
	free(json);
	tei_meta_desc_unref(desc);
	zookeeper_close(p.zh);
	zrig_close(&c);
	zrig_close(&b);
}

static void test_owner_of_other_software_is_queried(void)
{
	struct zplant p;
	struct zrig a, b;

	if (!zrig_init(&a, 0xa3) || !zrig_init(&b, 0xb3) ||
	    !zrig_open(&a, "/other") || !zrig_open(&b, "/other"))
		return;
	CU_ASSERT_EQUAL(zrig_publish(&a, "folders", 1, NULL), 0);
	zplant(&p, "/other", tei_meta_server_name(a.server));
	CU_ASSERT_EQUAL(zrig_publish(&b, "f", 1, NULL), TEI_ERR_METADATA);
	zrig_mute(&a);
	CU_ASSERT_EQUAL(zrig_publish(&b, "f", 1, NULL), 0);
	CU_ASSERT_EQUAL(zrig_fetch(&a, "f", NULL), 1);
	zookeeper_close(p.zh);
	zrig_close(&b);
	zrig_close(&a);
}

struct zclaimer {
	struct zrig *rig;
	const char *name;
	int rc;
	struct tei_err err;
};

static void *zclaim_t(void *arg)
{
	struct zclaimer *z = arg;

	z->rc = zrig_publish(z->rig, z->name, 2, &z->err);
	return NULL;
}

/*
 * Tests that b does not replace a third owner. b has read the nodes of a dead
 * owner and sends it a PING. Meanwhile these nodes disappear, and c registers
 * the name. The new nodes have the same version, 0, but their ownership node
 * has another name.
 */
static void test_third_owner_is_not_replaced(void)
{
	struct zclaimer z;
	struct zrig a, b, c;
	pthread_t thread;
	char at[TEI_META_ENDPOINT_MAX];
	int listener, fd;

	if (!zrig_init(&a, 0xa4) || !zrig_init(&b, 0xb4) ||
	    !zrig_init(&c, 0xc4) || !zrig_open(&a, "/third") ||
	    !zrig_open(&b, "/third") || !zrig_open(&c, "/third"))
		return;
	CU_ASSERT_EQUAL(zrig_publish(&a, "t", 1, NULL), 0);
	snprintf(at, sizeof(at), "%s", tei_meta_server_name(a.server));
	zrig_mute(&a);
	listener = zlisten(at);
	CU_ASSERT_FATAL(listener >= 0);
	z = (struct zclaimer){ .rig = &b, .name = "t" };
	CU_ASSERT_EQUAL_FATAL(pthread_create(&thread, NULL, zclaim_t, &z), 0);
	fd = accept(listener, NULL, NULL);
	tei_meta_store_withdraw(a.store, "t", meta_test_deadline(), NULL);
	CU_ASSERT_EQUAL(zrig_publish(&c, "t", 3, NULL), 0);
	close(fd);
	close(listener);
	pthread_join(thread, NULL);
	CU_ASSERT_EQUAL(z.rc, TEI_ERR_METADATA);
	CU_ASSERT_PTR_NOT_NULL(strstr(z.err.text,
				      tei_meta_server_name(c.server)));
	CU_ASSERT_EQUAL(zrig_fetch(&a, "t", NULL), 3);
	zrig_close(&c);
	zrig_close(&b);
	zrig_close(&a);
}

struct zfickle {
	struct zrig *rig;
	bool stop;		/* atomic */
};

static void *zfickle_t(void *arg)
{
	struct zfickle *f = arg;
	uint32_t i = 0;

	while (!__atomic_load_n(&f->stop, __ATOMIC_RELAXED)) {
		/*
		 * every fourth time, the name is kept for 20 ms, because a
		 * process that reads the nodes while they change reads them
		 * again, and would otherwise never get a result
		 */
		if (!zrig_publish(f->rig, "f", 1, NULL) && ++i % 4 == 0)
			usleep(20000);
		tei_meta_store_withdraw(f->rig->store, "f",
					meta_test_deadline(), NULL);
	}
	return NULL;
}

/*
 * Tests that a process finds a name either free or owned by a process that the
 * error describes, while the owner registers and withdraws the name repeatedly.
 */
static void test_owner_that_leaves_during_the_check_is_gone(void)
{
	struct zfickle f;
	struct tei_err err;
	struct zrig a, b;
	pthread_t thread;
	int i, rc, unknown = 0, named = 0;

	if (!zrig_init(&a, 0xa8) || !zrig_init(&b, 0xb8) ||
	    !zrig_open(&a, "/fickle") || !zrig_open(&b, "/fickle"))
		return;
	f = (struct zfickle){ .rig = &a };
	meta_test_hush(true);
	CU_ASSERT_EQUAL_FATAL(pthread_create(&thread, NULL, zfickle_t, &f), 0);
	for (i = 0; i < 300; i++) {
		rc = zrig_publish(&b, "f", 2, &err);
		unknown += rc && strstr(err.text, "unknown address");
		named += rc && strstr(err.text,
				      tei_meta_server_name(a.server));
		tei_meta_store_withdraw(b.store, "f", meta_test_deadline(),
					NULL);
	}
	__atomic_store_n(&f.stop, true, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
	meta_test_hush(false);
	CU_ASSERT_EQUAL(unknown, 0);
	CU_ASSERT(named > 0);
	zrig_close(&b);
	zrig_close(&a);
}

#define ZCONTENDERS	3

struct zcontender {
	struct zrig rig;
	pthread_t thread;
	uint32_t *owners;		/* atomic */
	bool *stop;			/* atomic */
	/*
	 * numbers of registrations: all, those that took a second or more, and
	 * those while another contender owned the name; written by the thread
	 * of this contender
	 */
	uint32_t had, slow, twice;
};

/*
 * Thread that registers and withdraws the name repeatedly, and counts how often
 * another contender owned the name at the same time. A registration that took a
 * second or more is left out, because an owner that does not answer within a
 * second may be replaced.
 */
static void *zcontend(void *arg)
{
	struct zcontender *z = arg;
	uint64_t start;
	bool slow;

	while (!__atomic_load_n(z->stop, __ATOMIC_RELAXED)) {
		start = tei_now_ns();
		if (zrig_publish(&z->rig, "one", 1, NULL)) {
			tei_meta_store_withdraw(z->rig.store, "one",
						meta_test_deadline(), NULL);
			continue;
		}
		slow = tei_now_ns() - start >= TEI_NS_PER_SEC;
		z->had++;
		z->slow += slow;
		if (__atomic_fetch_add(z->owners, 1, __ATOMIC_SEQ_CST) && !slow)
			z->twice++;
		usleep(1000);
		__atomic_fetch_sub(z->owners, 1, __ATOMIC_SEQ_CST);
		tei_meta_store_withdraw(z->rig.store, "one",
					meta_test_deadline(), NULL);
	}
	return NULL;
}

static void test_a_name_has_one_owner(void)
{
	struct zcontender z[ZCONTENDERS];
	uint32_t owners = 0, had = 0, slow = 0, twice = 0;
	bool stop = false;
	int i;

	memset(z, 0, sizeof(z));
	for (i = 0; i < ZCONTENDERS; i++) {
		if (!zrig_init(&z[i].rig, 0xc1 + (uint64_t)i) ||
		    !zrig_open(&z[i].rig, "/contend"))
			return;
		z[i].owners = &owners;
		z[i].stop = &stop;
	}
	meta_test_hush(true);
	for (i = 0; i < ZCONTENDERS; i++)
		CU_ASSERT_EQUAL_FATAL(pthread_create(&z[i].thread, NULL,
						     zcontend, &z[i]), 0);
	sleep(3);
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	for (i = 0; i < ZCONTENDERS; i++) {
		pthread_join(z[i].thread, NULL);
		had += z[i].had;
		slow += z[i].slow;
		twice += z[i].twice;
		zrig_close(&z[i].rig);
	}
	meta_test_hush(false);
	printf("# held %u times, %u after a second and more, %u while another held it\n",
	       had, slow, twice);
	CU_ASSERT(had > 0);
	CU_ASSERT_EQUAL(twice, 0);
}

/*
 * Tests that b does not replace the owner c of a name that other software owned
 * before. b sends a PING to the address that the other software has published.
 * Meanwhile that software withdraws the name, and c registers it. All nodes
 * have version 0, and the other software had no ownership node by which b could
 * notice the change.
 */
static void test_owner_after_other_software_is_not_replaced(void)
{
	struct zrig a, b, c;
	struct zclaimer z;
	struct zplant p;
	pthread_t thread;
	char at[TEI_META_ENDPOINT_MAX];
	int listener, fd;

	if (!zrig_init(&a, 0xa6) || !zrig_init(&b, 0xb6) ||
	    !zrig_init(&c, 0xc6) || !zrig_open(&a, "/foreign") ||
	    !zrig_open(&b, "/foreign") || !zrig_open(&c, "/foreign"))
		return;
	CU_ASSERT_EQUAL(zrig_publish(&a, "folders", 1, NULL), 0);
	snprintf(at, sizeof(at), "%s", tei_meta_server_name(a.server));
	zrig_mute(&a);
	listener = zlisten(at);
	CU_ASSERT_FATAL(listener >= 0);
	zplant(&p, "/foreign", at);
	z = (struct zclaimer){ .rig = &b, .name = "f" };
	CU_ASSERT_EQUAL_FATAL(pthread_create(&thread, NULL, zclaim_t, &z), 0);
	fd = accept(listener, NULL, NULL);
	CU_ASSERT_EQUAL(zoo_delete(p.zh, "/foreign/mooncake/ram/f", -1), ZOK);
	CU_ASSERT_EQUAL(zoo_delete(p.zh, "/foreign/mooncake/rpc_meta/f", -1),
			ZOK);
	CU_ASSERT_EQUAL(zrig_publish(&c, "f", 3, NULL), 0);
	close(fd);
	close(listener);
	pthread_join(thread, NULL);
	CU_ASSERT_EQUAL(z.rc, TEI_ERR_METADATA);
	CU_ASSERT_EQUAL(zrig_fetch(&b, "f", NULL), 3);
	zookeeper_close(p.zh);
	zrig_close(&c);
	zrig_close(&b);
	zrig_close(&a);
}

/* Takes the writer's token if "waits" is true, so that the keeper must wait for
 * it; otherwise releases the token. */
static void zkeeper_waits(struct zrig *r, bool waits)
{
	struct zk *zk = zrig_zk(r);

	tei_mutex_lock(&zk->lock);
	zk->writing = waits;
	pthread_cond_broadcast(&zk->cond);
	tei_mutex_unlock(&zk->lock);
}

/* Publishes with tei_meta_store_update, which does not mark a loss of the name
 * as reported. */
static int zrig_update(struct zrig *r, const char *name, uint32_t buffers)
{
	struct tei_meta_desc *desc = meta_test_desc(name, r->incarnation, 2,
						    buffers);
	int rc = tei_meta_store_update(r->store, desc, meta_test_deadline(),
				       NULL);

	tei_meta_desc_unref(desc);
	return rc;
}

/*
 * Tests two processes that reach ZooKeeper but not each other, so that each
 * takes the other for dead. The first one gets the error that its name is lost,
 * and registers the name again only if a caller that has received this error
 * publishes again.
 */
static void test_processes_that_do_not_overlap_do_not_contend(void)
{
	struct zrig a, b;
	struct tei_err err;

	if (!zrig_init(&a, 0xa7) || !zrig_init(&b, 0xb7) ||
	    !zrig_open(&a, "/parted") || !zrig_open(&b, "/parted"))
		return;
	CU_ASSERT_EQUAL(zrig_publish(&a, "n", 1, NULL), 0);
	zrig_mute(&a);
	zkeeper_waits(&a, true);
	CU_ASSERT_EQUAL(zrig_publish(&b, "n", 5, NULL), 0);
	zrig_mute(&b);
	zkeeper_waits(&a, false);
	CU_ASSERT(zwait(zrig_lost, &a));
	CU_ASSERT_EQUAL(zrig_fetch(&a, "n", NULL), 5);
	CU_ASSERT_EQUAL(zrig_update(&a, "n", 2), TEI_ERR_METADATA);
	CU_ASSERT_EQUAL(zrig_publish(&a, "n", 3, &err), TEI_ERR_METADATA);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "was lost to"));
	CU_ASSERT_EQUAL(zrig_update(&a, "n", 2), TEI_ERR_METADATA);
	CU_ASSERT_EQUAL(zrig_fetch(&a, "n", NULL), 5);
	CU_ASSERT_EQUAL(zrig_publish(&a, "n", 4, NULL), 0);
	CU_ASSERT_EQUAL(zrig_fetch(&b, "n", NULL), 4);
	CU_ASSERT(zwait(zrig_lost, &b));
	zrig_close(&b);
	zrig_close(&a);
}

/*
 * Tests that a name can be taken over even if the caller's deadline is shorter
 * than the wait for the owner's answer, because that wait extends the deadline.
 */
static void test_short_time_suffices_to_replace_an_owner(void)
{
	struct zrig a, b;
	char at[TEI_META_ENDPOINT_MAX];
	int listener;

	if (!zrig_init(&a, 0xa9) || !zrig_init(&b, 0xb9) ||
	    !zrig_open(&a, "/short") || !zrig_open(&b, "/short"))
		return;
	CU_ASSERT_EQUAL(zrig_publish(&a, "n", 1, NULL), 0);
	snprintf(at, sizeof(at), "%s", tei_meta_server_name(a.server));
	zrig_mute(&a);
	listener = zlisten(at); /* accepts connections and never
				 * answers */
	CU_ASSERT_FATAL(listener >= 0);
	b.call_s = 1;
	CU_ASSERT_EQUAL(zrig_publish(&b, "n", 2, NULL), 0);
	CU_ASSERT_EQUAL(zrig_fetch(&a, "n", NULL), 2);
	close(listener);
	zrig_close(&b);
	zrig_close(&a);
}

/* Tests that the folder of the name "n/1" is not taken for an owner of the name
 * "n". */
static void test_folders_of_names_are_distinguished_from_owners(void)
{
	struct zrig a, b;
	struct tei_err err;

	if (!zrig_init(&a, 0xaa) || !zrig_init(&b, 0xba) ||
	    !zrig_open(&a, "/slash") || !zrig_open(&b, "/slash"))
		return;
	CU_ASSERT_EQUAL(zrig_publish(&a, "n/1", 1, NULL), 0);
	CU_ASSERT_EQUAL(zrig_publish(&b, "n", 2, &err), TEI_ERR_METADATA);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "in use as a folder"));
	tei_meta_store_withdraw(a.store, "n/1", meta_test_deadline(), NULL);
	CU_ASSERT_EQUAL(zrig_publish(&b, "n", 2, NULL), 0);
	CU_ASSERT_EQUAL(zrig_publish(&a, "n/1", 1, &err), TEI_ERR_METADATA);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "before a slash"));
	tei_meta_store_withdraw(a.store, "n/1", meta_test_deadline(), NULL);
	tei_meta_store_withdraw(b.store, "n", meta_test_deadline(), NULL);
	CU_ASSERT_EQUAL(zrig_publish(&a, "n/1", 1, NULL), 0);
	zrig_close(&b);
	zrig_close(&a);
}

/* --- damaged nodes ------------------------------------------------------- */

/* Permissions with which no user can read or change a node. */
static struct ACL zclosed_acl = {
	.perms = 4 /* ZOO_PERM_CREATE */, .id = { "world", "anyone" },
};
static const struct ACL_vector zclosed = { 1, &zclosed_acl };

/* Creates the nodes ram and rpc_meta of the name "n" below "/damaged", with
 * contents that cannot be decoded. */
static void zspoil(zhandle_t *zh, const struct ACL_vector *acl, int flags)
{
	CU_ASSERT_EQUAL(zoo_create(zh, "/damaged/mooncake/ram/n", "{\"na", 4,
				   acl, flags, NULL, 0), ZOK);
	CU_ASSERT_EQUAL(zoo_create(zh, "/damaged/mooncake/rpc_meta/n", "\xff",
				   1, acl, flags, NULL, 0), ZOK);
}

static bool zspoil_open(struct zrig *a, zhandle_t **zh)
{
	if (!zrig_init(a, 0xad) || !zrig_open(a, "/damaged"))
		return false;
	/* this publication creates the folders */
	CU_ASSERT_EQUAL(zrig_publish(a, "folders", 1, NULL), 0);
	*zh = zstranger(NULL);
	return true;
}

/* permissions of the damaged nodes in the tests: all users may do everything;
 * no user may read or change the node */
static const struct ACL_vector *const zdamaged_acl[] = {
	&ZOO_OPEN_ACL_UNSAFE, &zclosed,
};

/* Publishes "n" and withdraws it, so that the nodes can be damaged again. */
static void zpublish_once(struct zrig *a)
{
	CU_ASSERT_EQUAL(zrig_publish(a, "n", 2, NULL), 0);
	CU_ASSERT_EQUAL(zrig_fetch(a, "n", NULL), 2);
	tei_meta_store_withdraw(a->store, "n", meta_test_deadline(), NULL);
}

static void test_damaged_persistent_node_is_replaced(void)
{
	zhandle_t *zh;
	struct zrig a;
	size_t i;

	if (!zspoil_open(&a, &zh))
		return;
	for (i = 0; i < 2; i++) {
		zspoil(zh, zdamaged_acl[i], 0);
		zpublish_once(&a);
	}
	zookeeper_close(zh);
	zrig_close(&a);
}

static void test_damaged_ephemeral_node_is_refused_with_its_path(void)
{
	struct tei_err err;
	zhandle_t *zh;
	struct zrig a;
	size_t i;

	if (!zspoil_open(&a, &zh))
		return;
	for (i = 0; i < 2; i++) {
		zspoil(zh, zdamaged_acl[i], ZOO_EPHEMERAL);
		CU_ASSERT_EQUAL(zrig_publish(&a, "n", 2, &err),
				TEI_ERR_METADATA);
		CU_ASSERT_PTR_NOT_NULL(
			strstr(err.text, "/damaged/mooncake/rpc_meta/n"));
		zookeeper_close(zh);
		/* zookeeper_close has ended the session, and the server has
		 * deleted the damaged nodes */
		zpublish_once(&a);
		zh = zstranger(NULL);
	}
	zookeeper_close(zh);
	zrig_close(&a);
}

/* Tests that a name is refused if its ram node is damaged and belongs to
 * another session than its rpc_meta node, whose owner does not answer. */
static void test_damaged_node_of_second_session_is_refused(void)
{
	struct tei_err err;
	struct zplant p;
	zhandle_t *zh;
	struct zrig a;

	if (!zspoil_open(&a, &zh))
		return;
	zplant(&p, "/damaged", "127.0.0.1:1");
	CU_ASSERT_EQUAL(zoo_delete(zh, "/damaged/mooncake/ram/f", -1), ZOK);
	CU_ASSERT_EQUAL(zoo_create(zh, "/damaged/mooncake/ram/f", "?", 1,
				   &ZOO_OPEN_ACL_UNSAFE, ZOO_EPHEMERAL, NULL,
				   0), ZOK);
	CU_ASSERT_EQUAL(zrig_publish(&a, "f", 2, &err), TEI_ERR_METADATA);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "/damaged/mooncake/ram/f"));
	zookeeper_close(zh);
	CU_ASSERT_EQUAL(zrig_publish(&a, "f", 2, NULL), 0);
	zookeeper_close(p.zh);
	zrig_close(&a);
}

static bool zn_is_readable(void *arg)
{
	meta_test_hush(true);
	return zrig_fetch(arg, "n", NULL) > 0;
}

/*
 * Tests that a process publishes its nodes again after another user has damaged
 * them. Each kind of damage is done to both nodes, so that the process finds
 * its address and incarnation in none of them.
 */
static void test_damaged_nodes_of_running_engine_are_published_again(void)
{
	static const char *const paths[] = { "/damaged/mooncake/ram/n",
					     "/damaged/mooncake/rpc_meta/n" };
	uint32_t n = 1, damage;
	struct tei_err err;
	zhandle_t *zh;
	struct zrig a;
	int i;

	if (!zspoil_open(&a, &zh))
		return;
	CU_ASSERT_EQUAL(zrig_publish(&a, "n", n, NULL), 0);
	for (damage = 0; damage < 3; damage++) {
		for (i = 0; i < 2; i++) {
			CU_ASSERT_EQUAL(zoo_set(zh, paths[i], "\xff", 1, -1),
					ZOK);
			if (damage == 1)
				CU_ASSERT_EQUAL(zoo_set_acl(zh, paths[i], -1,
							    &zclosed), ZOK);
			if (damage < 2)
				continue;
			CU_ASSERT_EQUAL(zoo_delete(zh, paths[i], -1), ZOK);
			/* the engine may have created the node again
			 * meanwhile */
			zoo_create(zh, paths[i], "\xff", 1,
				   &ZOO_OPEN_ACL_UNSAFE, 0, NULL, 0);
		}
		CU_ASSERT(zwait(zn_is_readable, &a));
		meta_test_hush(false);
		CU_ASSERT_EQUAL(zrig_publish(&a, "n", ++n, &err), 0);
		CU_ASSERT_EQUAL(zrig_fetch(&a, "n", NULL), (int)n);
	}
	/* publishes at once, before the keeper has checked the damaged nodes */
	for (i = 0; i < 2; i++) {
		CU_ASSERT_EQUAL(zoo_set(zh, paths[i], "\xff", 1, -1), ZOK);
		CU_ASSERT_EQUAL(zoo_set_acl(zh, paths[i], -1, &zclosed), ZOK);
	}
	CU_ASSERT_EQUAL(zrig_publish(&a, "n", ++n, &err), 0);
	CU_ASSERT_EQUAL(zrig_fetch(&a, "n", NULL), (int)n);
	zookeeper_close(zh);
	zrig_close(&a);
}

static void test_moved_control_channel_is_published_with_the_name(void)
{
	char endpoint[TEI_META_ENDPOINT_MAX];
	struct zrig a, b;
	int i;

	if (!zrig_init(&a, 0xaa) || !zrig_init(&b, 0xba) ||
	    !zrig_open(&a, "/moved") || !zrig_open(&b, "/moved"))
		return;
	for (i = 1; i <= 3; i++) {
		CU_ASSERT_EQUAL(zrig_publish(&a, "m", (uint32_t)i, NULL), 0);
		CU_ASSERT_EQUAL(tei_meta_store_resolve(b.store, "m",
						       meta_test_deadline(),
						       endpoint, NULL), 0);
		CU_ASSERT_STRING_EQUAL(endpoint,
				       tei_meta_server_address(a.server));
		CU_ASSERT_EQUAL(zrig_fetch(&b, "m", NULL), i);
		snprintf(endpoint, sizeof(endpoint), "127.0.0.%d", i + 1);
		CU_ASSERT_EQUAL(tei_meta_server_move(a.server, endpoint, NULL),
				0);
	}
	zrig_close(&b);
	zrig_close(&a);
}

const struct tei_test_case zookeeper_registration_cases[] = {
	{ "moved_control_channel_is_published_with_the_name",
	  test_moved_control_channel_is_published_with_the_name },
	{ "living_owner_is_named", test_living_owner_is_named },
	{ "dead_owner_is_replaced_at_once",
	  test_dead_owner_is_replaced_at_once },
	{ "another_process_at_that_address_is_no_owner",
	  test_another_process_at_that_address_is_no_owner },
	{ "owner_of_other_software_is_queried",
	  test_owner_of_other_software_is_queried },
	{ "third_owner_is_not_replaced", test_third_owner_is_not_replaced },
	{ "owner_that_leaves_during_the_check_is_gone",
	  test_owner_that_leaves_during_the_check_is_gone },
	{ "a_name_has_one_owner", test_a_name_has_one_owner },
	{ "owner_after_other_software_is_not_replaced",
	  test_owner_after_other_software_is_not_replaced },
	{ "processes_that_do_not_overlap_do_not_contend",
	  test_processes_that_do_not_overlap_do_not_contend },
	{ "short_time_suffices_to_replace_an_owner",
	  test_short_time_suffices_to_replace_an_owner },
	{ "folders_of_names_are_distinguished_from_owners",
	  test_folders_of_names_are_distinguished_from_owners },
	{ "damaged_persistent_node_is_replaced",
	  test_damaged_persistent_node_is_replaced },
	{ "damaged_ephemeral_node_is_refused_with_its_path",
	  test_damaged_ephemeral_node_is_refused_with_its_path },
	{ "damaged_node_of_second_session_is_refused",
	  test_damaged_node_of_second_session_is_refused },
	{ "damaged_nodes_of_running_engine_are_published_again",
	  test_damaged_nodes_of_running_engine_are_published_again },
	{ NULL, NULL },
};
