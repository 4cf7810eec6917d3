/* SPDX-License-Identifier: BSD-2-Clause */
#include "fabtests/common/ft_zk.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fabtests/common/ft_port.h"
#include "fabtests/common/ft_test.h"

#define ZK_JAR "/usr/share/java/zookeeper.jar"
#define ZK_WAIT_MS 60000

bool ft_zk_can_bind(const char *address)
{
	int fd = ft_port_socket(address, 0, true);

	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

const char *ft_zk_missing(void)
{
#ifndef TEI_HAVE_ZOOKEEPER
	return "built with --disable-zookeeper";
#endif
	if (system("command -v java >/dev/null"))
		return "no java";
	return access(ZK_JAR, R_OK) ? "no " ZK_JAR : NULL;
}

bool ft_zk_restart(struct ft_zk *zk, int i)
{
	char script[4096], dir[80], number[3 + 2 * FT_ZK_MAX][16];
	const char *src = getenv("SRC");
	char *argv[9 + 2 * FT_ZK_MAX];
	int n = 0, k = 0;

	snprintf(script, sizeof(script), "%s/fabtests/scripts/zk_server.sh",
		 src ? src : ".");
	snprintf(dir, sizeof(dir), "%s/%d", zk->dir, i + 1);
	argv[n++] = (char *)"sh";
	argv[n++] = script;
	argv[n++] = (char *)"-a";
	argv[n++] = zk->address;
	argv[n++] = dir;
	snprintf(number[k], 16, "%d", i + 1);
	argv[n++] = number[k++];
	snprintf(number[k], 16, "%d", zk->client[i]);
	argv[n++] = number[k++];
	for (int s = 0; zk->count > 1 && s < zk->count; s++) {
		snprintf(number[k], 16, "%d", zk->peer[s]);
		argv[n++] = number[k++];
		snprintf(number[k], 16, "%d", zk->election[s]);
		argv[n++] = number[k++];
	}
	argv[n] = NULL;
	if (!ft_proc_start(&zk->server[i], argv))
		return true;
	ft_diag("ZooKeeper server %d did not start", i + 1);
	return false;
}

/* Queries the status of a server, a text that contains for example "Mode:
 * leader". `out` is "" on failure. */
static void zk_ask(const struct ft_zk *zk, int i, char *out, size_t len)
{
	int fd = ft_port_socket(zk->address, zk->client[i], false);
	ssize_t n;
	size_t used = 0;

	if (fd >= 0 && send(fd, "srvr", 4, MSG_NOSIGNAL) == 4)
		while (used + 1 < len &&
		       (n = read(fd, out + used, len - used - 1)) > 0)
			used += (size_t)n;
	out[used] = '\0';
	if (fd >= 0)
		close(fd);
}

struct zk_wait {
	const struct ft_zk *zk;
	int i;
};

static bool zk_serves(void *arg)
{
	const struct zk_wait *w = arg;
	char text[2048];

	zk_ask(w->zk, w->i, text, sizeof(text));
	return strstr(text, "Mode: ") != NULL;
}

bool ft_zk_wait(const struct ft_zk *zk, int i)
{
	struct zk_wait w = { zk, i };

	if (ft_wait_until(zk_serves, &w, ZK_WAIT_MS * ft_load()))
		return true;
	ft_diag("ZooKeeper server %d does not serve clients; see "
		"%s/%d/log", i + 1,
		zk->dir, i + 1);
	return false;
}

int ft_zk_leader(const struct ft_zk *zk)
{
	char text[2048];

	for (int i = 0; i < zk->count; i++) {
		if (!zk->server[i].pid)
			continue;
		zk_ask(zk, i, text, sizeof(text));
		if (strstr(text, "Mode: leader"))
			return i;
	}
	return -1;
}

bool ft_zk_start(struct ft_zk *zk, int count)
{
	return ft_zk_start_at(zk, count, "127.0.0.1");
}

bool ft_zk_start_at(struct ft_zk *zk, int count, const char *address)
{
	const char *form = strchr(address, ':') ? "%s[%s]:%d" : "%s%s:%d";
	size_t used = 0;
	bool good = true;

	memset(zk, 0, sizeof(*zk));
	snprintf(zk->address, sizeof(zk->address), "%s", address);
	snprintf(zk->dir, sizeof(zk->dir), "/tmp/ft_zk.XXXXXX");
	if (!mkdtemp(zk->dir))
		return false;
	zk->count = count;
	for (int i = 0; i < count; i++) {
		zk->client[i] = ft_port(zk->address);
		zk->peer[i] = ft_port(zk->address);
		zk->election[i] = ft_port(zk->address);
		good = good && zk->client[i] && zk->peer[i] && zk->election[i];
		used += (size_t)snprintf(zk->hosts + used,
					 sizeof(zk->hosts) - used,
					 form, i ? "," : "", address,
					 zk->client[i]);
	}
	for (int i = 0; good && i < count; i++)
		good = ft_zk_restart(zk, i);
	for (int i = 0; good && i < count; i++)
		good = ft_zk_wait(zk, i);
	if (!good)
		ft_zk_stop(zk);
	return good;
}

void ft_zk_kill(struct ft_zk *zk, int i)
{
	if (zk->server[i].pid)
		ft_proc_kill(&zk->server[i]);
}

static void zk_signal(struct ft_zk *zk, int i, int sig)
{
	if (zk->server[i].pid)
		kill(zk->server[i].pid, sig);
}

void ft_zk_pause(struct ft_zk *zk, int i)
{
	int status;

	zk_signal(zk, i, SIGSTOP);
	waitpid(zk->server[i].pid, &status, WUNTRACED);
}

void ft_zk_resume(struct ft_zk *zk, int i)
{
	zk_signal(zk, i, SIGCONT);
}

static bool zk_remove(const char *dir)
{
	char command[112];

	snprintf(command, sizeof(command), "rm -rf '%s'", dir);
	if (!system(command))
		return true;
	ft_diag("%s: cannot be removed", dir);
	return false;
}

bool ft_zk_wipe(const struct ft_zk *zk, int i)
{
	char dir[96];

	snprintf(dir, sizeof(dir), "%s/%d/data", zk->dir, i + 1);
	return zk_remove(dir);
}

void ft_zk_stop(struct ft_zk *zk)
{

	for (int i = 0; i < zk->count; i++)
		ft_zk_kill(zk, i);
	if (!zk->count)
		return;
	zk->count = 0;
	zk_remove(zk->dir);
}
