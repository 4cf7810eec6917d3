/* SPDX-License-Identifier: BSD-2-Clause */

#include <rdma/fi_errno.h>
#include <string.h>
#include <sys/resource.h>

#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_mr.h"
#include "prov/rail/rail_test.h"
#include "util/err.h"


#define LIMITS_KIB UINT64_C(1024)
#define LIMITS_MIB (LIMITS_KIB << 10)

static void limits_log(const struct rail_limits *l,
		       const struct rail_reg_tried *t, int ret,
		       const char *want)
{
	char text[TEI_ERR_TEXT];

	rail_limits_text(l, t, ret, text, sizeof(text));
	CU_ASSERT_STRING_EQUAL(text, want);
	if (strcmp(text, want))
		fprintf(stderr, "\"%s\", not \"%s\"\n", text, want);
}

static void test_enomem_names_memlock_and_the_number_of_registrations(void)
{
	const struct rail_reg_tried t = { LIMITS_MIB, LIMITS_MIB, 0, 1 };
	struct rail_limits l = {
		.memlock = 8192 * LIMITS_KIB, .pinned_kib = 8000, .count = 3,
	};

	limits_log(&l, &t, -FI_ENOMEM,
		   "the memlock limit is 8192 KiB "
		   "(ulimit -l), 8000 KiB are pinned; there are 3 "
		   "registrations");
	l.memlock = UINT64_MAX;
	l.max_count = 4096;
	limits_log(&l, &t, -FI_EAGAIN,
		   "memlock is not limited; there are 3 "
		   "registrations, the device allows 4096");
	limits_log(&l, &t, -FI_ENOSPC,
		   "there are 3 registrations, the device "
		   "allows 4096");
	limits_log(&l, &t, -FI_EPERM, "");
	l.memlock = 0;
	l.pinned_kib = 0;
	limits_log(&l, &t, -FI_EPERM,
		   "the memlock limit is 0 KiB (ulimit -l), "
		   "0 KiB are pinned; there are 3 registrations, the device "
		   "allows 4096");
}

static void test_a_refused_size_is_named_with_the_limit_of_the_device(void)
{
	struct rail_reg_tried t = { 8 * LIMITS_MIB, LIMITS_MIB, 0, 8 };
	struct rail_limits l = { .max_size = 0 };

	limits_log(&l, &t, -FI_E2BIG,
		   "refused from 8 MiB down to 1 MiB; "
		   "the provider does not report the largest size of "
		   "a registration");
	l.max_size = 512 * LIMITS_KIB;
	limits_log(&l, &t, -FI_EINVAL,
		   "refused from 8 MiB down to 1 MiB; "
		   "the device allows 512 KiB per registration");
	l.max_size = UINT64_C(1) << 40;
	limits_log(&l, &t, -FI_EINVAL,
		   "refused from 8 MiB down to 1 MiB; "
		   "the device allows 1 TiB per registration, so the size "
		   "is not the cause");
	t.most = t.least = 100;
	limits_log(&l, &t, -FI_EINVAL,
		   "refused at 100 bytes; the device allows "
		   "1 TiB per registration, so the size is not the cause");
}

static void test_pieces_that_were_taken_are_counted(void)
{
	const struct rail_reg_tried t = { LIMITS_MIB, LIMITS_MIB, 5, 8 };
	const struct rail_limits l = { .count = 7, .max_count = 12 };

	limits_log(&l, &t, -FI_EINVAL,
		   "5 of 8 parts were registered; there are 7 "
		   "registrations, the device allows 12");
}

static void test_an_exhausted_key_space_is_named_with_the_size_of_a_key(void)
{
	const struct rail_reg_tried t = { 1, 1, 0, 1 };
	const struct rail_limits l = { .count = 250, .key_size = 1 };

	limits_log(&l, &t, -FI_ENOKEY,
		   "no key of 1 bytes is free; there are "
		   "250 registrations");
	limits_log(&l, &t, -FI_EACCES, "");
}

static void test_queues_that_cannot_be_pinned_name_memlock(void)
{
	struct rlimit limit;
	char text[TEI_ERR_TEXT], want[64];

	CU_ASSERT_EQUAL_FATAL(getrlimit(RLIMIT_MEMLOCK, &limit), 0);
	snprintf(want, sizeof(want), limit.rlim_cur == RLIM_INFINITY ?
		 "memlock is not limited" : "the memlock limit is %llu KiB",
		 (unsigned long long)limit.rlim_cur >> 10);
	rail_limits_memory(-FI_ENOMEM, text, sizeof(text));
	CU_ASSERT_EQUAL(strncmp(text, want, strlen(want)), 0);
	rail_limits_memory(-FI_EINVAL, text, sizeof(text));
	CU_ASSERT_STRING_EQUAL(text, "");
}

/* Checks that the longest text, with the largest values, is truncated at the
 * end of the buffer. */
static void test_a_text_that_does_not_fit_is_truncated(void)
{
	const struct rail_reg_tried t = { 1, 1, 0, 1 };
	const struct rail_limits l = {
		.memlock = UINT64_MAX - 1, .pinned_kib = UINT64_MAX,
		.count = UINT64_MAX, .max_count = UINT64_MAX,
	};
	char text[TEI_ERR_TEXT + 1];

	memset(text, 'x', sizeof(text));
	rail_limits_text(&l, &t, -FI_ENOMEM, text, TEI_ERR_TEXT);
	CU_ASSERT(strlen(text) < TEI_ERR_TEXT);
	CU_ASSERT_EQUAL(text[TEI_ERR_TEXT], 'x');
}

static void test_a_rails_limits_are_read(void)
{
	struct test_plane plane;
	struct rail_limits l;
	struct rlimit limit;

	test_plane_init(&plane);
	test_plane_open(&plane, "127.0.0.1");
	memset(&l, 0xff, sizeof(l));
	rail_limits_get(rail_at(plane.dp, 0), -FI_ENOMEM, &l);
	CU_ASSERT_EQUAL_FATAL(getrlimit(RLIMIT_MEMLOCK, &limit), 0);
	CU_ASSERT_EQUAL(l.memlock, limit.rlim_cur == RLIM_INFINITY ?
					   UINT64_MAX :
					   limit.rlim_cur);
	CU_ASSERT_EQUAL(l.count, 0);
	CU_ASSERT_EQUAL(l.max_size, 0);
	CU_ASSERT_EQUAL(l.max_count,
			rail_at(plane.dp, 0)->fab.info->domain_attr->mr_cnt);
	test_plane_close(&plane);
}

const struct tei_test_case rail_limits_cases[] = {
	{ "enomem_names_memlock_and_the_number_of_registrations",
	  test_enomem_names_memlock_and_the_number_of_registrations },
	{ "a_refused_size_is_named_with_the_limit_of_the_device",
	  test_a_refused_size_is_named_with_the_limit_of_the_device },
	{ "pieces_that_were_taken_are_counted",
	  test_pieces_that_were_taken_are_counted },
	{ "an_exhausted_key_space_is_named_with_the_size_of_a_key",
	  test_an_exhausted_key_space_is_named_with_the_size_of_a_key },
	{ "queues_that_cannot_be_pinned_name_memlock",
	  test_queues_that_cannot_be_pinned_name_memlock },
	{ "a_text_that_does_not_fit_is_truncated",
	  test_a_text_that_does_not_fit_is_truncated },
	{ "a_rails_limits_are_read", test_a_rails_limits_are_read },
	{ NULL, NULL },
};
