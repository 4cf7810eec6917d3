/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_BENCHMARKS_TE_BENCH_H
#define TEI_FABTESTS_BENCHMARKS_TE_BENCH_H

/*
 * te_bench: what its source files share.
 *
 *	te_bench.c		main, signals
 *	te_bench_options.c	the option table and its parser
 *	te_bench_run.c		threads, warm-up, deadline; engine and raw alike
 *	te_bench_memory.c	memory where the options say
 *	te_bench_engine.c	an engine as the options say
 *	te_bench_initiator.c	one step: a batch through the engine
 *	te_bench_target.c	--mode=target
 *	te_bench_child.c	the target as a child of this process
 *	te_bench_demo.c		--mode=demo
 *	te_bench_copy.c		--mode=memcpy
 *	te_bench_idle.c		--mode=idle
 *	te_bench_segments.c	--mode=segments
 *	te_bench_register.c	--mode=register
 *	te_bench_raw*.c		--mode=raw
 *	te_bench_report.c	text and JSON
 */

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "moonrail.h"
#include "fabtests/common/ft_hist.h"
#include "fabtests/common/ft_proc.h"

enum { BENCH_RAILS = 64, BENCH_ENGINES = 1000 };

enum bench_exit {
	BENCH_OK = 0,
	BENCH_FAILED = 1,
	BENCH_USAGE = 2,
	BENCH_SKIPPED = 77,
};

enum bench_mode {
	BENCH_INITIATOR,
	BENCH_TARGET,
	BENCH_LOOPBACK,
	BENCH_RAW,
	BENCH_DEMO,
	BENCH_SELF,
	BENCH_MEMCPY,
	BENCH_IDLE,
	BENCH_SEGMENTS,
	BENCH_REGISTER,
};

/* Index of the names that --operation takes; equals OPCODE_…. */
enum bench_operation { BENCH_READ = OPCODE_READ, BENCH_WRITE = OPCODE_WRITE };

/* Index of the names that --pages takes. */
enum bench_pages {
	BENCH_PAGES_ANY,		/* as the kernel does by itself */
	BENCH_PAGES_SMALL,
	BENCH_PAGES_TRANSPARENT,
	BENCH_PAGES_HUGE,		/* of its pool */
};

/* Fixed once parsed. Texts point into argv or are static. */
struct bench_opts {
	int mode;			/* enum bench_mode */
	int operation;			/* enum bench_operation */
	const char *metadata_server;
	const char *local_server_name;	/* NULL: chosen by mode */
	const char *segment_id;		/* NULL: none */
	const char *protocol;
	bool default_protocol;		/* the mode chose protocol */
	const char *device_name;	/* NULL: every device */
	const char *provider;		/* NULL: by protocol */
	const char *location;		/* of the initiator's memory, or NULL */
	const char *target_location;	/* of the target's, likewise */
	const char *gpu;		/* location, as its number alone */
	const char *target_gpu;		/* likewise */
	int pages;			/* enum bench_pages */
	const char *file_sync;		/* these, NULL: as the environment */
	const char *file_io;		/* has them */
	const char *progress_cpus;
	uint64_t file_depth;		/* 0: likewise */
	const char *nic_priority_matrix; /* JSON or a file's name, or NULL */
	uint64_t block_size;		/* bytes */
	uint64_t batch_size;		/* requests */
	uint64_t buffer_size;		/* bytes */
	uint64_t own_size;		/* of those, used here; 0: all */
	uint64_t threads;
	uint64_t beside;		/* bytes of the last thread's, or 0 */
	uint64_t window;		/* raw: operations, 0: batches */
	uint64_t warmup;		/* batches per thread, not counted */
	uint64_t max_errors;
	uint64_t seed;
	uint64_t segments;		/* opened by --mode=segments */
	uint64_t engines;		/* of one target */
	double duration;		/* seconds */
	double pause;			/* between those of beside, seconds */
	bool verify;
	bool wait;			/* asleep until a batch has ended */
	bool json;
	bool bidirectional;		/* raw */
	bool plain_calls;		/* raw: fi_write, not fi_writemsg */
	bool wait_fd;			/* raw: queues that can be slept on */
	bool child;			/* this is a target that we started */
	bool help;
	bool version;
};

