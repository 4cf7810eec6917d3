/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Model of the fence: two initiators, one target with two rails, writes that
 * land after their initiator has given up, lost, repeated and reordered
 * messages, and one restart of the target.
 *
 * The implementation is prov/rail/sched/rail_fence.c and
 * prov/rail/peer/rail_fence_ctl.c; docs/ARCHITECTURE.md shows the state
 * machines. Every initiator has one task, whose write is posted at most
 * ATTEMPTS(i) times. An attempt that has failed at the initiator may still land at
 * the target until the rx lane of its generation is closed.
 *
 * Checked in every reachable state:
 *   - no write lands after the terminal status of its task, unless the status
 *     is TIMEOUT and the fence is still unfenced;
 *   - a task is COMPLETED only if its bytes are in place;
 *   - an initiator whose task has not ended can go on.
 *
 * MUTANT selects a rule that is broken on purpose; 0 breaks none.
 */

#ifndef MUTANT
#define MUTANT 0
#endif
#define INITS 2
#define RAILS 2
#define FLIGHTS 3	/* two attempts of initiator 0, one of initiator 1 */
#define ATTEMPTS(i) (2 - (i))
#define OWNER(f) ((f) / 2)
#define GEN_MAX 3	/* lane generations are 1 to GEN_MAX */
#define NO_RAIL RAILS

/* The initiator's fence. ASKED also represents the state WANTED of the
 * implementation. */
mtype = { F_NONE, F_ASKED, F_UNFENCED };
mtype = { RX_OPEN, RX_CLOSING, RX_CLOSED };		/* target's rx lane */
mtype = { W_NONE, W_FLYING, W_LANDED, W_FAILED };	/* an attempt */
mtype = { T_WAITING, T_POSTED, T_FENCING, T_COMPLETED, T_FAILED, T_TIMEOUT };

/* --- the target ----------------------------------------------------------- */

byte incarnation = 1;
byte gen[RAILS];
mtype rx[RAILS];
byte due[INITS * RAILS];	/* generation of a FENCE that is not answered */
bool restarted;

/* --- the network ---------------------------------------------------------- */

/*
 * An attempt to write. It may land while it is FLYING, and again, in pieces,
 * while it is FAILED.
 */
typedef flight {
	mtype state = W_NONE;
	byte rail;
	byte gen;
	byte inc;
}
flight w[FLIGHTS];

/*
 * A message FENCED on its way to an initiator. now is 0 if there is none. FENCE
 * needs no slot: a delayed FENCE has the same effect as one that the target
 * answers late (due), and a lost FENCE the same as one that is not sent. HELLO
 * needs no slot either: an initiator may receive at any time the contents of
 * any earlier HELLO of the process.
 */
typedef fenced_msg {
	byte rail;
	byte now;	/* generation of the next rx lane */
	byte inc;
}
fenced_msg reply[INITS];

/* --- the initiators ------------------------------------------------------- */

typedef initiator {
	byte inc = 1;		/* incarnation of the target that it knows */
	byte gen[RAILS];
	mtype fence[RAILS];
	byte fence_gen[RAILS];
	mtype task = T_WAITING;
	bool cancelled;
	byte attempts;
	byte rail;		/* of the latest attempt */
	byte posted_gen;
	byte posted_inc;
}
initiator in[INITS];

#define FINAL(i) (in[i].task == T_COMPLETED || in[i].task == T_FAILED || \
		  in[i].task == T_TIMEOUT)
#define RESTS(i) (in[i].inc == 0)
#define UNFENCED(i) (in[i].fence[0] == F_UNFENCED || \
		     in[i].fence[1] == F_UNFENCED)
#define LAST(i) ((i) * 2 + in[i].attempts - 1)

/* True if the target's NIC accepts the attempt. */
#if MUTANT == 1		/* a closed lane still accepts writes of its NIC */
#define LANDS(f) (w[f].inc == incarnation && w[f].gen == gen[w[f].rail])
#else
#define LANDS(f) (w[f].inc == incarnation && w[f].gen == gen[w[f].rail] && \
		  rx[w[f].rail] != RX_CLOSED)
#endif

