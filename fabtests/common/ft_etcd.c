/* SPDX-License-Identifier: BSD-2-Clause */
#include "fabtests/common/ft_etcd.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fabtests/common/ft_port.h"
#include "fabtests/common/ft_test.h"

#define ETCD_WAIT_MS 60000
#define ETCD_ANSWER  8192

const char *ft_etcd_missing(void)
{
#ifndef TEI_HAVE_ETCD
	return "built with --disable-etcd";
#endif
	return system("command -v etcd >/dev/null") ? "no etcd server" : NULL;
}

/* --- the gateway ---------------------------------------------------------- */

static int etcd_exchange(int fd, const char *request, char *answer, size_t len)
{
	size_t used = 0;
	char *body;
	ssize_t n;

	if (send(fd, request, strlen(request), MSG_NOSIGNAL) < 0)
		return 0;
	while (used + 1 < len &&
	       (n = recv(fd, answer + used, len - 1 - used, 0)) > 0)
		used += (size_t)n;
	answer[used] = '\0';
	body = strstr(answer, "\r\n\r\n");
	if (!body || strncmp(answer, "HTTP/1.", 7) != 0)
		return 0;
	n = atoi(answer + 9);
	memmove(answer, body + 4, strlen(body + 4) + 1);
	return (int)n;
}

int ft_etcd_post(struct ft_etcd *etcd, int member, const char *path,
		 const char *json, char *answer, size_t len)
{
	char *request;
	int fd, status = 0;

	answer[0] = '\0';
	fd = ft_port_socket("127.0.0.1", etcd->client[member], false);
	if (fd < 0)
		return 0;
	if (asprintf(&request,
		     "POST /v3%s HTTP/1.0\r\nContent-Length: %zu"
		     "\r\n\r\n%s",
		     path, strlen(json), json) >= 0) {
		status = etcd_exchange(fd, request, answer, len);
		free(request);
	}
	close(fd);
	return status;
}

static void etcd_base64(const char *text, char *out)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
				     "abcdefghijklmnopqrstuvwxyz0123456789+/";
	const unsigned char *t = (const unsigned char *)text;
	size_t len = strlen(text), i;
	unsigned int v;

	for (i = 0; i < len; i += 3) {
		v = (unsigned int)t[i] << 16;
		v |= i + 1 < len ? (unsigned int)t[i + 1] << 8 : 0;
		v |= i + 2 < len ? t[i + 2] : 0;
		*out++ = digits[v >> 18];
		*out++ = digits[v >> 12 & 63];
		*out++ = i + 1 < len ? digits[v >> 6 & 63] : '=';
		*out++ = i + 2 < len ? digits[v & 63] : '=';
	}
	*out = '\0';
}

bool ft_etcd_put(struct ft_etcd *etcd, const char *key, const char *text)
{
	char k[512], v[512], json[1100], answer[ETCD_ANSWER];

	etcd_base64(key, k);
	etcd_base64(text, v);
	snprintf(json, sizeof(json), "{\"key\":\"%s\",\"value\":\"%s\"}", k, v);
	return ft_etcd_post(etcd, 0, "/kv/put", json, answer, sizeof(answer)) ==
	       200;
}

