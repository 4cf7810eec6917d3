/* SPDX-License-Identifier: BSD-2-Clause */
#include <fcntl.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fabtests/functional/ft_bad_input.h"
#include "fabtests/functional/fx.h"

/* Redirects stderr to a memfd until setup_heard is called. Returns the memfd,
 * and the old stderr in *saved. */
static int setup_listen(int *saved)
{
	int fd = memfd_create("stderr", MFD_CLOEXEC);

	*saved = dup(STDERR_FILENO);
	dup2(fd, STDERR_FILENO);
	return fd;
}

/* Restores stderr. Copies what was written to the memfd since setup_listen to
 * `text`. */
static void setup_heard(int fd, int saved, char *text, size_t len)
{
	ssize_t n;

	dup2(saved, STDERR_FILENO);
	close(saved);
	n = pread(fd, text, len - 1, 0);
	text[n > 0 ? n : 0] = '\0';
	close(fd);
}

/* --- createTransferEngine ------------------------------------------------ */

static bool setup_create_fails(const char *conn, const char *name, char *said,
			       size_t len)
{
	int saved, fd = setup_listen(&saved);
	transfer_engine_t e = createTransferEngine(conn, name, name, 0, 0);

	setup_heard(fd, saved, said, len);
	destroyTransferEngine(e);
	return !e;
}

static void setup_schemes(void)
{
	static const char *const bad[] = {
		"", "foo://127.0.0.1:1", "p2phandshake!", "://", "zookeeper://",
		"redis://127.0.0.1:6379", "http://127.0.0.1:1",
		"https://127.0.0.1:1", "etcd://127.0.0.1:2379",
	};
	char said[8192];
	bool good = true;

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		if (!setup_create_fails(bad[i], "127.0.0.1", said,
					sizeof(said)) || !*said) {
			ft_diag("metadata server '%s': accepted, or refused "
				"without a log line",
				bad[i]);
			good = false;
		}
	ft_ok(good, "create_with_unknown_scheme_is_refused_and_logged");
	ft_ok(setup_create_fails("foo://h:1", "127.0.0.1", said,
				 sizeof(said)) && strstr(said, "P2PHANDSHAKE"),
	      "create_with_unknown_scheme_names_the_known_ones");
	ft_ok(setup_create_fails("metadata", "127.0.0.1", said, sizeof(said)) &&
		      strstr(said, "no scheme"),
	      "create_without_scheme_logs_that_it_is_missing");
	ft_ok(setup_create_fails(NULL, "127.0.0.1", said, sizeof(said)),
	      "create_without_metadata_is_refused");
	ft_ok(setup_create_fails("P2PHANDSHAKE", NULL, said, sizeof(said)),
	      "create_without_name_is_refused");
	ft_ok(setup_create_fails("P2PHANDSHAKE", "", said, sizeof(said)),
	      "create_with_empty_name_is_refused");
	ft_ok(setup_create_fails("P2PHANDSHAKE", "203.0.113.77", said,
				 sizeof(said)) && *said,
	      "create_at_foreign_address_is_refused");
}

static void setup_environment(void)
{
	static const char *const bad[][3] = {
		{ "MC_SLICE_TIMEOUT", "0", "3600" },
		{ "MC_SLICE_TIMEOUT", "3601", "3600" },
		{ "MC_SLICE_TIMEOUT", "ten", "3600" },
		{ "MC_SLICE_TIMEOUT", "-1", "3600" },
		{ "MC_SLICE_TIMEOUT", "1e1", "3600" },
		{ "MC_SLICE_TIMEOUT", " 10", "3600" },
		{ "MC_SLICE_TIMEOUT", "99999999999999999999", "3600" },
		{ "MC_SLICE_SIZE", "4095", "4096" },
		{ "MC_SLICE_SIZE", "64X", "4096" },
		{ "MC_MAX_WR", "0", "16384" },
		{ "MC_RETRY_CNT", "129", "128" },
		{ "MC_NUM_CQ_PER_CTX", "0", "16" },
		{ "MC_MIN_RPC_PORT", "65536", "65535" },
		{ "MC_MIN_RPC_PORT", "17001", "17000" },
		{ "MC_USE_IPV6", "maybe", "yes" },
		{ "MOONRAIL_FENCE_MS", "9", "60000" },
	};
	char said[8192], *old;
	bool good = true;

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		old = getenv(bad[i][0]);
		old = old ? strdup(old) : NULL;
		setenv(bad[i][0], bad[i][1], 1);
		if (!setup_create_fails("P2PHANDSHAKE", "127.0.0.1", said,
					sizeof(said)) ||
		    !strstr(said, bad[i][0]) || !strstr(said, bad[i][2])) {
			ft_diag("%s='%s': accepted, or the log line lacks %s: "
				"%s",
				bad[i][0], bad[i][1], bad[i][2], said);
			good = false;
		}
		if (old)
			setenv(bad[i][0], old, 1);
		else
			unsetenv(bad[i][0]);
		free(old);
	}
	ft_ok(good, "create_with_setting_out_of_range_logs_the_range");
}

/* --- JSON ---------------------------------------------------------------- */

