/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_BENCHMARKS_TE_BENCH_H
#define TEI_FABTESTS_BENCHMARKS_TE_BENCH_H

/*
 * Declarations that the source files of te_bench share.
 *
 *	te_bench.c		main and the signal handlers
 *	te_bench_options.c	the option table and its parser
 *	te_bench_run.c		runs the threads: warm-up, deadline, counters
 *	te_bench_memory.c	maps host memory at a location
 *	te_bench_engine.c	creates an engine from the options; runs batches
 *	te_bench_initiator.c	--mode=initiator, loopback and self
 *	te_bench_target.c	--mode=target
 *	te_bench_child.c	runs the target as a child of this process
 *	te_bench_demo.c		--mode=demo
 *	te_bench_copy.c		--mode=memcpy
 *	te_bench_idle.c		--mode=idle
 *	te_bench_segments.c	--mode=segments
 *	te_bench_register.c	--mode=register
 *	te_bench_prepared.c	--mode=prepared
 *	te_bench_create.c	--mode=create
 *	te_bench_raw*.c		--mode=raw
 *	te_bench_report.c	prints the result as text and as JSON
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
	BENCH_CREATE,
};

/* Values of --operation, in the order of the option's names. They are equal to
 * OPCODE_READ and OPCODE_WRITE. */
enum bench_operation { BENCH_READ = OPCODE_READ, BENCH_WRITE = OPCODE_WRITE };

/* Values of --pages, in the order of the option's names. */
enum bench_pages {
	BENCH_PAGES_ANY, /* the size that the kernel chooses */
	BENCH_PAGES_SMALL,
	BENCH_PAGES_TRANSPARENT,
	BENCH_PAGES_HUGE, /* huge pages of the kernel's pool */
};

/* The options of the command line. They do not change after parsing. The
 * strings are in argv or in static memory. */
