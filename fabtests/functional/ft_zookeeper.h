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
 * servers. Only one thread may call these functions; a struct zk_mover has a
 * second thread of its own.
 */

#define ZK_MEM (4 * FX_MIB)
/* session timeout of most engines in these tests */
#define ZK_SESSION_MS 2000
/* session timeout that is longer than any test */
#define ZK_LONG_SESSION_MS 60000
/* MC_HANDSHAKE_CONNECT_TIMEOUT, in seconds, of engines whose calls must not
 * time out */
#define ZK_PATIENT_S 30

struct zk_rig {
	const char *name; /* segment name of the initiator */
	struct ft_zk zk;
	transfer_engine_t engine;
	struct fx_buf mem;
	uint64_t sequence;	/* number of the last byte pattern used */
	uint64_t slowest_ns;	/* duration of the slowest open in the last
				 * zk_open_until() */
	char conn[160];		/* connection string of the ZooKeeper servers */
};

/* Returns the short MC_HANDSHAKE_CONNECT_TIMEOUT of "hasty" engines, in ms. A
 * call that takes clearly less than this has not waited for a stopped
 * server. */
unsigned int zk_hasty_ms(void);

/* Starts the ZooKeeper servers and the initiator. If `hasty` is true, the calls
 * of the initiator wait for servers only zk_hasty_ms(), so the test must repeat
 * them if the servers are slow. Returns true on success. */
bool zk_rig_open(struct zk_rig *rig, int servers, bool hasty);
void zk_rig_close(struct zk_rig *rig);

/* Starts another hasty initiator, with segment name `name`, that uses the
 * servers of *rig. The caller must call zk_rig_leave() even if this function
 * returns false. */
bool zk_rig_join(struct zk_rig *own, const struct zk_rig *rig,
		 const char *name);
void zk_rig_leave(struct zk_rig *own);

/* Starts a target with segment name `name`, which registers all its memory.
 * Returns true on success. */
bool zk_target(struct zk_rig *rig, struct fx_peer *peer, const char *name);
/* Does the same as zk_target() with session timeout `session_ms`. */
bool zk_target_for(struct fx_peer *peer, const char *name,
		   unsigned int session_ms);

/* Writes all memory of the target and verifies it there. Returns true on
 * success. */
bool zk_move(struct zk_rig *rig, segment_id_t seg, struct fx_peer *peer);

/*
 * A thread that repeatedly writes bytes to the target from memory of its own,
 * and verifies them at the target each time.
 */
struct zk_mover {
	/* These members are constant while the thread runs. */
	struct zk_rig *rig;
	segment_id_t seg;
	struct fx_peer *peer;
	struct fx_buf buf;
	pthread_t thread;
	/* These members are accessed atomically. */
	bool stop, bad, moving;
	uint32_t moves;		/* number of finished writes */
	/* This member is valid after the thread has ended. */
	uint64_t longest_ns;	/* duration of the longest write */
};

bool zk_mover_start(struct zk_mover *m, struct zk_rig *rig, segment_id_t seg,
		    struct fx_peer *peer, size_t len);
uint32_t zk_mover_moves(struct zk_mover *m);
/* Waits until the thread has finished n more writes. Returns true if no write
 * has failed so far. */
bool zk_mover_more(struct zk_mover *m, uint32_t n);
/* Waits until a write is in progress, for at most FX_LONG_MS. */
void zk_mover_catch(struct zk_mover *m);
/* Stops the thread and joins it. Returns true if no write has failed. */
bool zk_mover_stop(struct zk_mover *m);

/* Opens the segment repeatedly, without the cache. Returns true as soon as the
 * segment exists if `there` is true. If `there` is false, returns true as soon
 * as a server reports that the segment does not exist. Returns false after
 * `ms`. */
bool zk_open_until(struct zk_rig *rig, const char *name, bool there,
		   unsigned int ms);
/* zk_open() calls openSegment, and zk_publish() calls registerLocalMemory. Both
 * repeat a call that fails because no ZooKeeper server responds. */
segment_id_t zk_open(struct zk_rig *rig, const char *name);
bool zk_publish(struct zk_rig *rig, void *addr, size_t len);

/* Returns the text of te_last_error(). It is valid until the next zk_said(). */
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

/* Measures the registration of 1 000 segments by 10 processes, and opening
 * them. Returns the exit code. */
int zk_bench(struct zk_rig *rig);
/* Main function of one of the 10 processes of zk_bench(). Returns the exit
 * code. */
int zk_bench_child(int argc, char **argv);

#endif /* TEI_FABTESTS_FUNCTIONAL_FT_ZOOKEEPER_H */