static const char *const setup_bad_json[] = {
	"{", "}", "[]", "nothing", "\"cpu:0\"", "{\"cpu:0\": 3}",
	"{\"cpu:0\": [[\"lo\"]]}", "{\"cpu:0\": [[1], [2]]}",
	"{\"cpu:0\": [[\"lo\"], \"x\"]}", "{\"cpu:0\": [[\"lo\"], []]",
	"{\"cpu:0\": [[\"lo\"], []]} trailing", "{\"a\": {\"b\": {}}}",
};

static bool setup_json_refused(transfer_engine_t e, char *json)
{
	void *args[] = { json, NULL };
	struct te_error err = { 0 };

	return !installTransport(e, "tcp", args) &&
	       !te_last_error(&err, sizeof(err)) && err.code == -103;
}

static void setup_transport_json(void)
{
	transfer_engine_t e = fx_engine(NULL);
	char fine[] = "{\"cpu:0\": [[\"127.0.0.1\"], [\"127.0.0.2\"]]}";
	void *args[] = { fine, NULL };
	static char deep[200001];
	bool good = true;

	for (size_t i = 0; i < sizeof(setup_bad_json) / sizeof(char *); i++)
		if (!setup_json_refused(e, (char *)setup_bad_json[i])) {
			struct te_error err = { 0 };

			te_last_error(&err, sizeof(err));
			ft_diag("topology %s: code %d, expected -103",
				setup_bad_json[i], err.code);
			good = false;
		}
	ft_ok(good, "transport_with_malformed_topology_is_refused");
	memset(deep, '[', sizeof(deep) - 1);
	ft_ok(setup_json_refused(e, deep),
	      "transport_with_deeply_nested_topology_is_refused");
	ft_ok(installTransport(e, "tcp", args),
	      "transport_with_valid_topology_is_installed");
	destroyTransferEngine(e);
}

static bool setup_topo_file_refused(const char *path)
{
	transfer_engine_t e;
	int ret = -1;

	setenv("MC_CUSTOM_TOPO_JSON", path, 1);
	e = createTransferEngine("P2PHANDSHAKE", "127.0.0.1", "", 0, 1);
	if (e)
		ret = discoverTopology(e);
	unsetenv("MC_CUSTOM_TOPO_JSON");
	if (e && ret >= 0)
		ft_diag("malformed %s is accepted: discoverTopology returned "
			"%d",
			path, ret);
	destroyTransferEngine(e);
	return !e || ret == -103;
}

static void setup_topo_file(void)
{
	char path[] = "/tmp/ft_bad_input.XXXXXX";
	int fd = mkstemp(path);
	bool good = fd >= 0;

	for (size_t i = 0; good && i < 8; i++) {
		good = !ftruncate(fd, 0) &&
		       pwrite(fd, setup_bad_json[i], strlen(setup_bad_json[i]),
			      0) > 0 &&
		       setup_topo_file_refused(path);
		if (!good)
			ft_diag("topology: %s", setup_bad_json[i]);
	}
	ft_ok(good, "malformed_MC_CUSTOM_TOPO_JSON_is_refused");
	if (fd >= 0) {
		close(fd);
		unlink(path);
	}
	ft_ok(setup_topo_file_refused(path),
	      "absent_MC_CUSTOM_TOPO_JSON_is_refused");
}

/* --- leaks --------------------------------------------------------------- */

static bool setup_cycle(bool bad)
{
	static char mem[65536];
	void *args[] = { (char *)"{", NULL };
	transfer_engine_t e = fx_engine(bad ? NULL : "tcp");

	if (!e)
		return false;
	if (bad)
		installTransport(e, "tcp", args);
	registerLocalMemory(e, mem, sizeof(mem), "*", 1);
	registerLocalMemory(e, mem, sizeof(mem), "*", 1);
	openSegment(e, "127.0.0.1:1");
	allocateBatchID(e, 100);
	destroyTransferEngine(e);
	return true;
}

/* Returns true if the process has at most *arg threads. The test waits for
 * this, because a joined thread may stay in /proc for a moment. */
static bool setup_threads_left(void *arg)
{
	return fx_count_dir("/proc/self/task") <= *(unsigned int *)arg;
}

static void setup_leaks(void)
{
	unsigned int fds, threads;
	struct mallinfo2 before, after;
	bool good = true;

	for (int i = 0; i < 4; i++)
		good = good && setup_cycle(i % 2);
	fds = fx_count_dir("/proc/self/fd");
	threads = fx_count_dir("/proc/self/task");
	before = mallinfo2();
	for (int i = 0; i < 20; i++)
		good = good && setup_cycle(i % 2);
	after = mallinfo2();
	ft_ok(good, "engines_are_created_and_destroyed");
	ft_ok(fx_count_dir("/proc/self/fd") == fds, "no_descriptor_is_leaked");
	ft_diag("open file descriptors: %u before, %u after", fds,
		fx_count_dir("/proc/self/fd"));
	ft_ok(ft_wait_until(setup_threads_left, &threads, fx_ms(5000)),
	      "no_thread_is_leaked");
	ft_ok(after.uordblks + after.hblkhd <=
	      before.uordblks + before.hblkhd + 256 * FX_KIB,
	      "no_memory_is_leaked");
	ft_diag("heap in use: %zu bytes before, %zu bytes after",
		before.uordblks + before.hblkhd, after.uordblks + after.hblkhd);
}

void bad_setup(void)
{
	setup_schemes();
	setup_environment();
	setup_transport_json();
	setup_topo_file();
	setup_leaks();
}
