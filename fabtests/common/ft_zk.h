/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_COMMON_FT_ZK_H
#define TEI_FABTESTS_COMMON_FT_ZK_H

#include <stdbool.h>
#include <stddef.h>

#include "fabtests/common/ft_proc.h"

/*
 * Real ZooKeeper servers, on free ports of a loopback address with temporary data:
 * one alone, or an ensemble. They end with the process that started them. One
 * thread. Functions that return bool print what went wrong.
 */

#define FT_ZK_MAX 3

struct ft_zk {
	int count;
	struct ft_proc server[FT_ZK_MAX];	/* pid 0: not running */
	int client[FT_ZK_MAX], peer[FT_ZK_MAX], election[FT_ZK_MAX];
	char address[16];
	char dir[64];
	char hosts[128];	/* "127.0.0.1:P,…" */
};

/* Why there can be no servers on this machine, or NULL. */
const char *ft_zk_missing(void);

/* Starts them on 127.0.0.1 and waits until all of them serve. */
bool ft_zk_start(struct ft_zk *zk, int count);
bool ft_zk_start_at(struct ft_zk *zk, int count, const char *address);

/* This host has that address. */
bool ft_zk_can_bind(const char *address);

/* Starts one that was killed; returns at once. */
bool ft_zk_restart(struct ft_zk *zk, int i);

/* Removes all that one that was killed has kept. */
bool ft_zk_wipe(const struct ft_zk *zk, int i);

/* Until it serves clients, as leader, follower or alone. */
bool ft_zk_wait(const struct ft_zk *zk, int i);

/* kill -9; SIGSTOP and SIGCONT. */
void ft_zk_kill(struct ft_zk *zk, int i);
void ft_zk_pause(struct ft_zk *zk, int i);
void ft_zk_resume(struct ft_zk *zk, int i);

/* Index of the ensemble's leader, or -1. */
int ft_zk_leader(const struct ft_zk *zk);

/* Kills what runs and removes the data. */
void ft_zk_stop(struct ft_zk *zk);

#endif /* TEI_FABTESTS_COMMON_FT_ZK_H */
