/* SPDX-License-Identifier: BSD-2-Clause */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fabtests/benchmarks/te_bench.h"
#include "fabtests/common/ft_clock.h"

enum { ENGINE_MATRIX_MAX = 1 << 20, ENGINE_BUFFERS = 256 };

void bench_engine_error(const char *what)
{
	struct te_error err;

	memset(&err, 0, sizeof(err));
	te_last_error(&err, sizeof(err));
	fprintf(stderr, "te_bench: %s failed (%d)%s%s%s%s%s\n", what, err.code,
		err.text[0] ? ": " : "", err.text,
		err.hint[0] ? " (" : "", err.hint, err.hint[0] ? ")" : "");
}

int bench_register(transfer_engine_t engine, struct bench_memory *memory,
		   uint64_t size, const char *location, int pages, bool remote)
{
	if (bench_memory_get(memory, size, location, pages))
		return -1;
	if (!registerLocalMemory(engine, memory->addr, size, location, remote))
		return 0;
	bench_engine_error("registerLocalMemory");
	bench_memory_put(memory);
	return -1;
}

int bench_unregister(transfer_engine_t engine, struct bench_memory *memory)
{
	if (unregisterLocalMemory(engine, memory->addr)) {
		bench_engine_error("unregisterLocalMemory");
		return -1;
	}
	bench_memory_put(memory);
	return 0;
}

const char *bench_gpu_load(const struct bench_opts *opts)
{
	int (*init)(unsigned int), (*count)(int *), n = 0;
	void *library, *f, *g;

	if (!bench_location_gpu(opts->location) &&
	    !bench_location_gpu(opts->target_location))
		return NULL;
	library = dlopen("libcuda.so.1", RTLD_NOW);
	f = library ? dlsym(library, "cuInit") : NULL;
	g = library ? dlsym(library, "cuDeviceGetCount") : NULL;
	if (!f || !g)
		return "no CUDA driver: libcuda.so.1 was not found";
	memcpy(&init, &f, sizeof(f));
	memcpy(&count, &g, sizeof(g));
	return init(0) || count(&n) || !n ? "the CUDA driver finds no GPU" :
					    NULL;
}

uint64_t bench_alloc_flags(const struct bench_opts *opts, const char *location)
{
	if (bench_location_gpu(location))
		return 0;
	return opts->pages == BENCH_PAGES_SMALL ? TE_ALLOC_SMALL_PAGES :
	       opts->pages == BENCH_PAGES_HUGE	? TE_ALLOC_HUGE_PAGES :
						  0;
}

int bench_register_own(transfer_engine_t engine, struct bench_memory *memory,
		       const struct bench_opts *opts)
{
	struct te_memory m;

	if (!bench_location_allocated(opts, opts->location))
		return bench_register(engine, memory, opts->buffer_size,
				      opts->location, opts->pages, false);
	if (te_alloc(engine, opts->buffer_size, opts->location,
		     TE_ALLOC_PRIVATE |
			     bench_alloc_flags(opts, opts->location),
		     &m, sizeof(m))) {
		bench_engine_error("te_alloc");
		return -1;
	}
	memory->addr = (uint8_t *)(uintptr_t)m.addr;
	memory->size = m.size;
	return 0;
}

int bench_unregister_own(transfer_engine_t engine, struct bench_memory *memory,
			 const struct bench_opts *opts)
{
	if (!bench_location_allocated(opts, opts->location))
		return bench_unregister(engine, memory);
	if (!te_free(engine, memory->addr))
		return 0;
	bench_engine_error("te_free");
	return -1;
}

/* Sets an environment variable for each option of the table below that was
 * given. Returns 0 or -1. */
static int engine_setenv(const struct bench_opts *opts)
{
	char depth[24];
	const struct {
		const char *name;
		const char *value;
	} said[] = {
		{ "MOONRAIL_DEVICES", opts->device_name },
		{ "MOONRAIL_PROVIDER", opts->provider },
		{ "MOONRAIL_PROGRESS_CPUS", opts->progress_cpus },
		{ "MOONRAIL_FILE_SYNC", opts->file_sync },
		{ "MOONRAIL_FILE_IO", opts->file_io },
		{ "MOONRAIL_FILE_DEPTH", opts->file_depth ? depth : NULL },
	};

	snprintf(depth, sizeof(depth), "%llu",
		 (unsigned long long)opts->file_depth);
	for (size_t i = 0; i < sizeof(said) / sizeof(*said); i++)
		if (said[i].value && setenv(said[i].name, said[i].value, 1))
			return -1;
	return 0;
}

