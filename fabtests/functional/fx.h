/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_FUNCTIONAL_FX_H
#define TEI_FABTESTS_FUNCTIONAL_FX_H

/*
 * Shared by the functional tests: memory with guard zones, engines, a peer
 * process that executes commands from its stdin, and jobs (batches of equal
 * blocks).
 *
 * The memory of a peer is a memfd that the test maps, too. So the test can
 * check every byte of it at any time, even while the peer is stopped or dead.
 * Times are in milliseconds. Functions that return bool print the cause of a
 * failure.
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
#define FX_GUARD (64 * FX_KIB)	/* bytes before and after each buffer */
#define FX_POISON 0xee
#define FX_PATIENT_S 30	/* MC_SLICE_TIMEOUT that no load reaches */
#define FX_HASTY_S 2	/* MC_SLICE_TIMEOUT of tests that wait for it */
#define FX_BRISK_S   5	  /* MC_SLICE_TIMEOUT of such tests whose first steps
			   * are long */
#define FX_LONG_MS 120000	/* limit of steps that must not take long */

/* gcc and clang announce sanitizers in different ways. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define FX_SANITIZED
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define FX_SANITIZED
#endif
#endif

/* Returns true if a sanitizer slows the test down. */
bool fx_slow(void);
/* Returns a time limit, extended for sanitizers and for a loaded machine. */
unsigned int fx_ms(unsigned int ms);
/* Returns an extended time limit that stays well below FX_PATIENT_S. A step
 * that ends within this limit was not ended by MC_SLICE_TIMEOUT. */
unsigned int fx_soon_ms(unsigned int ms);

/*
 * Must be the first call of every main. If this process was started as a peer,
 * runs it and does not return. Otherwise sets the environment of all tests and
 * switches the buffering of stdout off.
 */
void fx_init(int argc, char **argv);

/*
 * Adds commands of a test to its peers; must be called before fx_init. The peer
 * calls obey for unknown commands. obey returns the code of the answer and
 * writes its text, of at most 4096 bytes, or returns FX_NO_ANSWER. engine is
 * NULL if it has been destroyed.
 */
struct fx_buf;
typedef int (*fx_obey_fn)(transfer_engine_t engine, struct fx_buf *mem,
			  const char *verb, const char *args, char *text);
void fx_extend(fx_obey_fn obey);

/* Returns and prints a random number, which is FT_SEED if that is set. */
uint64_t fx_seed(void);

/* --- memory -------------------------------------------------------------- */

struct fx_buf {
	unsigned char *p;	/* len bytes between guard zones */
	size_t len;
	uint64_t addr;		/* address of p in the process that owns the
				 * memory */
};

/* Maps a buffer from fd, or private memory if fd is -1, and fills its guard
 * zones. p is NULL if that fails. */
struct fx_buf fx_buf_map(size_t len, int fd);
void fx_buf_unmap(struct fx_buf *buf);
bool fx_buf_guards(const struct fx_buf *buf);
void fx_buf_fill(struct fx_buf *buf, uint64_t off, uint64_t len,
		 uint64_t sequence);
/* Returns true if the range has the pattern of fx_buf_fill. */
bool fx_buf_check(const struct fx_buf *buf, uint64_t off, uint64_t len,
		  uint64_t sequence);
void fx_buf_poison(struct fx_buf *buf, uint64_t off, uint64_t len);
bool fx_buf_poisoned(const struct fx_buf *buf, uint64_t off, uint64_t len);
/* Returns true if the range does not change for ms. */
bool fx_buf_still(const struct fx_buf *buf, uint64_t off, uint64_t len,
		  unsigned int ms);

/* --- engines ------------------------------------------------------------- */

/*
 * Creates an engine with P2PHANDSHAKE on 127.0.0.1 and that transport. NULL
 * installs none; "auto" sets auto_discover. Returns NULL after an error.
 */
