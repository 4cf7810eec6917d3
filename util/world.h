/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_UTIL_WORLD_H
#define TEI_UTIL_WORLD_H

/*
 * A world is a table of functions through which the library uses the operating
 * system: time, random numbers, waiting, threads, progress loops, sockets and
 * network links. tei_world points to the current table. The real world
 * (tei_world_real) uses the kernel. A simulator sets tei_world to a table of
 * its own. The same code then runs in one thread and in simulated time, and a
 * run can be repeated from its seed.
 *
 * The library's code does not depend on which world is current. For each
 * function of the table there is a wrapper function of the same name
 * (tei_now_ns, tei_random, tei_thread_start, tei_loop_wake, ...), which the
 * library calls instead of the kernel.
 *
 * In a simulated world all threads and steps run as fibers of one thread. The
 * comment of a function says "Switches fibers" if another fiber may run during
 * a call of the function. During a call of any other function, no other fiber
 * runs. A caller may hold a mutex while fibers are switched; if another fiber
 * then locks this mutex, tei_mutex_lock calls lock_contended.
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
struct tei_rwlock;

/* --- progress loops ------------------------------------------------------ */

/* The sleep of a loop between two steps. The step writes the request, and the
 * world writes the result. */
struct tei_loop_sleep {
	/* request of the step */
	struct pollfd *fds;		/* file descriptors that end the sleep,
					 * valid until the next step; entry 0 is
					 * for the world; an entry with fd -1 is
					 * ignored */
	uint32_t nfds;			/* number of entries including entry 0,
					 * so at least 1 */
	bool sleep;			/* if false, the next step follows at
					 * once */
	uint64_t ns;			/* longest duration of the requested
					 * sleep, ns */

	/* result, written by the world before the next step if "sleep" was
	 * true */
	bool woken;			/* true if tei_loop_wake was called */
	uint32_t nready;		/* number of ready file descriptors; if
					 * it is not 0, the world has written
					 * the revents of all entries from 1
					 * on */
	uint64_t from_ns;		/* start of the sleep, in the time of
					 * tei_now_ns */
	uint64_t until_ns;		/* end of the sleep, in the time of
					 * tei_now_ns */
};

enum tei_loop_next {
	TEI_LOOP_CONTINUE,
	TEI_LOOP_END,			/* the loop ends, and step is not called
					 * again */
};

/* Does one iteration of a loop. Runs on the loop's thread without a lock, and
 * may call functions that switch fibers. */
typedef enum tei_loop_next tei_loop_step(void *arg, struct tei_loop_sleep *s);

/*
 * A loop. The owner allocates the memory, filled with zeros, and frees it after
 * tei_loop_close. tei_loop_wake may be called at any time until then, also
 * before the start and after the stop.
 */
struct tei_loop {
	const char *name;		/* name of the loop's thread, at most 15
					 * characters; NULL: the thread has the
					 * name of the thread that starts it.
					 * The owner sets it before the
					 * start */
	tei_loop_step *step;
	void *arg;
	void *world;			/* private data of the current world */
	pthread_t thread;		/* used by the real world: the loop's
					 * thread */
	int wake_fd;			/* used by the real world: an eventfd,
					 * valid while "open" is true */
	bool open;			/* atomic; true if loop_wake may be
					 * called. The world sets it in
					 * loop_start before the first step, and
					 * clears it in loop_close and if
					 * loop_start fails */
	bool started;			/* true from the start to the stop of
					 * the loop */
	bool wake_pending;		/* atomic; true if a wake-up is
					 * pending */
	struct tei_loop_sleep sleep;	/* request and result of the loop's
					 * sleeps; used only by the loop's
					 * thread */
};

/* --- sockets and links --------------------------------------------------- */

/* A socket that a wait object watches. After the socket has been closed, the
 * number fd may belong to another file. The inode number of that file then
 * differs from ino. */
struct tei_socket {
	int fd;
	unsigned long ino;
};

/* The kernel's state of a TCP connection. The three members named last_… are
 * the times since data was last sent, data was last received, and an
 * acknowledgement was last received, ms. */
struct tei_tcp_state {
	bool established;
	bool has_window;		/* true if snd_wnd is known */
	uint32_t unacked;		/* number of packets sent and not
					 * acknowledged */
	uint32_t notsent_bytes;		/* number of bytes in the send queue */
	uint32_t retransmits;		/* number of consecutive retransmission
					 * timeouts */
	uint32_t probes;		/* number of unanswered window probes */
	uint32_t snd_wnd, snd_mss;	/* the peer's receive window, and the
					 * largest segment to send, bytes */
	uint32_t last_data_sent, last_data_recv, last_ack_recv;
	uint64_t bytes_acked, bytes_received;
};

