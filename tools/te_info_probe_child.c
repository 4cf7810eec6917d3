/* SPDX-License-Identifier: BSD-2-Clause */
/* Child processes that are the two ends of a transfer over one rail. The target
 * runs until its standard input ends. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fabtests/common/ft_clock.h"
#include "fabtests/common/ft_pattern.h"
#include "tools/te_info.h"

#define PROBE_BYTES	(4u << 20)	/* size of each region, bytes */
#define PROBE_BLOCK	(1u << 20)
#define PROBE_BLOCKS	(PROBE_BYTES / PROBE_BLOCK)
#define PROBE_SMALL	64
#define PROBE_PINGS	100

static char *probe_map(size_t len)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

/* Creates an engine and registers len bytes of new memory at *mem. Returns NULL
 * after printing "@error". */
static transfer_engine_t probe_open(const struct info_opts *opts, size_t len,
				    int remote, char **mem)
{
	transfer_engine_t engine = info_child_engine(opts);

	if (!engine)
		return NULL;
	*mem = probe_map(len);
	if (*mem && !registerLocalMemory(engine, *mem, len, "*", remote))
		return engine;
	info_say_error(*mem ? "registerLocalMemory" : "mmap");
	destroyTransferEngine(engine);
	return NULL;
}

int info_target_child(const struct info_opts *opts)
{
	transfer_engine_t engine;
	char *mem, name[128], c;
	cJSON *o;

	engine = probe_open(opts, PROBE_BYTES, 1, &mem);
	if (!engine)
		return 1;
	if (getLocalIpAndPort(engine, name, sizeof(name))) {
		info_say_error("getLocalIpAndPort");
		return 1;
	}
	o = cJSON_CreateObject();
	info_text(o, "segment", "%s", name);
	info_say("target", o);
	while (read(STDIN_FILENO, &c, 1) > 0 || errno == EINTR)
		errno = 0;
	destroyTransferEngine(engine);
	return 0;
}

/* --- the initiator ------------------------------------------------------- */

struct probe {
	transfer_engine_t engine;
	segment_id_t segment;
	char *mem;			/* the bytes to write, followed by the
					 * bytes that were read back */
	uint64_t remote;		/* address of the target's memory */
	const char *call;		/* name of the call that has failed */
	struct te_error err;
};

/* Waits until the task has ended. Returns 0, or -1 after setting p->err. */
static int probe_wait(struct probe *p, batch_id_t batch, size_t task)
{
	struct transfer_status st = { .status = STATUS_WAITING };
	int ret = 0;

	while (!ret && st.status < STATUS_CANCELED)
		ret = getTransferStatus(p->engine, batch, task, &st);
	if (!ret && st.status == STATUS_COMPLETED)
		return 0;
	te_task_error(p->engine, batch, task, &p->err, sizeof(p->err));
	return -1;
}

/* Runs n requests of len bytes at the same time. Returns 0, or -1 after setting
 * p->err and p->call (the name of the call that failed). */
static int probe_move(struct probe *p, int opcode, size_t len, size_t n)
{
	struct transfer_request rq[PROBE_BLOCKS];
	bool read = opcode == OPCODE_READ;
	batch_id_t batch = allocateBatchID(p->engine, n);
	int ret;
	size_t i;

	for (i = 0; i < n; i++)
		rq[i] = (struct transfer_request){
			.opcode = opcode,
			.source = p->mem + i * len + (read ? PROBE_BYTES : 0),
			.target_id = p->segment,
			.target_offset = p->remote + i * len,
			.length = len,
		};
	p->call = read ? "read" : "write";
	ret = submitTransfer(p->engine, batch, rq, n);
	if (ret) {
		te_last_error(&p->err, sizeof(p->err));
		return -1;
	}
	for (i = 0; i < n; i++)
		if (probe_wait(p, batch, i))
			ret = -1;
	freeBatchID(p->engine, batch);
	return ret;
}

/* Writes the whole region to the target, reads it back and compares the
 * bytes. */
static int probe_verify(struct probe *p, cJSON *result)
{
	size_t bad;

	ft_pattern_fill(p->mem, 0, PROBE_BYTES, 1, ft_now_ns());
	if (probe_move(p, OPCODE_WRITE, PROBE_BLOCK, PROBE_BLOCKS) ||
	    probe_move(p, OPCODE_READ, PROBE_BLOCK, PROBE_BLOCKS))
		return -1;
	for (bad = 0; bad < PROBE_BYTES; bad++)
		if (p->mem[bad] != p->mem[PROBE_BYTES + bad])
			break;
	info_num(result, "verified_bytes", (double)bad);
	info_bool(result, "verified", bad == PROBE_BYTES);
	return 0;
}

static int probe_rate(struct probe *p, double seconds, cJSON *result)
{
	uint64_t start = ft_now_ns(), now = start, bytes = 0;
	uint64_t end = start + (uint64_t)(seconds * 1e9);

	while (now < end) {
		if (probe_move(p, OPCODE_WRITE, PROBE_BLOCK, PROBE_BLOCKS))
			return -1;
		bytes += PROBE_BYTES;
		now = ft_now_ns();
	}
	info_num(result, "bytes", (double)bytes);
	info_num(result, "seconds", (double)(now - start) / 1e9);
	info_num(result, "bytes_per_second",
		 (double)bytes * 1e9 / (double)(now - start + 1));
	return 0;
}

static int probe_cmp(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static int probe_latency(struct probe *p, double seconds, cJSON *result)
{
	uint64_t ns[PROBE_PINGS], start = ft_now_ns(), before;
	size_t n = 0;

	while (n < PROBE_PINGS &&
	       (!n || ft_now_ns() - start < (uint64_t)(seconds * 1e9))) {
		before = ft_now_ns();
		if (probe_move(p, OPCODE_WRITE, PROBE_SMALL, 1))
			return -1;
		ns[n++] = ft_now_ns() - before;
	}
	qsort(ns, n, sizeof(*ns), probe_cmp);
	info_num(result, "latency_us", (double)ns[n / 2] / 1e3);
	return 0;
}

static int probe_run(struct probe *p, const struct info_opts *opts,
		     cJSON *result)
{
	struct te_buffer buf;
	size_t n = 1;

	p->call = "openSegment";
	p->segment = openSegment(p->engine, opts->remote);
	if (p->segment < 0)
		goto err_last;
	p->call = "te_segment_buffers";
	if (te_segment_buffers(p->engine, p->segment, &buf, sizeof(buf), &n) ||
	    !n)
		goto err_last;
	p->remote = buf.addr;
	if (probe_verify(p, result) ||
	    probe_latency(p, opts->probe_time / 4, result) ||
	    probe_rate(p, opts->probe_time, result))
		return -1;
	return 0;

err_last:
	te_last_error(&p->err, sizeof(p->err));
	return -1;
}

int info_initiator_child(const struct info_opts *opts)
{
	struct probe p = { .call = "" };
	cJSON *result;
	int ret;

	p.engine = probe_open(opts, 2 * (size_t)PROBE_BYTES, 0, &p.mem);
	if (!p.engine)
		return 1;
	result = cJSON_CreateObject();
	ret = opts->remote ? probe_run(&p, opts, result) : -1;
	info_bool(result, "ok", !ret);
	if (ret)
		info_text(result, "error", "%s: %s%s%s", p.call,
			  *p.err.text ? p.err.text : "no reason given",
			  *p.err.hint ? "; " : "", p.err.hint);
	info_say("result", result);
	destroyTransferEngine(p.engine);
	return ret ? 1 : 0;
}