/* 0, or BENCH_USAGE with a line on stderr that says what is wrong. */
int bench_parse(int argc, char **argv, struct bench_opts *opts);
void bench_help(void);
const char *bench_mode_name(int mode);
const char *bench_operation_name(int operation);
const char *bench_pages_name(int pages);

/* Set by SIGINT and SIGTERM; a second one ends the process. */
extern volatile sig_atomic_t bench_interrupted;

/* --- runner -------------------------------------------------------------- */

/*
 * One thread's counters. Written by that thread; `bytes` is read by the
 * progress bar meanwhile, the rest after the run.
 */
struct bench_run;

struct bench_worker {
	unsigned int index;
	void *ctx;			/* the mode's own, set by prepare */
	struct bench_run *run;
	pthread_t thread;
	_Atomic uint64_t bytes;		/* completed payload */
	uint64_t operations;		/* completed */
	uint64_t errors;
	uint64_t verified;		/* bytes compared and right */
	uint64_t busy_ns;		/* inside transfers */
	uint64_t now_ns;		/* a step leaves the time it ended */
	struct ft_hist latency;
};

/*
 * What a mode does per thread, each called on that thread. prepare and step
 * return 0, or -1 to end the run (an error is counted by the callee). finish
 * is called after the last step, also after an error, if prepare returned 0.
 */
struct bench_ops {
	void (*begin)(struct bench_run *run);	/* once, after the warm-up, on
						 * the caller's thread; or NULL */
	int (*prepare)(struct bench_worker *worker);
	int (*step)(struct bench_worker *worker);
	void (*finish)(struct bench_worker *worker);
};

struct bench_result {
	uint64_t bytes;
	uint64_t operations;
	uint64_t errors;
	uint64_t verified;
	double seconds;
	double rate;			/* bytes per second */
	double cpu_seconds;
	double target_cpu_seconds;	/* below 0: not known */
	struct ft_hist latency;
	char transport[32];
	size_t n_rails;
	struct te_rail_stats rails[BENCH_RAILS];	/* of the run alone */
};

struct bench_run {
	const struct bench_opts *opts;
	const struct bench_ops *ops;
	void *arg;			/* the mode's, for prepare */
	struct ft_proc *child;		/* asked for its CPU time, or NULL */
	struct bench_worker *workers;
	pthread_barrier_t start;
	uint64_t deadline_ns;		/* set before the barrier opens */
	atomic_bool stop;
};

/* Runs the threads and adds up. 0 or -1 where the run could not be made. */
int bench_run(struct bench_run *run, struct bench_result *result);

/* Counts one error; false when the run has to stop for it. */
bool bench_error(struct bench_worker *worker);

/* --- memory -------------------------------------------------------------- */

struct bench_memory {
	uint8_t *addr;
	size_t size;
	uint8_t *map;			/* of which it is a part */
	size_t mapped;
};

/* cpu:N, cuda:N, segments:<page>:<node>,... or *; NULL is that too. */
bool bench_location_valid(const char *location);
bool bench_location_gpu(const char *location);
bool bench_location_parts(const char *location);	/* on several nodes */

/*
 * Memory of the host, present, all of it where location says (NULL: anywhere)
 * and of those pages (enum bench_pages). 0, or -1 with a line on stderr.
 */
int bench_memory_get(struct bench_memory *memory, uint64_t size,
		     const char *location, int pages);
void bench_memory_put(struct bench_memory *memory);

/* --- engine -------------------------------------------------------------- */

/* As bench_memory_get, and registers; 0, or -1 with a line on stderr and
 * nothing held. */
