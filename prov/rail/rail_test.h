/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_RAIL_TEST_H
#define TEI_PROV_RAIL_RAIL_TEST_H

/* Shared by the module's unit tests: data planes of this one process. */

#include "prov/rail/rail_int.h"
#include "util/tei_test.h"

#define TEST_WAIT_NS	(60 * TEI_NS_PER_SEC)

extern const struct tei_test_case rail_aim_cases[];
extern const struct tei_test_case rail_auth_cases[];
extern const struct tei_test_case rail_back_cases[];
extern const struct tei_test_case rail_cache_cases[];
extern const struct tei_test_case rail_closing_cases[];
extern const struct tei_test_case rail_contact_cases[];
extern const struct tei_test_case rail_cut_cases[];
extern const struct tei_test_case rail_first_cases[];
extern const struct tei_test_case rail_health_cases[];
extern const struct tei_test_case rail_hello_cases[];
extern const struct tei_test_case rail_key_cases[];
extern const struct tei_test_case rail_limits_cases[];
extern const struct tei_test_case rail_link_cases[];
extern const struct tei_test_case rail_loss_cases[];
extern const struct tei_test_case rail_mr_cases[];
extern const struct tei_test_case rail_msg_cases[];
extern const struct tei_test_case rail_note_cases[];
extern const struct tei_test_case rail_peer_cases[];
extern const struct tei_test_case rail_ports_cases[];
extern const struct tei_test_case rail_probe_cases[];
extern const struct tei_test_case rail_progress_cases[];
extern const struct tei_test_case rail_refresh_cases[];
extern const struct tei_test_case rail_reopen_cases[];
extern const struct tei_test_case rail_sched_cases[];
extern const struct tei_test_case rail_slice_cases[];
extern const struct tei_test_case rail_window_cases[];
extern const struct tei_test_case rail_wire_cases[];

/* A data plane; the settings may be changed between init and open. */
struct test_plane {
	struct tei_settings settings;
	const struct tei_secret *secret;	/* NULL: none */
	struct tei_rail_dp *dp;
	bool hold;			/* notifications are kept in notes, and
					 * count as held */
	struct tei_list notes;		/* tei_rail_note.link */
};

void test_plane_init(struct test_plane *p);
/* address: of the tcp rail, or NULL for a plane without rails. Fatal. */
void test_plane_open(struct test_plane *p, const char *address);
/* Stops the thread: the caller is the thread from then on. */
void test_plane_still(struct test_plane *p);
void test_plane_close(struct test_plane *p);
/* Takes the oldest notification that is held off the list; NULL: none. It counts as
 * held until test_plane_release, which frees it. */
struct tei_rail_note *test_plane_note(struct test_plane *p);
void test_plane_release(struct test_plane *p, struct tei_rail_note *note);
/* of's peer that stands for to, held. Fatal. */
struct tei_rail_peer *test_plane_peer(struct test_plane *of,
				      struct test_plane *to);

/* Two that know each other; the thread of the first is the test. */
struct test_pair {
	struct test_plane from, to;
	struct tei_rail_peer *peer;	/* to, as from knows it */
	struct rail *rail;		/* from's only one */
	char src[64], dst[64];		/* registered */
};

void test_pair_open(struct test_pair *pair);
/* By that provider; false: there is none, and nothing to close. */
bool test_pair_open_by(struct test_pair *pair, const char *provider);
void test_pair_close(struct test_pair *pair);
/* What from's thread would do for once at that time, faults apart. */
void test_pair_turn(struct test_pair *pair, uint64_t now);

/* Peers that any plane wanted looked up. */
uint32_t test_resolved(void);
/* Notifications that any plane has heard, and messages of its user. */
uint32_t test_notified(void);
uint32_t test_messages(void);

struct test_task {
	struct tei_rail_task task;
	uint32_t ends;			/* times that it ended */
	uint32_t order;			/* of all tasks: ends before it */
	enum tei_rail_end end;
	int code;			/* of the error, or 0 */
	char hint[TEI_ERR_TEXT];	/* of the error, or "" */
	char poison;			/* fills the source at the end, 0: not */
};

void test_task_init(struct test_task *t, struct tei_rail_peer *peer, bool read,
		    void *local, const void *remote, uint64_t len);
int test_submit(struct tei_rail_dp *dp, struct test_task *t, size_t n);
/* Until all have ended; false: out of time. */
bool test_wait(struct test_task *t, size_t n);
/* Ends so far. */
uint32_t test_ends(const struct test_task *t);
/* The task by itself: its end. */
enum tei_rail_end test_run(struct tei_rail_dp *dp, struct tei_rail_peer *peer,
			   bool read, void *local, const void *remote,
			   uint64_t len);
/* Writes a byte, the first to that peer: it is connected after that, by the lane
 * of each rail that was there before, however long that takes. */
void test_connect(struct tei_rail_dp *dp, struct tei_rail_peer *peer,
		  void *local, const void *remote);

uint64_t test_random(uint64_t *state);
void test_fill(void *p, size_t len, uint64_t seed);

#endif /* TEI_PROV_RAIL_RAIL_TEST_H */
