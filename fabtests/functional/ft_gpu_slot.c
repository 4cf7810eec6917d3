/* SPDX-License-Identifier: BSD-2-Clause */

/*
 * Transfers to and from the GPU memory of another process through remote bounce
 * slots, over rails.
 */
#include <stdio.h>

#include "fabtests/common/ft_clock.h"
#include "fabtests/functional/fx_slot.h"

#define SLOT_MOVES 8

/* Creates an engine and a target with this transport. Returns true if the
 * target's segment can be opened. */
static bool by_other(struct slot_rig *rig, const char *transport)
{
	char option[32];

	snprintf(option, sizeof(option), "transport=%s", transport);
	rig->engine = fx_engine(transport);
	rig->there = fx_gpu_target(&rig->peer, SLOT_SIZE, option);
	return rig->there && rig->engine &&
	       fx_register(rig->engine, &rig->mem) &&
	       (rig->seg = openSegment(rig->engine, rig->peer.name)) > 0;
}

/* Checks a provider that accepts one message to a peer at a time, such as shm.
 * Messages for the other pieces of a request must not wait until the timer
 * repeats them. */
static void one_message_at_a_time(struct slot_rig *rig)
{
	transfer_engine_t own = rig->engine;
	uint64_t start;
	bool good;
	int i;

	good = ft_ok(by_other(rig, "shm") && slot_round(rig, 0, SLOT_SIZE, 0),
		     "gpu_of_a_local_process_is_reached_over_shm");
	start = ft_now_ns();
	for (i = 0; good && i < SLOT_MOVES; i++)
		good = slot_move(rig, i & 1 ? OPCODE_READ : OPCODE_WRITE,
				 rig->mem.p, 0, SLOT_SIZE, 0);
	ft_diag("%d moves by shared memory took %u ms", i,
		(unsigned int)((ft_now_ns() - start) / 1000000));
	ft_ok(good && ft_now_ns() - start <
			      fx_ms(SLOT_MOVES * 400) * UINT64_C(1000000),
	      "transfer_over_shm_waits_for_no_repetition");
	destroyTransferEngine(rig->engine);
	fx_peer_stop(&rig->peer);
	rig->engine = own;
}

int main(int argc, char **argv)
{
	struct slot_rig rig = { .transport = "tcp" };

	fx_extend(slot_obey);
	fx_init(argc, argv);
	if (!slot_setup(&rig) || !slot_cases(&rig))
		return ft_result();
	one_message_at_a_time(&rig);
	slot_end(&rig);
	return ft_result();
}
