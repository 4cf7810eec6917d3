/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_COMMON_FT_ZK_H
#define TEI_FABTESTS_COMMON_FT_ZK_H

#include <stdbool.h>
#include <stddef.h>

#include "fabtests/common/ft_proc.h"

/*
 * Real ZooKeeper servers, a single one or an ensemble, on free ports of a
 * loopback address and with temporary data. The servers end with the process
 * that started them. An object may be used by one thread only. Functions that
 * return bool print the cause of a failure.
 */

#define FT_ZK_MAX 3

struct ft_zk {
	int count;
	struct ft_proc server[FT_ZK_MAX];	/* pid is 0 if the server does
						 * not run */
	int client[FT_ZK_MAX], peer[FT_ZK_MAX], election[FT_ZK_MAX];
	char address[16];
	char dir[64];
	char hosts[128];	/* connection string for clients:
				 * "127.0.0.1:PORT,…" */
};

/* Returns the reason why this machine cannot run a server, or NULL. */
const char *ft_zk_missing(void);

/* Start `count` servers and wait until all of them serve clients. ft_zk_start
 * uses the address 127.0.0.1. */
bool ft_zk_start(struct ft_zk *zk, int count);
bool ft_zk_start_at(struct ft_zk *zk, int count, const char *address);

/* Returns true if a socket of this host can be bound to `address`. */
bool ft_zk_can_bind(const char *address);

/* Starts a killed server again. Does not wait until it serves clients. */
bool ft_zk_restart(struct ft_zk *zk, int i);

/* Removes the data of a killed server. */
bool ft_zk_wipe(const struct ft_zk *zk, int i);

/* Waits until a server serves clients, in whichever role (leader, follower or
 * standalone). */
bool ft_zk_wait(const struct ft_zk *zk, int i);

/* Send SIGKILL (ft_zk_kill), SIGSTOP (ft_zk_pause) or SIGCONT (ft_zk_resume) to
 * a server. */
void ft_zk_kill(struct ft_zk *zk, int i);
void ft_zk_pause(struct ft_zk *zk, int i);
void ft_zk_resume(struct ft_zk *zk, int i);

/* Returns the index of the ensemble's leader, or -1 if there is none. */
int ft_zk_leader(const struct ft_zk *zk);

/* Kills the running servers and removes their data. */
void ft_zk_stop(struct ft_zk *zk);

#endif /* TEI_FABTESTS_COMMON_FT_ZK_H */
