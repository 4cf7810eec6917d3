/* SPDX-License-Identifier: BSD-2-Clause */
#include <arpa/inet.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "meta/meta_server_int.h"
#include "meta/tei_meta_server.h"
#include "util/clock.h"

/*
 * The rate limit of a client address, a token bucket, prevents a single address
 * from using all the time of the server's thread. Work is counted in steps; a
 * step is about one system call with the work around it, or 64 KiB sent.
 *
 * - Each step that the server executes for an address advances the address's
 *   paid_ns by the price of a step, in ns. If paid_ns is ahead of the present
 *   time by more than a burst, the address has used up its rate limit.
 *
 * - The clients of such an address are then throttled: epoll reports no events
 *   of them. Their connections stay open. As time passes, the clients are
 *   released one by one, in order, and the address is charged for the two calls
 *   of epoll_ctl. The thread wakes at intervals (META_RATE_LIMIT_TICK_NS) and
 *   then releases several clients together. Therefore it is usually asleep when
 *   requests of other addresses arrive.
 *
 * - Accepting connections costs steps too, but throttled addresses can still
 *   connect. If paid_ns is ahead by more than a burst and RATE_LIMIT_SLACK_NS,
 *   the address is blocked: a filter on the listening sockets makes the kernel
 *   drop its packets until paid_ns is ahead by no more than a burst.
 *
 * - The entry of an address without clients is kept until its paid_ns has
 *   passed; otherwise the address could use a full burst with each new
 *   connection.
 */

/* number of entries above which entries of addresses without clients are
 * freed */
#define RATE_LIMIT_ADDRESSES   4096
#define RATE_LIMIT_BURST_S     24
#define RATE_LIMIT_RATE	       896 /* steps per second that an address may use,
				    * if the configuration has no value */
/* steps that throttling and releasing a client cost together */
#define RATE_LIMIT_HOLDING     2
#define RATE_LIMIT_SLACK_NS    (TEI_NS_PER_SEC / 8)
/* greatest number of addresses in the filter */
#define RATE_LIMIT_BLOCKED_MAX 32

void meta_rate_limit_init(struct tei_meta_server *s)
{
	uint32_t rate =
		s->config.client_rate ? s->config.client_rate : RATE_LIMIT_RATE;
	int i;

	s->rate.step_ns = TEI_NS_PER_SEC / rate;
	s->rate.burst_ns = RATE_LIMIT_BURST_S * TEI_NS_PER_SEC;
	for (i = 0; i < META_IP_BUCKETS; i++)
		tei_list_init(&s->rate.ips[i]);
	tei_list_init(&s->rate.ages);
	tei_list_init(&s->rate.waiting);
}

static void rate_limit_forget(struct tei_meta_server *s, struct meta_ip *ip)
{
	tei_list_del(&ip->link);
	tei_list_del(&ip->age);
	tei_list_del(&ip->wait);
	s->rate.blocked_count -= ip->blocked;
	s->rate.ip_count--;
	free(ip);
}

void meta_rate_limit_fini(struct tei_meta_server *s)
{
	struct meta_ip *ip, *tmp;

	tei_list_foreach_safe (ip, tmp, &s->rate.ages, struct meta_ip, age)
		rate_limit_forget(s, ip);
}

/* --- addresses ----------------------------------------------------------- */

static void rate_limit_key(const struct sockaddr *sa, uint8_t key[16])
{
	const struct sockaddr_in *v4 = (const void *)sa;
	const struct sockaddr_in6 *v6 = (const void *)sa;

	memset(key, 0, 16);
	if (sa->sa_family == AF_INET6) {
		memcpy(key, &v6->sin6_addr, 8);
	} else {
		memset(key + 10, 0xff, 2);
		memcpy(key + 12, &v4->sin_addr, 4);
	}
}

static bool rate_limit_is_v4(const uint8_t key[16])
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

	return !memcmp(key, mapped, sizeof(mapped));
}

void meta_rate_limit_text(const struct meta_ip *ip, char out[TEI_META_HOST_MAX])
{
	if (rate_limit_is_v4(ip->key))
		inet_ntop(AF_INET, ip->key + 12, out, TEI_META_HOST_MAX);
	else
		inet_ntop(AF_INET6, ip->key, out, TEI_META_HOST_MAX);
}

/*
 * Called before an entry is added. If there are RATE_LIMIT_ADDRESSES entries,
 * frees those that are no longer needed or, if all are needed, the least
 * recently used one without clients.
 */
