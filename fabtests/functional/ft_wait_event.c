/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fabtests/common/ft_clock.h"
#include "fabtests/functional/ft_wait.h"

#define EVENT_BATCHES 100
/* number of batches to fetch per call; fewer than have ended, so that some
 * remain */
#define EVENT_FETCH 7
#define EVENT_THREADS 4
#define EVENT_ROUNDS 500

/* Returns true if `fd` becomes readable within `ms`. */
static bool event_up(int fd, int ms)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, ms) == 1 && p.revents == POLLIN;
}

/* Fetches up to n ended batches into `list`. Returns the number of fetched
 * batches. */
static size_t event_fetch(struct wait_rig *rig, struct te_ended *list,
			  size_t n)
{
	if (te_ended_batches(rig->engine, list, sizeof(*list), &n))
		return 0;
	return n;
}

/* Fetches until n batches were fetched. (A wait may return before the event
 * file descriptor reports the end of the batch.) Returns false if some are
 * missing. */
static bool event_fetch_all(struct wait_rig *rig, struct te_ended *list,
			    size_t n)
{
	int fd = te_event_fd(rig->engine);
	size_t seen = 0;

	while (seen < n && event_up(fd, FX_LONG_MS))
		seen += event_fetch(rig, list + seen, n - seen);
	return seen == n;
}

/* Discards the ended batches and notifications that earlier parts of the test
 * have left. */
static void event_empty(struct wait_rig *rig)
{
	struct te_ended list[EVENT_FETCH];
	int size = 0;

	while (event_fetch(rig, list, EVENT_FETCH))
		;
	freeNotifsMsgBuf(getNotifsFromEngine(rig->engine, &size), size);
}

/* --- one file descriptor for many batches -------------------------------- */

/* Counts each fetched batch in n[4] of its job. Returns false if a batch was
 * counted before, is unknown, or has not completed. */
static bool event_mark(struct fx_job *jobs, const struct te_ended *list,
		       size_t n)
{
	size_t i, j;

	for (i = 0; i < n; i++) {
		for (j = 0; j < EVENT_BATCHES; j++)
			if (jobs[j].id == list[i].batch_id)
				break;
		if (j == EVENT_BATCHES || jobs[j].n[4]++ ||
		    list[i].status != STATUS_COMPLETED ||
		    list[i].transferred_bytes != jobs[j].len)
			return false;
	}
	return true;
}

void wait_epoll(struct wait_rig *rig)
{
	static struct fx_job jobs[EVENT_BATCHES];
	int ep = epoll_create1(EPOLL_CLOEXEC), fd = te_event_fd(rig->engine);
	struct epoll_event ev = { .events = EPOLLIN };
	struct te_ended list[EVENT_FETCH];
	size_t seen = 0, n;
	bool good = true;

	event_empty(rig);
	ft_ok(fd >= 0 && te_event_fd(rig->engine) == fd,
	      "the_engines_descriptor_is_one");
	epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev);
	ft_ok(!epoll_wait(ep, &ev, 1, 0),
	      "descriptor_without_ended_batches_is_not_readable");
	for (int i = 0; i < EVENT_BATCHES; i++)
		jobs[i] = wait_job(rig, i % 2 ? OPCODE_READ : OPCODE_WRITE,
				   (uint64_t)i * 64 * FX_KIB, 1 + 600u * i,
				   4096);
	while (seen < EVENT_BATCHES && good) {
		good = epoll_wait(ep, &ev, 1, FX_LONG_MS) == 1;
		n = event_fetch(rig, list, EVENT_FETCH);
		good = good && event_mark(jobs, list, n);
		seen += n;
	}
	ft_ok(good && seen == EVENT_BATCHES,
	      "epoll_tells_each_of_100_batches_once");
	ft_ok(!epoll_wait(ep, &ev, 1, 0) &&
		      !event_fetch(rig, list, EVENT_FETCH),
	      "descriptor_is_not_readable_after_all_are_fetched");
	for (int i = 0; i < EVENT_BATCHES; i++)
		good = fx_job_free(&jobs[i]) && good;
	ft_ok(good, "fetched_batches_are_freed");
	close(ep);
}

/* --- when it is readable ------------------------------------------------- */

/* Runs three batches to their end, and does not fetch them. */
static void event_three(struct wait_rig *rig, struct fx_job *jobs)
{
	for (int i = 0; i < 3; i++) {
		jobs[i] = wait_job(rig, OPCODE_WRITE, 0, 4096, 0);
		te_wait_batch(rig->engine, jobs[i].id, -1, NULL);
	}
}

