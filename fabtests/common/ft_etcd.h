/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_COMMON_FT_ETCD_H
#define TEI_FABTESTS_COMMON_FT_ETCD_H

#include <stdbool.h>
#include <stddef.h>

#include "fabtests/common/ft_proc.h"

#define FT_ETCD_MEMBERS 3

/*
 * etcd servers that form one cluster, on free ports of 127.0.0.1 and with
 * temporary data. They end with the process that started them. An object may be
 * used by one thread only. Functions that return bool print the cause of a
 * failure.
 */
struct ft_etcd {
	int count;	 /* 0 if the servers were never started */
	char hosts[128]; /* client addresses: "127.0.0.1:1,127.0.0.1:2" */
	char dir[64];
	/* ports for clients and for other members */
	int client[FT_ETCD_MEMBERS], peer[FT_ETCD_MEMBERS];
	int tls_port;	 /* TLS port of the first member; 0 if it does not use
			  * TLS */
	struct ft_proc procs[FT_ETCD_MEMBERS]; /* pid is 0 if the member does
						* not run */
};

/* Returns the reason why this machine cannot run a server, or NULL. */
const char *ft_etcd_missing(void);

/*
 * Starts `count` members, and does not wait until they serve clients. If `tls`
 * is true, the first member also listens at tls_port and requires client
 * certificates. The folder `dir` then contains ca.pem, cert.pem and key.pem, a
 * certificate for 127.0.0.1 and for clients, and other.pem, the certificate of
 * another authority.
 */
bool ft_etcd_start(struct ft_etcd *etcd, int count, bool tls);
/* Kills all members and removes their data. */
void ft_etcd_stop(struct ft_etcd *etcd);

/* Starts a killed member again with the data that it had. */
bool ft_etcd_restart(struct ft_etcd *etcd, int member);
void ft_etcd_kill(struct ft_etcd *etcd, int member);
/* Kills all members and removes their data. Members that are started later form
 * a new cluster. */
void ft_etcd_wipe(struct ft_etcd *etcd);

/* Waits until the member serves reads, for which the cluster needs a leader. */
bool ft_etcd_wait(struct ft_etcd *etcd, int member);

/* Returns the index of the member that is the leader, or -1 if there is
 * none. */
int ft_etcd_leader(struct ft_etcd *etcd);

/* Posts JSON to a path of the member's HTTP gateway, such as "/kv/put". Returns
 * the HTTP status and copies the body to answer. Returns 0 if there is no valid
 * answer. */
int ft_etcd_post(struct ft_etcd *etcd, int member, const char *path,
		 const char *json, char *answer, size_t len);

/* Writes `text` as the value of `key`. */
bool ft_etcd_put(struct ft_etcd *etcd, const char *key, const char *text);

/* Makes the servers require the user "root" and the password "sesame". */
bool ft_etcd_protect(struct ft_etcd *etcd);

#endif /* TEI_FABTESTS_COMMON_FT_ETCD_H */
