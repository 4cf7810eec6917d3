/* SPDX-License-Identifier: BSD-2-Clause */
#include "prov/moonrail/moonrail_test.h"

#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

/* The objects that a second thread closes, as the last user. */
struct fabric_user {
	struct fid_eq *eq;
	struct fid_av *av;
	struct test_end end;
};

/* Closes an object as soon as nothing uses it any more. Returns false if
 * closing fails or takes longer than TEST_WAIT_NS. */
static bool fabric_closes(struct fid *fid)
{
	uint64_t end = tei_now_ns() + TEST_WAIT_NS;
	int ret;

	while ((ret = fi_close(fid)) == -FI_EBUSY && tei_now_ns() < end)
		sched_yield();
	return !ret;
}

static void *fabric_leave_queue(void *arg)
{
	struct fi_eq_entry e = { .context = arg };
	struct fabric_user *u = arg;

	CU_ASSERT_EQUAL(fi_eq_write(u->eq, FI_AV_COMPLETE, &e, sizeof(e), 0),
			sizeof(e));
	CU_ASSERT_EQUAL(fi_close(&u->av->fid), 0);
	return NULL;
}

static void *fabric_leave_domain(void *arg)
{
	struct fabric_user *u = arg;

	CU_ASSERT_EQUAL(fi_close(&u->end.ep->fid), 0);
	CU_ASSERT_EQUAL(fi_close(&u->end.cq->fid), 0);
	CU_ASSERT_EQUAL(fi_close(&u->end.av->fid), 0);
	return NULL;
}

static void *fabric_leave(void *arg)
{
	struct fabric_user *u = arg;

	CU_ASSERT(fabric_closes(&u->end.fid->fid));
	return NULL;
}

/* The thread that closes an object must see all changes that other threads made
 * to the object before they closed its last users. */
static void test_close_sees_changes_of_last_user(void)
{
	struct fi_av_attr av = { .type = FI_AV_TABLE };
	pthread_t thread, last;
	struct fabric_user u;

	test_open(&u.end, NULL);
	CU_ASSERT_EQUAL_FATAL(fi_eq_open(u.end.fabric, NULL, &u.eq, NULL), 0);
	CU_ASSERT_EQUAL_FATAL(fi_av_open(u.end.fid, &av, &u.av, NULL), 0);
	CU_ASSERT_EQUAL_FATAL(fi_av_bind(u.av, &u.eq->fid, 0), 0);
	CU_ASSERT_EQUAL_FATAL(pthread_create(&thread, NULL, fabric_leave_queue,
					     &u), 0);
	CU_ASSERT(fabric_closes(&u.eq->fid));
	pthread_join(thread, NULL);
	CU_ASSERT_EQUAL_FATAL(pthread_create(&thread, NULL, fabric_leave_domain,
					     &u), 0);
	CU_ASSERT_EQUAL_FATAL(pthread_create(&last, NULL, fabric_leave, &u),
			      0);
	CU_ASSERT(fabric_closes(&u.end.fabric->fid));
	pthread_join(last, NULL);
	pthread_join(thread, NULL);
	fi_freeinfo(u.end.info);
}

/* Maps two pages, of which only the first one can be registered. Registering it
 * alone must succeed, and registering both together must fail. */
static void test_registration_of_unmapped_memory_is_refused(void)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	uint64_t access = FI_REMOTE_READ | FI_REMOTE_WRITE;
	struct fid_mr *mr;
	struct test_end t;
	char *p;

	p = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CU_ASSERT_FATAL(p != MAP_FAILED);
	test_open(&t, NULL);
	munmap(p + page, page);
	CU_ASSERT_EQUAL(fi_mr_reg(t.fid, p, 2 * page, access, 0, 1, 0, &mr,
				  NULL), -FI_EFAULT);
	CU_ASSERT_EQUAL(fi_mr_reg(t.fid, p + page, 1, access, 0, 1, 0, &mr,
				  NULL), -FI_EFAULT);
	CU_ASSERT_EQUAL(fi_mr_reg(t.fid, p, page, access, 0, 1, 0, &mr, NULL),
			0);
	CU_ASSERT_EQUAL(fi_close(&mr->fid), 0);
	mprotect(p, page, PROT_NONE);
	CU_ASSERT_EQUAL(fi_mr_reg(t.fid, p, page, access, 0, 1, 0, &mr, NULL),
			-FI_EFAULT);
	test_close(&t);
	munmap(p, page);
}

const struct tei_test_case moonrail_fabric_cases[] = {
	{ "registration_of_unmapped_memory_is_refused",
	  test_registration_of_unmapped_memory_is_refused },
	{ "close_sees_changes_of_last_user",
	  test_close_sees_changes_of_last_user },
	{ NULL, NULL },
};
