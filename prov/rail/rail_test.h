/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_RAIL_TEST_H
#define TEI_PROV_RAIL_RAIL_TEST_H

/* Helpers of the module's unit tests: several data planes in this process. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "prov/rail/core/rail_dp.h"
#include "prov/rail/tei_rail.h"
#include "util/clock.h"
#include "util/list.h"
#include "util/lock.h"
#include "util/log.h"
#include "util/settings.h"
#include "util/tei_test.h"

struct rail;
struct rail_rkey;

#define TEST_WAIT_NS	(60 * TEI_NS_PER_SEC)

extern const struct tei_test_case rail_select_cases[];
extern const struct tei_test_case rail_addr_cases[];
extern const struct tei_test_case rail_auth_cases[];
extern const struct tei_test_case rail_bounce_cases[];
extern const struct tei_test_case rail_reverse_cases[];
extern const struct tei_test_case rail_cache_cases[];
extern const struct tei_test_case rail_closing_cases[];
extern const struct tei_test_case rail_contact_cases[];
extern const struct tei_test_case rail_disconnect_cases[];
extern const struct tei_test_case rail_contact_lane_cases[];
extern const struct tei_test_case rail_fence_cases[];
extern const struct tei_test_case rail_health_cases[];
extern const struct tei_test_case rail_hello_cases[];
extern const struct tei_test_case rail_key_cases[];
extern const struct tei_test_case rail_key_use_cases[];
extern const struct tei_test_case rail_lane_thread_cases[];
extern const struct tei_test_case rail_limits_cases[];
extern const struct tei_test_case rail_link_cases[];
extern const struct tei_test_case rail_loss_cases[];
extern const struct tei_test_case rail_mr_cases[];
extern const struct tei_test_case rail_dispatch_cases[];
extern const struct tei_test_case rail_notify_cases[];
extern const struct tei_test_case rail_peer_cases[];
extern const struct tei_test_case rail_ports_cases[];
extern const struct tei_test_case rail_probe_cases[];
extern const struct tei_test_case rail_progress_cases[];
extern const struct tei_test_case rail_refresh_cases[];
extern const struct tei_test_case rail_reopen_cases[];
extern const struct tei_test_case rail_sched_cases[];
extern const struct tei_test_case rail_served_cases[];
extern const struct tei_test_case rail_slice_cases[];
extern const struct tei_test_case rail_step_cases[];
extern const struct tei_test_case rail_width_cases[];
extern const struct tei_test_case rail_window_cases[];
extern const struct tei_test_case rail_wire_cases[];

/* A data plane. The test may change settings between test_plane_init and
 * test_plane_open. */
struct test_plane {
	struct tei_settings settings;
	const struct tei_secret *secret;	/* secret of the plane; NULL if
						 * it has none */
	struct tei_rail_dp *dp;
	bool reports;			/* value of attr.reports: true if the
					 * plane reports to its peers how many
					 * bytes it has moved */
	bool hold;			/* if true, received notifications stay
					 * in the list "notes" and count against
					 * the limits */
	struct tei_list notes;		/* received notifications, linked by
					 * tei_rail_notification.link */
};

void test_plane_init(struct test_plane *p);
/* Opens the data plane. address: IP address of the plane's only rail, which
 * uses tcp; if NULL, the plane has no rail. A failure ends the test. */
void test_plane_open(struct test_plane *p, const char *address);
/* Stops the progress thread. Afterwards the test calls the functions that the
 * progress thread would call. */
void test_plane_still(struct test_plane *p);
/* Opens all tx lanes of the plane, as if peers had been contacted over each of
 * them. */
void test_plane_use(struct test_plane *p);
/* Sets the provider name of a rail and returns the previous one. The next
 * openings of lanes that own their domain fail if no provider has the name. */
char *test_rail_rename(struct rail *rail, char *name);
void test_plane_close(struct test_plane *p);
/* Takes the oldest notification off the list. Returns NULL if the list is
 * empty. The notification counts against the limits until test_plane_release
 * frees it. */
