/* SPDX-License-Identifier: BSD-2-Clause */
/* Addresses and address vectors. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "fabtests/common/ft_port.h"
#include "fabtests/common/ft_test.h"
#include "fabtests/functional/ft_fi_calls.h"

/* --- address vectors ----------------------------------------------------- */

void call_addresses(struct fi_rig *r)
{
	struct fi_av_attr attr = { .type = FI_AV_TABLE };
	char name[512], again[512], text[512];
	size_t len = sizeof(name), room = sizeof(again), n = sizeof(text);
	struct fid_av *av;
	fi_addr_t a[2];
	bool good;

	if (!fi_rig_ok(r, !fi_av_open(r->domain, &attr, &av, NULL),
		       "address_table_is_opened"))
		return;
	good = !fi_getname(&r->ep->fid, name, &len) &&
	       fi_av_insert(av, name, 1, &a[0], 0, NULL) == 1 && !a[0] &&
	       !fi_av_lookup(av, a[0], again, &room) && room == len &&
	       !memcmp(name, again, len) &&
	       fi_av_straddr(av, name, text, &n) && strlen(text) > 4;
	fi_rig_ok(r, good,
		  "address_table_returns_inserted_address_and_its_text");
	good = !fi_av_remove(av, a, 1, 0);
	if (call_moonrail(r)) {
		room = sizeof(again);
		good = fi_av_lookup(av, a[0], again, &room) == -FI_EINVAL &&
		       fi_av_remove(av, a, 1, 0) == -FI_EINVAL && good;
	}
	fi_rig_ok(r, good && !fi_close(&av->fid),
		  "address_table_refuses_removed_address");
	len = 1;
	fi_rig_ok(r, fi_getname(&r->ep->fid, name, &len) == -FI_ETOOSMALL &&
			     len > 1,
			     "getname_with_short_buffer_returns_the_length");
}

/* --- addresses as text ---------------------------------------------------- */

/* Returns true if fi_av_straddr writes the socket address `addr` as the text
 * `want`. A short buffer must receive the beginning of the text, and the length
 * must be that of the whole text. */
static bool call_text(struct fid_av *av, const void *addr, const char *want)
{
	char text[64], less[8];
	size_t len = sizeof(text), room = sizeof(less);

	if (!fi_av_straddr(av, addr, text, &len) || strcmp(text, want) ||
	    len != strlen(want) + 1)
		return false;
	return fi_av_straddr(av, addr, less, &room) &&
	       room == strlen(want) + 1 && !strncmp(less, want, 7) && !less[7];
}

void call_texts(struct fi_rig *r)
{
	struct sockaddr_in6 in6 = {
		.sin6_family = AF_INET6, .sin6_port = htons(4711),
	};
	struct sockaddr_in in = {
		.sin_family = AF_INET, .sin_port = htons(65535),
	};
	char name[512], text[512], host[64], port[16];
	size_t len = sizeof(name), n = sizeof(text);
	bool good;

	/* Other providers write only addresses of their own format. */
	if (!call_moonrail(r))
		return;
	in.sin_addr.s_addr = htonl(0x0a000002);
	inet_pton(AF_INET6, "fd00::2", &in6.sin6_addr);
	fi_rig_ok(r, call_text(r->av, &in, "fi_sockaddr_in://10.0.0.2:65535") &&
		     call_text(r->av, &in6, "fi_sockaddr_in6://[fd00::2]:4711"),
		  "straddr_of_a_socket_address_has_libfabrics_form");
	good = !fi_getname(&r->ep->fid, name, &len) &&
	       fi_rig_socket(fi_av_straddr(r->av, name, text, &n), host, port);
	fi_rig_ok(r, good, "straddr_of_a_name_is_the_address_of_its_rail");
}

/* --- many addresses ------------------------------------------------------- */

#define CALL_MANY	40000u
#define CALL_SOME	4000u

static uint64_t call_thread_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

/* Inserts CALL_MANY addresses, as a large job does for its ranks. Returns false
 * on failure. ns[0] and ns[1] are the CPU time of the first and of the last
 * CALL_SOME insertions. */
