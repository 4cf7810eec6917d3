/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "meta/meta_server_int.h"
#include "meta/tei_meta_desc.h"
#include "meta/tei_meta_name.h"
#include "meta/tei_meta_server.h"
#include "util/clock.h"
#include "util/err.h"
#include "util/hint.h"
#include "util/settings.h"
#include "util/thread.h"

/*
 * The server has one thread and one epoll set. The set contains the listeners,
 * the eventfd that wakes the thread, and the sockets of the clients. The thread
 * sleeps in epoll_wait until the next deadline of a client or the next release
 * of a throttled client; if there is none, without a time limit.
 *
 * A network interface can get its address, or another address, after the server
 * was started. Other hosts may then be unable to reach the address that the
 * server was bound to. tei_meta_server_move therefore adds a second listener.
 * The first listener stays open, because clients may know its address. Only the
 * thread accepts connections and closes listeners: tei_meta_server_move puts
 * the new listener into the epoll set and into next_fd, and the thread replaces
 * the listener of an earlier move by it.
 *
 * Teardown: tei_meta_server_stop sets the member "stopping" and wakes the
 * thread. The thread closes the connections and ends. tei_meta_server_stop
 * joins the thread and frees the rest.
 */

#define SERVER_EVENTS	64
/* greatest number of connections that are accepted for one event of a
 * listener */
#define SERVER_ACCEPTS 16
/* pause of accepting connections if the process has no free file descriptor */
#define SERVER_PAUSE_NS (100 * TEI_NS_PER_MS)
#define SERVER_TIMEOUT	(5 * TEI_NS_PER_SEC)
#define SERVER_CLIENTS	1024
/* time for which the server sends the same statistics without calling the
 * report function again */
#define SERVER_REPORT_NS (100 * TEI_NS_PER_MS)

/* --- snapshots ----------------------------------------------------------- */

void meta_snapshot_unref(struct meta_snapshot *s)
{
	if (__atomic_sub_fetch(&s->refs, 1, __ATOMIC_ACQ_REL))
		return;
	free(s->name);
	free(s->json);
	free(s);
}

struct meta_snapshot *meta_snapshot_new(const char *name, const char *json,
					size_t len, bool digest)
{
	struct meta_snapshot *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->refs = 1;
	tei_list_init(&s->link);
	s->name = strdup(name);
	s->json = malloc(len + 1);
	s->len = len;
	if (!s->name || !s->json) {
		meta_snapshot_unref(s);
		return NULL;
	}
	memcpy(s->json, json, len);
	s->json[len] = 0;
	if (digest)
		tei_digest(json, len, s->digest);
	return s;
}

static struct meta_snapshot *snapshot_named(struct tei_meta_server *server,
					    const char *name, size_t len)
	TEI_REQUIRES(server->lock)
{
	struct meta_snapshot *s;

	tei_list_foreach(s, &server->snapshots, struct meta_snapshot, link)
		if (strlen(s->name) == len && !memcmp(s->name, name, len))
			return s;
	return NULL;
}

/* --- the source ---------------------------------------------------------- */

static void server_forget_source(struct tei_meta_server *server)
	TEI_REQUIRES(server->source.lock)
{
	if (server->source.text)
		meta_snapshot_unref(server->source.text);
	tei_meta_desc_unref(server->source.desc);
	server->source.text = NULL;
	server->source.desc = NULL;
}

void tei_meta_server_source(struct tei_meta_server *server, const char *name,
			    tei_meta_source_fn fn, void *arg)
{
	char *copy = fn ? strdup(name) : NULL;

	tei_mutex_lock(&server->source.lock);
	server_forget_source(server);
	free(server->source.name);
	server->source.name = copy;
	server->source.fn = copy ? fn : NULL;
	server->source.arg = arg;
	tei_mutex_unlock(&server->source.lock);
}

/* Calls the function of the source. If the returned descriptor is not the
 * previous one, encodes its JSON text. */
static void server_read_source(struct tei_meta_server *server)
	TEI_REQUIRES(server->source.lock)
{
	struct tei_meta_desc *desc = server->source.fn(server->source.arg);
	char *json;
	size_t len;

	if (desc && desc == server->source.desc && server->source.text) {
		tei_meta_desc_unref(desc);
		return;
	}
	server_forget_source(server);
	server->source.desc = desc; /* the server now owns the reference */
	if (!desc || tei_meta_desc_encode(desc, &json, &len, NULL))
		return;
	server->source.text = meta_snapshot_new(server->source.name, json, len,
						server->config.secret != NULL);
	free(json);
}

