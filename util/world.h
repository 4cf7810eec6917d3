/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_UTIL_WORLD_H
#define TEI_UTIL_WORLD_H

/*
 * The world: everything that the library takes from outside of its own memory
 * and of libfabric, as one table of functions. Time, random numbers, waiting,
 * threads, progress loops and the state of sockets and network links come
 * through the table that tei_world points to. The real world (tei_world_real)
 * uses the kernel. A simulator sets tei_world to a table of its own, and the
 * same code then runs in one thread, in simulated time, repeatable from a seed.
 *
 * The library never asks which world it runs in. Code that needs one of these
 * things calls the wrapper function of the same name (tei_now_ns, tei_random,
 * tei_thread_start, tei_loop_wake, ...), never the kernel.
 *
 * In a simulated world all threads and steps run as fibers of one thread. A
 * fiber gives up control only in the calls that are marked "switches" below. A
 * mutex may be held across such a call; tei_mutex_lock then calls
 * lock_contended.
 */

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ifaddrs;
struct sockaddr;
struct tei_mutex;

/* --- progress loops -------------------------------------------------------- */

/* How long a loop sleeps after a step, and the result of the sleep. */
struct tei_loop_sleep {
	/* written by the step */
	struct pollfd *fds;		/* descriptors that end the sleep, valid
					 * until the next step; entry 0 is left
					 * to the world, a descriptor of -1 is
					 * ignored */
	uint32_t nfds;			/* entries, with entry 0: at least 1 */
	bool sleep;			/* false: the next step follows at once */
	uint64_t ns;			/* longest sleep, ns */

	/* written by the world before the next step, if sleep was true */
	bool woken;			/* tei_loop_wake was called */
	uint32_t nready;		/* number of ready descriptors; if it is
					 * not 0, the world has written the
					 * revents of all entries from 1 on */
	uint64_t from_ns;		/* start of the sleep, as tei_now_ns */
	uint64_t until_ns;		/* end of the sleep, as tei_now_ns */
};

enum tei_loop_next {
	TEI_LOOP_CONTINUE,
	TEI_LOOP_END,			/* no further step is called */
};

/* Does one iteration of a loop. Runs on the loop's thread; no lock held. May
 * call everything that switches. */
typedef enum tei_loop_next tei_loop_step(void *arg, struct tei_loop_sleep *s);

/*
 * A loop. The owner allocates the memory, filled with zeros, and frees it after
 * tei_loop_close. tei_loop_wake may be called at any time until then, also
 * before the start and after the stop.
 */
struct tei_loop {
	tei_loop_step *step;
	void *arg;
	void *world;			/* for the world's own use */
	pthread_t thread;		/* real world: the loop's thread */
	int wake_fd;			/* real world: eventfd, valid while open
					 * is true */
	bool open;			/* atomic: loop_wake may be called. The
					 * world sets it in loop_start before
					 * the first step, and clears it in
					 * loop_close and if loop_start fails */
	bool started;			/* started, and not stopped */
	bool wake_pending;		/* atomic: a wake-up is pending */
	struct tei_loop_sleep sleep;	/* used by the loop only */
};

/* --- sockets and links ----------------------------------------------------- */

/* A socket that a wait object watches. The number of a closed descriptor may be
 * used again; ino tells whether fd still is the same socket. */
struct tei_socket {
	int fd;
	unsigned long ino;
};

/* What the kernel knows about a TCP connection. Times in ms before now. */
struct tei_tcp_state {
	bool established;
	bool has_window;		/* snd_wnd is known */
	uint32_t unacked;		/* packets sent and not acknowledged */
	uint32_t notsent_bytes;		/* bytes in the send queue */
	uint32_t retransmits;		/* consecutive retransmission timeouts */
	uint32_t probes;		/* unanswered window probes */
	uint32_t snd_wnd, snd_mss;	/* bytes */
	uint32_t last_data_sent, last_data_recv, last_ack_recv;
	uint64_t bytes_acked, bytes_received;
};

/* How the host at an address answers an attempt to connect. */
enum tei_net_answer {
	TEI_NET_SILENT,			/* no answer in time, or another error */
	TEI_NET_REFUSED,		/* no process listens there */
	TEI_NET_ACCEPTED,
};