int bench_register(transfer_engine_t engine, struct bench_memory *memory,
		   uint64_t size, const char *location, int pages, bool remote);

/* The reverse; memory that stays registered stays mapped. 0 or -1. */
int bench_unregister(transfer_engine_t engine, struct bench_memory *memory);

/* The initiator's: where the options say. The same two, but for memory of a
 * GPU, that no CPU may touch. */
int bench_register_own(transfer_engine_t engine, struct bench_memory *memory,
		       const struct bench_opts *opts);
int bench_unregister_own(transfer_engine_t engine, struct bench_memory *memory,
			 const struct bench_opts *opts);
/* Loads and initialises the driver where a GPU is asked for: NULL, or why
 * that cannot be. */
const char *bench_gpu_load(const struct bench_opts *opts);

/* NULL with a line on stderr. */
transfer_engine_t bench_engine_open(const struct bench_opts *opts);

/* Says what failed and why, from te_last_error. */
void bench_engine_error(const char *what);

/* Counters of now, or since `before` was taken. Returns how many. */
size_t bench_rails_get(transfer_engine_t engine, struct te_rail_stats *rails,
		       size_t max);
size_t bench_rails_since(transfer_engine_t engine, struct te_rail_stats *rails,
			 size_t max, const struct te_rail_stats *before,
			 size_t n_before);

/*
 * One batch: submits, waits until every task is terminal, frees. Returns how
 * many tasks did not complete (all where the batch was refused); the first is
 * described on stderr. Allocates nothing. *ns is the time from the submission
 * to the last completion; each, if not NULL, gets that of every request, of at
 * most BENCH_EACH.
 */
enum { BENCH_EACH = 64 };

size_t bench_transfer(transfer_engine_t engine,
		      struct transfer_request *requests, size_t count,
		      struct ft_hist *each, uint64_t *ns);

/* An open segment and where its buffer is. */
struct bench_remote {
	segment_id_t id;
	uint64_t addr;
	uint64_t size;
};

int bench_remote_open(transfer_engine_t engine, const char *name,
		      struct bench_remote *remote);

/* --- target -------------------------------------------------------------- */

/* The name that the target's first line has room for. */
enum {
	BENCH_NAME_MAX = 512,
	BENCH_START_MS = 60000,
	BENCH_STOP_MS = 20000,
	BENCH_STOP_EACH_MS = 200,	/* and that for each engine */
};

/* Starts this program as the target; name gets its first line. */
int bench_child_start(struct ft_proc *child, const struct bench_opts *opts,
		      const char *mode, char *name, size_t len);

/* CPU seconds that it has used so far, below 0 if it does not answer. */
double bench_child_cpu(struct ft_proc *child);

/* 0 if it ended as it should; engines: how many are closed at that time, by it
 * and by others. */
int bench_child_stop(struct ft_proc *child, uint64_t engines);

/* Answers "cpu"; other lines are returned as 1 in line, the end as 0. */
int bench_serve_line(char *line, size_t len);

int bench_target(const struct bench_opts *opts);
int bench_initiator(const struct bench_opts *opts);
int bench_loopback(const struct bench_opts *opts);
int bench_raw(const struct bench_opts *opts);
int bench_raw_target(const struct bench_opts *opts);
int bench_demo(const struct bench_opts *opts);
int bench_self(const struct bench_opts *opts);
int bench_copy(const struct bench_opts *opts);
int bench_idle(const struct bench_opts *opts);
int bench_segments(const struct bench_opts *opts);
int bench_registering(const struct bench_opts *opts);

/* --- report -------------------------------------------------------------- */

/* Prints the protocol if it is the default, because the modes have different ones. */
void bench_report_protocol(const struct bench_opts *opts);
/* Returns the exit code that the result stands for. */
int bench_report(const struct bench_opts *opts,
		 const struct bench_result *result);

#endif /* TEI_FABTESTS_BENCHMARKS_TE_BENCH_H */
