/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_META_META_ZOOKEEPER_TEST_H
#define TEI_META_META_ZOOKEEPER_TEST_H

/*
 * Shared by the tests of the ZooKeeper back end: one real server for all cases,
 * stores with their own control channel, which represent processes, and the
 * handle of another user.
 */

#include <sys/types.h>

#include "meta/meta_test.h"
#include "meta/meta_zookeeper_int.h"
#include "util/settings.h"

/* A process that publishes and reads. */
struct zrig {
	struct tei_settings settings;	/* set before zrig_open: the store's
					 * threads read them from then on */
	uint32_t call_s;		/* time limit of the calls below, 0:
					 * connect_timeout_s */
	const char *hosts;		/* set before zrig_open; NULL:
					 * zserver's */
	uint64_t incarnation;
	struct tei_meta_server *server;
	struct tei_meta_store *store;
	struct tei_mutex lock;
	pthread_cond_t cond;
	uint32_t changes; /* guarded by lock: number of calls of
			   * the watch function */
	char changed[64]; /* guarded by lock: name in the last
			   * call */
	uint32_t tries;	  /* guarded by lock: tries in the last
			   * call */
};

/*
 * Creates a file with that text. Writes its name to file, which has 64 bytes.
 */
bool zrig_file(char *file, const char *text, mode_t mode);

/*
 * Fills the settings. Returns false and skips the case if no server is running.
 */
bool zrig_init(struct zrig *r, uint64_t incarnation);
/* Opens the store. chroot: "/a" or "". Returns false if the case has failed. */
bool zrig_open(struct zrig *r, const char *chroot);
void zrig_close(struct zrig *r);
/* Makes the published address stop answering. */
void zrig_mute(struct zrig *r);

/*
 * Listens at the address of an owner that has ended. Returns -1 if the port is
 * in use.
 */
int zlisten(const char *endpoint);

int zrig_publish(struct zrig *r, const char *name, uint32_t buffers,
		 struct tei_err *err);
/*
 * Returns the number of buffers of name's descriptor, or the code of the error.
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
 * Returns true if the zrig has lost a name and this loss has not been reported
 * to a caller; for zwait.
 */
bool zrig_lost(void *arg);

/* Returns the server of all cases. */
struct ft_zk *zserver(void);

/*
 * Returns a connected handle that belongs to no engine. auth NULL: no
 * credentials.
 */
zhandle_t *zstranger(const char *auth);
/*
 * Returns a new handle for the session of another handle. The session may have
 * ended already.
 */
zhandle_t *zstranger_as(const clientid_t *id);

/* Waits until fn(arg) is true. Returns false after 20 s. */
bool zwait(bool (*fn)(void *arg), void *arg);

#endif /* TEI_META_META_ZOOKEEPER_TEST_H */