/*
 * Ends the task. An initiator that has neither a task nor a fence does nothing
 * any longer, so its variables are set to 0, which reduces the number of
 * states.
 */
inline finish(who, how)
{
	in[who].task = how;
	in[who].rail = 0;
	in[who].posted_gen = 0;
	in[who].posted_inc = 0;
	in[who].cancelled = false;
	in[who].attempts = 0;
	if
	:: in[who].fence[0] == F_NONE && in[who].fence[1] == F_NONE ->
		rest(who)
	:: else
	fi
}

inline rest(who)
{
	in[who].inc = 0;
	in[who].gen[0] = 0;
	in[who].gen[1] = 0;
	in[who].fence_gen[0] = 0;
	in[who].fence_gen[1] = 0
}

/* Lets the slice that waits for the fence be posted again, or ends the task. */
inline release(who)
{
	if
	:: in[who].task == T_FENCING ->
		if
		:: in[who].cancelled || in[who].attempts == ATTEMPTS(who) ->
			finish(who, T_FAILED)
		:: else -> in[who].task = T_WAITING
		fi
	:: else
	fi
}

/* Handles that the target has closed all generations of rail lane below
 * upto. */
inline closed(who, lane, upto)
{
	if
	:: in[who].task == T_FENCING && in[who].rail == lane &&
#if MUTANT == 2		/* the generation of the answer is ignored */
	   true ->
#else
	   in[who].posted_gen < upto ->
#endif
		release(who)
	:: else
	fi;
	if
	:: in[who].fence_gen[lane] < upto -> in[who].fence[lane] = F_NONE
	:: else
	fi;
	if
	:: FINAL(who) && !UNFENCED(who) -> rest(who)
	:: else
	fi
}

/* Handles that the initiator learns that upto is the current generation of rail
 * lane. */
inline learn(who, lane, upto)
{
	if
	:: in[who].gen[lane] < upto -> in[who].gen[lane] = upto
	:: else
	fi;
	closed(who, lane, upto)
}

/* Handles that the target process that the initiator knows has ended: no write
 * to that process can land any longer. */
inline process_over(who, newer)
{
	in[who].inc = newer;
	in[who].gen[0] = 1;
	in[who].gen[1] = 1;
	in[who].fence[0] = F_NONE;
	in[who].fence[1] = F_NONE;
	in[who].fence_gen[0] = 0;
	in[who].fence_gen[1] = 0;
	release(who);
	if
	:: FINAL(who) -> rest(who)
	:: else
	fi
}

/* Starts the fence of the attempt that has failed. */
inline fence_failed(who)
{
	in[who].task = T_FENCING;
	if
	:: in[who].posted_inc != in[who].inc -> release(who)
	:: else ->
		if
		:: in[who].gen[in[who].rail] > in[who].posted_gen -> release(who)
		:: else ->
#if MUTANT == 3		/* the slice is posted again without a fence */
			release(who)
#else
			if
			:: in[who].fence[in[who].rail] == F_NONE ->
				in[who].fence[in[who].rail] = F_ASKED
			:: else
			fi;
			if
			:: in[who].fence_gen[in[who].rail] < in[who].posted_gen ->
				in[who].fence_gen[in[who].rail] = in[who].posted_gen
			:: else
			fi
#endif
		fi
	fi
}

/* Erases an attempt that can no longer land. Keeps the state W_LANDED. */
inline sweep(which)
{
	if
	:: w[which].inc < incarnation ||
	   (w[which].gen < gen[w[which].rail] && MUTANT != 11) ->
		w[which].rail = 0;
		w[which].gen = 0;
		w[which].inc = 0;
		if
		:: w[which].state != W_LANDED -> w[which].state = W_NONE
		:: else
		fi
	:: else
	fi
}

inline sweep_all()
{
	sweep(0);
	sweep(1);
	sweep(2)
}

/* The target receives a FENCE. */
inline ask(who, lane)
{
	if
	:: in[who].inc == incarnation && in[who].fence_gen[lane] <= gen[lane] ->
		due[who * RAILS + lane] = in[who].fence_gen[lane]
	:: else
	fi
}

#define HELLO(i, r) (!RESTS(i) && in[i].inc == incarnation && \
		     in[i].gen[r] < gen[r])