/* Returns the text of the source with one more reference. Returns NULL if there
 * is no source, or if its name is another one and "any" is false. */
static struct meta_snapshot *server_source(struct tei_meta_server *server,
					   const char *name, size_t len,
					   bool any)
{
	struct meta_snapshot *s = NULL;

	tei_mutex_lock(&server->source.lock);
	if (server->source.fn &&
	    (any || (strlen(server->source.name) == len &&
		     !memcmp(server->source.name, name, len)))) {
		server_read_source(server);
		s = server->source.text;
	}
	if (s)
		__atomic_fetch_add(&s->refs, 1, __ATOMIC_RELAXED);
	tei_mutex_unlock(&server->source.lock);
	return s;
}

struct meta_snapshot *meta_server_find(struct tei_meta_server *server,
				       const char *name, size_t len, bool any)
{
	struct meta_snapshot *s = server_source(server, name, len, any);

	if (s)
		return s;
	tei_mutex_lock(&server->lock);
	s = snapshot_named(server, name, len);
	if (!s && any && !tei_list_empty(&server->snapshots))
		s = tei_list_first(&server->snapshots, struct meta_snapshot,
				   link);
	if (s)
		__atomic_fetch_add(&s->refs, 1, __ATOMIC_RELAXED);
	tei_mutex_unlock(&server->lock);
	return s;
}

int tei_meta_server_publish(struct tei_meta_server *server, const char *name,
			    const char *json, size_t len, struct tei_err *err)
{
	struct meta_snapshot *s, *old;

	if (!name || !*name || strlen(name) >= TEI_META_NAME_MAX ||
	    len > TEI_META_TEXT_MAX)
		return tei_err_fail(err, TEI_ERR_INVALID, "meta", NULL,
				    "cannot publish '%.64s', %zu bytes: the "
				    "name has 1 to %d bytes, the text at most "
				    "%u", name ? name : "", len,
				    TEI_META_NAME_MAX - 1, TEI_META_TEXT_MAX);
	s = meta_snapshot_new(name, json, len, server->config.secret != NULL);
	if (!s)
		return tei_err_fail(err, TEI_ERR_MEMORY, "meta", NULL,
				    "segment '%.64s': out of memory", name);
	tei_mutex_lock(&server->lock);
	old = snapshot_named(server, name, strlen(name));
	if (old) {
		tei_list_insert_after(&old->link, &s->link);
		tei_list_del(&old->link);
	} else {
		tei_list_add_tail(&server->snapshots, &s->link);
	}
	tei_mutex_unlock(&server->lock);
	if (old)
		meta_snapshot_unref(old);
	return 0;
}

/* If the source has the given name, removes the source and returns true. */
static bool server_drop_source(struct tei_meta_server *server,
			       const char *name)
{
	bool had;

	tei_mutex_lock(&server->source.lock);
	had = server->source.fn && !strcmp(server->source.name, name);
	if (had) {
		server_forget_source(server);
		server->source.fn = NULL;
	}
	tei_mutex_unlock(&server->source.lock);
	return had;
}

int tei_meta_server_withdraw(struct tei_meta_server *server, const char *name)
{
	struct meta_snapshot *s;

	if (server_drop_source(server, name))
		return 0;
	tei_mutex_lock(&server->lock);
	s = snapshot_named(server, name, strlen(name));
	if (s)
		tei_list_del(&s->link);
	tei_mutex_unlock(&server->lock);
	if (!s)
		return TEI_ERR_METADATA;
	meta_snapshot_unref(s);
	return 0;
}

/* --- reports ------------------------------------------------------------- */

static void server_forget_report(struct tei_meta_server *server)
	TEI_REQUIRES(server->report.lock)
{
	if (server->report.last)
		meta_snapshot_unref(server->report.last);
	server->report.last = NULL;
	server->report.next_ns = 0;
}