/* Whether a local address can be used for a listening socket. */
enum tei_net_bind {
	TEI_NET_BIND_FREE,		/* yes, or it cannot be determined */
	TEI_NET_BIND_BUSY,		/* the port is in use */
	TEI_NET_BIND_ABSENT,		/* the host does not have the address */
};

/* A function that is called for a socket. */
typedef void tei_net_socket_fn(const struct tei_socket *s, void *arg);

/*
 * Sockets and network links. Descriptors are those that the provider's wait
 * objects return (FI_WAIT_FD); in a simulated world they are numbers that only
 * this table and tei_loop_sleep interpret. No function switches, except
 * connect.
 */
struct tei_world_net {
	bool kernel_fds;		/* descriptors are those of the kernel,
					 * so close-on-exec applies to them */
	/*
	 * Calls fn for each socket that the descriptor watches, directly or
	 * through other descriptors, in an order that depends on the order of
	 * their creation only. Calls fn for the descriptor itself if it is a
	 * socket. ino: inode number that the descriptor must have, 0: any.
	 * Nothing is called if the descriptor is not open or not known.
	 */
	void (*sockets)(int fd, unsigned long ino, tei_net_socket_fn *fn,
			void *arg);
	/* Returns true if s is still open and the same socket. */
	bool (*same)(const struct tei_socket *s);
	/* Writes the local or the remote address. Returns 0, or an errno:
	 * ENOTCONN if the socket has no remote address. *len: in and out. */
	int (*own_addr)(int fd, struct sockaddr *sa, uint32_t *len);
	int (*peer_addr)(int fd, struct sockaddr *sa, uint32_t *len);
	bool (*listens)(int fd);
	/* Reads the TCP state. Returns false if the socket is not TCP. */
	bool (*tcp_state)(int fd, struct tei_tcp_state *out);
	/* Cuts the connection in both directions. */
	void (*cut)(int fd);
	/* Duplicates a wait descriptor so that it can be searched without the
	 * lock that protects the original. Returns -1 on failure. */
	int (*dup)(int fd);
	void (*close)(int fd);
	/* Connects to the address, waits for up to wait_ns, and closes the
	 * connection. Switches. */
	enum tei_net_answer (*connect)(const struct sockaddr *sa, uint32_t len,
				       uint64_t wait_ns);
	/* Tries to bind a socket to the local address and, if listen is true,
	 * to listen there, and closes the socket. */
	enum tei_net_bind (*bindable)(const struct sockaddr *sa, uint32_t len,
				      bool listen);
	/* The interfaces of this host, as getifaddrs(3). Returns 0 or -1. */
	int (*interfaces)(struct ifaddrs **out);
	void (*interfaces_free)(struct ifaddrs *list);
	/* Number and name of an interface; 0 and false: there is none. name has
	 * room for IF_NAMESIZE bytes. */
	uint32_t (*interface_index)(const char *name);
	bool (*interface_name)(uint32_t index, char *name);
	/* Returns 1 if the interface is up and has carrier, 0 if it is gone,
	 * down or without carrier, -1 if its flags cannot be read. */
	int (*interface_up)(uint32_t index);
	/* Opens a descriptor that becomes readable if an interface or an
	 * address has changed. Returns -1 if there is no such report. */
	int (*changes_open)(void);
	/* Reads the reports. Returns true if there was one, or if one was
	 * lost. */
	bool (*changes_read)(int fd);
};

/* --- the table ------------------------------------------------------------- */

/* All functions: any thread, unless stated. */
struct tei_world {
	/* The monotonic time in ns. Never goes back, never is 0. */
	uint64_t (*now_ns)(void);
	/* The same as of some ms ago at most; cheaper. */
	uint64_t (*now_about_ns)(void);
	/* The time of day in ns since 1970. */
	uint64_t (*wall_ns)(void);
	/* Fills memory with random bytes. Returns false on failure. */
	bool (*random)(void *p, size_t len);

	/* Sleeps for that long. Switches. */
	void (*sleep_ns)(uint64_t ns);
	/* Called in each round of a loop that polls until a time has passed or
	 * a condition holds. Real world: does nothing. Simulated world: lets
	 * time pass. Switches. */
	void (*relax)(void);
	/* Gives the CPU to other threads, as sched_yield. Switches. */
	void (*yield)(void);