static bool call_insert_many(struct fid_av *av, const char *name,
			     fi_addr_t *out, uint64_t ns[2])
{
	uint64_t from = call_thread_ns();
	size_t i;

	for (i = 0; i < CALL_MANY; i++) {
		if (fi_av_insert(av, name, 1, &out[i], 0, NULL) != 1 ||
		    out[i] != i)
			return false;
		if (i == CALL_SOME)
			ns[0] = call_thread_ns() - from;
		if (i == CALL_MANY - CALL_SOME)
			from = call_thread_ns();
	}
	ns[1] = call_thread_ns() - from;
	return true;
}

void call_many(struct fi_rig *r)
{
	struct fi_av_attr attr = { .type = FI_AV_TABLE };
	fi_addr_t *a = calloc(CALL_MANY, sizeof(*a)), got[3];
	uint64_t ns[2] = { 0 };
	char name[512];
	size_t len = sizeof(name), i;
	struct fid_av *av;
	bool good;

	if (!call_moonrail(r) || r->server || !a)
		goto out;
	good = !fi_av_open(r->domain, &attr, &av, NULL) &&
	       !fi_getname(&r->ep->fid, name, &len);
	if (!fi_rig_ok(r, good && call_insert_many(av, name, a, ns),
		       "address_table_accepts_many_addresses"))
		goto out;
	fi_rig_ok(r, ns[1] < 5 * ns[0] + 20000000,
		  "address_table_is_as_fast_for_the_last_as_for_the_first");
	good = !fi_av_remove(av, &a[900], 1, 0) &&
	       !fi_av_remove(av, &a[30], 1, 0);
	for (i = 0; i < 3; i++)
		good = fi_av_insert(av, name, 1, &got[i], 0, NULL) == 1 && good;
	fi_rig_ok(r, good && got[0] == 30 && got[1] == 900 &&
			     got[2] == CALL_MANY,
		  "address_table_reuses_free_entries_first");
	fi_rig_ok(r, !fi_close(&av->fid),
		  "address_table_with_many_addresses_closes");
out:
	free(a);
}

/* --- addresses of sockets ------------------------------------------------- */

/* Opens an endpoint that sends itself a message. The receive accepts only this
 * sender. Returns true if it completes. */
static bool call_to_itself(struct fi_rig *r)
{
	fi_addr_t src = FI_ADDR_NOTAVAIL;
	struct fi_cq_tagged_entry t;
	struct call_ep e = { .counts = NULL };
	bool good;

	if (!call_open(r, FI_CQ_FORMAT_TAGGED, 0, &e))
		return false;
	r->tx = e.cq[0];
	r->rx = e.cq[1];
	while (fi_rig_again(r, fi_recv(e.ep, r->mem, 64, NULL, e.self, NULL)))
		;
	while (fi_rig_again(r, fi_send(e.ep, r->buf, 32, NULL, e.self, NULL)))
		;
	good = call_await(e.cq[1], &t, &src) && t.len == 32 && src == e.self;
	return call_close(r, &e) && good;
}

/* Opens two endpoints, one after the other, at the same socket address. Each
 * must receive its own message, although the address does not tell which
 * endpoint is meant. */
static void call_names_of(struct fi_rig *r, uint32_t format, const char *node)
{
	struct fi_rig own;

	if (!fi_rig_ok(r, call_domain(r, format, node, NULL, &own),
		       "domain_with_socket_addresses_is_opened"))
		return;
	fi_rig_ok(r, call_to_itself(&own) && call_to_itself(&own),
		  "endpoint_opened_again_at_its_address_is_reached");
	fi_rig_ok(r, call_domain_close(&own),
		  "domain_with_socket_addresses_closes");
}

/* Opens an endpoint whose addresses have this format, on these rails (NULL
 * means all). Returns true if its name has `want` bytes. If want is 0, returns
 * true if fi_domain refuses the format. */