void tei_meta_server_report(struct tei_meta_server *server,
			    tei_meta_report_fn fn, void *arg)
{
	tei_mutex_lock(&server->report.lock);
	server->report.fn = fn;
	server->report.arg = arg;
	server_forget_report(server);
	tei_mutex_unlock(&server->report.lock);
}

static void server_make_report(struct tei_meta_server *server)
	TEI_REQUIRES(server->report.lock)
{
	char *json = server->report.fn(server->report.arg);

	server_forget_report(server);
	if (json && strlen(json) <= TEI_META_TEXT_MAX)
		server->report.last = meta_snapshot_new(
			"", json, strlen(json), server->config.secret != NULL);
	free(json);
	server->report.next_ns = tei_now_ns() + SERVER_REPORT_NS;
}

/*
 * Returns the statistics with a reference for the caller. They may be up to
 * SERVER_REPORT_NS old, because computing them for each of many requests would
 * delay other clients.
 */
struct meta_snapshot *meta_server_report(struct tei_meta_server *server)
{
	struct meta_snapshot *s;

	tei_mutex_lock(&server->report.lock);
	if (server->report.fn && tei_now_ns() >= server->report.next_ns)
		server_make_report(server);
	s = server->report.last;
	if (s)
		__atomic_fetch_add(&s->refs, 1, __ATOMIC_RELAXED);
	tei_mutex_unlock(&server->report.lock);
	return s;
}

/* --- the thread ---------------------------------------------------------- */

static void server_listen(struct tei_meta_server *s, bool on)
{
	struct epoll_event ev = { .events = on ? EPOLLIN : 0 };
	int i;

	for (i = 0; i < META_LISTENERS; i++) {
		ev.data.ptr = &s->listener[i];
		if (s->listener[i] >= 0)
			epoll_ctl(s->epoll_fd, EPOLL_CTL_MOD, s->listener[i],
				  &ev);
	}
}

/* Handles a failure of accept for lack of a free file descriptor: drops a
 * client and pauses. */
static void server_starved(struct tei_meta_server *s, uint64_t now_ns)
{
	const char *hint = tei_hint(TEI_HINT_OBJECT, errno);

	TEI_LOG_LIMITED(&s->log.request, TEI_LOG_WARN, "meta",
			"control channel %s cannot accept: %s%s%s",
			tei_meta_server_address(s), strerror(errno),
			hint ? "; " : "", hint ? hint : "");
	meta_conn_evict(s, NULL);
	server_listen(s, false);
	s->resume_ns = now_ns + SERVER_PAUSE_NS;
}

static void server_admit(struct tei_meta_server *s, int fd,
			 const struct sockaddr *peer, uint64_t now_ns)
{
	if (s->clients >= s->config.max_clients && !meta_conn_evict(s, NULL))
		meta_conn_turn_away(s, fd, peer, now_ns);
	else
		meta_conn_add(s, fd, peer, now_ns);
}

/*
 * Accepts connections. accept can fail for lack of file descriptors even if no
 * connection is waiting. Therefore such a failure is handled only in the first
 * call after epoll has reported a connection.
 */
static void server_accept(struct tei_meta_server *s, int listener,
			  uint64_t now_ns)
{
	struct sockaddr_storage ss;
	socklen_t len;
	int i, fd;

	for (i = 0; i < SERVER_ACCEPTS; i++) {
		len = sizeof(ss);
		fd = accept4(listener, (struct sockaddr *)&ss, &len,
			     SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd >= 0) {
			server_admit(s, fd, (struct sockaddr *)&ss, now_ns);
			continue;
		}
		if (!i && (errno == EMFILE || errno == ENFILE ||
			   errno == ENOBUFS || errno == ENOMEM))
			server_starved(s, now_ns);
		return;
	}
}

/* Returns the time limit of the next epoll_wait, ms, rounded up: the time until
 * a connection reaches its deadline, a client above its rate may continue, or
 * the server accepts connections again. Returns -1 if nothing of this is due. */
static int server_timeout(const struct tei_meta_server *s)
{
	uint64_t due = s->next_due_ns, now, ms;

	if (s->rate.due_ns && (!due || s->rate.due_ns < due))
		due = s->rate.due_ns;
	if (s->resume_ns && (!due || s->resume_ns < due))
		due = s->resume_ns;
	if (!due)
		return -1;
	now = tei_now_ns();
	if (due <= now)
		return 0;
	ms = (due - now + TEI_NS_PER_MS - 1) / TEI_NS_PER_MS;
	return ms < INT_MAX ? (int)ms : INT_MAX;
}

