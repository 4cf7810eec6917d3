/* SPDX-License-Identifier: BSD-2-Clause */
#include "fabtests/sim/sim_fi.h"

#include <inttypes.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fabtests/sim/sim_fi_int.h"
#include "fabtests/sim/sim_stream.h"
#include "prov/moonrail/moonrail_fabric.h"
#include "prov/moonrail/moonrail_info.h"
#include "prov/moonrail/moonrail_name.h"

/* Operations may fail until this time has passed since the end of the last
 * fault. */
#define FI_CALM_NS	(30 * SIM_SEC)
/* timeout of fi_cq_sread in the fiber that reads completions, ms */
#define FI_READ_MS	100

/* The head of each message. The rest of the message is a pattern. */
struct fi_head {
	struct sim_stream_id id;
	uint64_t number;
	uint64_t seed;
	uint64_t len;			/* length of the message with its head,
					 * bytes */
};

/* The name of a host's endpoint, which all processes can read. */
struct fi_name {
	uint64_t incarnation;		/* incarnation of the process; 0 if no
					 * process has started */
	uint8_t name[MOONRAIL_NAME_LEN];
};

static struct {
	const struct sim_conf *conf;
	struct fi_name *names;		/* names of the endpoints, indexed by
					 * host */
	char **buffers;			/* memory of the receives, indexed by
					 * host */
	struct fi_proc *procs;		/* all processes, including those that
					 * have ended */
	uint64_t ids;			/* number of operations that have
					 * started */
	struct sim_load_stats stats;
} world;

/* Replaces the function of the C library in this program. The provider sends
 * the process id to its peers, and the length of that message must be the same
 * in each run. */
pid_t getpid(void)
{
	return 1;
}

size_t fi_lanes(const struct sim_conf *conf)
{
	return (size_t)conf->hosts * FI_LIVES * conf->workers;
}

size_t fi_lane(const struct fi_worker *w)
{
	uint32_t life = sim_host_life(w->proc->node->host) % FI_LIVES;

	return ((size_t)w->proc->node->id * FI_LIVES + life) *
		       world.conf->workers + w->index;
}

struct fi_proc *fi_proc_of(const struct fi_worker *w)
{
	return w->proc->work;
}

size_t fi_length(struct sim_rng *rng, size_t min)
{
	switch (sim_rng_below(rng, 4)) {
	case 0:
		return sim_rng_range(rng, min, min + 64);
	case 1:
	case 2:
		return sim_rng_range(rng, min, 8192);
	default:
		return sim_rng_range(rng, min, FI_MAX);
	}
}

const char *fi_worker_name(const struct fi_worker *w)
{
	static const char *const kinds[] = {
		"message", "tagged message", "write", "read", "atomic",
	};
	static char text[96];

	snprintf(text, sizeof(text),
		 "%s %" PRIu64 " of host %u to host %u (%zu bytes)",
		 kinds[w->kind], w->id, w->proc->node->id, w->to, w->len);
	return text;
}

/* Returns true if the worker's operation may fail: its process or the target is
 * ending or has ended, or FI_CALM_NS had not passed since the last fault when
 * the operation started. */
static bool fi_excused(const struct fi_worker *w)
{
	const struct sim_node *to = sim_cluster_node(w->to);

	return w->proc->leaving || !sim_cluster_up(to) ||
	       to->proc->incarnation != w->incarnation ||
	       sim_cluster_calm_since() + FI_CALM_NS > w->start_ns;
}

/* --- the objects of a process --- */

static int proc_try_domain(struct fi_proc *fp)
{
	struct fi_info *hints = fi_allocinfo();
	int ret;

	if (!hints)
		sim_fail("no memory for hints");
	hints->caps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC;
	hints->fabric_attr->prov_name = strdup("moonrail");
	ret = moonrail_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints,
			       &fp->info);
	fi_freeinfo(hints);
	if (ret)
		return ret;
	ret = moonrail_fabric_open(fp->info->fabric_attr, &fp->fabric, NULL);
	if (ret)
		goto err_free_info;
	ret = fi_domain(fp->fabric, fp->info, &fp->domain, NULL);
	if (ret)
		goto err_close_fabric;
	return 0;
