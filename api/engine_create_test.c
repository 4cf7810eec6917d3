/* SPDX-License-Identifier: BSD-2-Clause */
/* Tests the options of te_engine_create. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/api_test.h"
#include "api/engine_int.h"

static char create_text[65536];

static int create_with(const char *const *settings, size_t count,
		       transfer_engine_t *engine)
{
	const struct te_engine_options o = {
		.metadata = "P2PHANDSHAKE", .server_name = "127.0.0.1",
		.settings = settings, .settings_count = count,
	};

	return te_engine_create(&o, sizeof(o), engine);
}

/* Returns true if te_settings_text writes that line. */
static bool create_shows(transfer_engine_t engine, const char *line)
{
	CU_ASSERT(te_settings_text(engine, create_text,
				   sizeof(create_text)) > 0);
	return strstr(create_text, line) != NULL;
}

static void test_topology_text_names_the_rails_of_a_location(void)
{
	const char *const one[] = { "MOONRAIL_DEVICES=127.0.0.1" };
	char small[4];
	transfer_engine_t e;
	int n;

	CU_ASSERT_EQUAL_FATAL(create_with(one, 1, &e), 0);
	CU_ASSERT_EQUAL(te_topology_text(e, create_text, 3), 2);
	CU_ASSERT_STRING_EQUAL(create_text, "{}");
	CU_ASSERT_PTR_NOT_NULL(installTransport(e, "tcp", NULL));
	n = te_topology_text(e, create_text, sizeof(create_text));
	CU_ASSERT(n > 2 && create_text[0] == '{' && create_text[n - 1] == '}');
	CU_ASSERT_PTR_NOT_NULL(strstr(create_text, "\"cpu:0\":[["));
	CU_ASSERT_EQUAL(te_topology_text(e, small, sizeof(small)), n);
	CU_ASSERT_EQUAL(strlen(small), sizeof(small) - 1);
	CU_ASSERT_EQUAL(te_topology_text(e, NULL, 0), n);
	CU_ASSERT_EQUAL(te_topology_text(e, NULL, 1), -1);
	destroyTransferEngine(e);
	CU_ASSERT_EQUAL(te_topology_text(e, create_text, 1), -1);
}

/* Returns true if the text and the hint of the thread's last error contain
 * these texts. */
static bool create_last_says(const char *text, const char *hint)
{
	struct te_error last;

	return !te_last_error(&last, sizeof(last)) &&
	       strstr(last.text, text) && strstr(last.hint, hint);
}

static void test_two_engines_have_settings_of_their_own(void)
{
	const char *const one[] = { "MOONRAIL_DEVICES=127.0.0.1",
				    "MC_SLICE_SIZE=128K",
				    "MC_SLICE_TIMEOUT=3" };
	const char *const two[] = { "MOONRAIL_DEVICES=127.0.0.2",
				    "MC_SLICE_SIZE=8192", "MC_RETRY_CNT=" };
	transfer_engine_t a, b;

	setenv("MC_SLICE_SIZE", "16384", 1);
	setenv("MC_RETRY_CNT", "7", 1);
	CU_ASSERT_EQUAL_FATAL(create_with(one, 3, &a), 0);
	CU_ASSERT_EQUAL_FATAL(create_with(two, 3, &b), 0);
	unsetenv("MC_SLICE_SIZE");
	unsetenv("MC_RETRY_CNT");
	CU_ASSERT(create_shows(a, "MOONRAIL_DEVICES=127.0.0.1 engine\n"));
	CU_ASSERT(create_shows(a, "MC_SLICE_SIZE=131072 engine\n"));
	CU_ASSERT(create_shows(a, "MC_SLICE_TIMEOUT=3 engine\n"));
	CU_ASSERT(create_shows(a, "MC_RETRY_CNT=7 environment\n"));
	CU_ASSERT(create_shows(b, "MOONRAIL_DEVICES=127.0.0.2 engine\n"));
	CU_ASSERT(create_shows(b, "MC_SLICE_SIZE=8192 engine\n"));
	CU_ASSERT(create_shows(b, "MC_SLICE_TIMEOUT=10 default\n"));
	CU_ASSERT(create_shows(b, "MC_RETRY_CNT=9 default\n"));
	destroyTransferEngine(a);
	destroyTransferEngine(b);
}