/* Handles an event of the eventfd. If tei_meta_server_move has added a
 * listener, makes that socket listener[1] and closes the previous one. */
static void server_woken(struct tei_meta_server *s)
{
	uint64_t times;
	ssize_t n = read(s->wake_fd, &times, sizeof(times));
	int fd = __atomic_exchange_n(&s->next_fd, -1, __ATOMIC_ACQ_REL);

	(void)n;
	if (fd < 0)
		return;
	if (s->listener[1] >= 0)
		close(s->listener[1]);
	s->listener[1] = fd;
	meta_rate_limit_cover(s, fd);
}

static void server_timers(struct tei_meta_server *s, uint64_t now_ns)
{
	if (s->next_due_ns && now_ns >= s->next_due_ns)
		meta_conn_expire(s, now_ns);
	if (tei_list_empty(&s->rate.waiting) && !s->rate.blocked_count)
		s->rate.due_ns = 0;
	else if (now_ns >= s->rate.due_ns)
		s->rate.due_ns = meta_rate_limit_release(s, now_ns);
	if (s->resume_ns && now_ns >= s->resume_ns) {
		s->resume_ns = 0;
		server_listen(s, true);
	}
}

static void server_round(struct tei_meta_server *s,
			 const struct epoll_event *events, int count)
{
	bool accepts[META_LISTENERS] = { false };
	uint64_t now = tei_now_ns();
	int i;

	for (i = 0; i < count; i++) {
		if (events[i].data.ptr == &s->listener[0])
			accepts[0] = true;
		else if (events[i].data.ptr == &s->listener[1])
			accepts[1] = true;
		else if (events[i].data.ptr == &s->wake_fd)
			server_woken(s);
		else
			meta_conn_event(s, events[i].data.ptr,
					events[i].events, now);
	}
	for (i = 0; i < META_LISTENERS; i++)
		if (accepts[i])
			server_accept(s, s->listener[i], now);
	server_timers(s, now);
	meta_conn_reap(s);
}

static void *server_thread(void *arg)
{
	struct tei_meta_server *s = arg;
	struct epoll_event events[SERVER_EVENTS];
	int n;

	pthread_setname_np(pthread_self(), "moonrail-meta");
	while (!__atomic_load_n(&s->stopping, __ATOMIC_ACQUIRE)) {
		n = epoll_wait(s->epoll_fd, events, SERVER_EVENTS,
			       server_timeout(s));
		server_round(s, events, n < 0 ? 0 : n);
	}
	meta_conn_drop_all(s);
	return NULL;
}

/* --- start and stop ------------------------------------------------------ */

void tei_meta_server_defaults(const struct tei_settings *settings,
			      const char *host, uint64_t incarnation,
			      struct tei_meta_server_config *out)
{
	memset(out, 0, sizeof(*out));
	out->host = host;
	out->min_port = (uint16_t)settings->control.min_port;
	out->max_port = (uint16_t)settings->control.max_port;
	out->incarnation = incarnation;
	out->frame_timeout_ns =
		settings->control.connect_timeout_s * TEI_NS_PER_SEC;
	out->max_clients = settings->control.max_clients;
	out->client_rate = settings->control.client_rate;
	out->ipv6 = settings->control.use_ipv6;
	out->backlog = settings->control.listen_backlog;
}

static struct tei_meta_server *
server_new(const struct tei_meta_server_config *config)
{
	struct tei_meta_server *s = calloc(1, sizeof(*s));
	int i;

	if (!s)
		return NULL;
	s->config = *config;
	if (config->secret)
		meta_auth_key(config->secret, &s->auth);
	if (!s->config.frame_timeout_ns)
		s->config.frame_timeout_ns = SERVER_TIMEOUT;
	if (!s->config.max_clients)
		s->config.max_clients = SERVER_CLIENTS;
	for (i = 0; i < META_LISTENERS; i++)
		s->listener[i] = -1;
	s->next_fd = -1;
	s->epoll_fd = -1;
	s->wake_fd = -1;
	tei_mutex_init(&s->lock);
	tei_mutex_init(&s->report.lock);
	tei_mutex_init(&s->source.lock);
	tei_list_init(&s->snapshots);
	tei_list_init(&s->conns);
	tei_list_init(&s->dead);
	meta_rate_limit_init(s);
	return s;
}

