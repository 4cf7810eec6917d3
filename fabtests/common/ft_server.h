/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_COMMON_FT_SERVER_H
#define TEI_FABTESTS_COMMON_FT_SERVER_H

#include <stdbool.h>

#include "fabtests/common/ft_etcd.h"
#include "fabtests/common/ft_zk.h"

/*
 * A process of one of the metadata servers that moonrail supports, on a free
 * port of 127.0.0.1 and with temporary data. Tests run with each kind of
 * server. The process ends with the process that started it. An object may be
 * used by one thread only. Functions that return bool print the cause of a
 * failure.
 */
struct ft_server {
	const struct ft_server_kind *kind;
	char conn[192];		/* connection string for an engine */
	/* used by ft_server.c only: */
	struct ft_zk zk;
	struct ft_etcd etcd;
	struct ft_proc proc;	/* pid is 0 if the server does not run */
	char dir[64];
	int port;
};

struct ft_server_kind {
	const char *name; /* name of the product, and of the mode if it has
			   * several: "redis" */
	/* Returns the reason why this machine cannot run a server, or NULL. */
	const char *(*missing)(void);
	/* Starts the server, also again after it was killed. */
	bool (*start)(struct ft_server *server);
	bool (*serves)(struct ft_server *server);
	/* Writes `text` as the value of `key`, without the library. */
	bool (*write)(struct ft_server *server, const char *key,
		      const char *text);
	/* Makes the server require the password "sesame". NULL if no test uses
	 * a password with this product. */
	bool (*protect)(struct ft_server *server);
	const char *password; /* environment variable that tells the library the
			       * password */
	bool only_keys;	      /* true: the server supports neither leases nor
			       * reports of changes nor listings of keys */
	bool password_file;   /* true: `password` names a file with the line
			       * root:PASSWORD */
	bool variant;	      /* true: another mode of the product in the
			       * element before */
};

/* All kinds of servers. The name of the last element is NULL. */
extern const struct ft_server_kind ft_server_kinds[];

/* Starts a server and waits until it serves clients. */
bool ft_server_open(struct ft_server *server, const struct ft_server_kind *kind);
/* Kills the server and removes its data. */
void ft_server_close(struct ft_server *server);

/* Sets the password for engines that are created from now on; NULL means no
 * password. */
bool ft_server_password(struct ft_server *server, const char *password);

/* Kills the server. Its data stays, except that of products which keep it
 * only in memory. */
void ft_server_kill(struct ft_server *server);
/* Kills the server and removes its data, so that it starts empty. */
void ft_server_wipe(struct ft_server *server);
/* Starts a killed server again, and waits until it serves clients. */
bool ft_server_restart(struct ft_server *server);
/* ft_server_pause suspends the server (SIGSTOP), and ft_server_resume resumes
 * it (SIGCONT). */
void ft_server_pause(struct ft_server *server);
void ft_server_resume(struct ft_server *server);

#endif /* TEI_FABTESTS_COMMON_FT_SERVER_H */