struct tei_rail_notification *test_plane_note(struct test_plane *p);
void test_plane_release(struct test_plane *p,
			struct tei_rail_notification *note);
/* Returns a reference to the peer object in plane "of" that represents plane
 * "to". A failure ends the test. */
struct tei_rail_peer *test_plane_peer(struct test_plane *of,
				      struct test_plane *to);

/* Two connected data planes, from and to. The progress thread of "from" is
 * stopped; the test calls its functions. */
struct test_pair {
	struct test_plane from, to;
	struct tei_rail_peer *peer;	/* the peer object in plane "from" that
					 * represents plane "to" */
	struct rail *rail;		/* the only rail of plane "from" */
	char src[64], dst[64];		/* registered memory: src in plane
					 * "from", dst in plane "to" */
};

/* Opens both planes and connects them. */
void test_pair_open(struct test_pair *pair);
/* Opens and connects both planes, as test_pair_open does, with the given
 * provider. Returns false, and leaves nothing to close, if the provider does
 * not exist. */
bool test_pair_open_by(struct test_pair *pair, const char *provider);
void test_pair_close(struct test_pair *pair);
/* Does one iteration of the progress thread of plane "from" for the time "now",
 * without health checks. */
void test_pair_turn(struct test_pair *pair, uint64_t now);
/* Activates the lanes that were opened again, and runs the health checks, as
 * the progress thread does. */
void test_health_run(struct tei_rail_dp *dp, uint64_t now);

/* Returns the number of calls of ops->resolve, by all planes. */
uint32_t test_resolved(void);
/* test_notified returns the number of notifications that all planes have
 * received, and test_messages the number of user messages. */
uint32_t test_notified(void);
uint32_t test_messages(void);

struct test_task {
	struct tei_rail_task task;
	uint32_t ends;			/* number of times that the task was
					 * reported as ended */
	uint32_t order;			/* number of tasks that ended before
					 * this task */
	enum tei_rail_end end;
	int code;			/* code of the error with which the task
					 * ended, or 0 */
	char text[TEI_ERR_TEXT];	/* text of this error, or "" */
	char hint[TEI_ERR_TEXT];	/* hint of this error, or "" */
	char poison;			/* byte with which the source is filled
					 * when the task ends; if 0, the source
					 * is not filled */
};

/* Adds a key for len bytes at the peer's address base, which belongs to the
 * region with that id and has no parts. */
struct rail_rkey *test_key_add(struct tei_rail_peer *peer, uint64_t base,
			       uint64_t len, uint64_t id)
	TEI_REQUIRES(rail_sched_held);

void test_task_init(struct test_task *t, struct tei_rail_peer *peer, bool read,
		    void *local, const void *remote, uint64_t len);
int test_submit(struct tei_rail_dp *dp, struct test_task *t, size_t n);
/* Waits until all n tasks have ended. Returns false after TEST_WAIT_NS. */
bool test_wait(struct test_task *t, size_t n);
/* Returns how many times the task has ended. */
uint32_t test_ends(const struct test_task *t);
/* Runs one task and returns how it ended. */
enum tei_rail_end test_run(struct tei_rail_dp *dp, struct tei_rail_peer *peer,
			   bool read, void *local, const void *remote,
			   uint64_t len);
/* Writes one byte to the peer. This must be the first transfer to the peer.
 * Afterwards each rail that existed before the call has a connection to the
 * peer. Waits until the write has completed, without a time limit. */
void test_connect(struct tei_rail_dp *dp, struct tei_rail_peer *peer,
		  void *local, const void *remote);

/* Passes all lines of the levels warn and error to fn. If fn is NULL, prints
 * lines to stderr: only errors, or all lines if MC_LOG_LEVEL is set. After
 * setting fn, a test must call test_log with NULL before it ends. */
void test_log(tei_log_fn fn, void *arg);

uint64_t test_random(uint64_t *state);
void test_fill(void *p, size_t len, uint64_t seed);

#endif /* TEI_PROV_RAIL_RAIL_TEST_H */
