/* SPDX-License-Identifier: BSD-2-Clause */
#include "fabtests/common/ft_server.h"

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fabtests/common/ft_http.h"
#include "fabtests/common/ft_port.h"
#include "fabtests/common/ft_test.h"

#define SERVER_WAIT_MS 60000

/* --- ZooKeeper ------------------------------------------------------------ */

static bool server_zk_start(struct ft_server *s)
{
	if (s->zk.count)
		return ft_zk_restart(&s->zk, 0);
	if (!ft_zk_start(&s->zk, 1))
		return false;
	snprintf(s->conn, sizeof(s->conn), "zookeeper://%s", s->zk.hosts);
	return true;
}

static bool server_zk_serves(struct ft_server *s)
{
	return ft_zk_wait(&s->zk, 0);
}

/* --- etcd ----------------------------------------------------------------- */

static bool server_etcd_start(struct ft_server *s)
{
	if (s->etcd.count)
		return ft_etcd_restart(&s->etcd, 0);
	if (!ft_etcd_start(&s->etcd, 1, false))
		return false;
	snprintf(s->conn, sizeof(s->conn), "etcd://%s", s->etcd.hosts);
	return true;
}

static bool server_etcd_serves(struct ft_server *s)
{
	return ft_etcd_wait(&s->etcd, 0);
}

static bool server_etcd_write(struct ft_server *s, const char *key,
			      const char *text)
{
	return ft_etcd_put(&s->etcd, key, text);
}

static bool server_etcd_protect(struct ft_server *s)
{
	return ft_etcd_protect(&s->etcd);
}

/* --- Redis ---------------------------------------------------------------- */

static const char *server_redis_missing(void)
{
#ifndef TEI_HAVE_REDIS
	return "built with --disable-redis";
#endif
	return system("command -v redis-server redis-cli >/dev/null") ?
		       "no redis-server" : NULL;
}

static bool server_redis_start_with(struct ft_server *s, const char *events)
{
	char port[16];
	const char *argv[] = { "redis-server", "--port", port, "--bind",
			       "127.0.0.1", "--dir", s->dir, "--save", "",
			       "--appendonly", "no", "--notify-keyspace-events",
			       events, NULL };

	snprintf(port, sizeof(port), "%d", s->port);
	snprintf(s->conn, sizeof(s->conn), "redis://127.0.0.1:%d", s->port);
	return !ft_proc_start(&s->proc, (char **)(uintptr_t)argv);
}

static bool server_redis_start(struct ft_server *s)
{
	return server_redis_start_with(s, "KA");
}

static bool server_redis_start_silent(struct ft_server *s)
{
	return server_redis_start_with(s, "");
}

static bool server_redis_serves(struct ft_server *s)
{
	char command[96];

	snprintf(command, sizeof(command),
		 "redis-cli -p %d ping 2>/dev/null | grep -q PONG", s->port);
	return !system(command);
}

static bool server_redis_write(struct ft_server *s, const char *key,
			       const char *text)
{
	char command[512];

	snprintf(command, sizeof(command),
		 "redis-cli -p %d set '%s' '%s' >/dev/null", s->port, key,
		 text);
	return !system(command);
}

static bool server_redis_protect(struct ft_server *s)
{
	char command[128];

	snprintf(command, sizeof(command),
		 "redis-cli -p %d config set requirepass sesame >/dev/null",
		 s->port);
	return !system(command);
}

/* --- te_meta serve -------------------------------------------------------- */

static const char *server_http_missing(void)
{
#if !defined TEI_HAVE_HTTP
	return "built with --disable-http";
#elif !defined TEI_HAVE_MICROHTTPD
	return "built with --disable-serve";
#else
	return NULL;
#endif
}

static bool server_http_start_with(struct ft_server *s, const char *option)
{
	const char *build = getenv("BUILD");
	char program[4096], port[32];
	const char *argv[] = { program, "serve", "--host=127.0.0.1",
			       port,	option,	 NULL };

	snprintf(program, sizeof(program), "%s/bin/te_meta",
		 build ? build : "build");
	snprintf(port, sizeof(port), "--port=%d", s->port);
	snprintf(s->conn, sizeof(s->conn), "http://127.0.0.1:%d/metadata",
		 s->port);
	return !ft_proc_start(&s->proc, (char **)(uintptr_t)argv);
}

static bool server_http_start(struct ft_server *s)
{
	return server_http_start_with(s, NULL);
}

static bool server_http_start_plain(struct ft_server *s)
{
	return server_http_start_with(s, "--plain");
}

static bool server_http_serves(struct ft_server *s)
{
	struct ft_http_answer a;

	return ft_http(s->port, "GET", "/health", NULL, &a) == 200;
}

/* Removes the key before writing it, because the server refuses a write to a
 * key that another process owns. */
