/* SPDX-License-Identifier: BSD-2-Clause */
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fabtests/common/ft_pattern.h"
#include "fabtests/stress/stress.h"

#define MS UINT64_C(1000000)

/* --- start and end ------------------------------------------------------- */

static void proc_port(const struct stress_worker *w, bool same_name)
{
	const char *port = same_name ? strrchr(w->name, ':') : NULL;

	if (port) {
		setenv("MC_MIN_RPC_PORT", port + 1, 1);
		setenv("MC_MAX_RPC_PORT", port + 1, 1);
	} else {
		unsetenv("MC_MIN_RPC_PORT");
		unsetenv("MC_MAX_RPC_PORT");
	}
}

/* Sets the host address and the network namespace of worker `i`. Workers with
 * odd numbers run on host b. The others run on host a, as this process does;
 * their namespace stays empty. */
static void proc_place(const struct stress *s, unsigned int i, char *host,
		       char *netns, size_t len)
{
	sprintf(host, "10.77.%u.%u", s->unresolved ? 0 : 200, i % 2 + 1);
	if (i % 2)
		snprintf(netns, len, "%s", getenv("RAILS_PEER"));
}

static bool proc_ready(struct stress_worker *w)
{
	unsigned long long addr;
	char line[256];

	if (ft_proc_line(&w->proc, line, sizeof(line), FX_LONG_MS) ||
	    sscanf(line, "ready %127s %llu %u", w->name, &addr, &w->rails) != 3)
		return false;
	w->mem.addr = addr;
	return true;
}

bool stress_start(struct stress *s, unsigned int i, bool same_name)
{
	struct stress_worker *w = &s->worker[i];
	uint64_t random = s->seed + 1000 * w->life + i;
	char fd_text[16], tcp[] = "tcp", discover[] = "auto";
	char host[16] = "127.0.0.1", netns[128] = "";
	char *argv[] = { "/proc/self/exe", "--worker", fd_text,
			 ft_random(&random) % 4 ? tcp : discover, host, netns,
			 NULL };
	int fd = memfd_create("stress", 0);
	bool good;

	if (fd < 0 || ftruncate(fd, (off_t)(STRESS_MEM + 2 * FX_GUARD)))
		return false;
	if (s->links)
		proc_place(s, i, host, netns, sizeof(netns));
	w->mem = fx_buf_map(STRESS_MEM, fd);
	if (!w->mem.p)
		return false;
	fx_buf_poison(&w->mem, 0, STRESS_MEM);
	memset(w->slot, 0, sizeof(w->slot));
	w->life++;
	w->stopped = false;
	proc_port(w, same_name);
	setenv("MC_MAX_EP_PER_CTX", ft_random(&random) % 3 ? "256" : "2", 1);
	snprintf(fd_text, sizeof(fd_text), "%d", fd);
	good = !ft_proc_start(&w->proc, argv) && proc_ready(w);
	close(fd);
	w->fault_ns = ft_now_ns();
	if (!good)
		ft_diag("worker %u does not start", i);
	return good;
}

static void proc_drop(struct stress_worker *w)
{
	ft_proc_kill(&w->proc);
	fx_buf_unmap(&w->mem);
}

bool stress_end(struct stress *s)
{
	bool good = true;

	for (unsigned int i = 0; i < STRESS_WORKERS; i++) {
		struct stress_worker *w = &s->worker[i];
		int code = 0;

		if (!w->mem.p)
			continue;
		if (w->stopped)
			kill(w->proc.pid, SIGCONT);
		code = ft_proc_stop(&w->proc, FX_LONG_MS);
		if (code)
			ft_diag("worker %u ended with %d", i, code);
		good &= !code;
		fx_buf_unmap(&w->mem);
	}
	return good;
}

/* --- answers of the workers ---------------------------------------------- */

static void proc_said(struct stress *s, unsigned int i, const char *line)
{
	struct stress_worker *w = &s->worker[i];
	char text[STRESS_TASKS + 16];
	unsigned long long id;
	int k, seg, why = 0;

	if (sscanf(line, "done %llu %31s%n", &id, text, &why) == 2) {
		stress_done(s, i, id, text, line + why);
	} else if (sscanf(line, "open %d %d", &k, &seg) == 2 && k >= 0 &&
		   k < STRESS_WORKERS) {
		w->opening[k] = false;
		w->seg[k] = seg > 0 ? seg : 0;
	} else {
		ft_diag("worker %u: unknown answer: %s", i, line);
		s->bad++;
	}
}

bool stress_listen(struct stress *s, unsigned int ms)
{
	struct pollfd in[STRESS_WORKERS];
	char line[640];

	for (unsigned int i = 0; i < STRESS_WORKERS; i++)
		in[i] = (struct pollfd){ .fd = s->worker[i].proc.from,
					 .events = POLLIN };
	if (poll(in, STRESS_WORKERS, (int)ms) <= 0)
		return true;
	for (unsigned int i = 0; i < STRESS_WORKERS; i++) {
		if (!in[i].revents)
			continue;
		if (ft_proc_line(&s->worker[i].proc, line, sizeof(line), 1000)) {
			ft_diag("worker %u has ended", i);
			return false;
		}
		do
			proc_said(s, i, line);
		while (!ft_proc_line(&s->worker[i].proc, line, sizeof(line),
				     0));
	}
	return true;
}

