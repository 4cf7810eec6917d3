/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Views: mappings of the memory of a peer, through which copies are made by
 * memcpy.
 *
 * A view maps the peer's files in windows of LOCAL_WINDOW bytes at multiples of
 * that size. The windows are found in a hash table without a lock. A thread
 * that copies counts itself in `users` first. To unmap, a thread sets `closed`
 * and waits until `users` is 0; both words are accessed with sequential
 * consistency, so either the copying thread sees `closed` or the other one sees
 * the user.
 *
 * A window also maps parts of the file that contain no memory, or memory that
 * is not registered. Copies never access them, because the registration table
 * is checked before each copy, while a copy slot is armed. So freed memory may
 * stay in a window. The file is sealed, so no access is beyond its end. Pages
 * from a pool of huge pages are mapped without a reservation: the peer's
 * mapping holds it. A peer that removes such pages while they are registered
 * can end this process with SIGBUS if the pool is empty. Therefore only memory
 * of processes of the same user is mapped; such a process could send SIGBUS
 * with kill, too.
 *
 * A window is inaccessible at first. When a copy uses a region, view_add makes
 * the granules (units of 2 MiB) of this region accessible. If the whole window
 * were accessible, mlockall of this process would allocate pages for the parts
 * that contain no memory.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "prov/local/local_int.h"
#include "prov/local/local_memfd.h"
#include "prov/local/local_move.h"

#define LOCAL_WINDOW	(UINT64_C(4) << 30)
#define VIEW_SLOTS	256u		/* a power of 2 */
#define VIEW_FULL	(VIEW_SLOTS / 4 * 3) /* largest number of windows */
#define VIEW_ALIGN	(UINT64_C(1) << 30) /* alignment of a window: the
					     * largest page size */
#define VIEW_SLEEP_NS	(50 * 1000)
#define VIEW_GRANULE	(UINT64_C(2) << 20)
#define VIEW_WORDS	(LOCAL_WINDOW / VIEW_GRANULE / 64)

struct view_window {
	/* view_key(), or 0; stored after the other members */
	_Atomic uint64_t key;
	char *base;		   /* start of the mapping */
	_Atomic uint64_t *granules; /* array of VIEW_WORDS words with one bit
				    * for each granule that is accessible */
};

struct local_view {
	_Atomic uint32_t users;
	_Atomic bool closed;		/* no new user */
	struct view_window windows[VIEW_SLOTS];

	struct tei_mutex lock;
	/* guarded by lock */
	uint32_t n;			/* windows in use */
	int fd[LOCAL_FILES];		/* files of the peer, or -1 */
	bool refused[LOCAL_FILES];	/* the file cannot be mapped */
	bool last;			/* closed for ever */
};

struct local_view *local_view_new(void)
{
	struct local_view *v = calloc(1, sizeof(*v));
	uint32_t i;

	if (!v)
		return NULL;
	tei_mutex_init(&v->lock);
	for (i = 0; i < LOCAL_FILES; i++)
		v->fd[i] = -1;
	return v;
}

/* Unmaps all windows and closes the files. */
static void view_clear(struct local_view *v) TEI_REQUIRES(v->lock)
{
	uint32_t i;

	for (i = 0; i < VIEW_SLOTS; i++) {
		if (!atomic_load_explicit(&v->windows[i].key,
					  memory_order_relaxed))
			continue;
		munmap(v->windows[i].base, LOCAL_WINDOW);
		free(v->windows[i].granules);
		atomic_store(&v->windows[i].key, 0);
	}
	for (i = 0; i < LOCAL_FILES; i++) {
		if (v->fd[i] >= 0)
			close(v->fd[i]);
		v->fd[i] = -1;
	}
	v->n = 0;
}

static void view_drop(struct local_view *v) TEI_REQUIRES(v->lock)
{
	struct timespec ts = { .tv_nsec = VIEW_SLEEP_NS };

	atomic_store(&v->closed, true);
	while (atomic_load(&v->users))
		nanosleep(&ts, NULL);
	view_clear(v);
	atomic_store(&v->closed, v->last);
}