static void event_fetch_levels(struct wait_rig *rig, int fd)
{
	struct te_ended list[3];
	struct fx_job jobs[3];
	uint64_t count;

	event_three(rig, jobs);
	ft_ok(event_up(fd, FX_LONG_MS) && event_up(fd, 0),
	      "descriptor_is_readable_until_all_are_fetched");
	ft_ok(event_fetch_all(rig, list, 2) && event_up(fd, FX_LONG_MS),
	      "descriptor_stays_readable_after_a_partial_fetch");
	ft_ok(read(fd, &count, sizeof(count)) == sizeof(count) &&
		      event_fetch(rig, list, 1) == 1 && !event_up(fd, 0),
	      "descriptor_is_not_readable_after_read_and_fetch");
	for (int i = 0; i < 3; i++)
		fx_job_free(&jobs[i]);
	event_three(rig, jobs);
	ft_ok(event_up(fd, FX_LONG_MS) &&
		      read(fd, &count, sizeof(count)) == sizeof(count) &&
		      event_fetch(rig, list, 1) == 1 &&
		      event_up(fd, FX_LONG_MS),
	      "descriptor_is_readable_after_read_and_partial_fetch");
	for (int i = 0; i < 3; i++)
		fx_job_free(&jobs[i]);
	ft_ok(!event_up(fd, 0) && !event_fetch(rig, list, 3),
	      "freed_batches_are_not_reported");
}

static void event_note_levels(struct wait_rig *rig, int fd)
{
	struct te_ended list[3];
	notify_msg_t *msgs;
	struct fx_job job;
	int size = 0;

	ft_ok(!fx_ask(&rig->target, "notify %d a b",
		      fx_ask(&rig->target, "open %s", rig->name)) &&
		      event_up(fd, FX_LONG_MS),
	      "notification_makes_the_descriptor_readable");
	job = wait_job(rig, OPCODE_WRITE, 0, 4096, 0);
	te_wait_batch(rig->engine, job.id, -1, NULL);
	msgs = getNotifsFromEngine(rig->engine, &size);
	ft_ok(size == 1 && event_up(fd, FX_LONG_MS),
	      "ended_batch_keeps_the_descriptor_readable");
	freeNotifsMsgBuf(msgs, size);
	ft_ok(event_fetch_all(rig, list, 1) && !event_up(fd, 0),
	      "descriptor_is_not_readable_after_both_are_fetched");
	fx_job_free(&job);
}

/* Submits a request three times to the same batch, each time after the previous
 * request has ended. Each end must be reported once. */
static void event_again(struct wait_rig *rig, int fd)
{
	struct transfer_request req = {
		.opcode = OPCODE_WRITE, .source = rig->mem.p,
		.target_id = rig->seg, .target_offset = rig->target.mem.addr,
		.length = 4096,
	};
	batch_id_t id = allocateBatchID(rig->engine, 3);
	struct te_ended list[3];
	bool good = true;

	ft_ok(!event_up(fd, 0), "an_empty_batch_has_not_ended");
	for (int i = 0; i < 3; i++) {
		good = good && !submitTransfer(rig->engine, id, &req, 1) &&
		       event_up(fd, FX_LONG_MS);
		if (i == 1)
			continue;	/* Do not fetch this end. It is reported
					 * once, together with the next one. */
		good = good && event_fetch(rig, list, 3) == 1 &&
		       list[0].batch_id == id &&
		       list[0].transferred_bytes == 4096u * (i + 1u);
	}
	ft_ok(good && !event_up(fd, 0),
	      "each_end_of_a_reused_batch_is_reported_once");
	freeBatchID(rig->engine, id);
}

/* Checks that a refused submission does not report an end of the batch. Checks
 * also that an end which was not yet fetched remains. */