err_close_fabric:
	fi_close(&fp->fabric->fid);
err_free_info:
	fi_freeinfo(fp->info);
	fp->info = NULL;
	return ret;
}

/* Opens the domain of the process. While all NICs are unplugged the call fails,
 * so tries again later. */
static void proc_open_domain(struct fi_proc *fp)
{
	int ret;

	while ((ret = proc_try_domain(fp)) != 0) {
		if (sim_cluster_calm_since() + FI_CALM_NS < sim_now())
			sim_found("host %u: the domain cannot be opened: error %d",
				  fp->proc->node->id, ret);
		sim_sleep_until(sim_now() + SIM_SEC);
	}
}

static int proc_open_endpoint(struct fi_proc *fp)
{
	struct fi_cq_attr cq = {
		.format = FI_CQ_FORMAT_TAGGED,
		.wait_obj = FI_WAIT_UNSPEC,
	};
	struct fi_av_attr av = { .type = FI_AV_TABLE };
	int ret = fi_av_open(fp->domain, &av, &fp->av, NULL);

	if (!ret)
		ret = fi_cq_open(fp->domain, &cq, &fp->cq, NULL);
	if (!ret)
		ret = fi_endpoint(fp->domain, fp->info, &fp->ep, NULL);
	if (!ret)
		ret = fi_ep_bind(fp->ep, &fp->av->fid, 0);
	if (!ret)
		ret = fi_ep_bind(fp->ep, &fp->cq->fid, FI_TRANSMIT | FI_RECV);
	return ret ? ret : fi_enable(fp->ep);
}

static void proc_publish(struct fi_proc *fp)
{
	struct fi_name *n = &world.names[fp->proc->node->id];
	size_t len = sizeof(n->name);

	if (fi_getname(&fp->ep->fid, n->name, &len))
		sim_fail("host %u: the endpoint has no name",
			 fp->proc->node->id);
	n->incarnation = fp->proc->incarnation;
	SIM_TRACE(fp->proc->node->id, "publish", n->incarnation);
}

static void receive_post(struct fi_proc *fp, struct fi_receive *r)
{
	ssize_t ret;

	r->number = fp->posted[r->kind]++;
	while ((ret = r->kind == FI_KIND_TAGGED ?
			      fi_trecv(fp->ep, r->at, FI_MAX, NULL,
				       FI_ADDR_UNSPEC, 0, UINT64_MAX, r) :
			      fi_recv(fp->ep, r->at, FI_MAX, NULL,
				      FI_ADDR_UNSPEC, r)) == -FI_EAGAIN)
		sim_sleep_until(sim_now() + SIM_MS);
	if (ret)
		sim_found("host %u: a receive is refused with %zd",
			  fp->proc->node->id, ret);
}

static void fi_open_all(struct sim_proc *proc)
{
	struct fi_proc *fp = calloc(1, sizeof(*fp));
	struct fi_receive *r;
	uint32_t i;
	int ret;

	if (!fp)
		sim_fail("no memory for a process");
	fp->next = world.procs;
	world.procs = fp;
	fp->proc = proc;
	proc->work = fp;
	fp->dests = calloc(world.conf->hosts, sizeof(*fp->dests));
	fp->workers = calloc(world.conf->workers, sizeof(*fp->workers));
	if (!fp->dests || !fp->workers)
		sim_fail("no memory for a process");
	proc_open_domain(fp);
	ret = proc_open_endpoint(fp);
	if (!ret)
		ret = fi_rma_open(fp);
	if (ret)
		sim_fail("host %u: endpoint: error %d", proc->node->id, ret);
	for (i = 0; i < 2 * FI_RECEIVES; i++) {
		r = &fp->receives[i];
		r->owner.receive = true;
		r->kind = i % 2 ? FI_KIND_TAGGED : FI_KIND_MESSAGE;
		r->at = world.buffers[proc->node->id] + (size_t)i * FI_STRIDE;
		receive_post(fp, r);
	}
	proc_publish(fp);
}

