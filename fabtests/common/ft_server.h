/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_COMMON_FT_SERVER_H
#define TEI_FABTESTS_COMMON_FT_SERVER_H

#include <stdbool.h>

#include "fabtests/common/ft_etcd.h"
#include "fabtests/common/ft_zk.h"

/*
 * A metadata server process of one product, on a free port of 127.0.0.1 and
 * with temporary data, for tests that run with each product. It ends with the
 * process that started it. One thread uses an object. Functions that return
 * bool print the cause of a failure.
 */
struct ft_server {
	const struct ft_server_kind *kind;
	char conn[192];		/* connection string for an engine */
	/* private: */
	struct ft_zk zk;
	struct ft_etcd etcd;
	struct ft_proc proc;	/* pid is 0 if the server does not run */
	char dir[64];
	int port;
};

struct ft_server_kind {
	const char *name; /* "redis" */
	/* Returns the reason why this machine cannot run a server, or NULL. */
	const char *(*missing)(void);
	/* Starts the server; also called after a kill. */
	bool (*start)(struct ft_server *server);
	bool (*serves)(struct ft_server *server);
	/* Writes text under a key with another client. */
	bool (*write)(struct ft_server *server, const char *key,
		      const char *text);
	/* Makes the server require the password "sesame". NULL if this is not
	 * tested. */
	bool (*protect)(struct ft_server *server);
	const char *password; /* environment variable of the password */
	bool only_keys;	      /* the server supports neither leases, reports of
			       * changes nor listings */
	bool password_file;   /* the variable names a file with the line
			       * root:PASSWORD */
	bool variant;	      /* the product is that of the element before, in
			       * another mode */
};

/* The server products that the tests know. The last element has the name
 * NULL. */
extern const struct ft_server_kind ft_server_kinds[];

/* Starts a server and waits until it serves clients. */
bool ft_server_open(struct ft_server *server, const struct ft_server_kind *kind);
/* Kills the server and removes its data. */
void ft_server_close(struct ft_server *server);

/* Gives a password to engines that are created from now on; NULL means no
 * password. */
bool ft_server_password(struct ft_server *server, const char *password);

/* Kills the server; its data stays, unless the product keeps it in memory. */
void ft_server_kill(struct ft_server *server);
/* Kills the server and removes its data, so that the next start finds none. */
void ft_server_wipe(struct ft_server *server);
/* Starts a killed server again, and waits until it serves clients. */
bool ft_server_restart(struct ft_server *server);
/* ft_server_pause suspends the server (SIGSTOP), and ft_server_resume resumes
 * it (SIGCONT). */
void ft_server_pause(struct ft_server *server);
void ft_server_resume(struct ft_server *server);

#endif /* TEI_FABTESTS_COMMON_FT_SERVER_H */
