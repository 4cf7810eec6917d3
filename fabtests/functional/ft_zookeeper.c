/* SPDX-License-Identifier: BSD-2-Clause */

/*
 * Tests of engines that find each other through ZooKeeper, while servers and
 * engines are killed, stopped and replaced. With the option --bench, the
 * program measures instead how long 10 processes take to register 1 000
 * segments, and how long opening a segment takes.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fabtests/functional/ft_zookeeper.h"

static void zk_environment(bool bench)
{
	char text[16];

	setenv("MC_TCP_BIND_ADDRESS", "127.0.0.1", 1);
	if (bench)
		return;
	snprintf(text, sizeof(text), "%d", ZK_SESSION_MS);
	setenv("MOONRAIL_ZK_SESSION_MS", text, 1);
}

static void zk_run(int servers, bool hasty, void (*test)(struct zk_rig *rig))
{
	struct zk_rig rig;

	if (ft_ok(zk_rig_open(&rig, servers, hasty), "%d_servers_and_an_engine",
		  servers))
		test(&rig);
	zk_rig_close(&rig);
}

static void zk_secret(struct zk_rig *rig)
{
	zk_unread(rig);
	zk_opening(rig);
}

/* Runs the tests in which the engines have a shared secret. */
static void zk_run_secret(void)
{
	static const char text[] = "a secret of enough bytes\n";
	char file[] = "/tmp/ft_zk_secret.XXXXXX";
	int fd = mkstemp(file);

	if (!ft_ok(fd >= 0 && write(fd, text, strlen(text)) > 0,
		   "a_file_with_a_secret"))
		return;
	close(fd);
	setenv("MOONRAIL_SECRET_FILE", file, 1);
	zk_run(1, true, zk_secret);
	zk_run(1, false, zk_crowd);
	unsetenv("MOONRAIL_SECRET_FILE");
	unlink(file);
}

int main(int argc, char **argv)
{
	bool bench = argc > 1 && !strcmp(argv[1], "--bench");
	struct zk_rig rig;
	int ret;

	if (argc > 1 && !strcmp(argv[1], "--bench-child"))
		return zk_bench_child(argc, argv);
	fx_init(argc, argv);
	if (ft_zk_missing())
		return ft_skip("%s", ft_zk_missing());
	zk_environment(bench);
	if (bench) {
		ret = zk_rig_open(&rig, 1, false) ? zk_bench(&rig) : 1;
		zk_rig_close(&rig);
		return ret;
	}
	zk_run(1, true, zk_outages);
	zk_run(1, true, zk_stopped);
	zk_run_secret();
	zk_run(1, false, zk_names);
	zk_run(1, false, zk_publications);
	zk_run(1, false, zk_strangers);
	zk_run(3, false, zk_leader_killed);
	return ft_result();
}
