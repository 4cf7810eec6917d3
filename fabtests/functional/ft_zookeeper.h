/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_FUNCTIONAL_FT_ZOOKEEPER_H
#define TEI_FABTESTS_FUNCTIONAL_FT_ZOOKEEPER_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "fabtests/common/ft_zk.h"
#include "fabtests/functional/fx.h"

/*
 * An initiator and its targets, which find each other through real ZooKeeper
 * servers. Except for struct zk_mover, only one thread uses these functions.
 */

#define ZK_MEM (4 * FX_MIB)
#define ZK_SESSION_MS 2000	/* session timeout of most engines here */
#define ZK_LONG_SESSION_MS 60000	/* session timeout that never expires */
#define ZK_PATIENT_S 30		/* MC_HANDSHAKE_CONNECT_TIMEOUT of engines that
				 * must not time out */

struct zk_rig {
	const char *name; /* segment name of the initiator */
	struct ft_zk zk;
	transfer_engine_t engine;
	struct fx_buf mem;
	uint64_t sequence;	/* number of the last pattern */
	uint64_t slowest_ns;	/* slowest open call of the last
				 * zk_open_until() */
	char conn[160];		/* connection string of the store */
};

/* Returns MC_HANDSHAKE_CONNECT_TIMEOUT of a hasty engine, ms. The limits that
 * distinguish calls that waited so long from calls that did not are fractions
 * of it. */
unsigned int zk_hasty_ms(void);

/* Starts the servers and the initiator. hasty: the initiator waits only
 * zk_hasty_ms() for servers, so its calls have to be repeated if the servers
 * are slow. */
bool zk_rig_open(struct zk_rig *rig, int servers, bool hasty);
void zk_rig_close(struct zk_rig *rig);

/* Starts another hasty initiator with the servers of rig. The caller calls
 * zk_rig_leave(), also after a failure. */
bool zk_rig_join(struct zk_rig *own, const struct zk_rig *rig,
		 const char *name);
void zk_rig_leave(struct zk_rig *own);

/* Starts a peer with that segment name, and registers all its memory. */
bool zk_target(struct zk_rig *rig, struct fx_peer *peer, const char *name);
/* Does the same as zk_target with another session timeout. */
bool zk_target_for(struct fx_peer *peer, const char *name,
		   unsigned int session_ms);

/* Writes all the peer's memory and verifies it in place. */
bool zk_move(struct zk_rig *rig, segment_id_t seg, struct fx_peer *peer);

/*
 * A thread that repeatedly writes len bytes from memory of its own to the peer,
 * and verifies them in place each time.
 */
struct zk_mover {
	/* constant while the thread runs */
	struct zk_rig *rig;
	segment_id_t seg;
	struct fx_peer *peer;
	struct fx_buf buf;
	pthread_t thread;
	/* atomic */
	bool stop, bad, moving;
	uint32_t moves;		/* finished writes */
	/* written by the thread; valid after the thread was joined */
	uint64_t longest_ns;	/* duration of the longest write */
};

bool zk_mover_start(struct zk_mover *m, struct zk_rig *rig, segment_id_t seg,
		    struct fx_peer *peer, size_t len);
uint32_t zk_mover_moves(struct zk_mover *m);
/* Waits for n more writes. Returns true if no write has failed so far. */
bool zk_mover_more(struct zk_mover *m, uint32_t n);
/* Returns while a write is in progress. */
void zk_mover_catch(struct zk_mover *m);
/* Stops the thread. Returns true if no write has failed. */
bool zk_mover_stop(struct zk_mover *m);

/* Opens the segment repeatedly, without the cache. If `there` is true, ends
 * when the segment exists; if it is false, ends when a server answers that the
 * segment does not exist. Returns false after ms. */
bool zk_open_until(struct zk_rig *rig, const char *name, bool there,
		   unsigned int ms);
/* zk_open calls openSegment, and zk_publish calls registerLocalMemory. Both
 * repeat the call until the ZooKeeper servers answer. */
segment_id_t zk_open(struct zk_rig *rig, const char *name);
bool zk_publish(struct zk_rig *rig, void *addr, size_t len);

/* Returns the text of the thread's last error, valid until the next call. */
const char *zk_said(void);

void zk_outages(struct zk_rig *rig);
void zk_leader_killed(struct zk_rig *rig);
void zk_stopped(struct zk_rig *rig);
void zk_names(struct zk_rig *rig);
void zk_publications(struct zk_rig *rig);
void zk_strangers(struct zk_rig *rig);
void zk_unread(struct zk_rig *rig);
void zk_opening(struct zk_rig *rig);
void zk_crowd(struct zk_rig *rig);

/* Measures 1 000 segments of 10 processes. Returns the exit code. */
int zk_bench(struct zk_rig *rig);
/* Runs one of those processes. Returns the exit code. */
int zk_bench_child(int argc, char **argv);

#endif /* TEI_FABTESTS_FUNCTIONAL_FT_ZOOKEEPER_H */
