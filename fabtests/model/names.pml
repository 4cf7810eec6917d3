/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Model of the ownership of a name in ZooKeeper: three processes that want the
 * same name, that are stopped, resumed and killed, and whose sessions expire.
 *
 * The implementation is meta/meta_zookeeper_registration.c and
 * meta/meta_zookeeper_owner.c. A process that has the name owns three nodes:
 * the descriptor (ram/), the address of the control channel (rpc_meta/) and its
 * ownership node. One transaction creates or deletes all three. A process that
 * finds nodes of another one reads them one after the other, asks that process
 * whether it is alive, and replaces the nodes if it does not answer.
 *
 * Checked in every reachable state:
 *   - at most one process has an ownership node, and both other nodes belong to
 *     the same process;
 *   - a process changes or deletes only nodes of its own, or of a process that
 *     did not answer.
 *
 * The model does not include other programs that delete nodes. MUTANT selects a
 * rule that is broken on purpose; 0 breaks none.
 */

#ifndef MUTANT
#define MUTANT 0
#endif
#define PROCS 3
#define NOBODY PROCS
#define CREATIONS 3	/* limit of the number of times that nodes are created */

mtype = { P_RUNNING, P_STOPPED, P_KILLED };

/* A node: its owner, its version, and the transaction that created it. */
typedef node {
	byte owner = NOBODY;
	byte version;
	byte created;
}
node ram, rpc;
bool ownership[PROCS];
byte creations;

mtype state[PROCS] = P_RUNNING;
bool registered[PROCS];		/* the process takes itself for the owner */

inline create(who)
{
	creations++;
	ram.owner = who;
	ram.version = 0;
	ram.created = creations;
	rpc.owner = who;
	rpc.version = 0;
	rpc.created = creations;
	ownership[who] = true;
	registered[who] = true
}

inline delete_both()
{
	ram.owner = NOBODY;
	ram.version = 0;
	ram.created = 0;
	rpc.owner = NOBODY;
	rpc.version = 0;
	rpc.created = 0
}

#define RUNS (state[me] == P_RUNNING)