void local_view_drop(struct local_view *v, bool last)
{
	tei_mutex_lock(&v->lock);
	v->last |= last;
	view_drop(v);
	tei_mutex_unlock(&v->lock);
}

void local_view_free(struct local_view *v, bool forked)
{
	if (!v)
		return;
	if (!forked) {
		local_view_drop(v, true);
		tei_mutex_fini(&v->lock);
	}
	free(v);
}

/* ---- windows ------------------------------------------------------------ */

/* Returns the key of the window that holds the offset. Never 0. */
static uint64_t view_key(const struct local_place *at)
{
	return (uint64_t)(at->file + 1) << 56 | at->offset / LOCAL_WINDOW;
}

/* Returns the slot of the key, or the free slot where it belongs. */
static struct view_window *view_slot(struct local_view *v, uint64_t key)
{
	uint64_t i = key * UINT64_C(0x9e3779b97f4a7c15) >> 32, k;
	struct view_window *w;

	for (;; i++) {
		w = &v->windows[i % VIEW_SLOTS];
		k = atomic_load_explicit(&w->key, memory_order_acquire);
		if (k == key || !k)
			return w;
	}
}

/* Returns true if the granules from the one with the first byte to the one with
 * the last byte are accessible. Both are offsets in the window. */
static bool view_accessible(const struct view_window *w, uint64_t first,
			    uint64_t last)
{
	uint64_t i;

	for (i = first / VIEW_GRANULE; i <= last / VIEW_GRANULE; i++) {
		if (!(atomic_load_explicit(&w->granules[i / 64],
					   memory_order_acquire) >>
			      i % 64 & 1))
			return false;
	}
	return true;
}

/* Returns the address at which len bytes from the offset on are mapped and
 * accessible, or NULL. The bytes lie in one window. The caller is counted in
 * users. */
static char *view_find(struct local_view *v, const struct local_place *at,
		       uint64_t len)
{
	struct view_window *w = view_slot(v, view_key(at));
	uint64_t first = at->offset % LOCAL_WINDOW;

	return atomic_load_explicit(&w->key, memory_order_acquire) ==
				       view_key(at) &&
			       view_accessible(w, first, first + len - 1) ?
		       w->base + first :
		       NULL;
}

/*
 * Maps a window of the file, inaccessible and at an aligned address. If the
 * program has called mlockall with MCL_FUTURE, the window is unlocked. Core
 * dumps do not contain the window, because its memory is not that of this
 * process. Returns NULL with errno set.
 */
