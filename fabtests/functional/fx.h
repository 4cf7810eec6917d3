/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_FUNCTIONAL_FX_H
#define TEI_FABTESTS_FUNCTIONAL_FX_H

/*
 * What the functional tests share: memory with guard zones, engines, a peer
 * process that obeys lines on its stdin, and jobs (batches of equal blocks).
 *
 * A peer's memory is a memfd that the test maps too, so that the test sees
 * every byte there at any time, also while the peer is stopped or dead. Times
 * are milliseconds. Functions that return bool print what went wrong.
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
#define FX_GUARD (64 * FX_KIB)	/* bytes before and behind each buffer */
#define FX_POISON 0xee
#define FX_PATIENT_S 30	/* MC_SLICE_TIMEOUT: never met, whatever the load */
#define FX_HASTY_S 2	/* the same, where a time-out is awaited */
#define FX_BRISK_S 5	/* the same, where all before it must not meet it */
#define FX_LONG_MS 120000	/* bound of what must not take long */

/* gcc and clang say in different ways that a sanitizer is on. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define FX_SANITIZED
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define FX_SANITIZED
#endif
#endif

/* Whether a sanitizer slows everything down. */
bool fx_slow(void);
/* Time limits are longer then, and on a machine with much else to do. */
unsigned int fx_ms(unsigned int ms);
/* The same where what ended by MC_SLICE_TIMEOUT is not to pass: it stays well
 * below FX_PATIENT_S. */
unsigned int fx_soon_ms(unsigned int ms);

/*
 * First in every main. Runs the peer and never returns if this process was
 * started as one; else sets the environment that all tests share and turns
 * buffering of stdout off.
 */
void fx_init(int argc, char **argv);

/*
 * Commands of a test's own, before fx_init: obey is called in the peer for those
 * that it does not know, and returns the code, with 4096 bytes for a text, or
 * FX_NO_ANSWER. The engine may have been destroyed: NULL.
 */
struct fx_buf;
typedef int (*fx_obey_fn)(transfer_engine_t engine, struct fx_buf *mem,
			  const char *verb, const char *args, char *text);
void fx_extend(fx_obey_fn obey);

/* A number that differs from run to run unless FT_SEED is set; printed. */
uint64_t fx_seed(void);

/* --- memory -------------------------------------------------------------- */

struct fx_buf {
	unsigned char *p;	/* len bytes, guards around them */
	size_t len;
	uint64_t addr;		/* of p, for the process that owns it */
};

/* fd -1: private memory. The guards are filled. NULL p without memory. */
struct fx_buf fx_buf_map(size_t len, int fd);
void fx_buf_unmap(struct fx_buf *buf);
bool fx_buf_guards(const struct fx_buf *buf);
void fx_buf_fill(struct fx_buf *buf, uint64_t off, uint64_t len,
		 uint64_t sequence);
/* Bytes of the pattern that fx_buf_fill makes, whatever the offset. */
bool fx_buf_check(const struct fx_buf *buf, uint64_t off, uint64_t len,
		  uint64_t sequence);
void fx_buf_poison(struct fx_buf *buf, uint64_t off, uint64_t len);
bool fx_buf_poisoned(const struct fx_buf *buf, uint64_t off, uint64_t len);
/* True if nothing of [off, off + len) changes for that long. */
bool fx_buf_still(const struct fx_buf *buf, uint64_t off, uint64_t len,
		  unsigned int ms);

/* --- engines ------------------------------------------------------------- */

/*
 * P2PHANDSHAKE on 127.0.0.1 with that transport; NULL: none is installed,
 * "auto": auto_discover. NULL on error.
 */
transfer_engine_t fx_engine(const char *transport);
/* On another address. */
transfer_engine_t fx_engine_at(const char *host, const char *transport);
/* Into that network namespace, as ip names it; before any thread is there. */
void fx_netns(const char *name);
/* The same with MC_SLICE_TIMEOUT=FX_HASTY_S; a peer has it as an option. On a
 * loaded machine its transfers may fail with nothing wrong at all. */
transfer_engine_t fx_engine_hasty(const char *transport);
#define FX_HASTY "MC_SLICE_TIMEOUT=2"
/* The same with so many seconds. */
transfer_engine_t fx_engine_timeout(const char *transport, unsigned int s);
bool fx_engine_name(transfer_engine_t engine, char *buf, size_t len);
bool fx_register(transfer_engine_t engine, const struct fx_buf *buf);

/* Sums of te_rail_stats over one transport. */
struct fx_rails {
	unsigned int count;
	unsigned int used;	/* rails that carried anything */
	uint64_t tx, rx;
};
struct fx_rails fx_rails(transfer_engine_t engine, const char *transport);

/* Open descriptors and threads of this process. */
unsigned int fx_count_dir(const char *path);

/* --- peers --------------------------------------------------------------- */

struct fx_peer {
	struct ft_proc proc;
	struct fx_buf mem;	/* the test's mapping; addr is the peer's */
	char name[128];		/* its segment */
	char text[8192];	/* what followed the last answer's code */
	bool stopped;
};

