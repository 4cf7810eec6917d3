/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_META_META_ZOOKEEPER_TEST_H
#define TEI_META_META_ZOOKEEPER_TEST_H

/*
 * Functions that the tests of the ZooKeeper back end share. There is one real
 * ZooKeeper server for all test cases. A store with a control channel of its
 * own stands for a process. A separate handle of the client library stands for
 * another user.
 */

#include <sys/types.h>

#include "meta/meta_test.h"
#include "meta/meta_zookeeper_int.h"
#include "util/settings.h"

/* A store that stands for a process, with the process's control channel. */
struct zrig {
	/* must not be changed after zrig_open, because the threads of the store
	 * read them */
	struct tei_settings settings;
	uint32_t call_s;   /* time limit of the functions zrig_…, s; 0: the
			    * setting connect_timeout_s */
	const char *hosts; /* list of servers, set before zrig_open; NULL: the
			    * server of zserver() */
	uint64_t incarnation;
	struct tei_meta_server *server;
	struct tei_meta_store *store;
	struct tei_mutex lock;
	pthread_cond_t cond;
	uint32_t changes; /* guarded by lock: number of calls of the watch
			   * callback */
	char changed[64]; /* guarded by lock: parameter name of the last call */
	uint32_t tries;	  /* guarded by lock: parameter tries of the last
			   * call */
};

/* Creates a temporary file that contains text. Writes its name to file, which
 * has space for 64 bytes. Returns false if that fails. */
bool zrig_file(char *file, const char *text, mode_t mode);

/*
 * Initializes *r. Returns false if the test case cannot run: if ZooKeeper is
 * not installed, the case is skipped; if the server cannot be started, the case
 * has failed.
 */
bool zrig_init(struct zrig *r, uint64_t incarnation);
/* Opens the store. chroot is a path like "/a", or "". Returns false if the test
 * case has failed. */
bool zrig_open(struct zrig *r, const char *chroot);
void zrig_close(struct zrig *r);
/* Moves the control channel to another port, so that no process answers at the
 * published address any longer. */
void zrig_mute(struct zrig *r);

/* Listens at the address "endpoint", for example that of an owner that has
 * ended. Returns a socket, or -1 if the port is in use. */
int zlisten(const char *endpoint);

int zrig_publish(struct zrig *r, const char *name, uint32_t buffers,
		 struct tei_err *err);
/* Fetches the descriptor of name. Returns the number of its buffers, or a
 * negative error code. */
int zrig_fetch(struct zrig *r, const char *name, struct tei_err *err);
int zrig_check(struct zrig *r, struct tei_err *err);
/* Waits until the store has notified more than n changes. Returns false if it
 * does not in time. */
bool zrig_changed(struct zrig *r, uint32_t n);
uint32_t zrig_changes(struct zrig *r);
/* Returns true if the last notification had the given name and number of
 * tries. */
bool zrig_notified(struct zrig *r, const char *name, uint32_t tries);
struct zk *zrig_zk(struct zrig *r);
/* Returns true if the store of arg, a struct zrig, has lost a name and has not
 * yet reported this loss to a caller. Callback for zwait. */
bool zrig_lost(void *arg);

/* Returns the ZooKeeper server that all test cases use. */
struct ft_zk *zserver(void);

/* Returns a connected handle of another user, whose credentials are auth; if
 * auth is NULL, the user has no credentials. */
zhandle_t *zstranger(const char *auth);
/* Returns a new handle that continues the session id, even if that session has
 * ended. */
zhandle_t *zstranger_as(const clientid_t *id);

/* Waits until fn(arg) is true. Returns false after 20 s. */
bool zwait(bool (*fn)(void *arg), void *arg);

#endif /* TEI_META_META_ZOOKEEPER_TEST_H */