static void test_bad_setting_is_refused_by_name(void)
{
	static const char *const rows[][3] = {
		{ "MC_SLICE_SISE=1", "MC_SLICE_SISE", "MC_SLICE_SIZE" },
		{ "MC_SLICE_SIZE", "MC_SLICE_SIZE", "NAME=VALUE" },
		{ "=1", "=1", "NAME=VALUE" },
		{ NULL, "NULL", "NAME=VALUE" },
		{ "MC_SLICE_SIZE=64Q", "MC_SLICE_SIZE=64Q", "4096" },
		{ "MC_SLICE_SIZE=1K", "MC_SLICE_SIZE=1K", "4096" },
		{ "MC_LOG_LEVEL=info", "MC_LOG_LEVEL", "te_set_log" },
		{ "MC_VERBOSE=1", "MC_VERBOSE", "whole process" },
		{ "MC_MIN_RPC_PORT=60000", "MC_MIN_RPC_PORT", "MC_MAX_RPC" },
	};
	transfer_engine_t e = (transfer_engine_t)&e;
	struct te_error err;
	size_t i;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		CU_ASSERT_EQUAL(create_with(&rows[i][0], 1, &e),
				TEI_ERR_INVALID);
		CU_ASSERT_PTR_EQUAL(e, &e);
		CU_ASSERT_EQUAL(te_last_error(&err, sizeof(err)), 0);
		CU_ASSERT_PTR_NOT_NULL(strstr(err.text, rows[i][1]));
		CU_ASSERT(strstr(err.text, rows[i][2]) ||
			  strstr(err.hint, rows[i][2]));
	}
}

static void test_variable_without_effect_is_accepted(void)
{
	const char *const ignored = "MC_IB_TC=96";
	transfer_engine_t e;

	CU_ASSERT_EQUAL_FATAL(create_with(&ignored, 1, &e), 0);
	destroyTransferEngine(e);
}

static void test_options_of_another_size_are_understood(void)
{
	struct {
		struct te_engine_options o;
		uint64_t later;
	} wide = { .o = { .metadata = "P2PHANDSHAKE",
			  .server_name = "127.0.0.1" } };
	const size_t least = offsetof(struct te_engine_options, ip);
	transfer_engine_t e;

	/* sets a member beyond the size that is passed to an invalid pointer:
	 * the library must not read it */
	wide.o.ip = (const char *)1;
	CU_ASSERT_EQUAL_FATAL(te_engine_create(&wide.o, least, &e), 0);
	destroyTransferEngine(e);
	wide.o.ip = NULL;
	CU_ASSERT_EQUAL_FATAL(te_engine_create(&wide.o, sizeof(wide), &e), 0);
	destroyTransferEngine(e);
	wide.later = 1;
	CU_ASSERT_EQUAL(te_engine_create(&wide.o, sizeof(wide), &e),
			TEI_ERR_INVALID);
	CU_ASSERT_EQUAL(te_engine_create(&wide.o, least - 1, &e),
			TEI_ERR_INVALID);
	CU_ASSERT_EQUAL(te_engine_create(NULL, sizeof(wide.o), &e),
			TEI_ERR_INVALID);
	CU_ASSERT_EQUAL(te_engine_create(&wide.o, sizeof(wide.o), NULL),
			TEI_ERR_INVALID);
}

static void test_incomplete_options_are_refused(void)
{
	struct te_engine_options o = { .server_name = "127.0.0.1" };
	static char longest[2048];
	transfer_engine_t e;

	CU_ASSERT_EQUAL(te_engine_create(&o, sizeof(o), &e), TEI_ERR_INVALID);
	o.metadata = "P2PHANDSHAKE";
	o.server_name = "";
	CU_ASSERT_EQUAL(te_engine_create(&o, sizeof(o), &e), TEI_ERR_INVALID);
	o.server_name = "127.0.0.1";
	o.port = 65536;
	CU_ASSERT_EQUAL(te_engine_create(&o, sizeof(o), &e), TEI_ERR_INVALID);
	o.port = 0;
	o.settings_count = 1;
	CU_ASSERT_EQUAL(te_engine_create(&o, sizeof(o), &e), TEI_ERR_INVALID);
	o.settings_count = 0;
	memset(longest, '1', sizeof(longest) - 1);
	o.ip = longest;
	CU_ASSERT_EQUAL(te_engine_create(&o, sizeof(o), &e), TEI_ERR_INVALID);
}

