/* SPDX-License-Identifier: BSD-2-Clause */

/* Hostile clients attack the control port and the rails' ports while two
 * regular processes transfer data. */

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "fabtests/common/ft_clock.h"
#include "fabtests/common/ft_pattern.h"
#include "fabtests/functional/ft_hostile.h"
#include "fabtests/functional/fx.h"

#define HOSTILE_MEM (8 * FX_MIB)
#define HOSTILE_MOVES 40
/* number of silent connections that are open at one time */
#define HOSTILE_HELD 64
#define HOSTILE_FACTOR 8	/* accepted slowdown of regular transfers */

/* Suppresses leaks in libfabric: when a listener of the tcp provider 1.17 is
 * closed, it does not free its data about clients that connected and sent
 * nothing. */
const char *__lsan_default_suppressions(void)
	__attribute__((visibility("default")));
const char *__lsan_default_suppressions(void)
{
	return "leak:libfabric.so\n";
}

void hostile_frame(uint8_t head[HOSTILE_HEADER], uint8_t type, uint32_t length)
{
	uint32_t be = htonl(length);

	memset(head, 0, HOSTILE_HEADER);
	memcpy(head, "MRcc", 4);
	head[4] = 1;
	head[5] = type;
	head[11] = 1;
	memcpy(head + 12, &be, sizeof(be));
}

/*
 * Connects from the address 127.0.0.66. The control channel limits the rate of
 * each client address, so the limit for hostile clients does not affect the
 * regular process.
 */
int hostile_connect(const char *address)
{
	struct sockaddr_in sa = { .sin_family = AF_INET }, from = sa;
	const char *colon = strrchr(address, ':');
	char host[64];
	int fd;

	if (!colon || (size_t)(colon - address) >= sizeof(host))
		return -1;
	snprintf(host, sizeof(host), "%.*s", (int)(colon - address), address);
	sa.sin_port = htons((uint16_t)atoi(colon + 1));
	if (inet_pton(AF_INET, host, &sa.sin_addr) != 1)
		return -1;
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	inet_pton(AF_INET, "127.0.0.66", &from.sin_addr);
	if (fd >= 0)
		bind(fd, (struct sockaddr *)&from, sizeof(from));
	if (fd < 0 || !connect(fd, (struct sockaddr *)&sa, sizeof(sa)))
		return fd;
	close(fd);
	return -1;
}

void hostile_send(int fd, const void *bytes, size_t len)
{
	const char *p = bytes;

	while (len) {
		ssize_t n = send(fd, p, len, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n <= 0)
			return;
		p += n;
		len -= (size_t)n;
	}
}

void hostile_reset(int fd)
{
	struct linger now = { .l_onoff = 1, .l_linger = 0 };

	setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	close(fd);
}

/* --- clients of the control port ----------------------------------------- */

struct hostile_client {
	const char *address;
	const char *name;
	void (*fn)(struct hostile_client *c);
	uint64_t random;
	unsigned int rounds;	/* number of completed rounds; atomic */
	bool stop;		/* true: the client must end; atomic */
};

static void client_garbage(struct hostile_client *c)
{
	uint64_t junk[512];
	int fd = hostile_connect(c->address);

	for (size_t i = 0; i < 512; i++)
		junk[i] = ft_random(&c->random);
	hostile_send(fd, junk, 1 + ft_random(&c->random) % sizeof(junk));
	close(fd);
}

static void client_truncated(struct hostile_client *c)
{
	uint8_t head[HOSTILE_HEADER];
	int fd = hostile_connect(c->address);

	hostile_frame(head, HOSTILE_GET_DESC, 1000);
	hostile_send(fd, head, 1 + ft_random(&c->random) % sizeof(head));
	if (c->random % 2)
		hostile_reset(fd);
	else
		close(fd);
}

static void client_length(struct hostile_client *c)
{
	static const uint32_t lengths[] = {
		UINT32_MAX, 0x80000000, 0x7fffffff, 1u << 30, 70000,
	};
	uint8_t head[HOSTILE_HEADER], more[4096];
	int fd = hostile_connect(c->address);

	hostile_frame(head, HOSTILE_GET_DESC,
		      lengths[ft_random(&c->random) % 5]);
	memset(more, 'a', sizeof(more));
	hostile_send(fd, head, sizeof(head));
	for (int i = 0; i < 64; i++)
		hostile_send(fd, more, sizeof(more));
	close(fd);
}