/*
 * Starts a peer with an engine and mem bytes, not yet registered. Options end
 * with NULL: "transport=tcp" (the default; "none", "auto"), "host=127.0.0.1",
 * "netns=NAME", a network namespace as ip names it,
 * "log=FD" for its stderr, "NAME=value" for its environment; FX_META is its
 * metadata server and FX_NAME its name there.
 */
bool fx_peer_start(struct fx_peer *peer, size_t mem, ...)
	__attribute__((sentinel));

/* Starts it and registers all of its memory. */
bool fx_target_start(struct fx_peer *peer, size_t mem);

/* Ends it; "not ok" unless it left with 0. */
bool fx_peer_stop(struct fx_peer *peer);
/* kill -9; its memory stays mapped until fx_peer_drop. */
void fx_peer_kill(struct fx_peer *peer);
void fx_peer_drop(struct fx_peer *peer);
/* SIGSTOP, returns when it has stopped; SIGCONT. */
bool fx_peer_pause(struct fx_peer *peer);
void fx_peer_resume(struct fx_peer *peer);

/* An option of fx_peer_start, into option, for its stderr: the descriptor. */
int fx_log(char *option, size_t len);
/* What is in it so far; freed by the caller. */
char *fx_heard(int fd);
/* Lines that hold a and b. */
unsigned int fx_lines(const char *text, const char *a, const char *b);

#define FX_NO_ANSWER (-99999)

/*
 * Sends a command and returns the code that it was answered with; what follows
 * the code is in peer->text. The commands are listed in fx_child.c.
 */
int fx_ask(struct fx_peer *peer, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* The two halves of fx_ask. */
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
	uint64_t block;		/* bytes per task; 0: one task */

	batch_id_t id;
	size_t tasks;
	unsigned int n[8];	/* tasks by status, as of the last poll */
	unsigned int unfenced;
	uint64_t bytes;		/* transferred, as of the last poll */
};

/* Allocates a batch and submits. The code; not 0: nothing is held. */
int fx_job_start(struct fx_job *job);
/* Starts it, and again where all has ended at once: true if it is under way. */
bool fx_job_under_way(struct fx_job *job);
/* Reads all statuses; true once every task is terminal. */
bool fx_job_poll(struct fx_job *job);
/* Polls until all are terminal; false after ms. */
bool fx_job_wait(struct fx_job *job, unsigned int ms);
/* Polls until that many bytes are transferred, or all are terminal. */
bool fx_job_reach(struct fx_job *job, uint64_t bytes, unsigned int ms);
/* All ended as where the target stopped amid it: what was posted TIMEOUT, with a
 * record that says unfenced; what never was may be FAILED, as nothing of it can
 * land. As of the last poll. */
bool fx_job_stopped(const struct fx_job *job);
/* A write that arrives at the start of at, which was as before when it ended: of
 * a task that FAILED nothing has landed since. */
bool fx_job_failed_final(const struct fx_job *job, const struct fx_buf *at,
			 const unsigned char *before);
/* Frees the batch. */
bool fx_job_free(struct fx_job *job);
/* One job from start to end: true if all is COMPLETED in bounded time. */
bool fx_move(transfer_engine_t engine, segment_id_t seg, int op, void *local,
	     uint64_t remote, uint64_t len, uint64_t block);
/* Again and again until it works, for what may fail at first. */
bool fx_move_until(transfer_engine_t engine, segment_id_t seg, int op,
		   void *local, uint64_t remote, uint64_t len, uint64_t block,
		   unsigned int ms);
/* Gives a task's status, which is STATUS_TIMEOUT if it is unfenced. 0 or 1. */
int fx_status(transfer_engine_t engine, batch_id_t id, size_t task,
	      struct transfer_status *status);
int fx_task_status(const struct fx_job *job, size_t task);
/* "completed 3, failed 1, …"; static buffer per thread. */
const char *fx_job_text(const struct fx_job *job);

/* --- te_submit ----------------------------------------------------------- */

/* One request from start to end: its status, or minus te_submit's code. err
 * may be NULL. */
int fx_submit(transfer_engine_t engine, const struct te_request *req,
	      struct te_error *err);

#define FX_COUNT_THREADS 8

/* Fetch-adds of 1 on one number, from several threads. */
struct fx_count {
	transfer_engine_t engine;
	segment_id_t seg;
	uint64_t addr;
	unsigned int width;		/* 4 or 8 */
	unsigned int threads, rounds;
	unsigned int depth;		/* per batch; 64 at most */
	uint64_t *results;		/* threads * depth, registered */
	bool stop;			/* atomic: no more rounds */
};

struct fx_counted {
	unsigned int completed, failed, unknown, other;
	uint64_t sum;			/* of what was found */
};

void fx_count_run(struct fx_count *count, struct fx_counted *counted);

/*
 * A lock by compare-swap at addr, which guards the number at addr + 64: that is
 * read, raised and written rounds times.
 */
struct fx_lock {
	transfer_engine_t engine;
	segment_id_t seg;
	uint64_t addr;
	uint64_t who;			/* not 0 */
	unsigned int rounds;
	uint64_t *scratch;		/* 2, registered */
};

bool fx_lock_run(const struct fx_lock *lock);

#endif /* TEI_FABTESTS_FUNCTIONAL_FX_H */
