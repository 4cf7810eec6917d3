/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_SIM_SIM_H
#define TEI_FABTESTS_SIM_SIM_H

/*
 * The core of the simulator: virtual time, events, random streams, hosts,
 * fibers and the trace.
 *
 * A simulation runs in one process and one OS thread. Everything that happens
 * is an event: sim_run takes the event with the earliest time off a queue, sets
 * the virtual clock to that time and calls the event's function. Events of the
 * same time run in the order in which they were added. The clock does not
 * advance while code runs.
 *
 * Code that may block (a caller of the library, a progress loop, a short-lived
 * thread of the library) runs in a fiber, which has a stack of its own. A fiber
 * runs until it waits; then sim_run continues with the next event.
 *
 * The same program with the same seed produces the same events. Therefore
 * nothing in the simulator depends on real time, on addresses or on the order
 * of allocations. The callers' decisions must not depend on these either.
 *
 * All functions are called from the simulation's thread. A function fails only
 * if its comment says so. If memory runs out or if a rule is broken, the
 * program prints the seed and the event number, and aborts.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The shared object libsim-fi.so uses these functions, so the program exports
 * them. */
#pragma GCC visibility push(default)

#define SIM_US		UINT64_C(1000)
#define SIM_MS		UINT64_C(1000000)
#define SIM_SEC		UINT64_C(1000000000)
#define SIM_NEVER	UINT64_MAX

/* Virtual time at which each simulation begins, ns. */
#define SIM_START_NS	(1000 * SIM_SEC)

/* --- a simulation --- */

/* Starts a simulation with `hosts` hosts, numbered from 0, which all run. Only
 * one simulation can exist at a time. */
void sim_begin(uint64_t seed, uint32_t hosts);
/* Ends the simulation. Drops the events that have not run, and frees
 * everything, also the stacks of fibers that have not ended. */
void sim_end(void);

/* Runs all events up to and including the time until_ns, then sets the clock to
 * until_ns. Called outside of fibers and events. */
void sim_run(uint64_t until_ns);
/* Runs events until done(arg) returns true, but not beyond the time until_ns.
 * Returns true if done(arg) has returned true. */
bool sim_run_while(bool (*done)(void *arg), void *arg, uint64_t until_ns);

/* Returns the virtual time in ns. It is never 0 and is the same for all hosts.
 * The clock of one host (sim_host_now) may differ from it. */
uint64_t sim_now(void);
uint64_t sim_seed(void);
/* Returns the number of events that have run. */
uint64_t sim_events(void);
struct sim_host;
/* Returns the host of the event that runs next, or NULL if there is no event or
 * if the event has no host. */
struct sim_host *sim_next_host(void);
/* Raises SIGTRAP before event number `n` runs, so that a debugger stops there.
 * If `n` is 0, raises no signal. */
void sim_break_at(uint64_t n);

/* Prints a message with the seed, the virtual time and the event number, and
 * aborts. */
void sim_fail(const char *format, ...)
	__attribute__((format(printf, 1, 2), noreturn));

/* --- events --- */

typedef void (*sim_event_fn)(void *arg);

/* The id of a pending event. An id is not reused for another event. 0 means no
 * event. */
typedef uint64_t sim_event_id;

/* Calls fn(arg) at the time when_ns, or as the next event if that time has
 * passed. There is no current host during the call. The network and the plan of
 * faults use this function. fn must not block. */
sim_event_id sim_at(uint64_t when_ns, sim_event_fn fn, void *arg);
/* Does the same as sim_at, but `host` is the current host during the call.
 * While the host is stopped, the event waits. If the host's process is killed,
 * the event is dropped, and arg is not freed. */
sim_event_id sim_at_host(struct sim_host *host, uint64_t when_ns,
			 sim_event_fn fn, void *arg);
/* Drops a pending event. Returns false if the event has already run or was
 * already dropped. */
bool sim_cancel(sim_event_id id);

/* --- random numbers --- */

/*
 * A stream of random numbers. Each subject (one link, one host's workload, the
 * times of faults) has a stream of its own, so the number of values that one
 * subject takes does not change the values of the others. Therefore faults can
 * be left out of a failing simulation while the rest of it stays the same. The
 * owner may copy a stream.
 */
struct sim_rng {
	uint64_t state;
};

/* Starts the random stream of a subject. `number` distinguishes subjects of the
 * same name. The stream depends only on `subject`, `number` and the seed of the
 * simulation. */
void sim_rng_init(struct sim_rng *rng, const char *subject, uint64_t number);
uint64_t sim_rng_next(struct sim_rng *rng);
/* Returns a number from 0 to n - 1. `n` must not be 0. */
uint64_t sim_rng_below(struct sim_rng *rng, uint64_t n);
/* Returns a number from min to max, both included. */
uint64_t sim_rng_range(struct sim_rng *rng, uint64_t min, uint64_t max);
/* Returns true with a probability of ppm / 1000000. */
bool sim_rng_chance(struct sim_rng *rng, uint32_t ppm);

/* --- hosts --- */

