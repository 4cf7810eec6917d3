/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_COMMON_FT_ZK_H
#define TEI_FABTESTS_COMMON_FT_ZK_H

#include <stdbool.h>
#include <stddef.h>

#include "fabtests/common/ft_proc.h"

/*
 * Real ZooKeeper servers, a single one or an ensemble, on free ports of a
 * loopback address and with temporary data. The servers end with the process
 * that started them. One thread uses an object. Functions that return bool
 * print the cause of a failure.
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

/* Starts `count` servers at an address (127.0.0.1 by default) and waits until
 * all of them serve clients. */
bool ft_zk_start(struct ft_zk *zk, int count);
bool ft_zk_start_at(struct ft_zk *zk, int count, const char *address);

/* Returns true if this host has that address. */
bool ft_zk_can_bind(const char *address);

/* Starts a killed server again; does not wait until it serves clients. */
bool ft_zk_restart(struct ft_zk *zk, int i);

/* Removes the data of a killed server. */
bool ft_zk_wipe(const struct ft_zk *zk, int i);

/* Waits until a server serves clients as leader, follower or standalone
 * server. */
bool ft_zk_wait(const struct ft_zk *zk, int i);

/* ft_zk_kill sends SIGKILL to a server, ft_zk_pause sends SIGSTOP, and
 * ft_zk_resume sends SIGCONT. */
void ft_zk_kill(struct ft_zk *zk, int i);
void ft_zk_pause(struct ft_zk *zk, int i);
void ft_zk_resume(struct ft_zk *zk, int i);

/* Returns the index of the ensemble's leader, or -1. */
int ft_zk_leader(const struct ft_zk *zk);

/* Kills the running servers and removes their data. */
void ft_zk_stop(struct ft_zk *zk);

#endif /* TEI_FABTESTS_COMMON_FT_ZK_H */