static void test_control_channel_binds_the_ip_and_port_given(void)
{
	struct te_engine_options o = { .metadata = "P2PHANDSHAKE",
				       .server_name = "127.0.0.1" };
	transfer_engine_t e;
	char at[64], want[64];
	int tries;

	/* uses the port of an engine that was destroyed; tries again if another
	 * process takes that port before */
	for (tries = 0; tries < 20; tries++) {
		o.ip = NULL;
		o.port = 0;
		CU_ASSERT_EQUAL_FATAL(te_engine_create(&o, sizeof(o), &e), 0);
		CU_ASSERT_EQUAL(getLocalIpAndPort(e, at, sizeof(at)), 0);
		destroyTransferEngine(e);
		o.ip = "127.0.0.2";
		o.port = (uint32_t)strtoul(strchr(at, ':') + 1, NULL, 10);
		if (!te_engine_create(&o, sizeof(o), &e))
			break;
	}
	CU_ASSERT_FATAL(tries < 20);
	snprintf(want, sizeof(want), "127.0.0.2:%u", o.port);
	CU_ASSERT_EQUAL(getLocalIpAndPort(e, at, sizeof(at)), 0);
	CU_ASSERT_STRING_EQUAL(at, want);
	destroyTransferEngine(e);
}

/* Submits a copy to the batch. Returns the deadline that the batch then has,
 * ns. */
static uint64_t create_deadline(struct engine *e, batch_id_t id, char *mem)
{
	transfer_request_t req = { .opcode = OPCODE_WRITE, .source = mem,
				   .target_id = LOCAL_SEGMENT,
				   .target_offset = (uintptr_t)mem + 64,
				   .length = 64 };
	struct engine_batch *b;
	uint64_t deadline;

	CU_ASSERT_EQUAL(submitTransfer(e, id, &req, 1), 0);
	b = engine_batch_lock(e, id);
	CU_ASSERT_PTR_NOT_NULL_FATAL(b);
	deadline = b->deadline_ns;
	engine_batch_unlock(b);
	return deadline;
}

static void test_transfer_timeout_is_the_deadline_of_batches(void)
{
	const char *const settings[] = { "MC_TRANSFER_TIMEOUT=3600" };
	const uint64_t limit = 3600 * TEI_NS_PER_SEC;
	uint64_t before = tei_now_ns(), own, deadline;
	static char mem[128];
	transfer_engine_t e;
	batch_id_t id;

	CU_ASSERT_EQUAL_FATAL(create_with(settings, 1, &e), 0);
	CU_ASSERT_EQUAL(registerLocalMemory(e, mem, sizeof(mem), "cpu:0", 1),
			0);
	id = allocateBatchID(e, 4);
	deadline = create_deadline(e, id, mem);
	CU_ASSERT(deadline >= before + limit);
	CU_ASSERT(deadline <= tei_now_ns() + limit);
	CU_ASSERT(create_deadline(e, id, mem) > deadline);
	own = tei_now_ns() + 2 * limit;
	CU_ASSERT_EQUAL(te_batch_deadline(e, id, own), 0);
	CU_ASSERT_EQUAL(create_deadline(e, id, mem), own);
	CU_ASSERT_EQUAL(te_wait_batch(e, id, -1, NULL), 0);
	CU_ASSERT_EQUAL(freeBatchID(e, id), 0);
	destroyTransferEngine(e);
}

static void test_excluded_devices_do_not_become_rails(void)
{
	const char *const settings[] = { "MC_TE_FILTERS_EXCLUDE=lo,eth0" };
	const char *const both[] = { "MC_TE_FILTERS_EXCLUDE=lo",
				     "MC_TE_FILTERS=lo" };
	struct te_rail_stats rails[8];
	transfer_engine_t e;
	size_t n = 8, i;

	CU_ASSERT_EQUAL_FATAL(create_with(settings, 1, &e), 0);
	if (installTransport(e, "tcp", NULL)) {
		CU_ASSERT_EQUAL(te_rail_stats(e, rails, sizeof(*rails), &n),
				0);
		for (i = 0; i < n; i++)
			CU_ASSERT(strcmp(rails[i].name, "lo") &&
				  strcmp(rails[i].name, "eth0"));
	} else {
		/* no rail: this machine has no network interfaces except lo and
		 * eth0 */
		CU_ASSERT(create_last_says("no device for transport tcp",
					   "MC_TE_FILTERS_EXCLUDE=lo,eth0"));
	}
	destroyTransferEngine(e);
	CU_ASSERT_EQUAL_FATAL(create_with(both, 2, &e), 0);
	CU_ASSERT_PTR_NOT_NULL(installTransport(e, "tcp", NULL));
	destroyTransferEngine(e);
}

