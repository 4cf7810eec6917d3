/* SPDX-License-Identifier: BSD-2-Clause */
#include <netdb.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "meta/meta_int.h"
#include "meta/tei_meta_name.h"
#include "util/clock.h"
#include "util/err.h"
#include "util/thread.h"

#define RESOLVE_POLL_NS (100 * TEI_NS_PER_MS)

/*
 * One name resolution. getaddrinfo has no time limit, so a detached thread
 * calls it. The thread and the caller share this struct; the last one that
 * releases its reference frees the struct.
 */
struct resolve_call {
	/* the following members do not change */
	char host[TEI_META_HOST_MAX];
	char port[8];
	/* guarded by lock */
	pthread_mutex_t lock;
	pthread_cond_t done_cond;
	struct addrinfo *list;
	int rc;
	bool done;
	uint32_t refs;
};

static int resolve_now(const char *host, const char *port, int flags,
		       struct addrinfo **out)
{
	struct addrinfo hints = {
		.ai_flags = flags | AI_NUMERICSERV,
		.ai_family = AF_UNSPEC,
		.ai_socktype = SOCK_STREAM,
	};

	return getaddrinfo(host, port, &hints, out);
}

static void resolve_release(struct resolve_call *c)
{
	bool last;

	pthread_mutex_lock(&c->lock);
	last = !--c->refs;
	pthread_mutex_unlock(&c->lock);
	if (!last)
		return;
	if (c->list)
		freeaddrinfo(c->list);
	pthread_cond_destroy(&c->done_cond);
	pthread_mutex_destroy(&c->lock);
	free(c);
}

static void *resolve_thread(void *arg)
{
	struct resolve_call *c = arg;
	struct addrinfo *list = NULL;
	int rc = resolve_now(c->host, c->port, 0, &list);

	pthread_mutex_lock(&c->lock);
	c->rc = rc;
	c->list = rc ? NULL : list;
	c->done = true;
	pthread_cond_signal(&c->done_cond);
	pthread_mutex_unlock(&c->lock);
	resolve_release(c);
	return NULL;
}

static struct resolve_call *resolve_call_new(const char *host,
					     const char *port)
{
	struct resolve_call *c = calloc(1, sizeof(*c));
	pthread_condattr_t attr;

	if (!c)
		return NULL;
	snprintf(c->host, sizeof(c->host), "%s", host);
	snprintf(c->port, sizeof(c->port), "%s", port);
	pthread_mutex_init(&c->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&c->done_cond, &attr);
	pthread_condattr_destroy(&attr);
	c->refs = 1;
	return c;
}

/* Starts the thread and gives it a reference to the call. */
static bool resolve_spawn(struct resolve_call *c)
{
	pthread_t thread;
	int rc;

	c->refs++;
	rc = tei_thread_start(&thread, true, resolve_thread, c);
	if (rc)
		c->refs--;
	return !rc;
}

/*
 * Returns true if the caller must stop waiting: the deadline has passed, or
 * over(arg) returns true. c->lock must be held; it is released during the call
 * of "over".
 */
static bool resolve_given_up(struct resolve_call *c, uint64_t deadline_ns,
			     bool (*over)(void *arg), void *arg)
{
	bool up;

	pthread_mutex_unlock(&c->lock);
	up = tei_now_ns() >= deadline_ns || (over && over(arg));
	pthread_mutex_lock(&c->lock);
	return up;
}

static int resolve_wait(struct resolve_call *c, uint64_t deadline_ns,
			bool (*over)(void *arg), void *arg,
			struct addrinfo **out)
{
	struct timespec ts;
	uint64_t until;
	int rc;

	pthread_mutex_lock(&c->lock);
	while (!c->done && !resolve_given_up(c, deadline_ns, over, arg) &&
	       !c->done) {
		until = tei_now_ns() + RESOLVE_POLL_NS;
		if (!over || until > deadline_ns)
			until = deadline_ns;
		ts.tv_sec = (time_t)(until / TEI_NS_PER_SEC);
		ts.tv_nsec = (long)(until % TEI_NS_PER_SEC);
		pthread_cond_timedwait(&c->done_cond, &c->lock, &ts);
	}
	rc = c->done ? c->rc : EAI_AGAIN;
	if (!rc) {
		*out = c->list; /* the caller owns the list from now
				 * on */
		c->list = NULL;
	}
	pthread_mutex_unlock(&c->lock);
	return rc;
}

int meta_resolve_unless(const char *host, uint16_t port, uint64_t deadline_ns,
			bool (*over)(void *arg), void *arg,
			struct addrinfo **out, const char **why)
{
	struct resolve_call *c;
	char service[8];
	int rc;

	snprintf(service, sizeof(service), "%u", port);
	if (!resolve_now(host, service, AI_NUMERICHOST, out))
		return 0;
	c = resolve_call_new(host, service);
	if (!c || !resolve_spawn(c)) {
		if (c)
			resolve_release(c);
		*why = "no memory for the resolver";
		return TEI_ERR_MEMORY;
	}
	rc = resolve_wait(c, deadline_ns, over, arg, out);
	resolve_release(c);
	if (rc)
		*why = gai_strerror(rc);
	return rc ? TEI_ERR_DNS : 0;
}

int tei_meta_resolve(const char *host, uint16_t port, uint64_t deadline_ns,
		     struct addrinfo **out, const char **why)
{
	return meta_resolve_unless(host, port, deadline_ns, NULL, NULL, out,
				   why);
}