bool ft_etcd_protect(struct ft_etcd *etcd)
{
	static const char *const calls[][2] = {
		{ "/auth/user/add",
		  "{\"name\":\"root\",\"password\":\"sesame\"}" },
		{ "/auth/role/add", "{\"name\":\"root\"}" },
		{ "/auth/user/grant", "{\"user\":\"root\",\"role\":\"root\"}" },
		{ "/auth/enable", "{}" },
	};
	char answer[ETCD_ANSWER];
	size_t i;

	for (i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
		if (ft_etcd_post(etcd, 0, calls[i][0], calls[i][1], answer,
				 sizeof(answer)) != 200) {
			ft_diag("%s: %s", calls[i][0], answer);
			return false;
		}
	return true;
}

/* Copies the text after `name` in a JSON answer, up to the next quotation mark,
 * to `out`. Returns false if the answer does not contain it. */
static bool etcd_member_text(const char *answer, const char *name, char *out,
			     size_t len)
{
	const char *at = strstr(answer, name);

	out[0] = '\0';
	if (!at)
		return false;
	at += strlen(name);
	snprintf(out, len, "%.*s", (int)strcspn(at, "\""), at);
	return true;
}

int ft_etcd_leader(struct ft_etcd *etcd)
{
	char answer[ETCD_ANSWER], own[32], leader[32];
	int i;

	for (i = 0; i < etcd->count; i++)
		if (etcd->procs[i].pid &&
		    ft_etcd_post(etcd, i, "/maintenance/status", "{}", answer,
				 sizeof(answer)) == 200 &&
		    etcd_member_text(answer, "\"member_id\":\"", own,
				     sizeof(own)) &&
		    etcd_member_text(answer, "\"leader\":\"", leader,
				     sizeof(leader)) &&
		    !strcmp(own, leader))
			return i;
	return -1;
}

/* --- members -------------------------------------------------------------- */

static bool etcd_certificates(struct ft_etcd *etcd)
{
	char command[1024];

	snprintf(
		command, sizeof(command),
		"cd '%s' && { openssl req -x509 -newkey rsa:2048 -nodes -days 2"
		" -subj /CN=test-authority -keyout ca.key -out ca.pem &&"
		" openssl req -x509 -newkey rsa:2048 -nodes -days 2"
		" -subj /CN=other-authority -keyout other.key -out other.pem &&"
		" openssl req -newkey rsa:2048 -nodes -subj /CN=127.0.0.1"
		" -keyout key.pem -out cert.csr &&"
		" echo subjectAltName=IP:127.0.0.1 >san &&"
		" openssl x509 -req -in cert.csr -CA ca.pem -CAkey ca.key"
		" -CAcreateserial -days 2 -extfile san -out cert.pem; }"
		" >/dev/null 2>&1",
		etcd->dir);
	return !system(command);
}

bool ft_etcd_restart(struct ft_etcd *etcd, int member)
{
	char name[8], data[96], log[96], own[128], peer[64], all[256] = "";
	char ca[96], cert[96], key[96];
	const char *argv[] = { "etcd",
			       "--name",
			       name,
			       "--data-dir",
			       data,
			       "--logger=zap",
			       "--log-outputs",
			       log,
			       "--listen-client-urls",
			       own,
			       "--advertise-client-urls",
			       own,
			       "--listen-peer-urls",
			       peer,
			       "--initial-advertise-peer-urls",
			       peer,
			       "--initial-cluster",
			       all,
			       "--unsafe-no-fsync",
			       "--heartbeat-interval=50",
			       "--election-timeout=500",
			       NULL,
			       NULL,
			       NULL,
			       NULL,
			       NULL,
			       NULL,
			       NULL,
			       NULL };
	size_t n = 0, i;

	snprintf(name, sizeof(name), "m%d", member);
	snprintf(data, sizeof(data), "%s/%s", etcd->dir, name);
	snprintf(log, sizeof(log), "%s/%s.log", etcd->dir, name);
	i = (size_t)snprintf(own, sizeof(own), "http://127.0.0.1:%d",
			     etcd->client[member]);
	if (etcd->tls_port && !member)
		snprintf(own + i, sizeof(own) - i, ",https://127.0.0.1:%d",
			 etcd->tls_port);
	snprintf(peer, sizeof(peer), "http://127.0.0.1:%d", etcd->peer[member]);
	for (i = 0; i < (size_t)etcd->count; i++)
		n += (size_t)snprintf(all + n, sizeof(all) - n,
				      "%sm%zu=http://127.0.0.1:%d",
				      i ? "," : "", i, etcd->peer[i]);
	snprintf(ca, sizeof(ca), "%s/ca.pem", etcd->dir);
	snprintf(cert, sizeof(cert), "%s/cert.pem", etcd->dir);
	snprintf(key, sizeof(key), "%s/key.pem", etcd->dir);
	for (i = 0; argv[i]; i++)
		;
	if (etcd->tls_port && !member) {
		argv[i++] = "--cert-file";
		argv[i++] = cert;
		argv[i++] = "--key-file";
		argv[i++] = key;
		argv[i++] = "--trusted-ca-file";
		argv[i] = ca;
	}
	if (!ft_proc_start(&etcd->procs[member], (char **)(uintptr_t)argv))
		return true;
	memset(&etcd->procs[member], 0, sizeof(etcd->procs[member]));
	return false;
}

bool ft_etcd_start(struct ft_etcd *etcd, int count, bool tls)
{
	size_t n = 0;
	int i;

	memset(etcd, 0, sizeof(*etcd));
	snprintf(etcd->dir, sizeof(etcd->dir), "/tmp/ft_etcd.XXXXXX");
	if (!mkdtemp(etcd->dir)) {
		etcd->dir[0] = '\0';
		return false;
	}
	etcd->count = count;
	for (i = 0; i < count; i++) {
		etcd->client[i] = ft_port("127.0.0.1");
		etcd->peer[i] = ft_port("127.0.0.1");
		n += (size_t)snprintf(etcd->hosts + n, sizeof(etcd->hosts) - n,
				      "%s127.0.0.1:%d", i ? "," : "",
				      etcd->client[i]);
	}
	if (tls) {
		etcd->tls_port = ft_port("127.0.0.1");
		if (!etcd_certificates(etcd))
			return false;
	}
	for (i = 0; i < count; i++)
		if (!ft_etcd_restart(etcd, i))
			return false;
	return true;
}

struct etcd_waiting {
	struct ft_etcd *etcd;
	int member;
};

static bool etcd_serves(void *arg)
{
	struct etcd_waiting *w = arg;
	char answer[ETCD_ANSWER];

	return ft_etcd_post(w->etcd, w->member, "/kv/range",
			    "{\"key\":\"eA==\"}", answer,
			    sizeof(answer)) == 200 ||
	       strstr(answer, "user name is empty");
}

bool ft_etcd_wait(struct ft_etcd *etcd, int member)
{
	struct etcd_waiting w = { etcd, member };

	return ft_wait_until(etcd_serves, &w, ETCD_WAIT_MS * ft_load());
}

void ft_etcd_kill(struct ft_etcd *etcd, int member)
{
	if (etcd->procs[member].pid)
		ft_proc_kill(&etcd->procs[member]);
}

static void etcd_remove(struct ft_etcd *etcd, const char *what)
{
	char command[112];
	int i;

	for (i = 0; i < etcd->count; i++)
		ft_etcd_kill(etcd, i);
	snprintf(command, sizeof(command), "rm -rf '%s'%s", etcd->dir, what);
	if (*etcd->dir && system(command))
		ft_diag("%s: cannot be removed", etcd->dir);
}

void ft_etcd_wipe(struct ft_etcd *etcd)
{
	etcd_remove(etcd, "/m?");
}

void ft_etcd_stop(struct ft_etcd *etcd)
{
	etcd_remove(etcd, "");
	etcd->count = 0;
}