struct bench_opts {
	int mode;			/* value of --mode, an enum
					 * bench_mode */
	int operation;			/* value of --operation, an enum
					 * bench_operation */
	const char *metadata_server;
	const char *local_server_name;	/* name of this process's segment; NULL
					 * means the default of the mode */
	const char *segment_id;		/* segment to open, or NULL */
	const char *protocol;
	bool default_protocol;		/* true if --protocol was not given, so
					 * that `protocol` is the default of the
					 * mode */
	const char *device_name;	/* list of devices; NULL means all */
	const char *provider;		/* libfabric provider; NULL means the
					 * default of the protocol */
	const char *location;		/* location of the initiator's memory;
					 * NULL means anywhere */
	const char *target_location;	/* location of the target's memory; NULL
					 * means anywhere */
	const char *gpu;		/* N of --gpu=N, which is short for
					 * --location=cuda:N; or NULL */
	const char *target_gpu;		/* N of --target_gpu=N, which is short
					 * for --target_location=cuda:N; or
					 * NULL */
	int pages;			/* value of --pages, an enum
					 * bench_pages */
	bool alloc;
	/* file_sync, file_io and progress_cpus are values for
	 * MOONRAIL_FILE_SYNC, MOONRAIL_FILE_IO and MOONRAIL_PROGRESS_CPUS. NULL
	 * leaves the environment variable as it is. */
	const char *file_sync;
	const char *file_io;
	const char *progress_cpus;
	/* value for MOONRAIL_FILE_DEPTH; 0 leaves the variable as it is */
	uint64_t file_depth;
	/* priority matrix as JSON, or the name of a file that contains it, or
	 * NULL */
	const char *nic_priority_matrix;
	uint64_t block_size;		/* length of a request, bytes */
	uint64_t batch_size;		/* number of requests per batch */
	uint64_t buffer_size;		/* memory that each side registers,
					 * bytes */
	uint64_t own_size;		/* local memory that the initiator uses,
					 * bytes; 0 means buffer_size */
	uint64_t threads;
	uint64_t beside;		/* length of the last thread's requests,
					 * bytes; 0 means block_size */
	uint64_t window;		/* mode raw: number of operations in
					 * progress; 0 means that batches are
					 * used */
	uint64_t warmup;		/* batches that each thread runs before
					 * the measurement */
	uint64_t max_errors;
	uint64_t seed;
	uint64_t segments;		/* number of segments for
					 * --mode=segments */
	uint64_t engines;		/* number of engines that one target
					 * process opens */
	double duration;		/* duration of the measurement,
					 * seconds */
	double pause;			/* if `beside` is set: time between two
					 * requests of the last thread,
					 * seconds */
	bool verify;
	bool wait;			/* the threads sleep until a batch has
					 * ended; otherwise they poll */
	bool json;
	bool bidirectional;		/* mode raw: the target posts operations
					 * too */
	bool plain_calls;		/* mode raw: calls fi_write, not
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

/* The handler of SIGINT and SIGTERM sets this variable. The second signal ends
 * the process. */
extern volatile sig_atomic_t bench_interrupted;

/* --- runner -------------------------------------------------------------- */

struct bench_run;

/*
 * One thread and its counters. Only the thread itself writes the counters. The
 * main thread reads `bytes` during the run, for the progress bar, and all
 * counters after the run.
 */
struct bench_worker {
	unsigned int index;
	void *ctx;			/* data of the mode, set by prepare */
	struct bench_run *run;
	pthread_t thread;
	_Atomic uint64_t bytes;		/* bytes of completed operations */
	uint64_t operations;		/* number of completed operations */
	uint64_t errors;
	uint64_t verified;		/* number of bytes that --verify has
					 * compared and found correct */
	uint64_t busy_ns;		/* time that the thread has spent in
					 * transfers, ns */
	uint64_t now_ns;		/* time at which the last step ended,
					 * ns */
	struct ft_hist latency;
};

/* The functions of a mode that each thread calls. prepare and step return 0, or
 * -1 to end the run. step counts its errors itself. finish is called after the
 * last step, even if that step failed, but only if prepare returned 0. */
struct bench_ops {
	void (*begin)(struct bench_run *run);	/* called by the main thread
						 * once, after the warm-up; or
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
	double rate;			/* throughput, bytes per second */
	double cpu_seconds;
	double target_cpu_seconds;	/* negative if unknown */
	struct ft_hist latency;
	char transport[32];
	size_t n_rails;
	struct te_rail_stats rails[BENCH_RAILS];	/* growth of each
							 * counter during the
							 * run */
};

struct bench_run {
	const struct bench_opts *opts;
	const struct bench_ops *ops;
	void *arg;			/* data of the mode, which prepare
					 * uses */
	struct ft_proc *child;		/* target process whose CPU time is
					 * reported; NULL if this process has
					 * not started it */
	struct bench_worker *workers;
	pthread_barrier_t start;
	uint64_t deadline_ns;		/* time at which the run ends, ns; 0
					 * during the warm-up */
	atomic_bool stop;
};

/* Runs the threads and adds up their counters. Returns 0, or -1 if the run
 * could not be started. */
int bench_run(struct bench_run *run, struct bench_result *result);

/* Counts an error of the thread. When the thread has counted max_errors errors,
 * ends the run and returns false. Until then returns true. */
bool bench_error(struct bench_worker *worker);

/* --- memory -------------------------------------------------------------- */

struct bench_memory {
	uint8_t *addr;
	size_t size;
	uint8_t *map;			/* the mapping that contains addr */
	size_t mapped;
};

/* Returns true if the location is valid: cpu:N, cuda:N,
 * segments:<page>:<node>,..., "*", or NULL, which means "*". */
bool bench_location_valid(const char *location);
bool bench_location_gpu(const char *location);
/* Returns true if memory at the location comes from te_alloc. */
bool bench_location_allocated(const struct bench_opts *opts,
			      const char *location);
/* Returns true if the location consists of parts on several NUMA nodes. */
bool bench_location_parts(const char *location);

/* Maps host memory at the location (NULL: on any NUMA node), with the kind of
 * pages that `pages` names (enum bench_pages). All pages are present when the
 * function returns. Returns 0, or -1 after a message on stderr. */
int bench_memory_get(struct bench_memory *memory, uint64_t size,
		     const char *location, int pages);
void bench_memory_put(struct bench_memory *memory);
/* Returns the resident private memory of this process, in KiB, or 0 if the
 * kernel does not report it. */
double bench_private_kib(void);

/* --- engine -------------------------------------------------------------- */

/* Maps memory as bench_memory_get does and registers it. If `remote` is true,
 * peers may access it. Returns 0, or -1 after a message on stderr. */
int bench_register(transfer_engine_t engine, struct bench_memory *memory,
		   uint64_t size, const char *location, int pages, bool remote);

/* Unregisters and unmaps memory. If it cannot be unregistered, leaves it
 * mapped, prints a message on stderr and returns -1. Otherwise returns 0. */
int bench_unregister(transfer_engine_t engine, struct bench_memory *memory);

/* Returns the flags of te_alloc for memory at the location. */
uint64_t bench_alloc_flags(const struct bench_opts *opts, const char *location);
/* bench_register_own registers buffer_size bytes at the initiator's location.
 * If the location is a GPU, the memory is allocated there and the CPU cannot
 * access it. bench_unregister_own unregisters and frees the memory. Both return
 * 0, or -1 after a message on stderr. */
int bench_register_own(transfer_engine_t engine, struct bench_memory *memory,
		       const struct bench_opts *opts);
int bench_unregister_own(transfer_engine_t engine, struct bench_memory *memory,
			 const struct bench_opts *opts);
/* If the options name a GPU, loads and initialises the CUDA driver. Returns
 * NULL on success or if no GPU is named, otherwise the reason of the
 * failure. */
const char *bench_gpu_load(const struct bench_opts *opts);

/* Creates an engine. Returns NULL after a message on stderr. */
transfer_engine_t bench_engine_open(const struct bench_opts *opts);

/* Prints an error line to stderr: the failed call `what` and the error that
 * te_last_error reports. */
void bench_engine_error(const char *what);

/* bench_rails_get reads the counters of the rails. bench_rails_since reads them
 * too, and subtracts the counters in `before`, which bench_rails_get has read
 * earlier. Both return the number of elements of `rails` that they have set. */
size_t bench_rails_get(transfer_engine_t engine, struct te_rail_stats *rails,
		       size_t max);
size_t bench_rails_since(transfer_engine_t engine, struct te_rail_stats *rails,
			 size_t max, const struct te_rail_stats *before,
			 size_t n_before);

/*
 * Runs one batch: submits it, waits until every task has ended, and frees it.
 * Returns the number of tasks that did not complete, which is `count` if the
 * batch was refused. Describes the first of these tasks on stderr. Allocates
 * nothing. Sets *ns to the time from the submission to the end of the last
 * task. If `each` is not NULL, adds the time of each single task to it; `count`
 * must then be at most BENCH_EACH.
 */
enum { BENCH_EACH = 64 };

size_t bench_transfer(transfer_engine_t engine,
		      struct transfer_request *requests, size_t count,
		      struct ft_hist *each, uint64_t *ns);

/* An open segment, and the address and length of its longest buffer. */
struct bench_remote {
	segment_id_t id;
	uint64_t addr;
	uint64_t size;
};

int bench_remote_open(transfer_engine_t engine, const char *name,
		      struct bench_remote *remote);

/* --- target -------------------------------------------------------------- */

/* Limits for a target: the length of the name in its first line, and the times
 * after which its parent stops waiting for its start and for its end. */
enum {
	BENCH_NAME_MAX = 512,
	BENCH_START_MS = 60000,
	BENCH_STOP_MS = 20000,
	BENCH_STOP_EACH_MS = 200,	/* additional time for each engine */
};

/* Starts this program as a target, with --mode=`mode`, in a child process.
 * Stores the first line that the child prints in `name`. Returns 0 or -1. */
int bench_child_start(struct ft_proc *child, const struct bench_opts *opts,
		      const char *mode, char *name, size_t len);

/* Returns the CPU time that the target has used so far, in seconds. Returns a
 * negative value if the target does not answer. */
double bench_child_cpu(struct ft_proc *child);

/* Ends the target process. `engines` is the number of engines that all targets
 * close at the same time; the time limit grows with it. Returns 0 if the exit
 * code of the target is 0, otherwise -1. */
int bench_child_stop(struct ft_proc *child, uint64_t engines);

/* Called by a target: reads lines from stdin and answers each line "cpu" with
 * the CPU time. Returns 1 after any other line, which is then in `line`, or 0
 * at the end of stdin. */
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
int bench_create(const struct bench_opts *opts);

/* --- report -------------------------------------------------------------- */

/* If --protocol was not given, prints the protocol that is used, because the
 * modes have different defaults. */
void bench_report_protocol(const struct bench_opts *opts);
/* Prints the result. Returns the exit status of te_bench for it (enum
 * bench_exit). */
int bench_report(const struct bench_opts *opts,
		 const struct bench_result *result);

#endif /* TEI_FABTESTS_BENCHMARKS_TE_BENCH_H */
