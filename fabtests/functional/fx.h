/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_FUNCTIONAL_FX_H
#define TEI_FABTESTS_FUNCTIONAL_FX_H

/*
 * Shared by the functional tests: memory with guard zones, engines, peer
 * processes that execute commands from stdin, and jobs (batches of equal
 * blocks).
 *
 * The memory of a peer is a memfd that the test maps, too. The test can
 * therefore check every byte of it at any time, even while the peer is stopped
 * or dead. Times are in milliseconds. Functions that return bool return true on
 * success and print the cause of a failure.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fabtests/common/ft_clock.h"
#include "fabtests/common/ft_proc.h"
#include "fabtests/common/ft_test.h"
#include "moonrail.h"

#define FX_KIB 1024ULL
#define FX_MIB (FX_KIB * 1024)
/* size of the guard zone before and after each buffer */
#define FX_GUARD (64 * FX_KIB)
#define FX_POISON 0xee
/* MC_SLICE_TIMEOUT that is not reached even on a loaded machine */
#define FX_PATIENT_S 30
/* MC_SLICE_TIMEOUT of tests that wait until it has passed */
#define FX_HASTY_S 2
/* MC_SLICE_TIMEOUT of tests that wait until it has passed, and whose first
 * steps take long */
#define FX_BRISK_S   5
#define FX_LONG_MS 120000	/* time limit of steps that normally end soon */

/* gcc and clang show in different ways that a sanitizer is enabled. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define FX_SANITIZED
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define FX_SANITIZED
#endif
#endif

/* Returns true if the test is slow because it was built with a sanitizer. */
bool fx_slow(void);
/* Returns the time limit `ms` multiplied by a factor for sanitizers and for a
 * loaded machine. */
unsigned int fx_ms(unsigned int ms);
/* Does the same as fx_ms, but returns at most 80 % of FX_PATIENT_S. A step that
 * ends within this limit was not ended by MC_SLICE_TIMEOUT. */
unsigned int fx_soon_ms(unsigned int ms);

/*
 * Must be the first call of every main. If this process was started as a peer,
 * runs the peer and does not return. Otherwise sets the environment variables
 * for all tests, and makes stdout line-buffered.
 */
void fx_init(int argc, char **argv);

/*
 * Adds commands of one test to its peers; must be called before fx_init. A peer
 * calls "obey" for each command that fx_child.c does not know. The function
 * returns the code of the answer and writes the answer's text, of at most 4096
 * bytes. It returns FX_NO_ANSWER if it does not know the command either.
 * "engine" is NULL if the engine has been destroyed.
 */
struct fx_buf;
typedef int (*fx_obey_fn)(transfer_engine_t engine, struct fx_buf *mem,
			  const char *verb, const char *args, char *text);
void fx_extend(fx_obey_fn obey);

/* Returns the seed of this run: FT_SEED if it is set, and otherwise a different
 * number in each run. Prints the seed, so that the run can be repeated. */
uint64_t fx_seed(void);

/* --- memory -------------------------------------------------------------- */

struct fx_buf {
	unsigned char *p;	/* len bytes between guard zones */
	size_t len;
	uint64_t addr;		/* address of p in the owner of the memory (the
				 * peer or the test) */
};

/* Maps len bytes of the memfd `fd`, or private memory if fd is -1, and fills
 * the guard zones. In the result, p is NULL on failure. */
struct fx_buf fx_buf_map(size_t len, int fd);
void fx_buf_unmap(struct fx_buf *buf);
bool fx_buf_guards(const struct fx_buf *buf);
void fx_buf_fill(struct fx_buf *buf, uint64_t off, uint64_t len,
		 uint64_t sequence);
/* Returns true if the range contains the pattern that fx_buf_fill writes. */
bool fx_buf_check(const struct fx_buf *buf, uint64_t off, uint64_t len,
		  uint64_t sequence);
void fx_buf_poison(struct fx_buf *buf, uint64_t off, uint64_t len);
bool fx_buf_poisoned(const struct fx_buf *buf, uint64_t off, uint64_t len);
/* Returns true if no byte of the range changes within `ms`. */
bool fx_buf_still(const struct fx_buf *buf, uint64_t off, uint64_t len,
		  unsigned int ms);

/* --- engines ------------------------------------------------------------- */

/*
 * Creates an engine with P2PHANDSHAKE on 127.0.0.1 and installs a transport. If
 * `transport` is NULL, none is installed; if it is "auto", auto_discover is set
 * instead. Returns NULL on failure.
 */
transfer_engine_t fx_engine(const char *transport);
/* Does the same as fx_engine with the address `host`. */
transfer_engine_t fx_engine_at(const char *host, const char *transport);
/* Moves the process to the network namespace `name`. Must be called before any
 * thread is started. */