static void proc_close(struct fid *fid)
{
	int ret = fi_close(fid);

	if (ret)
		sim_found("fi_close failed with %d", ret);
}

/* Waits until all fibers that use the process have ended, then closes its
 * objects. */
static void fi_close_all(struct sim_proc *proc)
{
	struct fi_proc *fp = proc->work;

	while (proc->busy > 0)
		sim_wait(&proc->busy, SIM_NEVER);
	proc_close(&fp->ep->fid);
	proc_close(&fp->slots->fid);
	proc_close(&fp->counts->fid);
	proc_close(&fp->cq->fid);
	proc_close(&fp->av->fid);
	proc_close(&fp->domain->fid);
	proc_close(&fp->fabric->fid);
	fi_freeinfo(fp->info);
	fp->info = NULL;
	sim_stream_verify(proc->node->id, proc->incarnation);
}

/* --- completions --- */

/* Verifies a received message. len: length of the message, bytes. */

static void receive_check(struct fi_proc *fp, const struct fi_receive *r,
			  size_t len)
{
	const struct sim_node *self = fp->proc->node;
	struct fi_head head;
	struct sim_stream *s;
	size_t bad;

	memcpy(&head, r->at, sizeof(head));
	if (len < sizeof(head) || head.len != len ||
	    !(s = sim_stream_find(&head.id)))
		sim_found("host %u: a received message has a wrong head",
			  self->id);
	SIM_TRACE(self->id, "received", head.id.from, head.id.sender,
		  head.number, r->kind, r->number);
	if (head.id.to != self->id ||
	    head.id.receiver != fp->proc->incarnation ||
	    head.id.kind != (uint32_t)r->kind)
		sim_found("host %u (%" PRIu64 "): got a message for host %u (%" PRIu64 ")",
			  self->id, fp->proc->incarnation, head.id.to,
			  head.id.receiver);
	bad = sim_pattern_differs(r->at + sizeof(head), len - sizeof(head),
				  head.seed);
	if (bad != len - sizeof(head))
		sim_found("host %u: byte %zu of message %" PRIu64 " of host %u is wrong",
			  self->id, bad, head.number, head.id.from);
	sim_stream_received(s, head.number, r->number);
}

/* Called when an operation of the worker has ended with FI_ETIMEDOUT. All
 * operations with that process fail until its address is inserted again. By
 * this error the provider also reports the loss of earlier messages that have
 * completed. */
static void worker_timed_out(struct fi_worker *w)
{
	struct sim_stream_id id = {
		.sender = w->proc->incarnation,
		.receiver = w->incarnation,
		.from = w->proc->node->id,
		.to = w->to,
	};
	struct sim_stream *s;

	w->dest->failed = true;
	for (id.kind = FI_KIND_MESSAGE; id.kind <= FI_KIND_TAGGED; id.kind++) {
		s = sim_stream_find(&id);
		if (s)
			sim_stream_failed(s);
	}
}

/* Checks the result of the worker's operation and wakes the worker. err is 0 or
 * the error of the operation. */
static void worker_ended(struct fi_worker *w, int err)
{
	uint64_t took = sim_now() - w->start_ns;

	if (!w->posted)
		sim_found("%s: ended a second time", fi_worker_name(w));
	w->posted = false;
	SIM_TRACE(w->proc->node->id, "ended", w->id, (uint64_t)err);
	world.stats.ops++;
	world.stats.ends[!err ? 0 : err == FI_ETIMEDOUT ? 2 : 1]++;
	if (world.stats.slowest_ns < took)
		world.stats.slowest_ns = took;
	if (err == FI_ETIMEDOUT)
		worker_timed_out(w);
	if (err && !fi_excused(w))
		sim_found("%s: ended with %d (%s) although there was no fault since %.3f s",
			  fi_worker_name(w), err, fi_strerror(err),
			  (double)(sim_cluster_calm_since() - SIM_START_NS) /
				  1e9);
	if (w->kind > FI_KIND_TAGGED) {
		fi_rma_ended(w, err);
	} else if (err) {
		sim_stream_failed(w->stream);
	} else {
		/* a process that is leaving does not read all completions */
		sim_stream_sent(w->stream, w->number,
				w->delivery &&
				!sim_cluster_node(w->to)->proc->leaving);
		world.stats.notes++;
	}
	if (!err) {
		world.stats.bytes += w->len;
		world.stats.atomics += w->kind == FI_KIND_ATOMIC;
	}
	sim_wake(w, true);
}