/*
 * One simulated machine with one process. If the process is killed, its events
 * are dropped, its fibers end where they wait, and its memory is not freed. The
 * host can then start a new process. Each process is a life of the host; the
 * lives are numbered from 0.
 */

/* Returns host number id. */
struct sim_host *sim_host_get(uint32_t id);
uint32_t sim_host_count(void);
uint32_t sim_host_id(const struct sim_host *host);
/* Returns the host whose code runs, or NULL. */
struct sim_host *sim_host_current(void);
/* Makes `host`, which may be NULL, the current host and returns the previous
 * one. The network calls it before it calls code of a host, and again
 * afterwards to restore the previous host. */
struct sim_host *sim_host_enter(struct sim_host *host);

/* Returns the number of the host's present life, which is the number of its
 * restarts. */
uint32_t sim_host_life(const struct sim_host *host);
bool sim_host_running(const struct sim_host *host);
bool sim_host_killed(const struct sim_host *host);
/* Suspends and resumes a host, as SIGSTOP and SIGCONT do. */
void sim_host_stop(struct sim_host *host);
void sim_host_resume(struct sim_host *host);
/* Kills the process of the host. Must not be called from a fiber of this
 * process. */
void sim_host_kill(struct sim_host *host);
void sim_host_restart(struct sim_host *host);

/* Returns the time by the host's monotonic clock, ns. */
uint64_t sim_host_now(const struct sim_host *host);
/* Returns the random stream from which the library on the current host gets its
 * numbers. Each life of the host has another stream. */
struct sim_rng *sim_host_random(void);
/* Moves the host's clock forward by `ns`. */
void sim_host_jump(struct sim_host *host, uint64_t ns);

/* Makes the simulator call fn(arg, host) after each stop, resumption, kill or
 * restart of a host. The network uses it to close the connections of a killed
 * process. At most 4 functions can be added. */
typedef void (*sim_host_fn)(void *arg, struct sim_host *host);
void sim_host_watch(sim_host_fn fn, void *arg);

/* --- fibers --- */

struct sim_fiber;

/* Starts a fiber of `host`, or of no host if `host` is NULL. fn(arg) runs
 * later, at the present virtual time. `name` must be a constant string. Returns
 * the fiber, which the caller must join or detach. */
struct sim_fiber *sim_fiber_start(struct sim_host *host, const char *name,
				  void *(*fn)(void *), void *arg);
/* Waits for the end of the fiber, frees it and returns the result of fn. */
void *sim_fiber_join(struct sim_fiber *fiber);
/* Detaches the fiber: it is freed when it ends. */
void sim_fiber_detach(struct sim_fiber *fiber);
bool sim_fiber_ended(const struct sim_fiber *fiber);
/* Returns the fiber whose code runs, or NULL if the running code belongs to no
 * fiber. */
struct sim_fiber *sim_fiber_current(void);

/* Waits until the other events of the present time have run. May only be called
 * in a fiber. */
void sim_yield(void);
/* Waits until the virtual time when_ns. May only be called in a fiber. */
void sim_sleep_until(uint64_t when_ns);
/* Waits until sim_wake(key) is called or until the time until_ns (SIM_NEVER: no
 * limit). `key` is any address except NULL; it is compared but not accessed.
 * Returns false if until_ns was reached. May only be called in a fiber. */
bool sim_wait(const void *key, uint64_t until_ns);
/* Wakes the first fiber that waits for `key`, or all of them if `all` is true.
 * They run at the present time, in the order in which they began to wait. */
void sim_wake(const void *key, bool all);

/* --- memory --- */

/* Returns zeroed memory whose address is the same in each run of the program.
 * sim_end frees the memory. */
void *sim_arena(size_t size, size_t align);

/* --- the trace --- */

#define SIM_NO_HOST	UINT32_MAX

/* Adds a record to the trace hash and, if a trace is written, to the trace. A
 * record consists of the time, the host, the kind (a constant string) and
 * numbers. The numbers must not be addresses, except addresses of sim_arena. */
void sim_trace(uint32_t host, const char *kind, unsigned int n,
	       const uint64_t *numbers);
#define SIM_TRACE(host, kind, ...)					\
	sim_trace((host), (kind),					\
		  sizeof((const uint64_t[]){ __VA_ARGS__ }) /		\
			  sizeof(uint64_t),				\
		  (const uint64_t[]){ __VA_ARGS__ })
/* Returns the hash of all records so far. */
uint64_t sim_trace_hash(void);
/* Makes the simulator call fn for each later record. If fn is NULL, ends these
 * calls. */
typedef void (*sim_trace_fn)(void *arg, uint64_t now_ns, uint32_t host,
			     const char *kind, unsigned int n,
			     const uint64_t *numbers);
void sim_trace_record(sim_trace_fn fn, void *arg);

/* --- the library --- */

/* Makes tei_world point to the simulated world. Called once, before any other
 * function of the library. */
void sim_world_install(void);
/* Fails the simulation if a progress loop of the library runs more than `steps`
 * steps in one second of virtual time. 0, the default, means no limit. */
void sim_loop_limit(uint64_t steps);

#pragma GCC visibility pop

#endif /* TEI_FABTESTS_SIM_SIM_H */
