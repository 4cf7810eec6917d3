/* SPDX-License-Identifier: BSD-2-Clause */
#include "fabtests/functional/fx_gpu.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* number of jobs, more than a rail posts at one time */
#define GPU_QUEUE	8

/* --- in the peer ---------------------------------------------------------- */

static int gpu_register(const struct fx_gpu *gpu, transfer_engine_t engine,
			size_t len, int remote)
{
	return registerLocalMemory(engine, (void *)(uintptr_t)gpu->addr, len,
				   "*", remote);
}

static int gpu_make(struct fx_gpu *gpu, bool (*make)(struct fx_gpu *, size_t),
		    transfer_engine_t engine, size_t len, const char *args,
		    char *text)
{
	if (!make(gpu, len))
		return FX_NO_ANSWER;
	snprintf(text, 32, "%llu", (unsigned long long)gpu->addr);
	return gpu_register(gpu, engine, len, atoi(args));
}

static int gpu_renew(struct fx_gpu *gpu, bool (*make)(struct fx_gpu *, size_t),
		     transfer_engine_t engine, size_t len, char *text)
{
	int ret = unregisterLocalMemory(engine, (void *)(uintptr_t)gpu->addr);

	if (!ret)
		ret = gpu->free(gpu->addr);
	return ret ? ret : gpu_make(gpu, make, engine, len, "1", text);
}

int fx_gpu_obey(struct fx_gpu *gpu, bool (*make)(struct fx_gpu *, size_t),
		transfer_engine_t engine, struct fx_buf *mem, const char *verb,
		const char *args, char *text)
{
	unsigned long long off, len;

	if (!strcmp(verb, "gpu"))
		return gpu_make(gpu, make, engine, mem->len, args, text);
	if (!strcmp(verb, "ungpu"))
		return unregisterLocalMemory(engine,
					     (void *)(uintptr_t)gpu->addr);
	if (!strcmp(verb, "regpu"))
		return gpu_register(gpu, engine, mem->len, 1);
	if (!strcmp(verb, "newgpu"))
		return gpu_renew(gpu, make, engine, mem->len, text);
	if (sscanf(args, "%llu %llu", &off, &len) != 2)
		return FX_NO_ANSWER;
	if (!strcmp(verb, "load"))
		return gpu->to_device(gpu->addr + off, mem->p + off, len);
	if (!strcmp(verb, "store"))
		return gpu->to_host(mem->p + off, gpu->addr + off, len);
	return FX_NO_ANSWER;
}

/* --- in the test ---------------------------------------------------------- */

uint64_t fx_gpu_target(struct fx_peer *peer, size_t len, const char *option)
{
	if (!fx_peer_start(peer, len, option, NULL) || fx_ask(peer, "gpu 1"))
		return 0;
	return strtoull(peer->text, NULL, 10);
}

uint64_t fx_gpu_renew(transfer_engine_t engine, struct fx_peer *peer)
{
	if (fx_ask(peer, "newgpu") || syncSegmentCache(engine))
		return 0;
	return strtoull(peer->text, NULL, 10);
}

int fx_gpu_import(transfer_engine_t engine, struct fx_peer *peer)
{
	int size = fx_ask(peer, "export 0"), ret;
	segment_id_t id = -1;

	if (size <= 0)
		return -1;
	ret = te_segment_import(engine, peer->mem.p, (size_t)size, 0, &id);
	return ret ? ret : id;
}

bool fx_gpu_put(struct fx_peer *peer, uint64_t off, uint64_t len,
		uint64_t sequence)
{
	if (sequence)
		fx_buf_fill(&peer->mem, off, len, sequence);
	else
		fx_buf_poison(&peer->mem, off, len);
	return !len || !fx_ask(peer, "load %llu %llu", (unsigned long long)off,
			       (unsigned long long)len);
}

bool fx_gpu_has(struct fx_peer *peer, uint64_t off, uint64_t len,
		uint64_t sequence)
{
	if (!len)
		return true;
	/* a content that is neither the pattern nor poison, in case "store"
	 * copies nothing */
	memset(peer->mem.p + off, 0x11, len);
	if (fx_ask(peer, "store %llu %llu", (unsigned long long)off,
		   (unsigned long long)len))
		return false;
	return sequence ? fx_buf_check(&peer->mem, off, len, sequence) :
			  fx_buf_poisoned(&peer->mem, off, len);
}

