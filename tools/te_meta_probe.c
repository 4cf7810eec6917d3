/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "meta/meta_record.h"
#include "meta/tei_meta_name.h"
#include "tools/te_meta_serve.h"
#include "util/thread.h"

/*
 * Tests whether the owner of a name is alive. Mooncake's clients do not renew a
 * registration, and do not remove it if they are killed. So if a process
 * registers a name that is already registered, the name is given to it if no
 * process accepts connections at the address in the older registration.
 */

/* Time limit of a connection to an owner. It must be well below 3 s, the time
 * for which Mooncake's clients wait for the answer to their request. */
#define PROBE_NS TEI_NS_PER_SEC

struct probe {
	struct serve_request *request;
	int answers; /* write end of the pipe serve.answers */
	bool alive;  /* result of the probe: true if the owner accepts
		      * connections */
	char endpoint[TEI_META_ENDPOINT_MAX];
};

/* Returns true if the address accepts a connection before until_ns. */
static bool probe_connect(const struct addrinfo *a, uint64_t until_ns)
{
	struct pollfd p = { .events = POLLOUT };
	socklen_t len = sizeof(int);
	bool alive = false;
	int error = 0;

	p.fd = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC,
		      0);
	if (p.fd < 0)
		return true;		/* if no socket can be created, the
					 * owner must be taken to be alive */
	if (!connect(p.fd, a->ai_addr, a->ai_addrlen))
		alive = true;
	else if (errno == EINPROGRESS &&
		 poll(&p, 1, (int)(tei_ns_left(until_ns) / TEI_NS_PER_MS)) > 0)
		alive = !getsockopt(p.fd, SOL_SOCKET, SO_ERROR, &error, &len) &&
			!error;
	close(p.fd);
	return alive;
}

static bool probe_alive(const char *endpoint)
{
	uint64_t until = tei_now_ns() + PROBE_NS;
	char host[TEI_META_HOST_MAX];
	struct addrinfo *all, *a;
	const char *why;
	bool alive = false;
	uint16_t port;

	if (tei_meta_split(endpoint, host, &port) || !port ||
	    tei_meta_resolve(host, port, until, &all, &why))
		return false;
	for (a = all; a && !alive && tei_ns_left(until); a = a->ai_next)
		alive = probe_connect(a, until);
	freeaddrinfo(all);
	return alive;
}

static void *probe_main(void *arg)
{
	struct probe *p = arg;
	ssize_t n;

	p->alive = probe_alive(p->endpoint);
	do
		n = write(p->answers, &p, sizeof(p));
	while (n < 0 && errno == EINTR);
	return NULL;
}

bool serve_probe(struct serve_request *r, const struct table_key *record)
{
	struct serve *s = r->serve;
	struct probe *p = calloc(1, sizeof(*p));
	pthread_t thread;
	uint64_t inc;

	r->probed = r->owner_alive = true;
	r->owner_version = record->version;
	if (!p)
		return false;
	if (!meta_rpc_decode(record->text, record->len, p->endpoint, &inc)) {
		r->owner_alive = false;
		free(p);
		return false;
	}
	p->request = r;
	p->answers = s->answers[1];
	if (s->probes >= SERVE_PROBES_MAX ||
	    tei_thread_start(&thread, true, probe_main, p)) {
		free(p);
		return false;
	}
	s->probes++;
	serve_suspend(r);
	return true;
}

void serve_probes_run(struct serve *s)
{
	struct probe *p;

	/* the pipe is non-blocking, so the loop ends when it is empty; a
	 * pointer is written atomically, so a read returns all of it */
	while (read(s->answers[0], &p, sizeof(p)) == sizeof(p)) {
		p->request->owner_alive = p->alive;
		serve_resume(p->request);
		s->probes--;
		free(p);
	}
}