/* Returns the name for the engine: --local_server_name if given, 127.0.0.1 if
 * both processes are on this host, otherwise the host name. */
static const char *engine_name(const struct bench_opts *opts, char *buf,
			       size_t len)
{
	if (opts->local_server_name)
		return opts->local_server_name;
	if (opts->child ||
	    (opts->mode != BENCH_INITIATOR && opts->mode != BENCH_TARGET))
		return "127.0.0.1";
	if (gethostname(buf, len))
		return "localhost";
	buf[len - 1] = '\0';
	return buf;
}

/* Returns the priority matrix as JSON, which the caller frees, or NULL after a
 * message on stderr. A text that starts with a brace is JSON itself; any other
 * text is the name of a file. */
static char *engine_matrix(const char *text)
{
	char *matrix = NULL;
	size_t size;
	FILE *file;

	if (text[strspn(text, " \t\n")] == '{')
		return strdup(text);
	file = fopen(text, "r");
	if (file)
		matrix = calloc(1, ENGINE_MATRIX_MAX);
	size = matrix ? fread(matrix, 1, ENGINE_MATRIX_MAX - 1, file) : 0;
	if (!size)
		fprintf(stderr, "te_bench: --nic_priority_matrix=%s: %s\n",
			text, errno ? strerror(errno) : "is empty");
	if (file)
		fclose(file);
	if (size)
		return matrix;
	free(matrix);
	return NULL;
}

static int engine_install(transfer_engine_t engine,
			  const struct bench_opts *opts)
{
	void *args[2] = { NULL, NULL };
	transport_t transport;

	if (!strcmp(opts->protocol, "auto"))
		return 0;
	if (opts->nic_priority_matrix) {
		args[0] = engine_matrix(opts->nic_priority_matrix);
		if (!args[0])
			return -1;
	}
	transport = installTransport(engine, opts->protocol,
				     args[0] ? args : NULL);
	if (!transport)
		bench_engine_error("installTransport");
	free(args[0]);
	return transport ? 0 : -1;
}

/* true if --wait was given; set before the threads start */
static bool engine_sleeps;

transfer_engine_t bench_engine_open(const struct bench_opts *opts)
{
	transfer_engine_t engine;
	char host[256];
	const char *name = engine_name(opts, host, sizeof(host));

	engine_sleeps = opts->wait;
	if (engine_setenv(opts))
		return NULL;
	engine = createTransferEngine(opts->metadata_server, name, name, 0,
				      !strcmp(opts->protocol, "auto"));
	if (!engine) {
		bench_engine_error("createTransferEngine");
		return NULL;
	}
	if (!engine_install(engine, opts))
		return engine;
	destroyTransferEngine(engine);
	return NULL;
}

size_t bench_rails_get(transfer_engine_t engine, struct te_rail_stats *rails,
		       size_t max)
{
	size_t count = max;

	if (te_rail_stats(engine, rails, sizeof(*rails), &count))
		return 0;
	return count < max ? count : max;
}

size_t bench_rails_since(transfer_engine_t engine, struct te_rail_stats *rails,
			 size_t max, const struct te_rail_stats *before,
			 size_t n_before)
{
	size_t count = bench_rails_get(engine, rails, max);

	/* a rail keeps its index; new rails are appended */
	for (size_t i = 0; i < count && i < n_before; i++) {
		rails[i].tx_bytes -= before[i].tx_bytes;
		rails[i].rx_bytes -= before[i].rx_bytes;
		rails[i].errors -= before[i].errors;
		rails[i].retries -= before[i].retries;
		rails[i].slices -= before[i].slices;
	}
	return count;
}

static void engine_task_error(transfer_engine_t engine, batch_id_t batch,
			      size_t task, const struct transfer_status *status)
{
	struct te_error err;

	memset(&err, 0, sizeof(err));
	te_task_error(engine, batch, task, &err, sizeof(err));
	fprintf(stderr, "te_bench: request %zu ended with status %d: %s%s%s"
		" [rail %s, peer %s]%s%s\n", task, status->status, err.text,
		err.hint[0] ? ", " : "", err.hint, err.rail, err.peer,
		err.flags & TE_ERROR_UNFENCED ? " unfenced" : "",
		err.code ? "" : " (no error record)");
}

/* Returns the final status of a task, or STATUS_WAITING if it has not ended. */
static int engine_poll(transfer_engine_t engine, batch_id_t batch, size_t task,
		       struct transfer_status *status)
{
	if (getTransferStatus(engine, batch, task, status)) {
		bench_engine_error("getTransferStatus");
		status->status = STATUS_FAILED;
	}
	if (status->status < STATUS_CANCELED)
		status->status = STATUS_WAITING;
	return status->status;
}

