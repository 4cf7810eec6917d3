/* SPDX-License-Identifier: BSD-2-Clause */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "meta/meta_zookeeper_test.h"

/*
 * Several who want one name: one of them has it, and the others are told who.
 */

#define ZCONTENDERS	3

struct zcontender {
	struct zrig rig;
	pthread_t thread;
	uint32_t *owners;		/* atomic */
	bool *stop;			/* atomic */
	uint32_t had, slow, twice;	/* its thread */
};

/*
 * Holds the name for a moment, again and again. Who did not answer within a
 * second may be replaced: that takes the next one as long.
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

static void a_name_has_one_owner(void)
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
	printf("# held %u times, %u after a second and more, %u beside another\n",
	       had, slow, twice);
	CU_ASSERT(had > 0);
	CU_ASSERT_EQUAL(twice, 0);
}

struct zclaim {
	struct zrig *rig;
	pthread_t thread;
	int rc;
	struct tei_err err;
};

static void *zclaim_t(void *arg)
{
	struct zclaim *z = arg;

	z->rc = zrig_publish(z->rig, "f", 2, &z->err);
	return NULL;
}

/* What other software left there, for others to find: no incarnation, no
 * guard, and nobody who answers at that address. */
static void zleft(zhandle_t *zh, const char *at)
{
	static const char ram[] =
		"{\"name\":\"f\",\"protocol\":\"tcp\",\"devices\":[],\"buffers\":[]}";
	char host[TEI_META_HOST_MAX], rpc[128];
	uint16_t port;

	tei_meta_split(at, host, &port);
	snprintf(rpc, sizeof(rpc),
		 "{\"ip_or_host_name\":\"%.40s\",\"rpc_port\":%u}", host,
		 port);
	CU_ASSERT_EQUAL(zoo_create(zh, "/foreign/mooncake/ram/f", ram,
				   (int)strlen(ram), &ZOO_OPEN_ACL_UNSAFE, 0,
				   NULL, 0), ZOK);
	CU_ASSERT_EQUAL(zoo_create(zh, "/foreign/mooncake/rpc_meta/f", rpc,
				   (int)strlen(rpc), &ZOO_OPEN_ACL_UNSAFE, 0,
				   NULL, 0), ZOK);
}

/*
 * b asks at the address of other software; meanwhile that goes, and c has the
 * name: all versions are 0, and there was no guard to tell them by.
 */
static void who_comes_after_other_software_is_not_run_over(void)
{
	struct zrig a, b, c;
	struct zclaim z;
	char at[TEI_META_ENDPOINT_MAX];
	zhandle_t *zh;
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
	zh = zstranger(NULL);
	zleft(zh, at);
	z = (struct zclaim){ .rig = &b };
	CU_ASSERT_EQUAL_FATAL(pthread_create(&z.thread, NULL, zclaim_t, &z), 0);
	fd = accept(listener, NULL, NULL);
	CU_ASSERT_EQUAL(zoo_delete(zh, "/foreign/mooncake/ram/f", -1), ZOK);
	CU_ASSERT_EQUAL(zoo_delete(zh, "/foreign/mooncake/rpc_meta/f", -1),
			ZOK);
	CU_ASSERT_EQUAL(zrig_publish(&c, "f", 3, NULL), 0);
	close(fd);
	close(listener);
	pthread_join(z.thread, NULL);
	CU_ASSERT_EQUAL(z.rc, TEI_ERR_METADATA);
	CU_ASSERT_EQUAL(zrig_fetch(&b, "f", NULL), 3);
	zookeeper_close(zh);
	zrig_close(&c);
	zrig_close(&b);
	zrig_close(&a);
}

/* The keeper waits for the writer's token, or goes on. */
static void zkeeper_waits(struct zrig *r, bool waits)
{
	struct zk *zk = zrig_zk(r);

	tei_mutex_lock(&zk->lock);
	zk->writing = waits;
	pthread_cond_broadcast(&zk->cond);
	tei_mutex_unlock(&zk->lock);
}

/* As tei_meta_store_update: nobody is told. */
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
 * Both reach ZooKeeper, and neither the other. The first is told that it has
 * lost its name; only a caller who knows that asks for it again.
 */
static void two_that_do_not_meet_do_not_contend(void)
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

/* The second in which a holder may answer is not the claimer's own. */
static void a_short_time_is_enough_to_replace_a_holder(void)
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
	listener = zlisten(at);		/* takes connections, says nothing */
	CU_ASSERT_FATAL(listener >= 0);
	b.settings.connect_timeout_s = 1;
	CU_ASSERT_EQUAL(zrig_publish(&b, "n", 2, NULL), 0);
	CU_ASSERT_EQUAL(zrig_fetch(&a, "n", NULL), 2);
	close(listener);
	zrig_close(&b);
	zrig_close(&a);
}

/* Names with a slash make folders, which are nobody. */
static void folders_of_names_are_told_from_holders(void)
{
	struct zrig a, b;
	struct tei_err err;

	if (!zrig_init(&a, 0xaa) || !zrig_init(&b, 0xba) ||
	    !zrig_open(&a, "/slash") || !zrig_open(&b, "/slash"))
		return;
	CU_ASSERT_EQUAL(zrig_publish(&a, "n/1", 1, NULL), 0);
	CU_ASSERT_EQUAL(zrig_publish(&b, "n", 2, &err), TEI_ERR_METADATA);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "has a folder there"));
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

const struct tei_test_case zookeeper_claim_cases[] = {
	{ "a_name_has_one_owner", a_name_has_one_owner },
	{ "who_comes_after_other_software_is_not_run_over",
	  who_comes_after_other_software_is_not_run_over },
	{ "two_that_do_not_meet_do_not_contend",
	  two_that_do_not_meet_do_not_contend },
	{ "a_short_time_is_enough_to_replace_a_holder",
	  a_short_time_is_enough_to_replace_a_holder },
	{ "folders_of_names_are_told_from_holders",
	  folders_of_names_are_told_from_holders },
	{ NULL, NULL },
};