static bool call_kind(struct fi_rig *r, uint32_t format, const char *rails,
		      size_t want)
{
	struct fi_info *h = call_hints(r->provider);
	struct call_ep e = { .counts = NULL };
	struct fi_rig own = *r;
	char name[512];
	size_t len = sizeof(name);
	bool good;
	int ret;

	if (rails)
		setenv("FI_MOONRAIL_ADDR", rails, 1);
	h->addr_format = format;
	if (call_info(h, NULL, NULL, 0, &own.info) ||
	    fi_fabric(own.info->fabric_attr, &own.fabric, NULL))
		return false;
	ret = fi_domain(own.fabric, own.info, &own.domain, NULL);
	unsetenv("FI_MOONRAIL_ADDR");
	if (ret) {
		good = !fi_close(&own.fabric->fid) && ret == -FI_EADDRNOTAVAIL;
		fi_freeinfo(own.info);
		return good && (!want || !rails);
	}
	good = !fi_av_open(own.domain, &(struct fi_av_attr){ .type = 0 },
			   &own.av, NULL) &&
	       call_open(&own, FI_CQ_FORMAT_TAGGED, 0, &e) &&
	       !fi_getname(&e.ep->fid, name, &len) && len == want &&
	       call_close(&own, &e);
	return call_domain_close(&own) && good;
}

void call_kinds(struct fi_rig *r)
{
	const size_t four = sizeof(struct sockaddr_in);
	const size_t six = sizeof(struct sockaddr_in6);

	if (!call_moonrail(r) || r->server)
		return;
	fi_rig_ok(r, call_kind(r, FI_SOCKADDR_IN, "127.0.0.1", four) &&
			     call_kind(r, FI_SOCKADDR_IN6, "127.0.0.1", 0),
		  "ipv4_rails_give_ipv4_names_only");
	if (access("/proc/net/if_inet6", R_OK)) {
		ft_diag("IPv6 is not available: its addresses are not tested");
		return;
	}
	fi_rig_ok(r, call_kind(r, FI_SOCKADDR_IN6, NULL, six) &&
			     call_kind(r, FI_SOCKADDR_IN6, "::1", six) &&
			     call_kind(r, FI_SOCKADDR_IN, "::1", 0),
		  "ipv6_rails_give_ipv6_names_only");
}

/* --- own addresses, and addresses similar to them ------------------------ */

/* Opens an endpoint at the address `node` and sends a message to the address
 * `other` with the same port. Sets *comes to true if the message arrives at
 * this endpoint. Returns false on failure. */
static bool call_goes(struct fi_rig *r, uint32_t format, const char *node,
		      const char *other, bool *comes)
{
	struct call_ep e = { .counts = NULL };
	struct fi_rig own;
	fi_addr_t to;
	char port[16];
	bool good;

	snprintf(port, sizeof(port), "%d", ft_port(node));
	good = call_domain(r, format, node, port, &own) &&
	       call_open(&own, FI_CQ_FORMAT_TAGGED, 0, &e) &&
	       fi_av_insertsvc(own.av, other, port, &to, 0, NULL) == 1 &&
	       !fi_recv(e.ep, r->mem, 64, NULL, FI_ADDR_UNSPEC, NULL) &&
	       !fi_send(e.ep, r->buf, 32, NULL, to, NULL);
	if (!good)
		return false;
	*comes = !call_silent(e.cq[1]);
	return call_close(&own, &e) && call_domain_close(&own);
}

/* The addresses of this case differ only after the first eight bytes of the
 * socket address, which contain the port. */
void call_other_host(struct fi_rig *r)
{
	bool comes;

	if (!call_moonrail(r) || r->server)
		return;
	if (access("/proc/net/if_inet6", R_OK)) {
		ft_diag("IPv6 is not available: its addresses are not tested");
		return;
	}
	fi_rig_ok(r, call_goes(r, FI_SOCKADDR_IN6, "::1", "2001:db8::77",
			       &comes) && !comes,
		  "address_of_other_host_with_own_port_is_not_own");
}

static bool call_name_has(struct fi_rig *r, struct fid_ep *ep, const char *text)
{
	char name[512], words[512];
	size_t len = sizeof(name), n = sizeof(words);

	return !fi_getname(&ep->fid, name, &len) &&
	       strstr(fi_av_straddr(r->av, name, words, &n), text);
}

/* Tests that both addresses of a domain with two rails are its own. */
void call_own_rails(struct fi_rig *r)
{
	struct call_ep e = { .counts = NULL };
	bool good, comes = false;
	struct fi_rig own;

	if (!call_moonrail(r) || r->server)
		return;
	setenv("FI_MOONRAIL_ADDR", "127.0.0.1,127.0.0.2", 1);
	good = call_goes(r, FI_SOCKADDR_IN, "127.0.0.1", "127.0.0.2", &comes);
	fi_rig_ok(r, good && comes, "message_to_another_own_rail_arrives");
	good = call_domain(r, FI_SOCKADDR_IN, "127.0.0.2", NULL, &own) &&
	       call_open(&own, FI_CQ_FORMAT_TAGGED, 0, &e) &&
	       call_name_has(&own, e.ep, "127.0.0.2") &&
	       call_close(&own, &e) && call_domain_close(&own);
	fi_rig_ok(r, good, "source_address_selects_the_rail_of_the_name");
	unsetenv("FI_MOONRAIL_ADDR");
}