static void client_nesting(struct hostile_client *c)
{
	static const char opened[] = "[{\"a\":";
	uint8_t head[HOSTILE_HEADER];
	char deep[60000];
	int fd = hostile_connect(c->address);

	for (size_t i = 0; i < sizeof(deep); i++)
		deep[i] = opened[i % (sizeof(opened) - 1)];
	hostile_frame(head, (uint8_t)(ft_random(&c->random) % 256),
		      sizeof(deep));
	hostile_send(fd, head, sizeof(head));
	hostile_send(fd, deep, sizeof(deep));
	close(fd);
}

/* Sends an incomplete frame, one byte every 2 ms. */
static void client_drip(struct hostile_client *c)
{
	struct timespec pause = { .tv_nsec = 2000000 };
	uint8_t head[HOSTILE_HEADER];
	int fd = hostile_connect(c->address);

	hostile_frame(head, HOSTILE_GET_DESC, 400);
	for (size_t i = 0; i < sizeof(head) + 50; i++) {
		hostile_send(fd, i < sizeof(head) ? &head[i] : head, 1);
		nanosleep(&pause, NULL);
		if (__atomic_load_n(&c->stop, __ATOMIC_RELAXED))
			break;
	}
	close(fd);
}

/* Opens many connections that send nothing, and closes them after 50 ms. */
static void client_silence(struct hostile_client *c)
{
	struct timespec pause = { .tv_nsec = 50000000 };
	int fd[HOSTILE_HELD];

	for (int i = 0; i < HOSTILE_HELD; i++)
		fd[i] = hostile_connect(c->address);
	nanosleep(&pause, NULL);
	for (int i = 0; i < HOSTILE_HELD; i++)
		close(fd[i]);
}

static void *client_main(void *arg)
{
	struct hostile_client *c = arg;
	struct timespec pause = { .tv_nsec = 1000000 };

	while (!__atomic_load_n(&c->stop, __ATOMIC_RELAXED)) {
		c->fn(c);
		__atomic_add_fetch(&c->rounds, 1, __ATOMIC_RELAXED);
		nanosleep(&pause, NULL);
	}
	return NULL;
}

/* --- the regular processes ----------------------------------------------- */

struct hostile_rig {
	transfer_engine_t engine;
	struct fx_buf mem;
	struct fx_peer target;
	segment_id_t seg;
	uint64_t calm_ns;	/* duration of a series without hostile clients,
				 * ns */
	uint64_t random;
};

/* Makes HOSTILE_MOVES writes and checks their bytes. Opens the segment through
 * the control channel before each. Returns the duration in ns; *good becomes
 * false if a step fails. */
static uint64_t honest_series(struct hostile_rig *rig, bool *good)
{
	uint64_t from = ft_now_ns();

	for (uint64_t i = 0; *good && i < HOSTILE_MOVES; i++) {
		fx_buf_fill(&rig->mem, 0, HOSTILE_MEM, from + i);
		*good = openSegmentNoCache(rig->engine, rig->target.name) ==
				rig->seg &&
			!closeSegment(rig->engine, rig->seg) &&
			fx_move(rig->engine, rig->seg, OPCODE_WRITE,
				rig->mem.p, rig->target.mem.addr, HOSTILE_MEM,
				100000) &&
			fx_buf_check(&rig->target.mem, 0, HOSTILE_MEM,
				     from + i);
	}
	return ft_now_ns() - from;
}

