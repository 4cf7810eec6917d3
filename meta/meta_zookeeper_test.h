/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_META_META_ZOOKEEPER_TEST_H
#define TEI_META_META_ZOOKEEPER_TEST_H

/*
 * Shared by the tests of the ZooKeeper back end: one real server for all test
 * cases, stores that represent processes (each one has its own control
 * channel), and the handle of another user.
 */

#include <sys/types.h>

#include "meta/meta_test.h"
#include "meta/meta_zookeeper_int.h"
#include "util/settings.h"

/* A store that represents a process, which publishes and reads. */
struct zrig {
	/*
	 * set before zrig_open; the threads of the store read them from then on
	 */
	struct tei_settings settings;
	uint32_t call_s;   /* time limit of the calls below, s; 0:
			    * connect_timeout_s */
	const char *hosts; /* set before zrig_open; NULL: the
			    * servers of zserver() */
	uint64_t incarnation;
	struct tei_meta_server *server;
	struct tei_meta_store *store;
	struct tei_mutex lock;
	pthread_cond_t cond;
	uint32_t changes; /* guarded by lock: number of calls of the watch
			   * callback */
	char changed[64]; /* guarded by lock: name in the last
			   * call */
	uint32_t tries;	  /* guarded by lock: tries in the last
			   * call */
};

/*
 * Creates a file that contains the text. Writes the file's name to file, which
 * has 64 bytes.
 */
bool zrig_file(char *file, const char *text, mode_t mode);

/*
 * Fills the settings. Returns false and skips the case if no server is running.
 */
bool zrig_init(struct zrig *r, uint64_t incarnation);
/* Opens the store. chroot is a path like "/a", or "". Returns false if the test
 * case has failed. */
bool zrig_open(struct zrig *r, const char *chroot);
void zrig_close(struct zrig *r);
/* Stops the control channel at the published address, so that nothing answers
 * there. */
void zrig_mute(struct zrig *r);

/*
 * Listens at the address of an owner that has ended. Returns a socket, or -1 if
 * the port is in use.
 */
int zlisten(const char *endpoint);

int zrig_publish(struct zrig *r, const char *name, uint32_t buffers,
		 struct tei_err *err);
/*
 * Fetches the descriptor of name. Returns its number of buffers, or the code of
 * the error.
 */
int zrig_fetch(struct zrig *r, const char *name, struct tei_err *err);
int zrig_check(struct zrig *r, struct tei_err *err);
/* Waits until more than n changes were notified. */
bool zrig_changed(struct zrig *r, uint32_t n);
uint32_t zrig_changes(struct zrig *r);
/* Waits for a notification with that name and number of tries. */
bool zrig_notified(struct zrig *r, const char *name, uint32_t tries);
struct zk *zrig_zk(struct zrig *r);
/*
 * Returns true if r has lost a name and has not reported this loss to a caller
 * yet. For zwait.
 */
bool zrig_lost(void *arg);

/* Returns the server of all cases. */
struct ft_zk *zserver(void);

/*
 * Returns a connected handle that belongs to no engine. It has no credentials
 * if auth is NULL.
 */
zhandle_t *zstranger(const char *auth);
/*
 * Returns a new handle for an existing session, which may have ended already.
 */
zhandle_t *zstranger_as(const clientid_t *id);

/* Waits until fn(arg) is true. Returns false after 20 s. */
bool zwait(bool (*fn)(void *arg), void *arg);

#endif /* TEI_META_META_ZOOKEEPER_TEST_H */