static void event_refused(struct wait_rig *rig, int fd)
{
	struct transfer_request req = {
		.opcode = OPCODE_WRITE, .source = rig->mem.p,
		.target_id = rig->seg, .target_offset = rig->target.mem.addr,
		.length = 4096,
	};
	struct transfer_request bad = req;
	batch_id_t id = allocateBatchID(rig->engine, 4);
	int own = te_batch_event_fd(rig->engine, id);
	struct te_ended list[3];
	char unauthenticated[4096];
	uint64_t count;

	bad.source = unauthenticated;
	ft_ok(submitTransfer(rig->engine, id, &bad, 1) == 3 &&
	      !event_up(fd, 0) && !event_up(own, 0),
	      "refused_at_first_it_has_not_ended");
	ft_ok(!submitTransfer(rig->engine, id, &req, 1) &&
	      event_up(fd, FX_LONG_MS) && event_up(own, FX_LONG_MS) &&
	      submitTransfer(rig->engine, id, &bad, 1) == 3 &&
	      event_up(fd, 0) && event_up(own, 0) &&
	      event_fetch(rig, list, 3) == 1 && list[0].batch_id == id,
	      "an_end_not_fetched_outlives_a_refusal");
	ft_ok(submitTransfer(rig->engine, id, &bad, 1) == 3 &&
	      !event_up(fd, 0) && !event_fetch(rig, list, 3),
	      "an_end_is_not_told_again_by_a_refusal");
	ft_ok(read(own, &count, sizeof(count)) == sizeof(count) &&
	      submitTransfer(rig->engine, id, &bad, 1) == 3 &&
	      !event_up(own, 0) &&
	      te_batch_event_fd(rig->engine, id) == own && !event_up(own, 0),
	      "a_batchs_descriptor_once_read_stays_unreadable");
	freeBatchID(rig->engine, id);
}

static void event_child(struct wait_rig *rig)
{
	int status = 1;
	pid_t pid = fork();

	if (!pid)
		_exit(te_event_fd(rig->engine) >= 0 ||
		      te_wait_batch(rig->engine, 1, 0, NULL) != 1);
	ft_ok(pid > 0 && waitpid(pid, &status, 0) == pid && !status,
	      "law7_a_child_gets_no_descriptor");
}

void wait_levels(struct wait_rig *rig)
{
	int fd;

	struct fx_job job = wait_job(rig, OPCODE_WRITE, 0, 4096, 0);

	te_wait_batch(rig->engine, job.id, -1, NULL);
	fd = te_event_fd(rig->engine);
	event_empty(rig);
	fx_job_free(&job);
	event_fetch_levels(rig, fd);
	event_note_levels(rig, fd);
	event_again(rig, fd);
	event_refused(rig, fd);
	event_child(rig);
}

/* Fetches with element sizes that are smaller and larger than struct te_ended,
 * as programs do that were built with an older or a newer header. */
void wait_element_sizes(struct wait_rig *rig)
{
	struct {
		struct te_ended e;
		uint64_t more[2];
	} wide[2];
	struct fx_job job[2];
	batch_id_t ids[2] = { 0, 7 };
	uint64_t untouched;
	size_t n = 1;
	int fd = te_event_fd(rig->engine);

	event_empty(rig);
	for (int i = 0; i < 2; i++) {
		job[i] = wait_job(rig, OPCODE_WRITE, 0, 64, 0);
		te_wait_batch(rig->engine, job[i].id, -1, NULL);
	}
	ft_ok(event_up(fd, FX_LONG_MS) &&
	      !te_ended_batches(rig->engine, (void *)ids, sizeof(ids[0]), &n) &&
	      n == 1 && (ids[0] == job[0].id || ids[0] == job[1].id) &&
	      ids[1] == 7, "shorter_elements_are_filled_and_no_more");
	fx_job_free(&job[0]);
	fx_job_free(&job[1]);
	memset(wide, 0x5a, sizeof(wide));
	memset(&untouched, 0x5a, sizeof(untouched));
	job[0] = wait_job(rig, OPCODE_WRITE, 0, 64, 0);
	te_wait_batch(rig->engine, job[0].id, -1, NULL);
	n = 2;
	ft_ok(event_up(fd, FX_LONG_MS) &&
		      !te_ended_batches(rig->engine, &wide[0].e,
					sizeof(wide[0]), &n) &&
		      n == 1 && wide[0].e.batch_id == job[0].id &&
		      wide[0].e.transferred_bytes == 64 && !wide[0].more[0] &&
		      !wide[0].more[1],
	      "longer_elements_get_zeros_at_the_end");
	ft_ok(wide[1].e.batch_id == untouched && wide[1].more[0] == untouched &&
		      wide[1].more[1] == untouched,
	      "elements_after_the_last_are_unchanged");
	fx_job_free(&job[0]);
}

/* --- the event descriptor of a batch -------------------------------------- */

/* Returns true if the file that was added to the epoll instance as fd has been
 * closed. By now, another thread may have opened another file with the same
 * number. */
static bool event_closed(int watch, int fd)
{
	struct epoll_event event = { .events = EPOLLIN };

	return epoll_ctl(watch, EPOLL_CTL_MOD, fd, &event) == -1 &&
	       (errno == EBADF || errno == ENOENT);
}

/* Checks event file descriptors of batches in an engine without an event file
 * descriptor. So this part must run before those that create one. */