static bool honest_series_beside(struct hostile_rig *rig, const char *address,
				 const char *name,
				 void (*fn)(struct hostile_client *c))
{
	struct hostile_client c = { .address = address, .name = name, .fn = fn,
				    .random = ft_random(&rig->random) };
	pthread_t thread;
	bool good = true;
	uint64_t ns;

	pthread_create(&thread, NULL, client_main, &c);
	while (!__atomic_load_n(&c.rounds, __ATOMIC_RELAXED))
		sched_yield();
	ns = honest_series(rig, &good);
	__atomic_store_n(&c.stop, true, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
	ft_ok(good, "honest_transfers_beside_%s", name);
	ft_diag("transfers next to %u rounds of %s took %llu ms, undisturbed "
		"%llu ms",
		c.rounds, name, (unsigned long long)(ns / 1000000),
		(unsigned long long)(rig->calm_ns / 1000000));
	return ns <= HOSTILE_FACTOR * rig->calm_ns + 500000000;
}

/* Checks that a hostile client does not slow down the regular transfers too
 * much. If it does, measures again up to four times, with and without the
 * client, because the machine may have become busy. */
static void honest_beside(struct hostile_rig *rig, const char *address,
			  const char *name,
			  void (*fn)(struct hostile_client *c))
{
	bool good = true, fast = false;

	for (int i = 0; good && !fast && i < 5; i++) {
		if (i)
			rig->calm_ns = honest_series(rig, &good);
		fast = honest_series_beside(rig, address, name, fn);
	}
	ft_ok(fast, "honest_peers_are_not_slowed_by_%s", name);
}

static void control_port(struct hostile_rig *rig)
{
	const char *name = rig->target.name;

	honest_beside(rig, name, "garbage", client_garbage);
	honest_beside(rig, name, "truncated_frames", client_truncated);
	honest_beside(rig, name, "frames_of_4_GiB", client_length);
	honest_beside(rig, name, "deep_nesting", client_nesting);
	honest_beside(rig, name, "a_drip", client_drip);
	honest_beside(rig, name, "silence", client_silence);
}

/* --- the rails' ports ---------------------------------------------------- */

/* Copies the n-th "host:port" at which a tcp rail of the target listens to
 * `out`. Returns false if there is none. */
static bool fabric_address(struct hostile_rig *rig, int n, char *out,
			   size_t len)
{
	char transport[32], address[128];
	const char *at, *host;
	int used;

	if (fx_ask(&rig->target, "rails") <= n)
		return false;
	for (at = rig->target.text;
	     sscanf(at, "%31s %127s %*u %*u%n", transport, address,
		    &used) == 2; at += used) {
		if (strcmp(transport, "tcp") || n--)
			continue;
		host = strrchr(address, '/');
		snprintf(out, len, "%s", host ? host + 1 : address);
		return true;
	}
	return false;
}

static void fabric_ports(struct hostile_rig *rig)
{
	char address[128];

	for (int i = 0; i < 2; i++) {
		int fd = -1;

		if (fabric_address(rig, i, address, sizeof(address)))
			fd = hostile_connect(address);
		if (!ft_ok(fd >= 0, "rail_%d_listens_where_it_says", i)) {
			ft_diag("rails: %s", rig->target.text);
			continue;
		}
		close(fd);
		honest_beside(rig, address, "garbage_at_a_fabric_port",
			      client_garbage);
		honest_beside(rig, address, "resets_at_a_fabric_port",
			      client_truncated);
		honest_beside(rig, address, "silence_at_a_fabric_port",
			      client_silence);
	}
}

/* Checks that the target closes the connections of hostile clients: its number
 * of descriptors must return to `before`, except for a few. */
static void nothing_is_kept(struct hostile_rig *rig, unsigned int before)
{
	char path[64];
	unsigned int after = 0;
	struct timespec pause = { .tv_nsec = 20000000 };

	snprintf(path, sizeof(path), "/proc/%d/fd", rig->target.proc.pid);
	for (int i = 0; i < 3000; i++) {
		after = fx_count_dir(path);
		if (after <= before + 4)
			break;
		nanosleep(&pause, NULL);
	}
	ft_diag("open file descriptors of the target: %u, then %u", before,
		after);
	ft_ok(after <= before + 4, "hostile_clients_leave_no_descriptor_open");
}

int main(int argc, char **argv)
{
	struct hostile_rig rig = { 0 };
	unsigned int fds;
	char path[64];
	bool good = true;

	setenv("MC_HANDSHAKE_CONNECT_TIMEOUT", "2", 0);
	fx_init(argc, argv);
	rig.random = fx_seed();
	rig.mem = fx_buf_map(HOSTILE_MEM, -1);
	rig.engine = fx_engine("tcp");
	if (!ft_ok(rig.engine && fx_register(rig.engine, &rig.mem) &&
			   fx_target_start(&rig.target, HOSTILE_MEM),
		   "two_honest_processes_start"))
		return ft_result();
	rig.seg = openSegment(rig.engine, rig.target.name);
	honest_series(&rig, &good);
	rig.calm_ns = honest_series(&rig, &good);
	ft_ok(good, "honest_transfers_without_attackers_complete");
	snprintf(path, sizeof(path), "/proc/%d/fd", rig.target.proc.pid);
	fds = fx_count_dir(path);
	control_port(&rig);
	nothing_is_kept(&rig, fds);
	fabric_ports(&rig);
	nothing_is_kept(&rig, fds);
	ft_ok(fx_buf_guards(&rig.target.mem), "guard_zones_are_unchanged");
	destroyTransferEngine(rig.engine);
	ft_ok(fx_peer_stop(&rig.target), "target_ends_well");
	fx_buf_unmap(&rig.mem);
	hostile_servers();
	return ft_result();
}