static void server_close(int fd)
{
	if (fd >= 0)
		close(fd);
}

static void server_free(struct tei_meta_server *s) TEI_NO_TSA
{
	struct meta_snapshot *snap, *tmp;
	struct meta_bound *b;
	int i;

	tei_list_foreach_safe(snap, tmp, &s->snapshots, struct meta_snapshot,
			      link)
		meta_snapshot_unref(snap);
	server_forget_report(s);
	server_forget_source(s);
	free(s->source.name);
	for (i = 0; i < META_LISTENERS; i++)
		server_close(s->listener[i]);
	server_close(s->next_fd);
	server_close(s->epoll_fd);
	server_close(s->wake_fd);
	while ((b = s->all)) {
		s->all = b->next;
		free(b);
	}
	meta_rate_limit_fini(s);
	tei_wipe(&s->auth, sizeof(s->auth));
	tei_mutex_fini(&s->report.lock);
	tei_mutex_fini(&s->source.lock);
	tei_mutex_fini(&s->lock);
	free(s);
}

/* Adds fd to the epoll set. key identifies the events of fd. */
static int server_watch(struct tei_meta_server *s, int fd, int *key)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.ptr = key };

	return epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, fd, &ev);
}

/*
 * Binds config->host and the given port, or another port of the range. Adds the
 * bound address at the head of s->all. Returns the listening socket, or a
 * negative error code.
 */
static int server_bind(struct tei_meta_server *s,
		       const struct tei_meta_server_config *config,
		       uint16_t port, struct tei_err *err)
{
	struct meta_bound *b = calloc(1, sizeof(*b));
	int fd;

	if (!b)
		return tei_err_fail(err, TEI_ERR_MEMORY, "meta", NULL,
				    "out of memory for the control channel");
	fd = meta_server_bind(config, port, b, err);
	if (fd < 0) {
		free(b);
		return fd;
	}
	b->next = s->all;
	s->all = b;
	return fd;
}

static void server_wake(struct tei_meta_server *s)
{
	const uint64_t one = 1;
	ssize_t n = write(s->wake_fd, &one, sizeof(one));

	(void)n;
}

/* Gives the server an address at which no socket listens. */
static int server_start_unbound(struct tei_meta_server *s, struct tei_err *err)
{
	struct meta_bound *b = calloc(1, sizeof(*b));

	if (!b)
		return tei_err_fail(err, TEI_ERR_MEMORY, "meta", NULL,
				    "out of memory for the control channel");
	snprintf(b->host, sizeof(b->host), "%s", s->config.host);
	tei_meta_join(b->host, 0, b->name);
	tei_meta_join(b->host, 0, b->address);
	s->all = s->first = s->bound = b;
	s->config.host = b->host;
	return 0;
}

int tei_meta_server_start(const struct tei_meta_server_config *config,
			  struct tei_meta_server **out, struct tei_err *err)
{
	struct tei_meta_server *s;
	int rc;

	if (!config->host || !*config->host ||
	    config->min_port > config->max_port)
		return tei_err_fail(err, TEI_ERR_INVALID, "meta", NULL,
				    "control channel: the host is empty, or the first port %u is above the last port %u",
				    config->min_port, config->max_port);
	s = server_new(config);
	if (!s)
		return tei_err_fail(err, TEI_ERR_MEMORY, "meta", NULL,
				    "out of memory for the control channel");
	if (config->unbound) {
		rc = server_start_unbound(s, err);
		if (rc)
			goto err_free;
		*out = s;
		return 0;
	}
	rc = server_bind(s, &s->config, 0, err);
	if (rc < 0)
		goto err_free;
	s->listener[0] = rc;
	s->first = s->bound = s->all;
	/* the configuration must not refer to the caller's text */
	s->config.host = s->first->host;
	s->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	s->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (s->epoll_fd < 0 || s->wake_fd < 0 ||
	    server_watch(s, s->listener[0], &s->listener[0]) ||
	    server_watch(s, s->wake_fd, &s->wake_fd) ||
	    (errno = tei_thread_start(&s->thread, false, server_thread, s))) {
		rc = tei_err_fail(err, TEI_ERR_SOCKET, "meta",
				  tei_hint(errno == EAGAIN ? TEI_HINT_THREAD :
							     TEI_HINT_OBJECT,
					   errno),
				  "control channel %s: %s", tei_meta_server_address(s),
				  strerror(errno));
		goto err_free;
	}
	TEI_INFO("meta", "control channel listens on %s", tei_meta_server_address(s));
	*out = s;
	return 0;
err_free:
	server_free(s);
	return rc;
}