transfer_engine_t fx_engine(const char *transport);
/* Does the same as fx_engine on another address. */
transfer_engine_t fx_engine_at(const char *host, const char *transport);
/* Enters a network namespace of that name; before any thread is started. */
void fx_netns(const char *name);
/* Does the same as fx_engine with MC_SLICE_TIMEOUT=FX_HASTY_S; for a peer there
 * is the option FX_HASTY. On a loaded machine the transfers of this engine may
 * fail without a fault. */
transfer_engine_t fx_engine_hasty(const char *transport);
#define FX_HASTY "MC_SLICE_TIMEOUT=2"
/* Does the same as fx_engine with MC_SLICE_TIMEOUT=s. */
transfer_engine_t fx_engine_timeout(const char *transport, unsigned int s);
bool fx_engine_name(transfer_engine_t engine, char *buf, size_t len);
bool fx_register(transfer_engine_t engine, const struct fx_buf *buf);

/* Sums of te_rail_stats over the rails of a transport. */
struct fx_rails {
	unsigned int count;
	unsigned int used;	/* rails that carried any bytes */
	uint64_t tx, rx;
};
struct fx_rails fx_rails(transfer_engine_t engine, const char *transport);

/* Counts the entries of a folder that lists the file descriptors or threads of
 * this process. */
unsigned int fx_count_dir(const char *path);

/* --- peers --------------------------------------------------------------- */

struct fx_peer {
	struct ft_proc proc;
	struct fx_buf mem;	/* the test's mapping; addr is the peer's */
	char name[128];		/* name of the peer's segment */
	char text[8192];	/* text after the code of the last answer */
	bool stopped;
};

/*
 * Starts a peer with an engine and mem bytes that are not registered yet. The
 * options end with NULL: "transport=tcp" (the default; or "none", "auto"),
 * "host=127.0.0.1", "netns=NAME" (a network namespace), "log=FD" (its stderr)
 * and "NAME=value" (its environment). FX_META is its metadata server and
 * FX_NAME its name there.
 */
bool fx_peer_start(struct fx_peer *peer, size_t mem, ...)
	__attribute__((sentinel));

/* Starts a peer and registers all of its memory. */
bool fx_target_start(struct fx_peer *peer, size_t mem);

/* Ends the peer. The test fails unless it exits with 0. */
bool fx_peer_stop(struct fx_peer *peer);
/* Kills the peer with SIGKILL. Its memory stays mapped until fx_peer_drop. */
void fx_peer_kill(struct fx_peer *peer);
void fx_peer_drop(struct fx_peer *peer);
/* fx_peer_pause stops the peer with SIGSTOP and waits until it has stopped.
 * fx_peer_resume continues it. */
bool fx_peer_pause(struct fx_peer *peer);
void fx_peer_resume(struct fx_peer *peer);

/* Writes an option of fx_peer_start for the stderr of a peer to option. Returns
 * the file descriptor of the log. */
int fx_log(char *option, size_t len);
/* Returns the text in the log so far; the caller frees it. */
char *fx_heard(int fd);
/* Returns the number of lines that contain a and b. */
unsigned int fx_lines(const char *text, const char *a, const char *b);

#define FX_NO_ANSWER (-99999)

/*
 * Sends a command and returns the code of the answer; the text of the answer is
 * in peer->text. fx_child.c lists the commands.
 */