static void rate_limit_sweep(struct tei_meta_server *s, uint64_t now_ns)
{
	struct meta_ip *ip, *tmp, *idle = NULL;
	uint32_t before = s->rate.ip_count;

	if (s->rate.ip_count < RATE_LIMIT_ADDRESSES)
		return;
	tei_list_foreach_safe (ip, tmp, &s->rate.ages, struct meta_ip, age) {
		if (ip->clients || ip->blocked)
			continue;
		if (ip->paid_ns <= now_ns)
			rate_limit_forget(s, ip);
		else if (!idle)
			idle = ip;
	}
	if (s->rate.ip_count == before && idle)
		rate_limit_forget(s, idle);
}

struct meta_ip *meta_rate_limit_join(struct tei_meta_server *s,
				     const struct sockaddr *sa, uint64_t now_ns)
{
	struct tei_list *bucket;
	struct meta_ip *ip;
	uint8_t key[16];
	uint32_t hash = 0;
	int i;

	rate_limit_key(sa, key);
	for (i = 0; i < 16; i++)
		hash = hash * 31 + key[i];
	bucket = &s->rate.ips[hash % META_IP_BUCKETS];
	tei_list_foreach (ip, bucket, struct meta_ip, link)
		if (!memcmp(ip->key, key, sizeof(key)))
			goto found;
	rate_limit_sweep(s, now_ns);
	ip = calloc(1, sizeof(*ip));
	if (!ip)
		return NULL;
	memcpy(ip->key, key, sizeof(key));
	tei_list_init(&ip->age);
	tei_list_init(&ip->wait);
	tei_list_init(&ip->conns);
	tei_list_init(&ip->throttled);
	tei_list_add_head(bucket, &ip->link);
	s->rate.ip_count++;
found:
	tei_list_del(&ip->age);
	tei_list_add_tail(&s->rate.ages, &ip->age);
	ip->clients++;
	return ip;
}

void meta_rate_limit_leave(struct tei_meta_server *s, struct meta_ip *ip)
{
	(void)s;
	ip->clients--; /* rate_limit_sweep frees the entry */
}

/* --- steps --------------------------------------------------------------- */

void meta_rate_limit_charge(struct tei_meta_server *s, struct meta_ip *ip,
			    uint64_t steps, uint64_t now_ns)
{
	if (ip->paid_ns < now_ns)
		ip->paid_ns = now_ns;
	ip->paid_ns += steps * s->rate.step_ns;
}

void meta_rate_limit_charge_cpu(struct tei_meta_server *s, struct meta_ip *ip,
				uint64_t cpu_ns, uint64_t now_ns)
{
	meta_rate_limit_charge(s, ip, cpu_ns / META_RATE_LIMIT_STEP_NS, now_ns);
}

bool meta_rate_limit_spent(const struct tei_meta_server *s,
			   const struct meta_ip *ip, uint64_t now_ns)
{
	return ip->paid_ns > now_ns + s->rate.burst_ns;
}

void meta_rate_limit_throttle(struct tei_meta_server *s, struct meta_conn *c,
			      uint64_t now_ns)
{
	char host[TEI_META_HOST_MAX];

	meta_rate_limit_text(c->ip, host);
	TEI_LOG_LIMITED(&s->log.throttled, TEI_LOG_WARN, "meta",
			"control channel %s: %s exceeds its rate limit and is "
			"throttled",
			tei_meta_server_address(s), host);
	META_COUNT(s, throttled);
	c->throttled_ns = now_ns;
	tei_list_add_tail(&c->ip->throttled, &c->throttled_link);
	if (tei_list_empty(&c->ip->wait))
		tei_list_add_tail(&s->rate.waiting, &c->ip->wait);
	meta_conn_watch(s, c);
}

/* Releases throttled clients of the address, as many as its rate limit allows.
 * The server serves and charges them at their next event. */
static void rate_limit_release_ip(struct tei_meta_server *s, struct meta_ip *ip,
				  uint64_t now_ns)
{
	uint64_t left = ip->paid_ns;
	struct meta_conn *c;

	while (!tei_list_empty(&ip->throttled) &&
	       left <= now_ns + s->rate.burst_ns) {
		c = tei_list_first(&ip->throttled, struct meta_conn,
				   throttled_link);
		tei_list_del(&c->throttled_link);
		c->deadline_ns += now_ns - c->throttled_ns;
		c->throttled_ns = 0;
		c->released = true;
		if (!s->next_due_ns || c->deadline_ns < s->next_due_ns)
			s->next_due_ns = c->deadline_ns;
		meta_conn_watch(s, c);
		meta_rate_limit_charge(s, ip, RATE_LIMIT_HOLDING, now_ns);
		left += (RATE_LIMIT_HOLDING + 1) * s->rate.step_ns;
	}
	if (tei_list_empty(&ip->throttled))
		tei_list_del(&ip->wait);
}

/* --- blocked addresses ---------------------------------------------------- */

/*
 * Writes the BPF program of the filter to f and returns its length. The program
 * accepts a packet unless its source is a blocked address. Offsets in a
 * socket's filter count from the TCP header, so the program reads the IP header
 * with SKF_NET_OFF.
 */