void fx_netns(const char *name);
/* Does the same as fx_engine with MC_SLICE_TIMEOUT=FX_HASTY_S. (For a peer,
 * FX_HASTY is an option of fx_peer_start.) On a loaded machine, transfers of
 * this engine may time out without a fault. */
transfer_engine_t fx_engine_hasty(const char *transport);
#define FX_HASTY "MC_SLICE_TIMEOUT=2"
/* Does the same as fx_engine with MC_SLICE_TIMEOUT set to `s` seconds. */
transfer_engine_t fx_engine_timeout(const char *transport, unsigned int s);
bool fx_engine_name(transfer_engine_t engine, char *buf, size_t len);
bool fx_register(transfer_engine_t engine, const struct fx_buf *buf);

/* Rails of a transport: their number and the sums of their te_rail_stats. */
struct fx_rails {
	unsigned int count;
	unsigned int used;	/* number of rails that have carried any
				 * bytes */
	uint64_t tx, rx;
};
struct fx_rails fx_rails(transfer_engine_t engine, const char *transport);

/* Returns the number of entries of /proc/self/fd or /proc/self/task, that is,
 * of the open file descriptors or the threads of this process. */
unsigned int fx_count_dir(const char *path);
/* Returns the resident memory of this process, KiB; 0 if it is unknown. */
unsigned long fx_rss_kib(void);

/* --- peers --------------------------------------------------------------- */

struct fx_peer {
	struct ft_proc proc;
	struct fx_buf mem;	/* the peer's memory as the test has mapped it;
				 * mem.addr is its address in the peer */
	char name[128];		/* name of the peer's segment */
	char text[8192];	/* text after the code of the last answer */
	bool stopped;
};

/*
 * Starts a peer with an engine and `mem` bytes of memory, which is not
 * registered yet. The options are strings, followed by NULL: "transport=tcp"
 * (the default; or "none", "auto"), "host=127.0.0.1", "netns=NAME" (a network
 * namespace), "log=FD" (a descriptor for stderr) and "NAME=value" (an
 * environment variable). The variable FX_META is the peer's metadata server,
 * FX_NAME the name of its segment there.
 */
bool fx_peer_start(struct fx_peer *peer, size_t mem, ...)
	__attribute__((sentinel));

/* Starts a peer and registers all of its memory. */
bool fx_target_start(struct fx_peer *peer, size_t mem);

/* Ends the peer and unmaps its memory. Reports a failed check if the peer does
 * not exit with 0. */
bool fx_peer_stop(struct fx_peer *peer);
/* Kills the peer with SIGKILL. Its memory stays mapped until fx_peer_drop. */
void fx_peer_kill(struct fx_peer *peer);
void fx_peer_drop(struct fx_peer *peer);
/* fx_peer_pause stops the peer with SIGSTOP and waits until it has stopped.
 * fx_peer_resume lets it continue. */
bool fx_peer_pause(struct fx_peer *peer);
void fx_peer_resume(struct fx_peer *peer);

/* Creates a log for the stderr of a peer, and writes the option for
 * fx_peer_start ("log=FD") to `option`. Returns the descriptor of the log. */
int fx_log(char *option, size_t len);
/* Returns what a peer has written to the log fd so far; the caller frees the
 * text. */
char *fx_heard(int fd);
/* Returns the number of lines of `text` that contain both a and b. */
unsigned int fx_lines(const char *text, const char *a, const char *b);

#define FX_NO_ANSWER (-99999)

/*
 * Sends a command to a peer and waits for its answer. Returns the code of the
 * answer; its text is in peer->text. Returns FX_NO_ANSWER if there is none.
 * fx_child.c lists the commands.
 */