	/* Locks l, which another thread holds. Switches. */
	void (*lock_contended)(struct tei_mutex *l);
	/* As tei_mutex_wait: releases l, waits until the condition is signalled
	 * or timeout_ns has passed (UINT64_MAX: no limit), and locks l. Wakes
	 * up early at times. Switches. */
	void (*cond_wait)(pthread_cond_t *cond, struct tei_mutex *l,
			  uint64_t timeout_ns);
	/* Wakes one waiting thread, or all of them. */
	void (*cond_wake)(pthread_cond_t *cond, bool all);

	/*
	 * Waits while *word == seen until the word is woken or the time
	 * until_ns has come (UINT64_MAX: no limit). Wakes up early at times.
	 * bits: the wake-ups that count, at least one bit. word_wake wakes all
	 * threads that wait for one of the bits. word_wait switches.
	 */
	void (*word_wait)(uint32_t *word, uint32_t seen, uint64_t until_ns,
			  uint32_t bits);
	void (*word_wake)(uint32_t *word, uint32_t bits);

	/* As tei_thread_start and pthread_join. thread_join switches. */
	int (*thread_start)(pthread_t *thread, bool detached,
			    void *(*fn)(void *), void *arg);
	void (*thread_join)(pthread_t thread);

	/*
	 * Starts a loop: loop->step is called again and again until it returns
	 * TEI_LOOP_END. Between two steps the loop sleeps as the step has
	 * requested. Passes &loop->sleep to the step; before each step the
	 * world sets sleep to false and writes the result of the last sleep.
	 * Returns 0 or an errno.
	 */
	int (*loop_start)(struct tei_loop *loop);
	/*
	 * Ends the current sleep, or the next one at once. Called by
	 * tei_loop_wake if no wake-up was pending. At the end of a sleep, if a
	 * wake-up is pending, the world sets sleep.woken and clears
	 * loop->wake_pending.
	 */
	void (*loop_wake)(struct tei_loop *loop);
	/* Waits until step has returned TEI_LOOP_END. The caller has set the
	 * flag that makes step return it, and has woken the loop. Switches. */
	void (*loop_join)(struct tei_loop *loop);
	/* Frees what loop_start has allocated. */
	void (*loop_close)(struct tei_loop *loop);
	/* Binds the loop's thread to CPUs. Returns 0 or an errno. */
	int (*loop_bind)(struct tei_loop *loop, const cpu_set_t *cpus);

	struct tei_world_net net;
};

/* The table of the real world. */
extern const struct tei_world tei_world_real;

/*
 * The current table. It is never NULL and points to tei_world_real from the
 * start. A simulator or a unit test sets it while no other thread uses the
 * library.
 */
extern const struct tei_world *tei_world;

static inline void tei_sleep_ns(uint64_t ns)
{
	tei_world->sleep_ns(ns);
}

static inline void tei_relax(void)
{
	tei_world->relax();
}

static inline void tei_yield(void)
{
	tei_world->yield();
}

static inline void tei_cond_signal(pthread_cond_t *cond)
{
	tei_world->cond_wake(cond, false);
}

static inline void tei_cond_broadcast(pthread_cond_t *cond)
{
	tei_world->cond_wake(cond, true);
}

/*
 * Starts a loop. Returns 0 or an errno. After a failure the loop can be closed
 * or started again.
 */
int tei_loop_start(struct tei_loop *loop, tei_loop_step *step, void *arg);

/* Makes the loop take its next step soon. Does nothing if the loop is not
 * open. */
static inline void tei_loop_wake(struct tei_loop *loop)
{
	if (__atomic_load_n(&loop->open, __ATOMIC_ACQUIRE) &&
	    !__atomic_exchange_n(&loop->wake_pending, true, __ATOMIC_SEQ_CST))
		tei_world->loop_wake(loop);
}

/* Wakes the loop and waits for its end. The owner has first set the flag that
 * makes step return TEI_LOOP_END. Does nothing if the loop is not started. */
void tei_loop_stop(struct tei_loop *loop);

/* Frees the resources of a stopped loop. Does nothing if it is not open. */
void tei_loop_close(struct tei_loop *loop);

#endif /* TEI_UTIL_WORLD_H */