static bool server_http_write(struct ft_server *s, const char *key,
			      const char *text)
{
	struct ft_http_answer a;
	char target[256];

	snprintf(target, sizeof(target), "/metadata?key=%s", key);
	ft_http(s->port, "DELETE", target, NULL, &a);
	return ft_http(s->port, "PUT", target, text, &a) == 200;
}

const struct ft_server_kind ft_server_kinds[] = {
	{ .name = "zookeeper",
	  .missing = ft_zk_missing,
	  .start = server_zk_start,
	  .serves = server_zk_serves },
	{ .name = "etcd",
	  .missing = ft_etcd_missing,
	  .start = server_etcd_start,
	  .serves = server_etcd_serves,
	  .write = server_etcd_write,
	  .protect = server_etcd_protect,
	  .password = "MOONRAIL_ETCD_AUTH_FILE",
	  .password_file = true },
	{ .name = "redis",
	  .missing = server_redis_missing,
	  .start = server_redis_start,
	  .serves = server_redis_serves,
	  .write = server_redis_write,
	  .protect = server_redis_protect,
	  .password = "MC_REDIS_PASSWORD" },
	{ .name = "redis_without_events",
	  .missing = server_redis_missing,
	  .start = server_redis_start_silent,
	  .serves = server_redis_serves,
	  .write = server_redis_write,
	  .variant = true },
	{ .name = "http",
	  .missing = server_http_missing,
	  .start = server_http_start,
	  .serves = server_http_serves,
	  .write = server_http_write },
	{ .name = "http_plain",
	  .missing = server_http_missing,
	  .start = server_http_start_plain,
	  .serves = server_http_serves,
	  .write = server_http_write,
	  .only_keys = true,
	  .variant = true },
	{ .name = NULL },
};

/* --- any product ---------------------------------------------------------- */

static bool server_serves(void *arg)
{
	struct ft_server *s = arg;

	return s->kind->serves(s);
}

bool ft_server_restart(struct ft_server *s)
{
	if (s->kind->start(s) &&
	    ft_wait_until(server_serves, s, SERVER_WAIT_MS * ft_load()))
		return true;
	ft_diag("the %s server does not serve clients", s->kind->name);
	return false;
}

bool ft_server_open(struct ft_server *s, const struct ft_server_kind *kind)
{
	memset(s, 0, sizeof(*s));
	s->kind = kind;
	snprintf(s->dir, sizeof(s->dir), "/tmp/ft_server.XXXXXX");
	s->port = ft_port("127.0.0.1");
	if (!s->port || !mkdtemp(s->dir)) {
		s->dir[0] = '\0';
		return false;
	}
	return ft_server_restart(s);
}

static void server_remove(const char *dir)
{
	char command[112];

	snprintf(command, sizeof(command), "rm -rf '%s'", dir);
	if (system(command))
		ft_diag("%s: cannot be removed", dir);
}

bool ft_server_password(struct ft_server *s, const char *password)
{
	char path[96];
	bool good;
	FILE *f;

	if (!password)
		return !unsetenv(s->kind->password);
	if (!s->kind->password_file)
		return !setenv(s->kind->password, password, 1);
	snprintf(path, sizeof(path), "%s/password", s->dir);
	f = fopen(path, "we");
	if (!f)
		return false;
	good = !fchmod(fileno(f), 0600) &&
	       fprintf(f, "root:%s\n", password) > 0;
	return !fclose(f) && good && !setenv(s->kind->password, path, 1);
}

/* Returns the process of a server other than ZooKeeper. */
static struct ft_proc *server_proc(struct ft_server *s)
{
	return s->etcd.count ? &s->etcd.procs[0] : &s->proc;
}

void ft_server_kill(struct ft_server *s)
{
	if (s->zk.count)
		ft_zk_kill(&s->zk, 0);
	else if (server_proc(s)->pid)
		ft_proc_kill(server_proc(s));
}

void ft_server_wipe(struct ft_server *s)
{
	ft_server_kill(s);
	if (s->zk.count)
		ft_zk_wipe(&s->zk, 0);
	if (s->etcd.count)
		ft_etcd_wipe(&s->etcd);
}

void ft_server_close(struct ft_server *s)
{
	ft_server_kill(s);
	if (s->zk.count)
		ft_zk_stop(&s->zk);
	if (s->etcd.count)
		ft_etcd_stop(&s->etcd);
	if (*s->dir)
		server_remove(s->dir);
}

void ft_server_pause(struct ft_server *s)
{
	int status;

	if (s->zk.count) {
		ft_zk_pause(&s->zk, 0);
		return;
	}
	kill(server_proc(s)->pid, SIGSTOP);
	waitpid(server_proc(s)->pid, &status, WUNTRACED);
}

void ft_server_resume(struct ft_server *s)
{
	if (s->zk.count)
		ft_zk_resume(&s->zk, 0);
	else
		kill(server_proc(s)->pid, SIGCONT);
}