int fx_ask(struct fx_peer *peer, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* The two parts of fx_ask: fx_send sends the command, fx_answer waits for the
 * answer. */
bool fx_send(struct fx_peer *peer, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
int fx_answer(struct fx_peer *peer, unsigned int ms);

/* --- jobs ---------------------------------------------------------------- */

struct fx_job {
	/* set by the caller */
	transfer_engine_t engine;
	segment_id_t seg;
	int op;
	void *local;
	uint64_t remote;
	uint64_t len;
	uint64_t block;		/* bytes per task; 0 means one task */

	batch_id_t id;
	size_t tasks;
	unsigned int n[8];	/* tasks by status, as of the last poll */
	unsigned int unfenced;
	uint64_t bytes;		/* bytes transferred, as of the last poll */
};

/* Allocates a batch and submits the job. Returns submitTransfer's code; if it
 * is not 0, the batch is freed. */
int fx_job_start(struct fx_job *job);
/* Starts the job, and again if it ends at once. Returns true if it is in
 * progress. */
bool fx_job_under_way(struct fx_job *job);
/* Reads all statuses. Returns true if every task is terminal. */
bool fx_job_poll(struct fx_job *job);
/* Polls until all tasks are terminal. Returns false after ms. */
bool fx_job_wait(struct fx_job *job, unsigned int ms);
/* Polls until that many bytes are transferred or all tasks are terminal. */
bool fx_job_reach(struct fx_job *job, uint64_t bytes, unsigned int ms);
/* Returns true if the last poll found all tasks as they must be after the
 * target was stopped: posted tasks are TIMEOUT with an unfenced record; tasks
 * that were never posted may be FAILED, because none of their bytes can land.
 */
bool fx_job_stopped(const struct fx_job *job);
/* Returns true if no byte of a FAILED task of a write has landed after the end
 * of the write. The write went to the start of `at`; `before` is the content of
 * `at` when the write ended. */
bool fx_job_failed_final(const struct fx_job *job, const struct fx_buf *at,
			 const unsigned char *before);
/* Frees the batch. Returns true on success. */
bool fx_job_free(struct fx_job *job);
/* Runs a job. Returns true if all tasks are COMPLETED in time. */
bool fx_move(transfer_engine_t engine, segment_id_t seg, int op, void *local,
	     uint64_t remote, uint64_t len, uint64_t block);
/* Repeats a job until it completes, if it may fail at first. */
bool fx_move_until(transfer_engine_t engine, segment_id_t seg, int op,
		   void *local, uint64_t remote, uint64_t len, uint64_t block,
		   unsigned int ms);
/* Fills *status of a task; an unfenced one has STATUS_TIMEOUT. Returns 0 or
 * 1. */
int fx_status(transfer_engine_t engine, batch_id_t id, size_t task,
	      struct transfer_status *status);
int fx_task_status(const struct fx_job *job, size_t task);
/* Returns "completed 3, failed 1, …" in a static buffer of the thread. */
const char *fx_job_text(const struct fx_job *job);

/* --- te_submit ----------------------------------------------------------- */

/* Runs one request. Returns its status, or minus the code of te_submit. err may
 * be NULL. */
int fx_submit(transfer_engine_t engine, const struct te_request *req,
	      struct te_error *err);

#define FX_COUNT_THREADS 8

/* Fetch-adds of 1 to one number, by several threads. */
struct fx_count {
	transfer_engine_t engine;
	segment_id_t seg;
	uint64_t addr;
	unsigned int width; /* bytes of the number: 4 or 8 */
	unsigned int threads, rounds;
	unsigned int depth;		/* tasks per batch, at most 64 */
	uint64_t *results;		/* registered array of threads * depth
					 * results */
	bool stop;			/* atomic: begin no further rounds */
};

/* Tasks by result. */
struct fx_counted {
	unsigned int completed, failed, unknown, other;
	uint64_t sum; /* sum of the values before the additions */
};

void fx_count_run(struct fx_count *count, struct fx_counted *counted);

/*
 * A lock by compare-and-swap at addr. It guards the number at addr + 64, which
 * is read, incremented and written in each round.
 */
struct fx_lock {
	transfer_engine_t engine;
	segment_id_t seg;
	uint64_t addr;
	uint64_t who; /* value that marks the lock as held by this
		       * caller; not 0 */
	unsigned int rounds;
	uint64_t *scratch;		/* 2 numbers, registered */
};

bool fx_lock_run(const struct fx_lock *lock);

#endif /* TEI_FABTESTS_FUNCTIONAL_FX_H */
