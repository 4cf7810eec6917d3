/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Tests the effects of Mooncake's environment variables when they are passed as
 * options of an engine.
 */
#include <dirent.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "api/api_test.h"
#include "api/engine_int.h"

/* number of buffers; a descriptor with that many is longer than 1 MiB */
#define SETTINGS_MANY	16000u
#define SETTINGS_TRIES	20
#define SETTINGS_STEP	16u /* distance between the starts of two buffers,
			     * bytes */

/* Creates an engine with one setting, or without settings if setting is
 * NULL. */
static transfer_engine_t settings_engine(const char *setting)
{
	const struct te_engine_options o = {
		.metadata = "P2PHANDSHAKE", .server_name = "127.0.0.1",
		.settings = setting ? &setting : NULL,
		.settings_count = setting != NULL,
	};
	transfer_engine_t e = NULL;

	CU_ASSERT_EQUAL_FATAL(te_engine_create(&o, sizeof(o), &e), 0);
	return e;
}

static segment_id_t settings_open(transfer_engine_t e, transfer_engine_t target)
{
	char name[256];

	CU_ASSERT_FATAL(!getLocalIpAndPort(target, name, sizeof(name)));
	return openSegment(e, name);
}

/* Moves some bytes, so that the peer gives a sign of life. A peer without one
 * is looked up again at each opening, whatever the settings are. */
static void settings_move(transfer_engine_t e, segment_id_t seg, void *to)
{
	static char from[64];
	transfer_request_t req = { .opcode = OPCODE_WRITE, .source = from,
				   .target_id = seg,
				   .target_offset = (uintptr_t)to,
				   .length = sizeof(from) };
	transfer_status_t status = { .status = STATUS_WAITING };
	batch_id_t id = allocateBatchID(e, 1);

	CU_ASSERT_EQUAL(registerLocalMemory(e, from, sizeof(from), "cpu:0", 0),
			0);
	CU_ASSERT_EQUAL(submitTransfer(e, id, &req, 1), 0);
	CU_ASSERT_EQUAL(te_wait_batch(e, id, -1, &status), 0);
	CU_ASSERT_EQUAL(status.status, STATUS_COMPLETED);
	CU_ASSERT_EQUAL(freeBatchID(e, id), 0);
	CU_ASSERT_EQUAL(unregisterLocalMemory(e, from), 0);
}

/* Opens the target's segment once more. Returns the number of buffers in its
 * descriptor. */
static size_t settings_buffers(transfer_engine_t e, transfer_engine_t target)
{
	segment_id_t seg = settings_open(e, target);
	size_t n = 0;

	CU_ASSERT(seg > 0);
	CU_ASSERT_EQUAL(te_segment_buffers(e, seg, NULL, 0, &n), 0);
	return n;
}

static void test_disabled_metacache_fetches_the_descriptor_at_each_opening(void)
{
	transfer_engine_t cached = settings_engine(NULL);
	transfer_engine_t fresh = settings_engine("MC_DISABLE_METACACHE=1");
	transfer_engine_t target = settings_engine(NULL);
	static char mem[SETTINGS_TRIES + 1][64];
	bool older = false;
	segment_id_t seg, other;
	size_t i;

	CU_ASSERT_PTR_NOT_NULL(installTransport(target, "tcp", NULL));
	CU_ASSERT_PTR_NOT_NULL(installTransport(cached, "tcp", NULL));
	CU_ASSERT_PTR_NOT_NULL(installTransport(fresh, "tcp", NULL));
	CU_ASSERT_EQUAL(registerLocalMemory(target, mem[0], sizeof(mem[0]),
					    "cpu:0", 1), 0);
	seg = settings_open(cached, target);
	other = settings_open(fresh, target);
	/* several tries: on a busy machine the peer may not answer for so long
	 * that its descriptor is read again */
	for (i = 1; i <= SETTINGS_TRIES && !older; i++) {
		CU_ASSERT_EQUAL(registerLocalMemory(target, mem[i],
						    sizeof(mem[i]), "cpu:0",
						    1), 0);
		settings_move(cached, seg, mem[0]);
		older = settings_buffers(cached, target) <= i;
		settings_move(fresh, other, mem[0]);
		CU_ASSERT_EQUAL(settings_buffers(fresh, target), i + 1);
	}
	CU_ASSERT(older);
	destroyTransferEngine(fresh);
	destroyTransferEngine(cached);
	destroyTransferEngine(target);
}

static void settings_register(transfer_engine_t e, char *mem)
{
	buffer_entry_t *list = calloc(SETTINGS_MANY, sizeof(*list));
	uint32_t i;

	CU_ASSERT_FATAL(list != NULL);
	for (i = 0; i < SETTINGS_MANY; i++)
		list[i] = (buffer_entry_t){ mem + (size_t)i * SETTINGS_STEP, 8 };
	CU_ASSERT_EQUAL(registerLocalMemoryBatch(e, list, SETTINGS_MANY,
						 "cpu:0"), 0);
	free(list);
}