void fx_nap(unsigned int us)
{
	struct timespec nap = { .tv_sec = us / 1000000,
				.tv_nsec = us % 1000000 * 1000L };

	nanosleep(&nap, NULL);
}

/* --- unregistration during transfers -------------------------------------- */

struct gpu_leaver {
	const struct fx_job *job;
	const struct fx_buf *read;
	uint64_t sequence;
	bool good;			/* true: all bytes were in place when
					 * unregisterLocalMemory returned */
	bool back;			/* atomic; true: unregisterLocalMemory
					 * has returned */
	int ret;
};

static void *gpu_leave(void *arg)
{
	struct gpu_leaver *v = arg;

	v->ret = unregisterLocalMemory(v->job->engine, v->job->local);
	__atomic_store_n(&v->back, true, __ATOMIC_RELEASE);
	v->good = !v->read || fx_buf_check(v->read, 0, v->job->len,
					   v->sequence);
	return NULL;
}

void fx_gpu_leave(struct fx_peer *peer, struct fx_job *job,
		  const struct fx_buf *read, uint64_t sequence)
{
	struct gpu_leaver v = { .job = job, .read = read,
				.sequence = sequence };
	pthread_t thread;
	bool ended;

	fx_peer_pause(peer);
	if (!ft_ok(!fx_job_start(job) &&
			   !pthread_create(&thread, NULL, gpu_leave, &v),
		   "source_in_gpu_memory_is_unregistered_in_flight")) {
		fx_peer_resume(peer);
		return;
	}
	fx_nap(300000);
	ft_ok(!__atomic_load_n(&v.back, __ATOMIC_ACQUIRE),
	      "unregistration_waits_while_the_target_is_stopped");
	fx_peer_resume(peer);
	pthread_join(thread, NULL);
	ft_ok(!v.ret && v.good, "and_for_the_last_byte: %d", v.ret);
	ended = fx_job_wait(job, FX_LONG_MS);
	ft_ok(ended && job->n[STATUS_COMPLETED] == 1 &&
	      fx_gpu_has(peer, 0, job->len, sequence),
	      "of_a_task_that_completes: %s", fx_job_text(job));
	fx_job_free(job);
}

/* Unregisters the peer's GPU memory; resumes the peer if `stopped` is true. The
 * command reaches the peer before most of the queued requests, because the
 * target needs more time for a request than for a command line. */
static bool gpu_unregister(struct fx_peer *peer, bool stopped)
{
	bool sent = fx_send(peer, "ungpu");

	if (stopped)
		fx_peer_resume(peer);
	return sent && !fx_answer(peer, FX_LONG_MS);
}

bool fx_gpu_withdraw(struct fx_peer *peer, const struct fx_job *like, bool sure,
		     unsigned int *completed, unsigned int *failed)
{
	struct fx_job job[GPU_QUEUE];
	unsigned int i, n, most = sure ? GPU_QUEUE : 1;
	bool good;

	if (sure)
		fx_peer_pause(peer);
	for (n = 0; n < most; n++) {
		job[n] = *like;
		if (fx_job_start(&job[n]))
			break;
	}
	if (!sure)
		fx_nap((unsigned int)rand() % 4000);
	good = gpu_unregister(peer, sure) && n == most &&
	       fx_gpu_put(peer, 0, like->len, 0);
	for (i = 0; i < n; i++) {
		good = good && fx_job_wait(&job[i], FX_LONG_MS) &&
		       job[i].n[STATUS_COMPLETED] + job[i].n[STATUS_FAILED] ==
			       job[i].tasks;
		if (!good)
			ft_diag("job %u of %u: %s", i, n, fx_job_text(&job[i]));
		*completed += job[i].n[STATUS_COMPLETED];
		*failed += job[i].n[STATUS_FAILED];
		fx_job_free(&job[i]);
	}
	return good && fx_gpu_has(peer, 0, like->len, 0);
}
