/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_FUNCTIONAL_FT_ZOOKEEPER_H
#define TEI_FABTESTS_FUNCTIONAL_FT_ZOOKEEPER_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "fabtests/common/ft_zk.h"
#include "fabtests/functional/fx.h"

/*
 * An initiator and its targets, which find each other by real ZooKeeper
 * servers. One thread.
 */

#define ZK_MEM (4 * FX_MIB)
#define ZK_SESSION_MS 2000	/* of every engine here */
#define ZK_LONG_SESSION_MS 60000	/* of a peer, never met */
#define ZK_PATIENT_S 30		/* MC_HANDSHAKE_CONNECT_TIMEOUT: never met */

struct zk_rig {
	struct ft_zk zk;
	transfer_engine_t engine;
	struct fx_buf mem;
	uint64_t sequence;
	uint64_t slowest_ns;	/* look of the last zk_open_until */
	char conn[160];
};

/* MC_HANDSHAKE_CONNECT_TIMEOUT where it is awaited: limits that tell apart what
 * waited so long and what did not are parts of it. */
unsigned int zk_hasty_ms(void);

/* hasty: its own engine waits zk_hasty_ms for servers, and what it asks of them
 * has to be asked again where they are slow. */
bool zk_rig_open(struct zk_rig *rig, int servers, bool hasty);
void zk_rig_close(struct zk_rig *rig);

/* A peer of that name with all its memory registered. */
bool zk_target(struct zk_rig *rig, struct fx_peer *peer, const char *name);
/* With another session. */
bool zk_target_for(struct fx_peer *peer, const char *name,
		   unsigned int session_ms);

/* Writes everything and looks at it in place. */
bool zk_move(struct zk_rig *rig, segment_id_t seg, struct fx_peer *peer);

/*
 * A thread that writes len bytes to the peer again and again, from memory of
 * its own, and looks at them in place each time.
 */
struct zk_mover {
	/* fixed */
	struct zk_rig *rig;
	segment_id_t seg;
	struct fx_peer *peer;
	struct fx_buf buf;
	pthread_t thread;
	/* atomic */
	bool stop, bad, moving;
	uint32_t moves;
	/* the thread's until it is stopped */
	uint64_t longest_ns;
};

bool zk_mover_start(struct zk_mover *m, struct zk_rig *rig, segment_id_t seg,
		    struct fx_peer *peer, size_t len);
uint32_t zk_mover_moves(struct zk_mover *m);
/* Until n more were made, and all were right. */
bool zk_mover_more(struct zk_mover *m, uint32_t n);
/* Returns in the middle of one. */
void zk_mover_catch(struct zk_mover *m);
/* True if all were right. */
bool zk_mover_stop(struct zk_mover *m);

/* Opens afresh until it is there, or is not, which a server has to say; false
 * after ms. */
bool zk_open_until(struct zk_rig *rig, const char *name, bool there,
		   unsigned int ms);
/* As openSegment and registerLocalMemory, again until servers answer. */
segment_id_t zk_open(struct zk_rig *rig, const char *name);
bool zk_publish(struct zk_rig *rig, void *addr, size_t len);

/* Text of the thread's last error. */
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

/* 1 000 segments of 10 processes; the exit code. */
int zk_bench(struct zk_rig *rig);
/* One of those processes. */
int zk_bench_child(int argc, char **argv);

#endif /* TEI_FABTESTS_FUNCTIONAL_FT_ZOOKEEPER_H */