/* Handles a completion of the process. err is 0 or the error of the
 * operation. */
static void proc_completion(struct fi_proc *fp, void *context, size_t len,
			    int err)
{
	struct fi_owner *owner = context;
	struct fi_receive *r = context;

	if (!owner->receive) {
		worker_ended(context, err);
		return;
	}
	if (!err)
		receive_check(fp, r, len);
	else if (sim_cluster_calm_since() + FI_CALM_NS < sim_now())
		sim_found("host %u: a receive failed with %d although there was no fault",
			  fp->proc->node->id, err);
	else
		SIM_TRACE(fp->proc->node->id, "lost", (uint64_t)err);
	receive_post(fp, r);
}

/* The main function of the fiber that reads the completions of a process. Ends
 * when the workers have ended and no completion is left. */
static void *reader_main(void *arg)
{
	struct fi_proc *fp = arg;
	struct fi_cq_tagged_entry e;
	struct fi_cq_err_entry err;
	ssize_t n;

	for (;;) {
		n = fi_cq_sread(fp->cq, &e, 1, NULL, FI_READ_MS);
		if (n == 1) {
			proc_completion(fp, e.op_context, e.len, 0);
		} else if (n == -FI_EAVAIL) {
			memset(&err, 0, sizeof(err));
			if (fi_cq_readerr(fp->cq, &err, 0) == 1)
				proc_completion(fp, err.op_context, 0, err.err);
		} else if (n != -FI_EAGAIN) {
			sim_found("host %u: fi_cq_sread failed with %zd",
				  fp->proc->node->id, n);
		} else if (fp->working == 0) {
			break;
		}
	}
	fp->proc->busy--;
	sim_wake(&fp->proc->busy, true);
	return NULL;
}

/* --- workers --- */

/* Returns the address of the present process of host `to`. Inserts the address
 * again if that process is new or an operation with it has timed out. Returns
 * NULL if the host has no process yet, or if an operation still uses the old
 * address. */
static struct fi_dest *worker_dest(struct fi_worker *w, uint32_t to)
{
	struct fi_proc *fp = fi_proc_of(w);
	struct fi_dest *d = &fp->dests[to];
	const struct fi_name *n = &world.names[to];

	if (d->incarnation && !d->failed && d->incarnation == n->incarnation)
		return d;
	if (!n->incarnation || d->busy)
		return NULL;
	d->busy++;
	if (d->incarnation && fi_av_remove(fp->av, &d->addr, 1, 0))
		sim_found("%s: the address was not removed", fi_worker_name(w));
	if (fi_av_insert(fp->av, n->name, 1, &d->addr, 0, NULL) != 1)
		sim_found("%s: the address was not inserted",
			  fi_worker_name(w));
	d->busy--;
	d->incarnation = n->incarnation;
	d->failed = false;
	return d;
}

/* Gives the message a number and writes it into local memory. Waits until no
 * other worker of the process is posting a message to the same host, because
 * the messages must be posted in the order of their numbers. */