/* --- faults -------------------------------------------------------------- */

static void proc_event(struct stress *s, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
static void proc_event(struct stress *s, const char *fmt, ...)
{
	struct stress_event *e = &s->event[s->events++ % STRESS_EVENTS];
	va_list ap;

	e->ns = ft_now_ns();
	va_start(ap, fmt);
	vsnprintf(e->text, sizeof(e->text), fmt, ap);
	va_end(ap);
}

void stress_events(const struct stress *s)
{
	uint64_t i = s->events > STRESS_EVENTS ? s->events - STRESS_EVENTS : 0;

	for (; i < s->events; i++) {
		const struct stress_event *e = &s->event[i % STRESS_EVENTS];

		ft_diag("  %.3f s ago: %s",
			(double)(ft_now_ns() - e->ns) / 1e9, e->text);
	}
}

void stress_halt(struct stress *s)
{
	for (unsigned int i = 0; i < STRESS_WORKERS; i++) {
		ft_diag("worker %u is process %d", i, (int)s->worker[i].proc.pid);
		kill(s->worker[i].proc.pid, SIGSTOP);
	}
	ft_diag("all processes are stopped; to continue: kill -CONT %d",
		(int)getpid());
	fflush(NULL);
	raise(SIGSTOP);
	for (unsigned int i = 0; i < STRESS_WORKERS; i++) {
		if (!s->worker[i].stopped)
			kill(s->worker[i].proc.pid, SIGCONT);
		s->worker[i].fault_ns = ft_now_ns();
	}
}

static void proc_stop(struct stress *s, struct stress_worker *w, uint64_t ms)
{
	if (w->stopped || kill(w->proc.pid, SIGSTOP))
		return;
	s->stops++;
	proc_event(s, "worker %u stopped for %llu ms",
		   (unsigned int)(w - s->worker), (unsigned long long)ms);
	w->stopped = true;
	w->fault_ns = ft_now_ns();
	w->wakes_ns = w->fault_ns + ms * MS;
}

static void proc_wake(struct stress *s)
{
	for (unsigned int i = 0; i < STRESS_WORKERS; i++) {
		struct stress_worker *w = &s->worker[i];

		if (!w->stopped || ft_now_ns() < w->wakes_ns)
			continue;
		kill(w->proc.pid, SIGCONT);
		proc_event(s, "worker %u resumed", i);
		w->stopped = false;
		w->fault_ns = ft_now_ns();
	}
}

static bool proc_replace(struct stress *s, unsigned int i, bool same_name)
{
	struct stress_worker *w = &s->worker[i];

	s->kills++;
	proc_drop(w);
	stress_dead(s, i);
	memset(w->seg, 0, sizeof(w->seg));
	memset(w->opening, 0, sizeof(w->opening));
	proc_event(s, "worker %u killed, and started again%s", i,
		   same_name ? " with the same name" : "");
	return stress_start(s, i, same_name);
}

/* Breaks one of the two rails for up to 1.55 s. Does nothing if a rail is
 * already broken. */
static bool proc_cut(struct stress *s, uint64_t *random)
{
	static const char *const how[] = {
		"link %u down", "link %u down", "drop %u both", "drop %u both",
		"drop %u in", "drop %u out", "refuse %u", "reset %u",
		"rate %u 4mbit",
	};
	char line[64];

	if (s->mend_ns)
		return true;
	s->cuts++;
	s->rail = (unsigned int)(ft_random(random) % 2);
	/* NOLINTNEXTLINE */
	snprintf(line, sizeof(line),
		 how[ft_random(random) % (sizeof(how) / sizeof(how[0]))],
		 s->rail);
	s->mend_ns = ft_now_ns() + (50 + ft_random(random) % 1500) * MS;
	proc_event(s, "%s", line);
	return fx_links_do(line);
}

static bool proc_mend(struct stress *s)
{
	char line[64];

	if (!s->mend_ns || ft_now_ns() < s->mend_ns)
		return true;
	s->mend_ns = 0;
	s->mended_ns[s->rail] = ft_now_ns();
	snprintf(line, sizeof(line), "restore %u", s->rail);
	proc_event(s, "%s", line);
	return fx_links_do(line);
}

/* The random choices of a fault depend only on the seed and on the number of
 * the fault. */
bool stress_fault(struct stress *s)
{
	uint64_t random = s->seed ^ (s->faults * UINT64_C(0x9e3779b97f4a7c15));
	unsigned int kind, w;

	proc_wake(s);
	if (!proc_mend(s))
		return false;
	if (ft_now_ns() < s->next_fault_ns)
		return true;
	s->faults++;
	kind = (unsigned int)(ft_random(&random) % 20);
	w = (unsigned int)(ft_random(&random) % STRESS_WORKERS);
	s->next_fault_ns = ft_now_ns() +
			   (200 + ft_random(&random) % 1500) * MS;
	if (s->links && ft_random(&random) % 3)
		return proc_cut(s, &random);
	if (kind < 4)
		return proc_replace(s, w, kind < 2);
	if (kind < 6)
		proc_stop(s, &s->worker[w], STRESS_TIMEOUT_S * 1000 +
					    1000 + ft_random(&random) % 2000);
	else
		proc_stop(s, &s->worker[w], 10 + ft_random(&random) % 800);
	return true;
}