static char *view_map(int fd, uint64_t offset)
{
	uint64_t span = LOCAL_WINDOW + VIEW_ALIGN, at;
	char *room, *base = NULL;
	int err = 0;

	room = mmap(NULL, span, PROT_NONE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (room == MAP_FAILED)
		return NULL;
	at = ((uint64_t)(uintptr_t)room + VIEW_ALIGN - 1) & ~(VIEW_ALIGN - 1);
	base = (char *)(uintptr_t)at;
	if (mmap(base, LOCAL_WINDOW, PROT_NONE,
		 MAP_SHARED | MAP_FIXED | MAP_NORESERVE, fd,
		 (off_t)offset) == MAP_FAILED ||
	    munlock(base, LOCAL_WINDOW) ||
	    madvise(base, LOCAL_WINDOW, MADV_DONTFORK) ||
	    madvise(base, LOCAL_WINDOW, MADV_DONTDUMP)) {
		err = errno;
		munmap(room, span);
		errno = err;
		return NULL;
	}
	if (base > room)
		munmap(room, (size_t)(base - room));
	if (base + LOCAL_WINDOW < room + span)
		munmap(base + LOCAL_WINDOW,
		       (size_t)(room + span - (base + LOCAL_WINDOW)));
	return base;
}

/* Makes the granules accessible that contain the bytes from the first to the
 * last one, which are offsets in the window. Returns false with errno set. */
static bool view_permit(struct view_window *w, uint32_t file, uint64_t first,
			uint64_t last)
{
	uint64_t size = file == LOCAL_FILES - 1 ? VIEW_ALIGN : VIEW_GRANULE;
	uint64_t from = first & ~(size - 1), to = last | (size - 1), i;

	if (mprotect(w->base + from, to - from + 1, PROT_READ | PROT_WRITE))
		return false;
	for (i = from / VIEW_GRANULE; i <= to / VIEW_GRANULE; i++)
		atomic_fetch_or(&w->granules[i / 64], UINT64_C(1) << i % 64);
	return true;
}

/* ---- files -------------------------------------------------------------- */

/* Opens a file of the peer. Returns false if it cannot be opened, or could not
 * be opened before. */
static bool view_open(struct local_view *v, const struct tei_local_peer *peer,
		      uint32_t file) TEI_REQUIRES(v->lock)
{
	struct local_file *f = &peer->shared_table->head.files[file];
	uint64_t number = atomic_load(&f->number);
	struct local_memfd_want want = { .size = LOCAL_FILE_SIZE,
					 .inode = atomic_load(&f->inode),
					 .huge = file > 0,
					 .same_user = true };
	enum tei_local_reason reason = TEI_LOCAL_BAD_MAGIC;

	if (v->fd[file] >= 0)
		return true;
	if (number && number - 1 <= INT32_MAX && want.inode)
		reason = local_memfd_open(peer->id.pid, (int)(number - 1),
					  &want, &v->fd[file]);
	if (reason == TEI_LOCAL_OK)
		return true;
	v->refused[file] = true;
	TEI_INFO("local", "process %d: its memory is not mapped, the kernel copies instead: %s",
		      peer->id.pid, tei_local_reason_text(reason));
	return false;
}

bool local_view_possible(const struct tei_local_peer *peer)
{
	bool possible = false;
	uint32_t i;

	tei_mutex_lock(&peer->view->lock);
	for (i = 0; i < LOCAL_FILES; i++)
		possible |= !peer->view->refused[i] &&
			    atomic_load(&peer->shared_table->head.files[i]
						 .number);
	tei_mutex_unlock(&peer->view->lock);
	return possible;
}

bool local_view_permits(struct local_view *v, uint32_t file)
{
	bool permitted;

	tei_mutex_lock(&v->lock);
	permitted = !v->last && !v->refused[file];
	tei_mutex_unlock(&v->lock);
	return permitted;
}

/* Records that the file cannot be mapped. Returns false. */
static bool view_refuse(struct local_view *v, const struct tei_local_peer *peer,
			uint32_t file) TEI_REQUIRES(v->lock)
{
	v->refused[file] = true;
	TEI_INFO("local", "process %d: its memory is not mapped, the kernel copies instead: %s",
		      peer->id.pid, strerrordesc_np(errno));
	return false;
}

/* Returns the window that contains the place, and maps it if necessary. Returns
 * NULL if that fails. */
static struct view_window *view_window(struct local_view *v,
				       const struct tei_local_peer *peer,
				       const struct local_place *at)
	TEI_REQUIRES(v->lock)
{
	uint64_t key = view_key(at);
	struct view_window *w = view_slot(v, key);

	if (atomic_load_explicit(&w->key, memory_order_relaxed))
		return w;
	if (v->n == VIEW_FULL) {
		view_drop(v);
		w = view_slot(v, key);
	}
	if (!view_open(v, peer, at->file))
		return NULL;
	w->granules = calloc(VIEW_WORDS, sizeof(*w->granules));
	w->base = w->granules ? view_map(v->fd[at->file],
					 at->offset / LOCAL_WINDOW *
						 LOCAL_WINDOW) :
				NULL;
	if (!w->base) {
		view_refuse(v, peer, at->file);
		free(w->granules);
		return NULL;
	}
	atomic_store_explicit(&w->key, key, memory_order_release);
	v->n++;
	return w;
}

/* Maps the window that holds the offset, and makes its part of the region
 * accessible, if this has not been done before. */
static bool view_add(struct local_view *v, const struct tei_local_peer *peer,
		     const struct local_place *at) TEI_REQUIRES(v->lock)
{
	uint64_t window = at->offset / LOCAL_WINDOW * LOCAL_WINDOW, first, last;
	struct view_window *w;

	if (v->last || v->refused[at->file])
		return false;
	w = view_window(v, peer, at);
	if (!w)
		return false;
	first = at->begin > window ? at->begin - window : 0;
	last = at->end - 1 - window;
	if (last >= LOCAL_WINDOW)
		last = LOCAL_WINDOW - 1;
	return view_accessible(w, first, last) ||
	       view_permit(w, at->file, first, last) ||
	       view_refuse(v, peer, at->file);
}

/* Returns true if the file may be mapped. If the watch thread cannot watch the
 * peer, refuses all files of the peer and returns false. */
static bool view_permitted(struct tei_local *ctx, struct tei_local_peer *peer,
			   uint32_t file)
{
	struct local_view *v = peer->view;
	bool permitted = local_view_permits(v, file);
	uint32_t i;

	if (!permitted || local_watch_add(ctx, peer))
		return permitted;
	tei_mutex_lock(&v->lock);
	for (i = 0; i < LOCAL_FILES; i++)
		v->refused[i] = true;
	tei_mutex_unlock(&v->lock);
	return false;
}

/* Maps the windows of a range that spans at most two of them. The calling
 * thread is not counted in users. */
static bool view_prepare(struct tei_local *ctx, struct tei_local_peer *peer,
			 const struct local_place *first,
			 const struct local_place *last)
{
	struct local_view *v = peer->view;
	bool mapped;

	if (!view_permitted(ctx, peer, first->file))
		return false;
	tei_mutex_lock(&v->lock);
	/* the second window may have displaced the first one */
	mapped = view_add(v, peer, first) && view_add(v, peer, last) &&
		 view_add(v, peer, first);
	tei_mutex_unlock(&v->lock);
	return mapped;
}

/* ---- copies ------------------------------------------------------------- */

static bool view_enter(struct local_view *v)
{
	atomic_fetch_add(&v->users, 1);
	if (!atomic_load(&v->closed))
		return true;
	atomic_fetch_sub(&v->users, 1);
	return false;
}

/* Sets the places of the first and the last byte of the target range. */
static void view_places(const struct local_view_run *run,
			const struct tei_local_op *op,
			struct local_place *first, struct local_place *last)
{
	*first = *last = run->at;
	first->offset += op->remote - run->base;
	last->offset = first->offset + op->length - 1;
}

/* Copies one operation. Returns false if a window is not mapped. The calling
 * thread is counted in users. */
static bool view_copy_op(const struct local_view_run *run,
			 const struct tei_local_op *op)
{
	struct local_view *v = run->peer->view;
	uint64_t length = op->length, head, rest;
	struct local_place first, last;
	char *from, *next;

	if (!length || length > LOCAL_WINDOW)
		return false;
	view_places(run, op, &first, &last);
	head = LOCAL_WINDOW - first.offset % LOCAL_WINDOW;
	if (head > length)
		head = length;
	rest = length - head;
	last.offset -= rest ? rest - 1 : 0;
	from = view_find(v, &first, head);
	next = rest ? view_find(v, &last, rest) : from;
	if (!from || !next)
		return false;
	local_move(run->write, op->local, from, head);
	if (rest)
		local_move(run->write, (char *)op->local + head, next, rest);
	return true;
}

/* Copies the operations from the one with that index on, up to the first one
 * whose windows are not mapped. Returns the index of that one. */
static size_t view_copy_ops(const struct local_view_run *run, size_t i)
{
	if (!view_enter(run->peer->view))
		return i;
	while (i < run->n && view_copy_op(run, run->op[i]))
		i++;
	atomic_fetch_sub(&run->peer->view->users, 1);
	return i;
}

size_t local_view_copy(const struct local_view_run *run)
{
	struct local_place first, last;
	size_t i = view_copy_ops(run, 0), before;

	do {
		before = i;
		if (i == run->n || !run->op[i]->length ||
		    run->op[i]->length > LOCAL_WINDOW)
			break;
		view_places(run, run->op[i], &first, &last);
		if (view_prepare(run->ctx, run->peer, &first, &last))
			i = view_copy_ops(run, i);
	} while (i > before);
	return i;
}