static void message_prepare(struct fi_worker *w)
{
	struct fi_head head;

	while (w->dest->sending)
		sim_wait(&w->dest->sending, SIM_NEVER);
	w->dest->sending = true;
	memset(&head, 0, sizeof(head));
	head.id.sender = w->proc->incarnation;
	head.id.receiver = w->incarnation;
	head.id.from = w->proc->node->id;
	head.id.to = w->to;
	head.id.kind = w->kind;
	w->stream = sim_stream_get(&head.id);
	w->number = sim_stream_send(w->stream);
	w->len = fi_length(&w->rng, sizeof(head));
	w->delivery = sim_rng_below(&w->rng, 2);
	head.number = w->number;
	head.seed = w->seed;
	head.len = w->len;
	w->tomb->len = 0;
	memcpy(w->local, &head, sizeof(head));
	sim_pattern_fill(w->local + sizeof(head), w->len - sizeof(head),
			 w->seed);
}

static ssize_t message_post(struct fi_worker *w)
{
	struct iovec iov = { .iov_base = w->local, .iov_len = w->len };
	uint64_t flags = w->delivery ? FI_DELIVERY_COMPLETE : 0;
	struct fi_msg_tagged tagged = {
		.msg_iov = &iov,
		.iov_count = 1,
		.addr = w->dest->addr,
		.tag = w->number,
		.context = w,
	};
	struct fi_msg msg = {
		.msg_iov = &iov,
		.iov_count = 1,
		.addr = w->dest->addr,
		.context = w,
	};

	return w->kind == FI_KIND_TAGGED ?
		       fi_tsendmsg(fi_proc_of(w)->ep, &tagged, flags) :
		       fi_sendmsg(fi_proc_of(w)->ep, &msg, flags);
}

/* Posts the operation. Repeats the call while the endpoint returns -FI_EAGAIN.
 * Returns 0 or the error of the call as a positive number. */
static int worker_post(struct fi_worker *w)
{
	bool message = w->kind <= FI_KIND_TAGGED;
	uint64_t end = sim_now() + SIM_LOAD_LIMIT * SIM_SEC;
	ssize_t ret;

	while ((ret = message ? message_post(w) : fi_rma_post(w)) ==
	       -FI_EAGAIN) {
		if (sim_now() > end)
			sim_found("%s: not accepted for %u s",
				  fi_worker_name(w), SIM_LOAD_LIMIT);
		sim_sleep_until(sim_now() + SIM_MS);
	}
	return (int)-ret;
}

static void worker_run(struct fi_worker *w)
{
	bool message = w->kind <= FI_KIND_TAGGED;
	uint32_t i;
	int ret;

	if (message)
		message_prepare(w);
	else if (!fi_rma_prepare(w))
		return;
	w->posted = true;
	SIM_TRACE(w->proc->node->id, "post", w->id, w->kind, w->to, w->len);
	ret = worker_post(w);
	if (message) {
		w->dest->sending = false;
		sim_wake(&w->dest->sending, false);
	}
	if (ret) {
		worker_ended(w, ret);
		return;
	}
	for (i = 0; w->posted && i < SIM_LOAD_LIMIT; i++)
		sim_wait(w, sim_now() + SIM_SEC);
	if (w->posted)
		sim_found("%s: not ended after %u s", fi_worker_name(w),
			  SIM_LOAD_LIMIT);
}

/* Does one operation of the worker. */
static void worker_turn(struct fi_worker *w)
{
	static const enum fi_kind kinds[] = {
		FI_KIND_MESSAGE, FI_KIND_MESSAGE, FI_KIND_MESSAGE,
		FI_KIND_TAGGED, FI_KIND_TAGGED, FI_KIND_TAGGED,
		FI_KIND_WRITE, FI_KIND_READ, FI_KIND_ATOMIC, FI_KIND_ATOMIC,
	};

	w->id = ++world.ids;
	w->seed = w->id << 20;
	w->start_ns = sim_now();
	w->to = (uint32_t)sim_rng_below(&w->rng, world.conf->hosts - 1);
	w->to += w->to >= w->proc->node->id;
	w->kind = kinds[sim_rng_below(&w->rng,
				      sizeof(kinds) / sizeof(kinds[0]))];
	w->dest = worker_dest(w, w->to);
	if (!w->dest)
		return;
	w->incarnation = w->dest->incarnation;
	w->dest->busy++;
	worker_run(w);
	w->dest->busy--;
}