static unsigned int rate_limit_program(const struct tei_meta_server *s,
				       struct sock_filter *f)
{
	struct meta_ip *ip;
	unsigned int n = 0, count = 0, i;
	uint32_t word[4];

	tei_list_foreach (ip, &s->rate.ages, struct meta_ip, age) {
		if (!ip->blocked || count++ == RATE_LIMIT_BLOCKED_MAX)
			continue;
		memcpy(word, ip->key, sizeof(word));
		if (rate_limit_is_v4(ip->key)) {
			f[n++] = (struct sock_filter)BPF_STMT(
				BPF_LD | BPF_W | BPF_ABS,
				(uint32_t)SKF_NET_OFF + 12);
			f[n++] = (struct sock_filter)BPF_JUMP(
				BPF_JMP | BPF_JEQ | BPF_K, ntohl(word[3]), 0,
				1);
			f[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K,
							      0);
			continue;
		}
		for (i = 0; i < 2; i++) {
			f[n++] = (struct sock_filter)BPF_STMT(
				BPF_LD | BPF_W | BPF_ABS,
				(uint32_t)SKF_NET_OFF + 8 + 4 * i);
			f[n++] = (struct sock_filter)BPF_JUMP(
				BPF_JMP | BPF_JEQ | BPF_K, ntohl(word[i]), 0,
				(uint8_t)(i ? 1 : 3));
		}
		f[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, 0);
	}
	f[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, UINT32_MAX);
	return n;
}

void meta_rate_limit_cover(const struct tei_meta_server *s, int fd)
{
	struct sock_filter code[RATE_LIMIT_BLOCKED_MAX * 5 + 1];
	struct sock_fprog program = { .filter = code };
	const int none = 0;

	program.len = (unsigned short)rate_limit_program(s, code);
	if (s->rate.blocked_count)
		setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program,
			   sizeof(program));
	else
		setsockopt(fd, SOL_SOCKET, SO_DETACH_FILTER, &none,
			   sizeof(none));
}

static void rate_limit_filter(const struct tei_meta_server *s)
{
	int i;

	for (i = 0; i < META_LISTENERS; i++)
		if (s->listener[i] >= 0)
			meta_rate_limit_cover(s, s->listener[i]);
}

void meta_rate_limit_block(struct tei_meta_server *s, struct meta_ip *ip,
			   uint64_t now_ns)
{
	char host[TEI_META_HOST_MAX];

	if (ip->blocked || s->rate.blocked_count == RATE_LIMIT_BLOCKED_MAX ||
	    ip->paid_ns < now_ns + s->rate.burst_ns + RATE_LIMIT_SLACK_NS)
		return;
	meta_rate_limit_text(ip, host);
	TEI_LOG_LIMITED(&s->log.blocked, TEI_LOG_WARN, "meta",
			"control channel %s: too many connections from %s, "
			"which is blocked for a while",
			tei_meta_server_address(s), host);
	META_COUNT(s, blocked);
	ip->blocked = true;
	s->rate.blocked_count++;
	s->rate.blocked_ever = true;
	rate_limit_filter(s);
}

/* Unblocks the blocked addresses that are due. Returns the time at which the
 * next one is due, or 0 if no address is blocked any longer. */
static uint64_t rate_limit_open(struct tei_meta_server *s, uint64_t now_ns)
{
	uint32_t before = s->rate.blocked_count;
	uint64_t next = 0, due;
	struct meta_ip *ip;

	if (!before)
		return 0;
	tei_list_foreach (ip, &s->rate.ages, struct meta_ip, age) {
		if (!ip->blocked)
			continue;
		due = ip->paid_ns - s->rate.burst_ns;
		if (due <= now_ns) {
			ip->blocked = false;
			s->rate.blocked_count--;
		} else if (!next || due < next) {
			next = due;
		}
	}
	if (s->rate.blocked_count != before)
		rate_limit_filter(s);
	return next;
}

uint64_t meta_rate_limit_release(struct tei_meta_server *s, uint64_t now_ns)
{
	uint64_t next = rate_limit_open(s, now_ns), due;
	struct meta_ip *ip, *tmp;

	tei_list_foreach_safe (ip, tmp, &s->rate.waiting, struct meta_ip,
			       wait) {
		rate_limit_release_ip(s, ip, now_ns);
		due = ip->paid_ns > s->rate.burst_ns
			      ? ip->paid_ns - s->rate.burst_ns
			      : 1;
		if (!tei_list_empty(&ip->throttled) && (!next || due < next))
			next = due;
	}
	if (next && next < now_ns + META_RATE_LIMIT_TICK_NS)
		next = now_ns + META_RATE_LIMIT_TICK_NS;
	return next;
}