proctype process(byte me)
{
	node r, p;		/* the nodes as they were read */
	bool owned;		/* the ownership node of r.owner exists */
	byte asked;		/* the process that did not answer */

	/* One transaction creates the nodes if there are none. */
claim:	if
	:: atomic { RUNS && ram.owner == NOBODY && rpc.owner == NOBODY &&
		    !ownership[me] && creations < CREATIONS ->
		create(me);
		goto own
	   }
	:: atomic { RUNS && ram.owner != NOBODY ->
		r.owner = ram.owner;
		r.version = ram.version;
		r.created = ram.created
	   }
	:: atomic { RUNS && creations == CREATIONS -> goto over }
	:: atomic { state[me] == P_KILLED -> goto over }
	fi;

	/* The process reads the nodes of the owner one after the other. */
	if
	:: atomic { RUNS && rpc.owner != NOBODY ->
		p.owner = rpc.owner;
		p.version = rpc.version;
		p.created = rpc.created
	   }
	:: atomic { RUNS && rpc.owner == NOBODY -> goto again }
	:: atomic { state[me] == P_KILLED -> goto over }
	fi;
	if
	:: atomic { RUNS -> owned = ownership[r.owner] }
	:: atomic { state[me] == P_KILLED -> goto over }
	fi;
#if MUTANT != 1		/* the nodes are not compared again after the reads */
	if
	:: atomic { RUNS && ram.created == r.created -> skip }
	:: atomic { RUNS && ram.created != r.created -> goto again }
	:: atomic { state[me] == P_KILLED -> goto over }
	fi;
	if
	:: atomic { RUNS && rpc.created == p.created -> skip }
	:: atomic { RUNS && rpc.created != p.created -> goto again }
	:: atomic { state[me] == P_KILLED -> goto over }
	fi;
#endif
	/* The process queries the owner at the address in rpc_meta/. */
	asked = NOBODY;
	if
#if MUTANT == 2		/* the owner is not asked */
	:: atomic { RUNS -> skip }
#else
	:: atomic { RUNS && p.owner == me -> asked = me }
	:: atomic { RUNS && p.owner != me && state[p.owner] != P_RUNNING ->
		asked = p.owner
	   }
	:: atomic { RUNS && p.owner != me && state[p.owner] == P_RUNNING ->
		goto again
	   }
#endif
	:: atomic { state[me] == P_KILLED -> goto over }
	fi;
	/* One transaction replaces the nodes. */
	if
	:: atomic { RUNS && ram.owner != NOBODY && creations < CREATIONS &&
		    ram.version == r.version && rpc.version == p.version &&
#if MUTANT == 3		/* the old owner's node is not part of it */
		    true ->
#else
		    (!owned || ownership[r.owner]) &&
		    (!ownership[me] || (owned && r.owner == me)) ->
#endif
		assert(asked == ram.owner);
#if MUTANT != 3
		if
		:: owned -> ownership[r.owner] = false
		:: else
		fi;
#endif
		create(me);
		goto own
	   }
	:: atomic { RUNS -> goto again }
	:: atomic { state[me] == P_KILLED -> goto over }
	fi;
again:	atomic {
		r.owner = NOBODY;
		r.version = 0;
		r.created = 0;
		p.owner = NOBODY;
		p.version = 0;
		p.created = 0;
		owned = false;
		asked = NOBODY;
		goto claim
	}

own:	atomic {
		r.owner = NOBODY;
		r.version = 0;
		r.created = 0;
		p.owner = NOBODY;
		p.version = 0;
		p.created = 0;
		owned = false;
		asked = NOBODY
	}
	do
	/* The owner publishes a new text. The transaction checks the ownership
	 * node. */
	:: atomic { RUNS && ram.owner != NOBODY &&
#if MUTANT == 4		/* the ownership node is not checked */
		    true ->
#else
		    ownership[me] ->
#endif
		assert(ram.owner == me);
		if
		:: ram.version == 0 -> ram.version = 1
		:: else
		fi
	   }
	/* The transaction fails: the name was lost. */
	:: atomic { RUNS && !ownership[me] ->
		registered[me] = false;
		goto claim
	   }
	/* The process withdraws the name in one transaction. */
	:: atomic { RUNS && ram.owner != NOBODY && rpc.owner != NOBODY &&
#if MUTANT == 5		/* the ownership node is not part of it */
		    true ->
#else
		    ownership[me] ->
#endif
		assert(ram.owner == me && rpc.owner == me);
		delete_both();
		ownership[me] = false;
		registered[me] = false;
		goto claim
	   }
	:: atomic { state[me] == P_KILLED -> goto over }
	od;
over:	atomic {
		r.owner = NOBODY;
		r.version = 0;
		r.created = 0;
		p.owner = NOBODY;
		p.version = 0;
		p.created = 0;
		owned = false;
		asked = NOBODY
	}
}

/* The session of a process ends: ZooKeeper deletes its nodes. */
inline expire(who)
{
	ownership[who] = false;
	if
	:: ram.owner == who -> delete_both()
	:: else
	fi
}

#define SAME (ram.owner == rpc.owner)
#define ONE (ownership[0] + ownership[1] + ownership[2] <= 1)

/* Stops, resumes and kills processes, lets sessions expire, and checks the
 * invariants. */
proctype world()
{
	byte i;

end:	do
	:: atomic { !SAME || !ONE -> assert(SAME && ONE) }
	:: atomic {
		if
		:: i = 0
		:: i = 1
		:: i = 2
		fi;
		if
		:: state[i] == P_RUNNING -> state[i] = P_STOPPED
		:: state[i] == P_STOPPED -> state[i] = P_RUNNING
		:: state[i] != P_KILLED && i == 0 -> state[i] = P_KILLED
		:: ownership[i] -> expire(i)
		:: else
		fi;
		i = 0
	   }
	od
}

init {
	atomic {
		run process(0);
		run process(1);
		run process(2);
		run world()
	}
}
