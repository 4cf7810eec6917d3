/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_BENCHMARKS_TE_BENCH_H
#define TEI_FABTESTS_BENCHMARKS_TE_BENCH_H

/*
 * Declarations that the source files of te_bench share.
 *
 *	te_bench.c		main, signals
 *	te_bench_options.c	the option table and its parser
 *	te_bench_run.c		threads, warm-up, deadline; for engine and raw
 *	te_bench_memory.c	memory at the location of the options
 *	te_bench_engine.c	an engine according to the options
 *	te_bench_initiator.c	one step: a batch through the engine
 *	te_bench_target.c	--mode=target
 *	te_bench_child.c	the target as a child of this process
 *	te_bench_demo.c		--mode=demo
 *	te_bench_copy.c		--mode=memcpy
 *	te_bench_idle.c		--mode=idle
 *	te_bench_segments.c	--mode=segments
 *	te_bench_register.c	--mode=register
 *	te_bench_prepared.c	--mode=prepared
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
	BENCH_PREPARED,
};

/* Values of --operation, in the order of its names; equal to OPCODE_…. */
enum bench_operation { BENCH_READ = OPCODE_READ, BENCH_WRITE = OPCODE_WRITE };

/* Values of --pages, in the order of its names. */
enum bench_pages {
	BENCH_PAGES_ANY, /* the size that the kernel chooses */
	BENCH_PAGES_SMALL,
	BENCH_PAGES_TRANSPARENT,
	BENCH_PAGES_HUGE, /* huge pages of the kernel's pool */
};

/* The options. Constant after parsing. The texts are in argv or static. */
struct bench_opts {
	int mode;			/* enum bench_mode */
	int operation;			/* enum bench_operation */
	const char *metadata_server;
	const char *local_server_name;	/* NULL means the default of the mode */
	const char *segment_id;		/* segment to open, or NULL */
	const char *protocol;
	bool default_protocol;		/* protocol is the default of the
					 * mode */
	const char *device_name;	/* NULL means all devices */
	const char *provider;		/* NULL means the default of the
					 * protocol */
	const char *location;		/* location of the initiator's memory,
					 * or NULL */
	const char *target_location;	/* location of the target's memory, or
					 * NULL */
	const char *gpu;		/* value of --gpu=N, which is short for
					 * location cuda:N; or NULL */
	const char *target_gpu;		/* value of --target_gpu=N, which is
					 * short for target_location cuda:N; or
					 * NULL */
	int pages;			/* enum bench_pages */
	/* the next three members: NULL means the value of the environment
	 * variable */
	const char *file_sync;
	const char *file_io;
	const char *progress_cpus;
	uint64_t file_depth; /* 0 means the value of the environment variable */
	const char *nic_priority_matrix; /* JSON, or the name of a file, or
					  * NULL */
	uint64_t block_size;		/* bytes */
	uint64_t batch_size;		/* requests */
	uint64_t buffer_size;		/* bytes */
	uint64_t own_size;		/* part of buffer_size that the
					 * initiator uses, bytes; 0 means all of
					 * it */
	uint64_t threads;
	uint64_t beside;		/* size of the last thread's requests,
					 * bytes; 0 means block_size */
	uint64_t window;		/* mode raw: number of operations in
					 * progress; 0 means that batches are
					 * used */
	uint64_t warmup;		/* batches per thread that are not
					 * measured */
	uint64_t max_errors;
	uint64_t seed;
	uint64_t segments;		/* number of segments for
					 * --mode=segments */
	uint64_t engines;		/* number of engines of one target */
	double duration;		/* seconds */
	double pause;			/* time between two of the small
					 * requests, seconds */
	bool verify;
	bool wait;			/* sleep until a batch has ended */
	bool json;
	bool bidirectional;		/* mode raw: both sides post
					 * operations */
	bool plain_calls;		/* mode raw: uses fi_write, not
					 * fi_writemsg */
	bool wait_fd;			/* mode raw: completion queues have a
					 * file descriptor */
	bool child;			/* this process is a target that
					 * te_bench has started */
	bool help;
	bool version;
};

/* Parses the options. Returns 0, or BENCH_USAGE after a message on stderr. */
int bench_parse(int argc, char **argv, struct bench_opts *opts);
void bench_help(void);
const char *bench_mode_name(int mode);
const char *bench_operation_name(int operation);
const char *bench_pages_name(int pages);

/* SIGINT and SIGTERM set this variable. The second signal ends the process. */
extern volatile sig_atomic_t bench_interrupted;

/* --- runner -------------------------------------------------------------- */

/*
 * The counters of one thread, which writes them. The progress bar reads `bytes`
 * during the run; the other ones are read after the run.
 */
struct bench_run;

struct bench_worker {
	unsigned int index;
	void *ctx;			/* data of the mode, set by prepare */
	struct bench_run *run;
	pthread_t thread;
	_Atomic uint64_t bytes;		/* payload completed */
	uint64_t operations;		/* operations completed */
	uint64_t errors;
	uint64_t verified;		/* bytes compared and correct */
	uint64_t busy_ns;		/* time inside transfers */
	uint64_t now_ns;		/* time at which the last step ended */
	struct ft_hist latency;
};

/*
 * What a mode does in each thread. prepare and step return 0, or -1 to end the
 * run; they count an error themselves. finish is called after the last step,
 * also after an error, if prepare returned 0.
 */
struct bench_ops {
	void (*begin)(struct bench_run *run);	/* called once by the main
						 * thread, after the warm-up; or
						 * NULL */
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
	double target_cpu_seconds;	/* negative if it is unknown */
	struct ft_hist latency;
	char transport[32];
	size_t n_rails;
	struct te_rail_stats rails[BENCH_RAILS];	/* counters of the run
							 * only */
};