/* The result of an attempt to connect to an address. */
enum tei_net_answer {
	TEI_NET_SILENT,			/* no answer in time, or an error other
					 * than a refusal */
	TEI_NET_REFUSED,		/* the connection was refused: no
					 * process listens at the address */
	TEI_NET_ACCEPTED,
};

/* Result of the question whether a socket can listen at a local address. */
enum tei_net_bind {
	TEI_NET_BIND_FREE,		/* the address can be used, or it is
					 * unknown whether it can */
	TEI_NET_BIND_BUSY,		/* another socket uses the port */
	TEI_NET_BIND_ABSENT,		/* the host does not have the address */
};

/* A function that tei_world_net.sockets calls for each socket. */
typedef void tei_net_socket_fn(const struct tei_socket *s, void *arg);

/*
 * Sockets and network links. The file descriptors are those of the provider's
 * wait objects (FI_WAIT_FD). In a simulated world they are numbers that have a
 * meaning only in this table and in tei_loop_sleep. Of these functions, only
 * connect switches fibers.
 */
struct tei_world_net {
	bool kernel_fds;		/* true if the file descriptors are the
					 * kernel's, so that close-on-exec
					 * applies to them */
	/*
	 * Calls fn for each socket that the file descriptor watches, directly
	 * or through other file descriptors. The order of the calls depends
	 * only on the order in which the sockets were created. If the file
	 * descriptor is itself a socket, calls fn for it. Does nothing if the
	 * file descriptor is not open or is unknown, or if ino is not 0 and
	 * differs from its inode number.
	 */
	void (*sockets)(int fd, unsigned long ino, tei_net_socket_fn *fn,
			void *arg);
	/* Returns true if s->fd is still open and is still the socket with the
	 * inode number s->ino. */
	bool (*same)(const struct tei_socket *s);
	/* own_addr writes the local address of the socket to *sa, peer_addr the
	 * remote address. The caller sets *len to the size of the buffer sa;
	 * the function sets it to the length of the address. Returns 0 or an
	 * errno, which is ENOTCONN if the socket has no remote address. */
	int (*own_addr)(int fd, struct sockaddr *sa, uint32_t *len);
	int (*peer_addr)(int fd, struct sockaddr *sa, uint32_t *len);
	bool (*listens)(int fd);
	/* Reads the state of a TCP connection. Returns false if fd is not a TCP
	 * socket. */
	bool (*tcp_state)(int fd, struct tei_tcp_state *out);
	/* Shuts the connection of the socket down in both directions. */
	void (*cut)(int fd);
	/* Duplicates the file descriptor of a wait object. Unlike the original,
	 * the duplicate can be searched for sockets without the lane's lock.
	 * Returns the duplicate, or -1 on failure. */
	int (*dup)(int fd);
	void (*close)(int fd);
	/* Connects to the address, waits for up to wait_ns, and closes the
	 * connection. Switches fibers. */
	enum tei_net_answer (*connect)(const struct sockaddr *sa, uint32_t len,
				       uint64_t wait_ns);
	/* Tries to bind a socket to the local address and, if listen is true,
	 * to listen there, and closes the socket. */
	enum tei_net_bind (*bindable)(const struct sockaddr *sa, uint32_t len,
				      bool listen);
	/* Lists the interfaces of this host, like getifaddrs(3). Returns 0, or
	 * -1 on failure. */
	int (*interfaces)(struct ifaddrs **out);
	void (*interfaces_free)(struct ifaddrs *list);
	/* interface_index returns the number of the interface with that name,
	 * or 0 if there is none. interface_name writes the name of the
	 * interface with that number; returns false if there is none. name:
	 * memory of IF_NAMESIZE bytes. */
	uint32_t (*interface_index)(const char *name);
	bool (*interface_name)(uint32_t index, char *name);
	/* Returns 1 if the interface exists, is up and has a carrier; otherwise
	 * 0. Returns -1 if its flags cannot be read. */
	int (*interface_up)(uint32_t index);
	/* Opens a file descriptor that becomes readable when an interface or an
	 * address has changed. Returns -1 if this world does not report such
	 * changes. */
	int (*changes_open)(void);
	/* Reads the reports of changes. Returns true if there was a report or
	 * if a report was lost. */
	bool (*changes_read)(int fd);
};

/* --- the table ----------------------------------------------------------- */

/* The table of functions that is a world. A function may be called from any
 * thread if its comment does not say otherwise. */