static void test_forced_hca_without_device_is_an_error(void)
{
	const char *const settings[] = { "MC_FORCE_HCA=1",
					 "MC_TE_FILTERS=nosuchdevice" };
	const struct te_engine_options o = {
		.metadata = "P2PHANDSHAKE", .server_name = "127.0.0.1",
		.auto_discover = 1, .settings = settings, .settings_count = 2,
	};
	transfer_engine_t e;

	CU_ASSERT_NOT_EQUAL(te_engine_create(&o, sizeof(o), &e), 0);
	/* the error names transport rdma because MC_FORCE_HCA is set; otherwise
	 * it would name tcp */
	CU_ASSERT(create_last_says("no device for transport rdma",
				   "MC_TE_FILTERS=nosuchdevice"));
}

/* Expects an error that names the provider. If this machine has such a device,
 * the transport must be installed instead. */
static void test_provider_transport_without_device_says_so(void)
{
	static const char *const names[] = { "efa", "cxi" };
	const char *const other[] = { "MOONRAIL_PROVIDER=tcp;ofi_rxm" };
	char text[64];
	transfer_engine_t e;
	size_t i;

	for (i = 0; i < 2; i++) {
		CU_ASSERT_EQUAL_FATAL(create_with(NULL, 0, &e), 0);
		snprintf(text, sizeof(text), "libfabric's provider %s offers no device",
			 names[i]);
		if (installTransport(e, names[i], NULL)) {
			CU_ASSERT_EQUAL(uninstallTransport(e, "rdma"), 0);
		} else {
			CU_ASSERT(create_last_says(text, "fi_info -l"));
		}
		destroyTransferEngine(e);
		/* the name of the transport takes precedence over
		 * MOONRAIL_PROVIDER, so the provider that this setting names is
		 * not used */
		CU_ASSERT_EQUAL_FATAL(create_with(other, 1, &e), 0);
		CU_ASSERT_PTR_NULL(installTransport(e, names[i], NULL));
		CU_ASSERT(create_last_says(text,
					   "MOONRAIL_PROVIDER=tcp;ofi_rxm"));
		destroyTransferEngine(e);
	}
}

/* Checks that efa is refused while transport rdma is installed with another
 * provider. MOONRAIL_PROVIDER=tcp;ofi_rxm makes transport rdma available on a
 * machine without RDMA devices. */
static void test_provider_transport_with_other_rdma_is_refused(void)
{
	const char *const tcp[] = { "MOONRAIL_PROVIDER=tcp;ofi_rxm",
				    "MOONRAIL_DEVICES=127.0.0.1" };
	transfer_engine_t e;
	transport_t t;

	CU_ASSERT_EQUAL_FATAL(create_with(tcp, 2, &e), 0);
	t = installTransport(e, "rdma", NULL);
	CU_ASSERT_PTR_NOT_NULL_FATAL(t);
	CU_ASSERT_PTR_NULL(installTransport(e, "efa", NULL));
	CU_ASSERT(create_last_says("installed already with provider tcp;ofi_rxm",
				   "uninstall"));
	CU_ASSERT_PTR_EQUAL(installTransport(e, "rdma", NULL), t);
	CU_ASSERT_EQUAL(uninstallTransport(e, "cxi"), 0);
	CU_ASSERT_PTR_NULL(installTransport(e, "efa", NULL));
	CU_ASSERT(create_last_says("offers no device", ""));
	destroyTransferEngine(e);
}

const struct tei_test_case create_cases[] = {
	{ "topology_text_names_the_rails_of_a_location",
	  test_topology_text_names_the_rails_of_a_location },
	{ "provider_transport_without_device_says_so",
	  test_provider_transport_without_device_says_so },
	{ "provider_transport_with_other_rdma_is_refused",
	  test_provider_transport_with_other_rdma_is_refused },
	{ "two_engines_have_settings_of_their_own",
	  test_two_engines_have_settings_of_their_own },
	{ "bad_setting_is_refused_by_name",
	  test_bad_setting_is_refused_by_name },
	{ "variable_without_effect_is_accepted",
	  test_variable_without_effect_is_accepted },
	{ "options_of_another_size_are_understood",
	  test_options_of_another_size_are_understood },
	{ "incomplete_options_are_refused",
	  test_incomplete_options_are_refused },
	{ "control_channel_binds_the_ip_and_port_given",
	  test_control_channel_binds_the_ip_and_port_given },
	{ "transfer_timeout_is_the_deadline_of_batches",
	  test_transfer_timeout_is_the_deadline_of_batches },
	{ "excluded_devices_do_not_become_rails",
	  test_excluded_devices_do_not_become_rails },
	{ "forced_hca_without_device_is_an_error",
	  test_forced_hca_without_device_is_an_error },
	{ NULL, NULL },
};
