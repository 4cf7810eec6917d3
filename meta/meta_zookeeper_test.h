/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_META_META_ZOOKEEPER_TEST_H
#define TEI_META_META_ZOOKEEPER_TEST_H

/*
 * What the tests of the ZooKeeper back end share: one real server for all
 * cases, processes played by stores with a control channel of their own, and
 * a stranger's handle.
 */

#include <sys/types.h>

#include "meta/meta_test.h"
#include "meta/meta_zookeeper_int.h"
#include "util/settings.h"

/* One that publishes and reads. */
struct zrig {
	struct tei_settings settings;	/* set before zrig_open: the store's
					 * threads read them from then on */
	uint32_t call_s;		/* that the calls below may take; 0:
					 * connect_timeout_s */
	const char *hosts;		/* likewise; NULL: zserver's */
	uint64_t incarnation;
	struct tei_meta_server *server;
	struct tei_meta_store *store;
	struct tei_mutex lock;
	pthread_cond_t cond;
	uint32_t changes;		/* lock: calls of the watch's function */
	char changed[64];		/* lock: its last name */
	uint32_t tries;			/* lock: and tries */
};

/* A new file of that text; its name goes to file, of 64 bytes. */
bool zrig_file(char *file, const char *text, mode_t mode);

/* Settings of a test; the case is skipped and false where no server runs. */
bool zrig_init(struct zrig *r, uint64_t incarnation);
/* chroot: "/a" or "". False: the case has failed. */
bool zrig_open(struct zrig *r, const char *chroot);
void zrig_close(struct zrig *r);
/* From now on nobody answers where it has published that it listens. */
void zrig_mute(struct zrig *r);

/* Where a holder listened that has ended; -1 if another has the port now. */
int zlisten(const char *endpoint);

int zrig_publish(struct zrig *r, const char *name, uint32_t buffers,
		 struct tei_err *err);
/* Buffers of name's descriptor, or the error's code. */
int zrig_fetch(struct zrig *r, const char *name, struct tei_err *err);
int zrig_check(struct zrig *r, struct tei_err *err);
/* Until more than n changes were told. */
bool zrig_changed(struct zrig *r, uint32_t n);
uint32_t zrig_changes(struct zrig *r);
/* The last one's name is that, and so many tries were told of. */
bool zrig_told(struct zrig *r, const char *name, uint32_t tries);
struct zk *zrig_zk(struct zrig *r);
/* Whether that zrig has lost a name and not been told yet; for zwait. */
bool zrig_lost(void *arg);

/* The server of all cases. */
struct ft_zk *zserver(void);

/* A handle of no engine's, connected; auth NULL: none. */
zhandle_t *zstranger(const char *auth);
/* The same session as another handle's, which may be over already. */
zhandle_t *zstranger_as(const clientid_t *id);

/* Until fn(arg) is true; false after 20 s. */
bool zwait(bool (*fn)(void *arg), void *arg);

#endif /* TEI_META_META_ZOOKEEPER_TEST_H */
