/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_STAGING_RIG_TEST_H
#define TEI_PROV_STAGING_RIG_TEST_H

/* Engines of one process for the tests of remote bounce slots. */

#include "api/engine_int.h"
#include "api/transfer_engine_c.h"
#include "fabtests/common/cuda_stand_in.h"
#include "prov/staging/staging_remote_int.h"
#include "prov/staging/staging_test.h"

#define RIG_SIZE (4u << 20)
#define RIG_WAIT (30 * TEI_NS_PER_SEC)
/* Memory behind the target's registered GPU memory, in the same allocation. */
#define RIG_MORE (40 * (uint64_t)TEI_STAGING_PIECE)

extern struct cuda_stand_in rig_driver;

/* A target with GPU memory, an ordinary initiator (user) and a manual one
 * (hand). */
struct remote_rig {
	transfer_engine_t target, user;
	struct engine *hand;
	uint64_t gpu;
	void *context;
	char *host;
	segment_id_t seg;
	struct tei_rail_peer *peer; /* the peer object that represents the
				     * target in the engine hand */
	uint32_t prefer;
	uint64_t id;
};

/* Creates an engine with the transport tcp. */
transfer_engine_t rig_engine(void);
/* Opens the engines. timeout: MC_SLICE_TIMEOUT of the target. */
struct remote_rig rig_open(const char *timeout);
void rig_close(struct remote_rig *r);
/* Registers the memory that the user moves to and from the target. */
bool rig_register(struct remote_rig *r, void *mem);
/* Moves bytes between the host memory of the user and the GPU memory. */
bool rig_transfer(struct remote_rig *r, int op, uint64_t len);
/* Returns the peer object that represents the target in an engine. It is valid
 * while the segment is open. */
struct tei_rail_peer *rig_peer(struct engine *e, segment_id_t id);
/* Returns the remote part of an engine's staging. */
struct staging_remote *rig_remote(struct engine *e);
void rig_sleep(void);

/* Returns the number of slots of the target for which the function "is" returns
 * true. rig_await_slots waits until the number is n. */
uint32_t rig_slots(const struct remote_rig *r,
		   bool (*is)(const struct staging_remote_slot *));
bool rig_await_slots(const struct remote_rig *r,
		     bool (*is)(const struct staging_remote_slot *),
		     uint32_t n);
bool slot_granted(const struct staging_remote_slot *slot);
bool slot_ready(const struct staging_remote_slot *slot);
bool slot_without_memory(const struct staging_remote_slot *slot);

/* Returns the number of slots whose memory is in quarantine.
 * rig_await_quarantined waits until the number is n. */
uint32_t rig_quarantined(const struct remote_rig *r);
bool rig_await_quarantined(const struct remote_rig *r, uint32_t n);

#endif /* TEI_PROV_STAGING_RIG_TEST_H */
