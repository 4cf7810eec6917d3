/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The watch thread sleeps until a process ends whose memory this process maps.
 * Then it unmaps that memory. Without the thread, an idle process would keep
 * all memory of a peer that has ended.
 *
 * The thread also holds a robust futex word in the shared registration table.
 * When the thread ends, because the process ends or calls exec, the kernel sets
 * FUTEX_OWNER_DIED in the word, before waitpid reports the end of the process.
 * So a peer that copies by memcpy needs no system call to see that the process
 * is still the same. The list of robust futexes is in private memory, so a
 * peer that can write to the table cannot change the pointers that the kernel
 * follows.
 */
#include <errno.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "prov/local/local_int.h"
#include "util/thread.h"

void local_watch_init(struct local_watch *w)
{
	tei_mutex_init(&w->lock);
	tei_cond_init(&w->started);
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

/* The thread's list of robust futexes, with one entry. */
struct watch_robust {
	struct robust_list_head head;
	struct robust_list node;
};

/* Takes the word for the calling thread. The list must exist until
 * watch_release. */
static void watch_take(struct watch_robust *r, _Atomic uint32_t *word)
{
	r->node.next = &r->head.list;
	r->head.list.next = &r->node;
	r->head.list_op_pending = NULL;
	r->head.futex_offset = (char *)word - (char *)&r->node;
	if (!syscall(SYS_set_robust_list, &r->head, sizeof(r->head)))
		atomic_store(word, (uint32_t)syscall(SYS_gettid));
	else
		TEI_INFO("local", "other processes query the kernel before each copy: set_robust_list: %s",
			      strerrordesc_np(errno));
}

static void watch_release(struct watch_robust *r, _Atomic uint32_t *word)
{
	atomic_store(word, 0);
	r->head.list.next = &r->head.list;
}

static void *watch_main(void *arg)
{
	struct tei_local *ctx = arg;
	struct local_watch *w = &ctx->watch;
	_Atomic uint32_t *word = &ctx->shared->head.holder;
	struct epoll_event event = { .data.fd = -1 };
	struct watch_robust robust;
	int n;

	watch_take(&robust, word);
	tei_mutex_lock(&w->lock);
	w->ready = true;
	tei_cond_broadcast(&w->started);
	tei_mutex_unlock(&w->lock);
	do {
		n = epoll_wait(w->epoll, &event, 1, -1);
		if (n <= 0 || event.data.fd == w->wake)
			continue;
		tei_mutex_lock(&w->lock);
		watch_check(w);
		tei_mutex_unlock(&w->lock);
	} while (event.data.fd != w->wake);
	watch_release(&robust, word);
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

/* Starts the thread. Returns false if that is impossible. */
static bool watch_create(struct tei_local *ctx) TEI_REQUIRES(ctx->watch.lock)
{
	struct local_watch *w = &ctx->watch;
	int err = 0;

	w->epoll = epoll_create1(EPOLL_CLOEXEC);
	w->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (w->epoll < 0 || w->wake < 0 || !watch_poll(w, w->wake))
		err = errno;
	else
		err = tei_thread_start(&w->thread, false, watch_main, ctx);
	if (!err) {
		pthread_setname_np(w->thread, "tei-copy-watch");
		return true;
	}
	TEI_INFO("local", "the memory of other processes is not mapped, the kernel copies instead: %s",
		      strerrordesc_np(err));
	watch_close(w);
	return false;
}

/* Starts the thread unless it runs, and waits until it holds the word or
 * cannot; releases the lock meanwhile. If the thread cannot be started, later
 * calls fail, too. */
static bool watch_start(struct tei_local *ctx) TEI_REQUIRES(ctx->watch.lock)
{
	struct local_watch *w = &ctx->watch;

	if (!w->running && !w->failed) {
		w->running = watch_create(ctx);
		w->failed = !w->running;
	}
	while (w->running && !w->ready)
		tei_mutex_wait(&w->started, &ctx->watch.lock, UINT64_MAX);
	return w->running;
}

bool local_watch_add(struct tei_local *ctx, struct tei_local_peer *peer)
{
	struct local_watch *w = &ctx->watch;
	bool started, watched;

	tei_mutex_lock(&ctx->watch.lock);
	/* may release the lock, so another thread may add the peer meanwhile */
	started = watch_start(ctx);
	watched = !tei_list_empty(&peer->watch_node);
	if (started && !watched) {
		watched = watch_poll(w, peer->pidfd);
		if (watched)
			tei_list_add_tail(&w->peers, &peer->watch_node);
		else
			TEI_INFO("local", "process %d: its memory is not mapped, the kernel copies instead: epoll_ctl: %s",
				      peer->id.pid, strerrordesc_np(errno));
	}
	tei_mutex_unlock(&ctx->watch.lock);
	return watched;
}

void local_watch_hold(struct tei_local *ctx)
{
	tei_mutex_lock(&ctx->watch.lock);
	watch_start(ctx);
	tei_mutex_unlock(&ctx->watch.lock);
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
	pthread_cond_destroy(&w->started);
	tei_mutex_fini(&w->lock);
}