int fx_ask(struct fx_peer *peer, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* The two parts of fx_ask. fx_send sends the command and returns true on
 * success. fx_answer waits up to `ms` for the answer. */
bool fx_send(struct fx_peer *peer, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
int fx_answer(struct fx_peer *peer, unsigned int ms);

/* --- jobs ---------------------------------------------------------------- */

struct fx_job {
	/* The caller sets the members up to `block`. */
	transfer_engine_t engine;
	segment_id_t seg;
	int op;
	void *local;
	uint64_t remote;
	uint64_t len;
	uint64_t block;		/* bytes per task; 0 means that one task moves
				 * all bytes */

	batch_id_t id;
	size_t tasks;
	unsigned int n[8];	/* number of tasks with each status, as of the
				 * last poll */
	unsigned int unfenced;
	uint64_t bytes;		/* bytes transferred, as of the last poll */
};

/* Allocates a batch and submits the job. Returns the code of submitTransfer. If
 * the code is not 0, the batch is freed. */
int fx_job_start(struct fx_job *job);
/* Starts the job. If the job has ended before the first poll, frees it and
 * starts it again, up to 16 times. Returns true if the job is in progress. */
bool fx_job_under_way(struct fx_job *job);
/* Reads the statuses of all tasks. Returns true if every task is terminal. */
bool fx_job_poll(struct fx_job *job);
/* Polls until all tasks are terminal. Returns false if they are not after
 * `ms`. */
bool fx_job_wait(struct fx_job *job, unsigned int ms);
/* Polls until `bytes` bytes are transferred or all tasks are terminal. Returns
 * false if `ms` has passed before. */
bool fx_job_reach(struct fx_job *job, uint64_t bytes, unsigned int ms);
/* Returns true if the last poll found the tasks in states that are right after
 * the target was stopped. A posted task must be TIMEOUT with an unfenced
 * record. A task that was never posted may be FAILED, because none of its bytes
 * can land. The job may also have completed before the stop. */
bool fx_job_stopped(const struct fx_job *job);
/* For a write job to the start of the memory `at`. Returns true if no byte of a
 * FAILED task has landed since the job ended; `before` is a copy of `at` from
 * that time. */
bool fx_job_failed_final(const struct fx_job *job, const struct fx_buf *at,
			 const unsigned char *before);
/* Frees the batch. Returns true if freeBatchID succeeds. */
bool fx_job_free(struct fx_job *job);
/* Runs a job. Returns true if all tasks are COMPLETED within FX_LONG_MS. */
bool fx_move(transfer_engine_t engine, segment_id_t seg, int op, void *local,
	     uint64_t remote, uint64_t len, uint64_t block);
/* Runs one batch of n requests, 16 at most: request i moves the block here[i]
 * of the local memory to or from the block there[i] of the target. Returns true
 * if all tasks are COMPLETED within FX_LONG_MS. */
bool fx_move_blocks(const struct fx_job *job, const uint8_t *here,
		    const uint8_t *there, size_t n);
/* Runs a job whose first attempts may fail, and repeats it until it completes.
 * Returns false if that takes longer than `ms`. */
bool fx_move_until(transfer_engine_t engine, segment_id_t seg, int op,
		   void *local, uint64_t remote, uint64_t len, uint64_t block,
		   unsigned int ms);
/* Fills *status of a task without waiting; an unfenced task has STATUS_TIMEOUT.
 * Returns 0 if *status was filled. Returns 1, and leaves *status unchanged, if
 * te_wait_task returns 1. */
int fx_status(transfer_engine_t engine, batch_id_t id, size_t task,
	      struct transfer_status *status);
/* Returns the status of a task, or -1 if fx_status returns 1. */
int fx_task_status(const struct fx_job *job, size_t task);
/* Returns a text such as "3 waiting, 0 canceled, …" with the number of tasks
 * for each status. Each thread has one static buffer for it. */
const char *fx_job_text(const struct fx_job *job);

/* --- te_submit ----------------------------------------------------------- */

/* Runs one request and waits until it is terminal. Returns its status, or the
 * negative code of te_submit. `err` receives the error record of the task and
 * may be NULL. */
int fx_submit(transfer_engine_t engine, const struct te_request *req,
	      struct te_error *err);

#define FX_COUNT_THREADS 8

/* Parameters of fx_count_run: several threads add 1 to the same number with
 * fetch-add requests. */
struct fx_count {
	transfer_engine_t engine;
	segment_id_t seg;
	uint64_t addr;
	unsigned int width; /* size of the number in bytes: 4 or 8 */
	unsigned int threads, rounds;
	unsigned int depth;		/* number of tasks in each batch, at
					 * most 64 */
	uint64_t *results;		/* registered array for the results,
					 * `depth` for each thread */
	bool stop;			/* atomic; true: the threads start no
					 * further round */
};

/* Numbers of tasks by result. "unknown" counts failed tasks whose addition may
 * have been executed nevertheless. */
struct fx_counted {
	unsigned int completed, failed, unknown, other;
	uint64_t sum; /* sum of the old values that the completed tasks
		       * returned */
};

void fx_count_run(struct fx_count *count, struct fx_counted *counted);

/*
 * Parameters of fx_lock_run. The 8-byte word at `addr` is a lock that is taken
 * and released by compare-and-swap. It guards the number at addr + 64, which
 * each round reads, increments and writes.
 */
struct fx_lock {
	transfer_engine_t engine;
	segment_id_t seg;
	uint64_t addr;
	uint64_t who; /* value of the lock while this caller holds it; not 0 */
	unsigned int rounds;
	uint64_t *scratch;		/* registered array of 2 numbers */
};

bool fx_lock_run(const struct fx_lock *lock);

#endif /* TEI_FABTESTS_FUNCTIONAL_FX_H */