struct bench_run {
	const struct bench_opts *opts;
	const struct bench_ops *ops;
	void *arg;			/* data of the mode, for prepare */
	struct ft_proc *child;		/* the target, queried for its CPU time;
					 * or NULL */
	struct bench_worker *workers;
	pthread_barrier_t start;
	uint64_t deadline_ns;		/* set before the barrier opens */
	atomic_bool stop;
};

/* Runs the threads and adds up their counters. Returns 0, or -1 if the run
 * could not be started. */
int bench_run(struct bench_run *run, struct bench_result *result);

/* Counts an error. Returns false if the run must stop because of it. */
bool bench_error(struct bench_worker *worker);

/* --- memory -------------------------------------------------------------- */

struct bench_memory {
	uint8_t *addr;
	size_t size;
	uint8_t *map;			/* the mapping that contains addr */
	size_t mapped;
};

/* Checks a location: cpu:N, cuda:N, segments:<page>:<node>,..., * or NULL,
 * which is the same as *. */
bool bench_location_valid(const char *location);
bool bench_location_gpu(const char *location);
/* Returns true if the location consists of parts on several NUMA nodes. */
bool bench_location_parts(const char *location);

/*
 * Maps host memory, with all of it present, at the location (NULL: anywhere)
 * and with that kind of pages (enum bench_pages). Returns 0, or -1 after a
 * message on stderr.
 */
int bench_memory_get(struct bench_memory *memory, uint64_t size,
		     const char *location, int pages);
void bench_memory_put(struct bench_memory *memory);

/* --- engine -------------------------------------------------------------- */

/* Maps memory as bench_memory_get does and registers it. Returns 0, or -1 after
 * a message on stderr. */
int bench_register(transfer_engine_t engine, struct bench_memory *memory,
		   uint64_t size, const char *location, int pages, bool remote);

/* Unregisters and unmaps memory. Memory that cannot be unregistered stays
 * mapped. Returns 0 or -1. */
int bench_unregister(transfer_engine_t engine, struct bench_memory *memory);

/* bench_register_own registers the initiator's memory at the location in the
 * options, like bench_register. bench_unregister_own unregisters it, like
 * bench_unregister. If the location is a GPU, the CPU cannot access the
 * memory. */
int bench_register_own(transfer_engine_t engine, struct bench_memory *memory,
		       const struct bench_opts *opts);
int bench_unregister_own(transfer_engine_t engine, struct bench_memory *memory,
			 const struct bench_opts *opts);
/* Loads and initialises the CUDA driver if the options name a GPU. Returns
 * NULL, or the reason why that failed. */
const char *bench_gpu_load(const struct bench_opts *opts);

/* Creates an engine. Returns NULL after a message on stderr. */
transfer_engine_t bench_engine_open(const struct bench_opts *opts);

/* Prints te_last_error and the name of the failed call to stderr. */
void bench_engine_error(const char *what);

/* bench_rails_get reads the counters of the rails. bench_rails_since reads by
 * how much they have grown since `before`. Both return the number of rails. */
size_t bench_rails_get(transfer_engine_t engine, struct te_rail_stats *rails,
		       size_t max);
size_t bench_rails_since(transfer_engine_t engine, struct te_rail_stats *rails,
			 size_t max, const struct te_rail_stats *before,
			 size_t n_before);

/*
 * Runs one batch: submits it, waits until every task has ended, and frees it.
 * Returns the number of tasks that did not complete (all if the batch was
 * refused), after describing the first on stderr. Allocates nothing. *ns: time
 * from the submission to the last completion. each, if not NULL, receives that
 * time of each request; then count is at most BENCH_EACH.
 */
enum { BENCH_EACH = 64 };

size_t bench_transfer(transfer_engine_t engine,
		      struct transfer_request *requests, size_t count,
		      struct ft_hist *each, uint64_t *ns);

/* An open segment and its buffer. */
struct bench_remote {
	segment_id_t id;
	uint64_t addr;
	uint64_t size;
};

int bench_remote_open(transfer_engine_t engine, const char *name,
		      struct bench_remote *remote);

/* --- target -------------------------------------------------------------- */

/* Limits of a target: length of the name in its first line, and times. */
enum {
	BENCH_NAME_MAX = 512,
	BENCH_START_MS = 60000,
	BENCH_STOP_MS = 20000,
	BENCH_STOP_EACH_MS = 200,	/* additional time for each engine */
};

/* Starts this program as a target and reads its first line into name. Returns 0
 * or -1. */
int bench_child_start(struct ft_proc *child, const struct bench_opts *opts,
		      const char *mode, char *name, size_t len);

/* Returns the CPU time that the target has used so far, in seconds; negative if
 * it does not answer. */
double bench_child_cpu(struct ft_proc *child);

/* Ends the target. engines: the number of engines that are closed at the same
 * time, by it and by other targets. Returns 0 if it ended with success. */
int bench_child_stop(struct ft_proc *child, uint64_t engines);

/* Reads lines from stdin and answers "cpu". Returns 1 with another line in
 * line, or 0 at the end. */
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
int bench_prepared(const struct bench_opts *opts);

/* --- report -------------------------------------------------------------- */

/* Prints the protocol if it is the default, because the defaults of the modes
 * differ. */
void bench_report_protocol(const struct bench_opts *opts);
/* Prints the result. Returns the exit status for it. */
int bench_report(const struct bench_opts *opts,
		 const struct bench_result *result);

#endif /* TEI_FABTESTS_BENCHMARKS_TE_BENCH_H */