void wait_batch_fd(struct wait_rig *rig)
{
	struct transfer_request req = {
		.opcode = OPCODE_WRITE, .source = rig->mem.p,
		.target_id = rig->seg, .target_offset = rig->target.mem.addr,
		.length = 4096,
	};
	batch_id_t id = allocateBatchID(rig->engine, 3);
	int fd = te_batch_event_fd(rig->engine, id);
	int watch = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event event = { .events = EPOLLIN };
	struct te_ended list[3];
	struct transfer_status st;

	ft_ok(fd >= 0 && te_batch_event_fd(rig->engine, id) == fd &&
	      !event_up(fd, 0), "an_empty_batchs_descriptor_is_not_readable");
	ft_ok(!submitTransfer(rig->engine, id, &req, 1) &&
		      event_up(fd, FX_LONG_MS) &&
		      !te_batch_status(rig->engine, id, &st) &&
		      st.status == STATUS_COMPLETED,
	      "descriptor_of_an_ended_batch_is_readable");
	fx_peer_pause(&rig->target);
	ft_ok(!submitTransfer(rig->engine, id, &req, 1) && !event_up(fd, 50),
	      "descriptor_of_a_busy_batch_is_not_readable");
	fx_peer_resume(&rig->target);
	ft_ok(event_up(fd, FX_LONG_MS),
	      "descriptor_of_a_batch_that_ended_again_is_readable");
	ft_ok(te_event_fd(rig->engine) >= 0 && event_fetch_all(rig, list, 1) &&
		      list[0].batch_id == id && event_up(fd, 0),
	      "batch_that_ended_before_the_descriptor_is_reported");
	ft_ok(!epoll_ctl(watch, EPOLL_CTL_ADD, fd, &event) &&
		      !freeBatchID(rig->engine, id) && event_closed(watch, fd),
	      "descriptor_is_closed_with_its_batch");
	close(watch);
	id = allocateBatchID(rig->engine, 1);
	ft_ok(!submitTransfer(rig->engine, id, &req, 1) &&
		      !te_wait_batch(rig->engine, id, -1, NULL) &&
		      event_up(te_batch_event_fd(rig->engine, id), FX_LONG_MS),
	      "descriptor_of_a_batch_that_had_ended_is_readable");
	freeBatchID(rig->engine, id);
}

/* --- many threads -------------------------------------------------------- */

struct event_sender {
	struct wait_rig *rig;
	unsigned int number, sent;
	pthread_t thread;
};

static void *event_sender_main(void *arg)
{
	struct event_sender *s = arg;
	uint64_t off = s->number * FX_MIB;
	struct fx_job job = {
		.engine = s->rig->engine, .seg = s->rig->seg,
		.op = OPCODE_WRITE, .local = s->rig->mem.p + off,
		.remote = s->rig->target.mem.addr + off, .len = 300,
		.block = 100,
	};

	while (s->sent < EVENT_ROUNDS && !fx_job_start(&job))
		s->sent++;
	return NULL;
}

/* Fetches and frees ended batches until `want` batches have completed, or until
 * no batch ends for FX_LONG_MS. Returns the number of freed batches. */
static unsigned int event_collect(struct wait_rig *rig, int fd,
				  unsigned int want)
{
	struct te_ended list[EVENT_FETCH];
	unsigned int seen = 0;
	size_t i, n;

	while (seen < want && event_up(fd, FX_LONG_MS)) {
		n = event_fetch(rig, list, EVENT_FETCH);
		for (i = 0; i < n; i++)
			if (list[i].status == STATUS_COMPLETED &&
			    !freeBatchID(rig->engine, list[i].batch_id))
				seen++;
	}
	return seen;
}

void wait_event_storm(struct wait_rig *rig)
{
	struct event_sender s[EVENT_THREADS];
	int fd = te_event_fd(rig->engine);
	unsigned int i, seen;

	event_empty(rig);
	memset(s, 0, sizeof(s));
	for (i = 0; i < EVENT_THREADS; i++) {
		s[i].rig = rig;
		s[i].number = i;
		pthread_create(&s[i].thread, NULL, event_sender_main, &s[i]);
	}
	seen = event_collect(rig, fd, EVENT_THREADS * EVENT_ROUNDS);
	for (i = 0; i < EVENT_THREADS; i++)
		pthread_join(s[i].thread, NULL);
	ft_ok(seen == EVENT_THREADS * EVENT_ROUNDS,
	      "threads_submit_and_one_descriptor_tells_all");
	ft_ok(!event_up(fd, 0),
	      "descriptor_is_not_readable_after_the_last_batch");
}