/* Waits for the tasks in their order. Returns the number of tasks that did not
 * complete, and describes the first of them on stderr. */
static size_t engine_wait(transfer_engine_t engine, batch_id_t batch,
			  size_t count)
{
	struct transfer_status status;
	size_t failed = 0;

	if (engine_sleeps)
		te_wait_batch(engine, batch, -1, &status);
	for (size_t task = 0; task < count; task++) {
		while (engine_poll(engine, batch, task, &status) ==
		       STATUS_WAITING)
			;
		if (__builtin_expect(status.status == STATUS_COMPLETED, 1))
			continue;
		if (!failed++)
			engine_task_error(engine, batch, task, &status);
	}
	return failed;
}

/* Polls all tasks in turn until each has ended, and adds the time from
 * `begin_ns` to the end of each task to `each`. Returns as engine_wait does. */
static size_t engine_wait_each(transfer_engine_t engine, batch_id_t batch,
			       size_t count, uint64_t begin_ns,
			       struct ft_hist *each)
{
	uint64_t waiting = count < 64 ? (UINT64_C(1) << count) - 1 : UINT64_MAX;
	struct transfer_status status;
	size_t failed = 0;

	for (size_t task = 0; waiting; task = (task + 1) % count) {
		uint64_t bit = UINT64_C(1) << task;

		if (!(waiting & bit) ||
		    engine_poll(engine, batch, task, &status) == STATUS_WAITING)
			continue;
		waiting &= ~bit;
		ft_hist_add(each, ft_now_ns() - begin_ns);
		if (status.status != STATUS_COMPLETED && !failed++)
			engine_task_error(engine, batch, task, &status);
	}
	return failed;
}

size_t bench_transfer(transfer_engine_t engine,
		      struct transfer_request *requests, size_t count,
		      struct ft_hist *each, uint64_t *ns)
{
	batch_id_t batch = allocateBatchID(engine, count);
	size_t failed = count;
	uint64_t begin_ns;

	if (batch == INVALID_BATCH) {
		bench_engine_error("allocateBatchID");
		return count;
	}
	begin_ns = ft_now_ns();
	if (submitTransfer(engine, batch, requests, count))
		bench_engine_error("submitTransfer");
	else if (each)
		failed = engine_wait_each(engine, batch, count, begin_ns, each);
	else
		failed = engine_wait(engine, batch, count);
	*ns = ft_now_ns() - begin_ns;
	if (freeBatchID(engine, batch)) {
		bench_engine_error("freeBatchID");
		failed = failed ? failed : 1;
	}
	return failed;
}

static int engine_by_addr(const void *a, const void *b)
{
	const struct te_buffer *x = a, *y = b;

	return x->addr < y->addr ? -1 : x->addr > y->addr;
}

/* Sets `remote` to the longest contiguous range. The parts of a buffer on
 * several NUMA nodes are published as adjacent buffers, which this function
 * joins. */
static void engine_longest(struct te_buffer *buffers, size_t n,
			   struct bench_remote *remote)
{
	uint64_t from = 0, end = 0;

	qsort(buffers, n, sizeof(*buffers), engine_by_addr);
	for (size_t i = 0; i < n; i++) {
		if (!i || buffers[i].addr != end)
			from = buffers[i].addr;
		end = buffers[i].addr + buffers[i].length;
		if (end - from <= remote->size)
			continue;
		remote->addr = from;
		remote->size = end - from;
	}
}

int bench_remote_open(transfer_engine_t engine, const char *name,
		      struct bench_remote *remote)
{
	struct te_buffer buffers[ENGINE_BUFFERS];
	size_t count = ENGINE_BUFFERS;

	remote->size = 0;
	remote->id = openSegment(engine, name);
	if (remote->id < 0) {
		bench_engine_error("openSegment");
		return -1;
	}
	if (te_segment_buffers(engine, remote->id, buffers, sizeof(*buffers),
			       &count)) {
		bench_engine_error("te_segment_buffers");
		goto err_close;
	}
	engine_longest(buffers, count < ENGINE_BUFFERS ? count : ENGINE_BUFFERS,
		       remote);
	if (remote->size)
		return 0;
	fprintf(stderr, "te_bench: segment %s has no buffer\n", name);
err_close:
	closeSegment(engine, remote->id);
	return -1;
}