static struct meta_bound *server_bound(const struct tei_meta_server *s)
{
	return __atomic_load_n(&s->bound, __ATOMIC_ACQUIRE);
}

/* Returns the entry of the address "host" if a listener is bound to it,
 * otherwise NULL. */
static struct meta_bound *server_bound_at(const struct tei_meta_server *s,
					  const char *host)
{
	if (!strcmp(s->first->host, host))
		return s->first;
	return s->last && !strcmp(s->last->host, host) ? s->last : NULL;
}

int tei_meta_server_move(struct tei_meta_server *s, const char *host,
			 struct tei_err *err)
{
	struct tei_meta_server_config config = s->config;
	struct meta_bound *was = server_bound(s);
	struct meta_bound *b = server_bound_at(s, host);
	int fd, rc;

	if (b == was)
		return 0;
	if (!b) {
		config.host = host;
		fd = server_bind(s, &config, was->port, err);
		if (fd < 0)
			return fd;
		if (server_watch(s, fd, &s->listener[1])) {
			rc = errno;
			close(fd);
			return tei_err_fail(err, TEI_ERR_SOCKET, "meta",
					    tei_hint(TEI_HINT_OBJECT, rc),
					    "control channel %s: %s",
					    s->all->address, strerror(rc));
		}
		b = s->last = s->all;
		/* if the thread has not taken over the listener of an earlier
		 * move yet, that listener is closed here */
		server_close(__atomic_exchange_n(&s->next_fd, fd,
						 __ATOMIC_ACQ_REL));
		server_wake(s);
	}
	__atomic_store_n(&s->bound, b, __ATOMIC_RELEASE);
	TEI_INFO("meta", "control channel listens on %s, no longer published on %s",
		 b->address, was->address);
	return 0;
}

void tei_meta_server_stop(struct tei_meta_server *s)
{
	if (!s)
		return;
	if (!s->config.unbound) {
		__atomic_store_n(&s->stopping, true, __ATOMIC_RELEASE);
		server_wake(s);
		tei_thread_join(s->thread);
	}
	server_free(s);
}

/* --- properties ---------------------------------------------------------- */

const char *tei_meta_server_name(const struct tei_meta_server *s)
{
	return server_bound(s)->name;
}

const char *tei_meta_server_address(const struct tei_meta_server *s)
{
	return server_bound(s)->address;
}

const char *tei_meta_server_host(const struct tei_meta_server *s)
{
	return server_bound(s)->host;
}

uint16_t tei_meta_server_port(const struct tei_meta_server *s)
{
	return server_bound(s)->port;
}

uint64_t tei_meta_server_incarnation(const struct tei_meta_server *s)
{
	return s->config.incarnation;
}

void tei_meta_server_stats(struct tei_meta_server *s,
			   struct tei_meta_server_stats *out)
{
	struct tei_meta_server_stats *from = &s->stats;

	out->accepted = __atomic_load_n(&from->accepted, __ATOMIC_RELAXED);
	out->served = __atomic_load_n(&from->served, __ATOMIC_RELAXED);
	out->rejected = __atomic_load_n(&from->rejected, __ATOMIC_RELAXED);
	out->timed_out = __atomic_load_n(&from->timed_out, __ATOMIC_RELAXED);
	out->evicted = __atomic_load_n(&from->evicted, __ATOMIC_RELAXED);
	out->denied = __atomic_load_n(&from->denied, __ATOMIC_RELAXED);
	out->throttled = __atomic_load_n(&from->throttled, __ATOMIC_RELAXED);
	out->blocked = __atomic_load_n(&from->blocked, __ATOMIC_RELAXED);
	out->clients = __atomic_load_n(&from->clients, __ATOMIC_RELAXED);
}