/* Removes the FENCED on its way to the initiator. */
inline lose(who)
{
	reply[who].now = 0;
	reply[who].rail = 0;
	reply[who].inc = 0
}

proctype initiator_main(byte i)
{
	byte r;

	do
	/* The slice is posted on any rail. */
	:: atomic { in[i].task == T_WAITING && in[i].attempts < ATTEMPTS(i) ->
		if
		:: r = 0
		:: r = 1
		fi;
		in[i].attempts++;
		w[LAST(i)].state = W_FLYING;
		w[LAST(i)].rail = r;
		w[LAST(i)].gen = in[i].gen[r];
		w[LAST(i)].inc = in[i].inc;
		in[i].rail = r;
		in[i].posted_gen = in[i].gen[r];
		in[i].posted_inc = in[i].inc;
		sweep(LAST(i));
		r = 0;
#if MUTANT == 5		/* a post counts as a completion */
		in[i].task = T_COMPLETED;
		assert(w[LAST(i)].state == W_LANDED)
#else
		in[i].task = T_POSTED
#endif
	   }
	/* The acknowledgement of the target arrives. */
	:: atomic { in[i].task == T_POSTED && w[LAST(i)].state == W_LANDED ->
		w[LAST(i)].state = W_NONE;
		w[LAST(i)].rail = 0;
		w[LAST(i)].gen = 0;
		w[LAST(i)].inc = 0;
		finish(i, T_COMPLETED)
	   }
	/* An error completion arrives: the write may have landed, or may still
	 * land. */
	:: atomic { in[i].task == T_POSTED ->
		if
		:: w[LAST(i)].state == W_FLYING -> w[LAST(i)].state = W_FAILED
		:: else
		fi;
		fence_failed(i)
	   }
	/* The caller cancels the batch, or the task's deadline passes. */
	:: atomic { in[i].task == T_POSTED && i == 0 && !in[i].cancelled ->
		in[i].cancelled = true;
		if
		:: w[LAST(i)].state == W_FLYING -> w[LAST(i)].state = W_FAILED
		:: else
		fi;
#if MUTANT == 6		/* a cancelled task ends without a fence */
		finish(i, T_FAILED)
#else
		fence_failed(i)
#endif
	   }
	:: atomic { in[i].task == T_WAITING && i == 0 && !in[i].cancelled ->
		finish(i, T_FAILED)
	   }
	/* The target has not answered in time. */
	:: atomic { in[i].task == T_FENCING ->
#if MUTANT == 7		/* a silent target counts as fenced */
		in[i].fence[in[i].rail] = F_NONE;
		finish(i, T_FAILED)
#else
		in[i].fence[in[i].rail] = F_UNFENCED;
		finish(i, T_TIMEOUT)
#endif
	   }
	/* FENCE is sent, and repeated until an answer arrives. A FENCE of an
	 * earlier incarnation, or for a future generation, is dropped. */
	:: atomic { in[i].fence[0] != F_NONE -> ask(i, 0) }
	:: atomic { in[i].fence[1] != F_NONE -> ask(i, 1) }
	/* FENCED arrives. The message either is removed, or stays and arrives
	 * again, as a repeated message does. */
	:: atomic { !RESTS(i) && reply[i].now != 0 ->
		if
#if MUTANT == 8		/* an answer of an earlier incarnation counts */
		:: true ->
#else
		:: reply[i].inc == in[i].inc ->
#endif
			r = reply[i].rail;
			learn(i, r, reply[i].now);
			r = 0
		:: else
		fi;
		if
		:: lose(i)
		:: true
		fi
	   }
	/* HELLO arrives. */
#if MUTANT == 4		/* a HELLO counts as an answer to every fence */
	:: atomic { HELLO(i, 0) -> release(i) }
#endif
#if MUTANT == 12	/* a silent process counts as one that has ended */
	:: atomic { !RESTS(i) -> process_over(i, in[i].inc) }
#endif
	:: atomic { !RESTS(i) && in[i].inc < incarnation ->
		process_over(i, incarnation)
	   }
	:: atomic { HELLO(i, 0) -> learn(i, 0, in[i].gen[0] + 1) }
	:: atomic { HELLO(i, 1) -> learn(i, 1, in[i].gen[1] + 1) }
	/* An initiator may end only in this state; any other state without a
	 * possible step is reported as an error. */
	:: atomic { RESTS(i) -> break }
	od
}