static void test_handshake_max_length_limits_the_descriptor_of_a_peer(void)
{
	char *mem = calloc(SETTINGS_MANY, SETTINGS_STEP);
	transfer_engine_t narrow, wide, target;
	struct te_error err;

	CU_ASSERT_FATAL(mem != NULL);
	/* the settings ensure that requests do not time out on a slow machine,
	 * and that the target does not throttle them */
	setenv("MC_HANDSHAKE_CONNECT_TIMEOUT", "60", 1);
	narrow = settings_engine("MC_HANDSHAKE_MAX_LENGTH=1M");
	wide = settings_engine(NULL);
	target = settings_engine("MOONRAIL_CLIENT_RATE=1000000");
	unsetenv("MC_HANDSHAKE_CONNECT_TIMEOUT");
	CU_ASSERT_PTR_NOT_NULL(installTransport(target, "tcp", NULL));
	CU_ASSERT(settings_open(narrow, target) > 0);
	settings_register(target, mem);
	CU_ASSERT(settings_open(wide, target) > 0);
	CU_ASSERT_EQUAL(syncSegmentCache(narrow), TEI_ERR_REJECTED);
	CU_ASSERT_EQUAL(te_last_error(&err, sizeof(err)), 0);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text,
				      "MC_HANDSHAKE_MAX_LENGTH allows 1048576"));
	destroyTransferEngine(narrow);
	destroyTransferEngine(wide);
	destroyTransferEngine(target);
	free(mem);
}

/* Returns the backlog of the socket fd if it listens at the port; otherwise
 * returns -1. */
static int settings_backlog_of(int fd, uint16_t port)
{
	struct sockaddr_in at = { .sin_port = 0 };
	socklen_t len = sizeof(at), infolen = sizeof(struct tcp_info);
	struct tcp_info info;

	memset(&info, 0, sizeof(info));
	if (getsockname(fd, (struct sockaddr *)&at, &len) ||
	    at.sin_family != AF_INET || ntohs(at.sin_port) != port ||
	    getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &infolen) ||
	    info.tcpi_state != TCP_LISTEN)
		return -1;
	/* the kernel stores the backlog of a listening socket in this field */
	return (int)info.tcpi_sacked;
}

static int settings_backlog(transfer_engine_t e)
{
	char name[256], *port;
	struct dirent *d;
	int backlog = -1;
	DIR *dir;

	CU_ASSERT_FATAL(!getLocalIpAndPort(e, name, sizeof(name)));
	port = strrchr(name, ':');
	dir = opendir("/proc/self/fd");
	CU_ASSERT_FATAL(port && dir);
	while (backlog < 0 && (d = readdir(dir)))
		backlog = settings_backlog_of(atoi(d->d_name),
					      (uint16_t)atoi(port + 1));
	closedir(dir);
	return backlog;
}

static void test_listen_backlog_applies_to_the_control_channel(void)
{
	transfer_engine_t e = settings_engine("MC_HANDSHAKE_LISTEN_BACKLOG=17");

	CU_ASSERT_EQUAL(settings_backlog(e), 17);
	destroyTransferEngine(e);
}

static void test_disabled_gpu_direct_rdma_keeps_gpu_memory_off_the_rails(void)
{
	struct engine *e;

	e = settings_engine("MC_DISABLE_GPU_DIRECT_RDMA=1");
	CU_ASSERT(!e->settings.memory.gpu_direct);
	destroyTransferEngine(e);
	e = settings_engine("MC_DISABLE_GPU_DIRECT_RDMA=0");
	CU_ASSERT(e->settings.memory.gpu_direct);
	destroyTransferEngine(e);
}

/* Creates one engine with the option and the environment variable, and another
 * one with the environment variable only. */
static void test_option_takes_precedence_over_the_environment(void)
{
	transfer_engine_t e, other;

	setenv("MC_HANDSHAKE_LISTEN_BACKLOG", "19", 1);
	e = settings_engine("MC_HANDSHAKE_LISTEN_BACKLOG=23");
	other = settings_engine(NULL);
	unsetenv("MC_HANDSHAKE_LISTEN_BACKLOG");
	CU_ASSERT_EQUAL(settings_backlog(e), 23);
	CU_ASSERT_EQUAL(settings_backlog(other), 19);
	destroyTransferEngine(e);
	destroyTransferEngine(other);
}

const struct tei_test_case settings_cases[] = {
	{ "disabled_metacache_fetches_the_descriptor_at_each_opening",
	  test_disabled_metacache_fetches_the_descriptor_at_each_opening },
	{ "handshake_max_length_limits_the_descriptor_of_a_peer",
	  test_handshake_max_length_limits_the_descriptor_of_a_peer },
	{ "listen_backlog_applies_to_the_control_channel",
	  test_listen_backlog_applies_to_the_control_channel },
	{ "disabled_gpu_direct_rdma_keeps_gpu_memory_off_the_rails",
	  test_disabled_gpu_direct_rdma_keeps_gpu_memory_off_the_rails },
	{ "option_takes_precedence_over_the_environment",
	  test_option_takes_precedence_over_the_environment },
	{ NULL, NULL },
};