static void *worker_main(void *arg)
{
	struct fi_worker *w = arg;
	struct sim_proc *proc = w->proc;

	for (;;) {
		if (!proc->leaving)
			sim_wait(proc, sim_now() +
				 sim_rng_below(&w->rng,
					       2 * world.conf->pause_ns));
		if (proc->leaving || sim_now() >= world.conf->until_ns)
			break;
		worker_turn(w);
	}
	/* The fiber that reads completions must run until the process leaves,
	 * and it ends with the last worker. */
	while (!proc->leaving)
		sim_wait(proc, SIM_NEVER);
	fi_proc_of(w)->working--;
	proc->busy--;
	return NULL;
}

static void fi_start(struct sim_proc *proc)
{
	struct fi_proc *fp = proc->work;
	struct fi_worker *w;
	uint32_t i;

	for (i = 0; i < world.conf->workers; i++) {
		w = &fp->workers[i];
		w->proc = proc;
		w->index = i;
		fi_rma_worker(w);
		sim_rng_init(&w->rng, "worker",
			     (uint64_t)sim_host_life(proc->node->host) << 32 |
				     proc->node->id << 16 | i);
		proc->busy++;
		fp->working++;
		sim_fiber_detach(sim_fiber_start(proc->node->host, "worker",
						 worker_main, w));
	}
	proc->busy++;
	sim_fiber_detach(sim_fiber_start(proc->node->host, "reader",
					 reader_main, fp));
}

/* Called when the process was killed or has closed its objects. Bytes of its
 * unfinished transfers may still land afterwards. */
static void fi_gone(struct sim_proc *proc)
{
	struct fi_proc *fp = proc->work;
	struct fi_worker *w;
	uint32_t i;

	for (i = 0; i < world.conf->workers; i++) {
		w = &fp->workers[i];
		if (w->posted && w->kind > FI_KIND_TAGGED)
			fi_rma_gone(w);
		w->posted = false;
	}
}

/* --- begin and end --- */

static void fi_size(struct sim_conf *conf)
{
	conf->chunk = fi_lanes(conf) * FI_STRIDE;
}

/* The provider reads its settings from the environment. */
static void fi_settings(void)
{
	const char *const *options, *value;
	char name[64];
	size_t n, i;

	options = sim_cluster_options(&n);
	for (i = 0; i < n; i++) {
		value = strchr(options[i], '=');
		snprintf(name, sizeof(name), "%.*s", (int)(value - options[i]),
			 options[i]);
		setenv(name, value + 1, 1);
	}
}

static void fi_begin(void)
{
	const struct sim_conf *conf = sim_cluster_conf();
	uint32_t i;

	memset(&world, 0, sizeof(world));
	world.conf = conf;
	world.names = calloc(conf->hosts, sizeof(*world.names));
	world.buffers = calloc(conf->hosts, sizeof(*world.buffers));
	if (!world.names || !world.buffers)
		sim_fail("no memory for the workload");
	for (i = 0; i < conf->hosts; i++)
		world.buffers[i] = sim_arena(2 * FI_RECEIVES *
						     (size_t)FI_STRIDE, 4096);
	fi_settings();
	fi_rma_begin(conf);
}

static void fi_end(void)
{
	struct fi_proc *fp;

	for (fp = world.procs; fp; fp = fp->next) {
		if (fp->proc->killed)
			continue;
		free(fp->dests);
		free(fp->workers);
	}
	sim_stream_end();
	fi_rma_end();
	free(world.names);
	free(world.buffers);
}

static const struct sim_load_stats *fi_stats(void)
{
	return &world.stats;
}

static const struct sim_work_ops fi_ops = {
	.open = fi_open_all,
	.close = fi_close_all,
	.start = fi_start,
	.gone = fi_gone,
};

const struct sim_workload sim_fi_workload = {
	.name = "fi",
	.ops = &fi_ops,
	.size = fi_size,
	.begin = fi_begin,
	.verify = fi_rma_verify,
	.end = fi_end,
	.stats = fi_stats,
};