/* Handles the FENCE of initiator who for rail lane: answers it, or begins to
 * close the lane. */
inline answer(who, lane)
{
	if
	:: gen[lane] > due[who * RAILS + lane] ->
		reply[who].rail = lane;
		reply[who].now = gen[lane];
		reply[who].inc = incarnation;
		due[who * RAILS + lane] = 0
	:: else ->
		if
		:: rx[lane] == RX_OPEN -> rx[lane] = RX_CLOSING
		:: else
		fi;
		if
#if MUTANT == 9		/* FENCED is sent while the lane is still closing */
		:: true ->
#else
		:: rx[lane] == RX_CLOSED ->
#endif
			reply[who].rail = lane;
			reply[who].now = due[who * RAILS + lane] + 1;
			reply[who].inc = incarnation;
			due[who * RAILS + lane] = 0
		:: else
		fi
	fi
}

#define ANSWERS(i, r) (due[(i) * RAILS + (r)] != 0 && reply[i].now == 0 && \
		       (gen[r] > due[(i) * RAILS + (r)] || rx[r] != RX_CLOSING || \
			MUTANT == 9))

proctype target_main()
{
	byte r;

end:	do
	/* FENCE is answered. */
	:: atomic { ANSWERS(0, 0) -> answer(0, 0) }
	:: atomic { ANSWERS(0, 1) -> answer(0, 1) }
	:: atomic { ANSWERS(1, 0) -> answer(1, 0) }
	:: atomic { ANSWERS(1, 1) -> answer(1, 1) }
	/* A closer thread has closed the rx lane. */
	:: atomic { rx[0] == RX_CLOSING -> rx[0] = RX_CLOSED }
	:: atomic { rx[1] == RX_CLOSING -> rx[1] = RX_CLOSED }
	/* An opener thread has opened the next one. */
	:: atomic { rx[0] == RX_CLOSED && gen[0] < GEN_MAX -> r = 0; goto open }
	:: atomic { rx[1] == RX_CLOSED && gen[1] < GEN_MAX -> r = 1;
open:		rx[r] = RX_OPEN;
#if MUTANT != 10	/* a lane is opened again with its old generation */
		gen[r]++;
#endif
		r = 0;
		sweep_all()
	   }
	/* The process is killed and starts again. */
	:: atomic { !restarted ->
		restarted = true;
#if MUTANT != 11	/* a new process has the old incarnation */
		incarnation++;
#endif
		gen[0] = 1;
		gen[1] = 1;
		rx[0] = RX_OPEN;
		rx[1] = RX_OPEN;
		due[0] = 0;
		due[1] = 0;
		due[2] = 0;
		due[3] = 0;
		sweep_all()
	   }
	od
}

/* The attempt reaches the memory of the target. */
inline land(which)
{
	assert(!FINAL(OWNER(which)) ||
	       (in[OWNER(which)].task == T_TIMEOUT && UNFENCED(OWNER(which))));
	if
	:: w[which].state == W_FLYING -> w[which].state = W_LANDED
	:: else
	fi
}

#define MAY_LAND(f) (w[f].state != W_NONE && w[f].state != W_LANDED && LANDS(f))

proctype network()
{
end:	do
	:: atomic { MAY_LAND(0) -> land(0) }
	:: atomic { MAY_LAND(1) -> land(1) }
	:: atomic { MAY_LAND(2) -> land(2) }
	/* FENCED is lost. */
	:: atomic { reply[0].now != 0 -> lose(0) }
	:: atomic { reply[1].now != 0 -> lose(1) }
	od
}

init {
	atomic {
		byte i, r;

		for (r : 0 .. RAILS - 1) {
			gen[r] = 1;
			rx[r] = RX_OPEN;
			for (i : 0 .. INITS - 1) {
				in[i].gen[r] = 1;
				in[i].fence[r] = F_NONE
			}
		}
		i = 0;
		r = 0;
		run initiator_main(0);
		run initiator_main(1);
		run target_main();
		run network()
	}
}