/* Inserts two addresses into av: 0 is the socket address of r->ep, 1 is the
 * name of `other`. */
static bool call_two_insert(struct fi_rig *r, struct fid_av *av,
			    struct fid_ep *other)
{
	char name[512], text[512], host[64], port[16];
	size_t len = sizeof(name), room = sizeof(name), n = sizeof(text);
	fi_addr_t a[2];

	return !fi_getname(&r->ep->fid, name, &len) &&
	       fi_rig_socket(fi_av_straddr(av, name, text, &n), host, port) &&
	       fi_av_insertsvc(av, host, port, &a[0], 0, NULL) == 1 &&
	       !fi_getname(&other->fid, name, &room) &&
	       fi_av_insert(av, name, 1, &a[1], 0, NULL) == 1 && !a[0] &&
	       a[1] == 1;
}

/* Posts a receive for each of the senders 0 and 1, then sends a message from
 * `from` to the endpoint `to`. Returns true if it completes only the receive
 * for sender `is`. */
static bool call_two_come(struct fi_rig *r, struct call_ep *to, fi_addr_t addr,
			  struct fid_ep *from, fi_addr_t is)
{
	fi_addr_t src = FI_ADDR_NOTAVAIL;
	struct fi_cq_tagged_entry t;
	int context[2];
	fi_addr_t i;

	for (i = 0; i < 2; i++)
		while (fi_rig_again(r, fi_recv(to->ep, r->mem, 64, NULL, i,
					       &context[i])))
			;
	while (fi_rig_again(r, fi_send(from, r->buf, 32, NULL, addr, NULL)))
		;
	if (!call_await(to->cq[1], &t, &src) || src != is ||
	    t.op_context != &context[is])
		return false;
	return !fi_cancel(&to->ep->fid, &context[!is]) &&
	       fi_cq_readerr(to->cq[1], &(struct fi_cq_err_entry){ .err = 0 },
			     0) == 1;
}

/* Inserts the oldest endpoint of a domain by its socket address and another
 * endpoint by its name. Messages of both must match the right receives. */
void call_two_names(struct fi_rig *r)
{
	struct fi_av_attr attr = { .type = FI_AV_TABLE };
	struct fi_rig own = *r;
	struct call_ep other = { .counts = NULL }, to = { .counts = NULL };
	char name[512];
	size_t len = sizeof(name);
	fi_addr_t addr;
	bool good;

	if (!call_moonrail(r))
		return;
	good = call_open(r, FI_CQ_FORMAT_TAGGED, 0, &other) &&
	       !fi_av_open(r->domain, &attr, &own.av, NULL) &&
	       call_two_insert(r, own.av, other.ep) &&
	       call_open(&own, FI_CQ_FORMAT_TAGGED, 0, &to) &&
	       !fi_getname(&to.ep->fid, name, &len) &&
	       fi_av_insert(r->av, name, 1, &addr, 0, NULL) == 1;
	if (!fi_rig_ok(r, good, "socket_address_and_name_are_inserted"))
		return;
	good = call_two_come(r, &to, addr, other.ep, 1) &&
	       call_two_come(r, &to, addr, r->ep, 0);
	fi_rig_ok(r, call_sent(r) && good,
		  "socket_address_and_name_match_different_senders");
	fi_rig_ok(r, call_close(&own, &to) && call_close(r, &other) &&
			     !fi_av_remove(r->av, &addr, 1, 0) &&
			     !fi_close(&own.av->fid),
			     "endpoints_with_socket_address_and_name_close");
}

void call_socket_names(struct fi_rig *r)
{
	call_names_of(r, FI_SOCKADDR_IN, "127.0.0.1");
	if (access("/proc/net/if_inet6", R_OK))
		ft_diag("IPv6 is not available: its addresses are not tested");
	else
		call_names_of(r, FI_SOCKADDR_IN6, "::1");
}
