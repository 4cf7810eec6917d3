/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_SIM_SIM_FENCE_H
#define TEI_FABTESTS_SIM_SIM_FENCE_H

/*
 * The acceptor of fence events: an automaton that accepts exactly the orders of
 * events that the model of the fence allows (fabtests/model/fence.pml).
 *
 * The acceptor has one automaton for each initiator, target and rail of the
 * target. In the model this is an entry of the array "in", restricted to one
 * rail. The acceptor has a second automaton for each rail of a target: "gen" and
 * "rx" of the model. Initiators and targets are processes, which are named by
 * their incarnations.
 *
 * The model differs in these points:
 * - An initiator of the model has one task with one slice. The acceptor counts
 *   the slices that wait for the fence.
 * - An initiator of the model knows one process of the target at a time. The
 *   acceptor has an automaton for each process.
 * - The model has no event in which an initiator drops a fence. The acceptor
 *   accepts SIM_FENCE_FORGOTTEN only if no slice waits for the fence; the model
 *   reaches the same state if FENCED is lost and the initiator rests.
 * - The model has no BYE. An initiator that receives BYE knows, as process_over
 *   in the model, that the target's process has ended. The acceptor therefore
 *   accepts SIM_FENCE_LEFT only if the rx lane is closed.
 * - The model has no initiator that removes an unused peer. The acceptor ignores
 *   SIM_FENCE_OVER if no slice waits for the fence.
 * - The target of the model answers the newest FENCE of an initiator. While the
 *   implementation sends FENCED, the next FENCE may arrive. The acceptor
 *   therefore also accepts an answer to the FENCE before the newest one, until
 *   SIM_FENCE_SETTLED.
 *
 * model_test.sh fails if the statements of the model change and
 * SIM_FENCE_MODEL_SUM does not. A change of the model therefore requires a
 * decision whether the acceptor must change too.
 */

#include <stdbool.h>
#include <stdint.h>

/* checksum of the model without comments; model_test.sh prints it */
#define SIM_FENCE_MODEL_SUM	317236248

/*
 * The events. The second argument names the part of the Promela model (an
 * inline macro, a process type or a state) in which the model does the same. It
 * is empty if the model has nothing that corresponds to the event.
 */
#define SIM_FENCE_EVENTS(X)                                                    \
	/* The initiator: a slice that was posted to generation gen failed. */ \
	X(FAILED, "fence_failed")                                              \
	/* The initiator posts the slice again, or the slice's task ends with  \
	 * a status that excludes later writes. */                             \
	X(RELEASED, "release")                                                 \
	/* The initiator ends the task of a slice as unfenced. */              \
	X(UNFENCED, "F_UNFENCED")                                              \
	/* The initiator sends FENCE for generation gen. */                    \
	X(SENT, "F_ASKED")                                                     \
	/* The initiator no longer needs the fence. */                         \
	X(FORGOTTEN, "rest")                                                   \
	/* FENCED arrives at the initiator. gen: generation that FENCE named;  \
	 * now: generation of the next rx lane. */                             \
	X(REPLIED, "initiator_main")                                           \
	/* The initiator accepts that the target has closed all generations    \
	 * below "now", because FENCED or HELLO says so. */                    \
	X(LEARNED, "learn")                                                    \
	/* The initiator accepts that the target has closed all generations    \
	 * and opens no other: the process has ended. */                       \
	X(OVER, "process_over")                                                \
	/* The initiator accepts that the target has closed the rail. */       \
	X(RAIL_OVER, "closed")                                                 \
	/* FENCE for generation gen arrives at the target. */                  \
	X(ASKED, "ask")                                                        \
	/* The target sends FENCED. Arguments as for REPLIED. */               \
	X(ANSWERED, "answer")                                                  \
	/* FENCED for generation gen need not be sent any longer: it was sent, \
	 * or the target has given up. */                                      \
	X(SETTLED, "lose")                                                     \
	/* The target sends BYE to the initiator; one event for each rail. */  \
	X(LEFT, "")                                                            \
	/* The target begins to close its rx lane. These three events have no  \
	 * initiator. */                                                       \
	X(CLOSING, "RX_CLOSING")                                               \
	/* The endpoint of the target's rx lane is closed. */                  \
	X(CLOSED, "RX_CLOSED")                                                 \
	/* The target's rx lane is open and has generation gen. */             \
	X(OPENED, "RX_OPEN")

enum sim_fence_kind {
#define SIM_FENCE_KIND(kind, model) SIM_FENCE_##kind,
	SIM_FENCE_EVENTS(SIM_FENCE_KIND)
#undef SIM_FENCE_KIND
	SIM_FENCE_KINDS
};

struct sim_fence_event {
	enum sim_fence_kind kind;
	uint64_t initiator, target;	/* incarnations */
	uint32_t rail;			/* index of the rail at the target */
	uint32_t gen, now;
};

/* Counts since sim_fence_begin. */
struct sim_fence_stats {
	uint64_t events;		/* accepted events */
	uint64_t requested;		/* fences that initiators have begun */
	uint64_t closed;		/* fences that ended because the target
					 * has closed the generation */
	uint64_t over;			/* fences that ended with the target's
					 * process */
	uint64_t forgotten;		/* fences that ended because no slice
					 * waited for them */
	uint64_t unfenced;		/* slices whose tasks ended as
					 * unfenced */
};

/* sim_fence_begin starts with no automaton. sim_fence_end frees all. */
void sim_fence_begin(void);
void sim_fence_end(void);
/* Performs the transition of an event. Returns NULL if the model allows it,
 * otherwise the rule that the event breaks, a constant string. A refused event
 * changes nothing. */
const char *sim_fence_accept(const struct sim_fence_event *event);
/* Checks the generation to which the initiator is about to post a slice. Returns
 * NULL if the initiator does not know that it is closed, otherwise a constant
 * string. */
const char *sim_fence_cut(uint64_t initiator, uint64_t target, uint32_t rail,
			  uint32_t gen);
/* Returns true if slices of the initiator wait for a fence, because the initiator
 * does not know yet whether the target has closed the generation of its rail to
 * which they were posted. Returns false if the rail was withdrawn, because the
 * initiator may then also request a fence for a generation that is closed. */
bool sim_fence_outstanding(uint64_t initiator, uint64_t target, uint32_t rail);
const char *sim_fence_name(enum sim_fence_kind kind);
const struct sim_fence_stats *sim_fence_stats(void);

#endif /* TEI_FABTESTS_SIM_SIM_FENCE_H */
