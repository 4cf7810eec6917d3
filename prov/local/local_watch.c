/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A thread that sleeps until a peer whose memory is mapped ends, and then
 * unmaps this memory. Without the thread, an idle process would keep all memory
 * of a peer that has ended.
 */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "prov/local/local_int.h"
#include "util/thread.h"

void local_watch_init(struct local_watch *w)
{
	tei_mutex_init(&w->lock);
	tei_list_init(&w->peers);
	w->epoll = w->wake = -1;
}

/* Drops the views of the peers that have ended. */
static void watch_check(struct local_watch *w) TEI_REQUIRES(w->lock)
{
	struct tei_local_peer *peer, *next;

	tei_list_foreach_safe (peer, next, &w->peers, struct tei_local_peer,
			       watch_node) {
		if (!local_pidfd_ended(peer->pidfd))
			continue;
		tei_list_del(&peer->watch_node);
		local_view_drop(peer->view, true);
	}
}

static void *watch_main(void *arg)
{
	struct local_watch *w = arg;
	struct epoll_event event = { .data.fd = -1 };
	int n;

	do {
		n = epoll_wait(w->epoll, &event, 1, -1);
		if (n <= 0 || event.data.fd == w->wake)
			continue;
		tei_mutex_lock(&w->lock);
		watch_check(w);
		tei_mutex_unlock(&w->lock);
	} while (event.data.fd != w->wake);
	return NULL;
}

static bool watch_poll(struct local_watch *w, int fd)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLONESHOT,
				     .data.fd = fd };

	return !epoll_ctl(w->epoll, EPOLL_CTL_ADD, fd, &event);
}

static void watch_close(struct local_watch *w)
{
	if (w->epoll >= 0)
		close(w->epoll);
	if (w->wake >= 0)
		close(w->wake);
	w->epoll = w->wake = -1;
}

/* Starts the thread unless it runs. */
static bool watch_start(struct local_watch *w) TEI_REQUIRES(w->lock)
{
	if (w->running)
		return true;
	w->epoll = epoll_create1(EPOLL_CLOEXEC);
	w->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (w->epoll >= 0 && w->wake >= 0 && watch_poll(w, w->wake) &&
	    !tei_thread_start(&w->thread, false, watch_main, w)) {
		pthread_setname_np(w->thread, "tei-copy-watch");
		w->running = true;
		return true;
	}
	TEI_DEBUG_LOG("local", "the memory of other processes is not mapped, the kernel copies instead: %s",
		      strerrordesc_np(errno));
	watch_close(w);
	return false;
}

bool local_watch_add(struct tei_local *ctx, struct tei_local_peer *peer)
{
	struct local_watch *w = &ctx->watch;
	bool watched;

	tei_mutex_lock(&w->lock);
	watched = !tei_list_empty(&peer->watch_node);
	if (!watched && watch_start(w) && watch_poll(w, peer->pidfd)) {
		tei_list_add_tail(&w->peers, &peer->watch_node);
		watched = true;
	}
	tei_mutex_unlock(&w->lock);
	return watched;
}

void local_watch_remove(struct tei_local *ctx, struct tei_local_peer *peer)
{
	struct local_watch *w = &ctx->watch;

	tei_mutex_lock(&w->lock);
	if (!tei_list_empty(&peer->watch_node)) {
		epoll_ctl(w->epoll, EPOLL_CTL_DEL, peer->pidfd, NULL);
		tei_list_del(&peer->watch_node);
	}
	tei_mutex_unlock(&w->lock);
}

void local_watch_fini(struct local_watch *w)
{
	uint64_t one = 1;

	if (w->running) {
		if (write(w->wake, &one, sizeof(one)) == sizeof(one))
			tei_thread_join(w->thread);
	}
	watch_close(w);
	tei_mutex_fini(&w->lock);
}
