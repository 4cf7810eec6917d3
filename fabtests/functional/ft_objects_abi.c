/* SPDX-License-Identifier: BSD-2-Clause */

/* Tests programs that were built with an earlier or a later moonrail.h, whose
 * structs have fewer or more members. */

#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "fabtests/functional/ft_objects.h"
#include "fabtests/functional/fx.h"

#define ABI_POISON 0x5a

/* structs as an earlier release might have defined them */
struct abi_old_error {
	int32_t code;
	int32_t prov_errno;
};

struct abi_old_rail {
	char name[64];
	char provider[32];
};

struct abi_old_buffer {
	uint64_t addr;
};

/* structs as a later release might define them */
struct abi_new_error {
	struct te_error known;
	uint64_t more[3];
};

struct abi_new_rail {
	struct te_rail_stats known;
	uint64_t more[2];
};

struct abi_new_buffer {
	struct te_buffer known;
	uint64_t more;
};

static bool abi_all(const void *p, size_t len, unsigned char byte)
{
	const unsigned char *c = p;

	while (len--)
		if (*c++ != byte)
			return false;
	return true;
}

static void abi_old(transfer_engine_t e, segment_id_t seg)
{
	struct abi_old_error err[2];
	struct abi_old_rail rail[3];
	struct abi_old_buffer buf[2];
	struct te_rail_stats now[2];
	size_t n = 2, m = 2;

	memset(err, ABI_POISON, sizeof(err));
	memset(rail, ABI_POISON, sizeof(rail));
	memset(buf, ABI_POISON, sizeof(buf));
	openSegment(e, "");
	ft_ok(!te_last_error((struct te_error *)(void *)err, sizeof(err[0])) &&
	      err[0].code == -1 && abi_all(&err[1], sizeof(err[1]), ABI_POISON),
	      "an_older_te_error_is_filled_and_no_more");
	ft_ok(!te_rail_stats(e, now, sizeof(now[0]), &n) && n == 2 &&
	      !te_rail_stats(e, (struct te_rail_stats *)(void *)rail,
			     sizeof(rail[0]), &m) && m == 2 &&
	      !strcmp(rail[0].name, now[0].name) &&
	      !strcmp(rail[1].name, now[1].name) &&
	      !strcmp(rail[1].provider, now[1].provider) &&
	      abi_all(&rail[2], sizeof(rail[2]), ABI_POISON),
	      "older_rail_stats_are_filled_and_no_more");
	n = 1;
	ft_ok(!te_segment_buffers(e, seg, (struct te_buffer *)(void *)buf,
				  sizeof(buf[0]), &n) && n == 1 &&
	      buf[0].addr && abi_all(&buf[1], sizeof(buf[1]), ABI_POISON),
	      "an_older_te_buffer_is_filled_and_no_more");
}

static void abi_new(transfer_engine_t e, segment_id_t seg)
{
	struct abi_new_error err[2];
	struct abi_new_rail rail[3];
	struct abi_new_buffer buf[2];
	size_t n = 2;

	memset(err, ABI_POISON, sizeof(err));
	memset(rail, ABI_POISON, sizeof(rail));
	memset(buf, ABI_POISON, sizeof(buf));
	openSegment(e, "");
	ft_ok(!te_last_error(&err[0].known, sizeof(err[0])) &&
		      err[0].known.code == -1 && err[0].known.text[0] &&
		      abi_all(err[0].more, sizeof(err[0].more), 0) &&
		      abi_all(&err[1], sizeof(err[1]), ABI_POISON),
	      "later_members_of_te_error_are_0");
	ft_ok(!te_rail_stats(e, &rail[0].known, sizeof(rail[0]), &n) &&
		      n == 2 && rail[1].known.window &&
		      abi_all(rail[0].more, sizeof(rail[0].more), 0) &&
		      abi_all(rail[1].more, sizeof(rail[1].more), 0) &&
		      abi_all(&rail[2], sizeof(rail[2]), ABI_POISON),
	      "later_members_of_te_rail_stats_are_0");
	n = 1;
	ft_ok(!te_segment_buffers(e, seg, &buf[0].known, sizeof(buf[0]), &n) &&
		      n == 1 && buf[0].known.location[0] && !buf[0].more &&
		      abi_all(&buf[1], sizeof(buf[1]), ABI_POISON),
	      "later_members_of_te_buffer_are_0");
}

static void abi_bad(transfer_engine_t e)
{
	struct te_rail_stats stats[1];
	struct te_error err;
	size_t n = 1;

	ft_ok(te_last_error(&err, 0) == -1 && te_last_error(NULL, 8) == -1 &&
	      te_rail_stats(e, stats, 0, &n) == -1 &&
	      te_rail_stats(e, NULL, sizeof(stats[0]), &n) == -1 &&
	      te_rail_stats(e, stats, sizeof(stats[0]), NULL) == -1 && n == 1,
	      "sizes_of_0_and_null_are_1");
}

static void *abi_other_thread(void *arg)
{
	*(const char **)arg = te_fabric_version();
	return NULL;
}

/* Checks that the versions of the header, of the library and of libfabric fit
 * together. */
static void abi_versions(void)
{
	unsigned int major = 0, minor = 0;
	const char *there = NULL;
	char text[32], rest;
	pthread_t other;

	snprintf(text, sizeof(text), "%d.%d.%d", TE_VERSION_MAJOR,
		 TE_VERSION_MINOR, TE_VERSION_PATCH);
	ft_ok(!strcmp(te_version(), text), "the_version_is_the_headers");
	ft_ok(sscanf(te_fabric_version(), "%u.%u%c", &major, &minor, &rest) ==
		      2 &&
	      (major > 1 || (major == 1 && minor >= 17)),
	      "libfabrics_is_one_that_will_do");
	ft_ok(!pthread_create(&other, NULL, abi_other_thread, &there) &&
		      !pthread_join(other, NULL) &&
		      there == te_fabric_version(),
	      "version_text_outlives_the_thread_that_asked");
}

void objects_abi(void)
{
	struct fx_buf mem = fx_buf_map(FX_MIB, -1);
	transfer_engine_t e = fx_engine("tcp");

	if (ft_ok(e && fx_register(e, &mem), "an_engine_starts")) {
		abi_old(e, LOCAL_SEGMENT);
		abi_new(e, LOCAL_SEGMENT);
		abi_bad(e);
	}
	abi_versions();
	destroyTransferEngine(e);
	fx_buf_unmap(&mem);
}