struct tei_world {
	/* Returns the monotonic time in ns. The time never goes back and is
	 * never 0. */
	uint64_t (*now_ns)(void);
	/* Returns a monotonic time that is at most a few ms before the present,
	 * in ns. Costs less than now_ns. */
	uint64_t (*now_about_ns)(void);
	/* Returns the time of day in ns since 1970. */
	uint64_t (*wall_ns)(void);
	/* Fills memory with random bytes. Returns false on failure. */
	bool (*random)(void *p, size_t len);

	/* Sleeps for ns nanoseconds. Switches fibers. */
	void (*sleep_ns)(uint64_t ns);
	/* The library calls this function in each iteration of a loop that
	 * polls until a time has passed or a condition holds. The real world
	 * does nothing. A simulated world lets time pass. Switches fibers. */
	void (*relax)(void);
	/* Lets other threads run, like sched_yield(2). Switches fibers. */
	void (*yield)(void);

	/* Locks l, which another thread holds. Switches fibers. */
	void (*lock_contended)(struct tei_mutex *l);
	/* Locks l for reading or for writing. Another thread holds l at the
	 * time of the call. Switches fibers. */
	void (*rwlock_contended)(struct tei_rwlock *l, bool write);
	/* Implements tei_mutex_wait: releases l, waits until the condition is
	 * signalled or timeout_ns has passed (UINT64_MAX: no limit), and locks
	 * l again. May return early. Switches fibers. */
	void (*cond_wait)(pthread_cond_t *cond, struct tei_mutex *l,
			  uint64_t timeout_ns);
	/* Wakes one thread that waits for the condition. If `all` is true,
	 * wakes all threads that wait for it. */
	void (*cond_wake)(pthread_cond_t *cond, bool all);

	/*
	 * word_wait returns at once if *word != seen. Otherwise it waits until
	 * word_wake is called for the word or until the time until_ns
	 * (UINT64_MAX: no limit). It may return early. word_wake wakes all
	 * threads that wait for the word with at least one of the given bits;
	 * bits is not 0. word_wait switches fibers.
	 */
	void (*word_wait)(uint32_t *word, uint32_t seen, uint64_t until_ns,
			  uint32_t bits);
	void (*word_wake)(uint32_t *word, uint32_t bits);

	/* thread_start implements tei_thread_start. thread_join waits for the
	 * end of the thread, like pthread_join(3), and switches fibers. */
	int (*thread_start)(pthread_t *thread, bool detached,
			    void *(*fn)(void *), void *arg);
	void (*thread_join)(pthread_t thread);
	/* Gives the thread a name of at most 15 characters, which debuggers
	 * show. */
	void (*thread_name)(pthread_t thread, const char *name);
	/* Returns the number of processors on which the calling thread may run,
	 * at least 1. */
	uint32_t (*cpus)(void);

	/*
	 * Starts a loop: the world calls loop->step repeatedly until it returns
	 * TEI_LOOP_END. Between two steps the loop sleeps as the step has
	 * requested. The world passes &loop->sleep to the step; before each
	 * step it writes the result of the last sleep and sets the member sleep
	 * to false. Returns 0 or an errno.
	 */
	int (*loop_start)(struct tei_loop *loop);
	/*
	 * Ends the current sleep of the loop. If the loop does not sleep now,
	 * its next sleep ends at once. Called by tei_loop_wake if no wake-up
	 * was pending. At the end of a sleep, if a wake-up is pending, the
	 * world sets sleep.woken and clears loop->wake_pending.
	 */
	void (*loop_wake)(struct tei_loop *loop);
	/* Waits until loop->step has returned TEI_LOOP_END. Before the call,
	 * the caller has set the flag that makes step return this value, and
	 * has woken the loop. Switches fibers. */
	void (*loop_join)(struct tei_loop *loop);
	/* Frees the resources that loop_start has allocated. */
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

/* Ends the current sleep of the loop, or its next one, so that the next step is
 * called soon. Does nothing if the loop is not open. */
static inline void tei_loop_wake(struct tei_loop *loop)
{
	if (__atomic_load_n(&loop->open, __ATOMIC_ACQUIRE) &&
	    !__atomic_exchange_n(&loop->wake_pending, true, __ATOMIC_SEQ_CST))
		tei_world->loop_wake(loop);
}

/* Wakes the loop and waits until it has ended. Before the call, the owner sets
 * the flag that makes step return TEI_LOOP_END. Does nothing if the loop is not
 * started. */
void tei_loop_stop(struct tei_loop *loop);

/* Frees the resources of a stopped loop. Does nothing if it is not open. */
void tei_loop_close(struct tei_loop *loop);

#endif /* TEI_UTIL_WORLD_H */
