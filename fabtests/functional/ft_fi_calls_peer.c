/* SPDX-License-Identifier: BSD-2-Clause */
/* Peers: those that are found late, or take no more. */
#include <stdio.h>
#include <string.h>

#include "fabtests/common/ft_clock.h"
#include "fabtests/functional/ft_fi_calls.h"

/* --- a sender that is found when it has sent already ----------------------- */

#define SOUGHT_TAG	7

/* A domain that knows nobody, in place of the rig's, and an endpoint there. */
static bool call_stranger(struct fi_rig *r, struct fi_rig *own,
			  struct call_ep *e)
{
	struct fi_av_attr attr = { .type = FI_AV_TABLE };
	struct fi_info *h = call_hints(r->provider);

	*own = *r;
	h->caps |= FI_SOURCE | FI_DIRECTED_RECV;
	if (call_info(h, "127.0.0.1", NULL, FI_SOURCE, &own->info) ||
	    fi_fabric(own->info->fabric_attr, &own->fabric, NULL) ||
	    fi_domain(own->fabric, own->info, &own->domain, NULL) ||
	    fi_av_open(own->domain, &attr, &own->av, NULL) ||
	    !call_open(own, FI_CQ_FORMAT_TAGGED, 0, e))
		return false;
	own->tx = e->cq[0];
	own->rx = e->cq[1];
	return true;
}

static bool call_stranger_close(struct fi_rig *own, struct call_ep *e)
{
	bool good = call_close(own, e) && !fi_close(&own->av->fid) &&
		    !fi_close(&own->domain->fid) &&
		    !fi_close(&own->fabric->fid);

	fi_freeinfo(own->info);
	return good;
}

/* The other process, by the address of its socket. */
static bool call_by_socket(struct fi_rig *r, struct fid_av *av, fi_addr_t *out)
{
	char name[512], text[512], host[64], port[16];
	size_t len = sizeof(name), n = sizeof(text);

	if (fi_av_lookup(r->av, r->peer, name, &len))
		return false;
	if (!call_moonrail(r))
		return fi_av_insert(av, name, 1, out, 0, NULL) == 1;
	return sscanf(fi_av_straddr(r->av, name, text, &n),
		      "moonrail://[%63[^]]]:%15[0-9]/", host, port) == 2 &&
	       fi_av_insertsvc(av, host, port, out, 0, NULL) == 1;
}

/* A message is there that nobody has asked for. */
static bool call_come(struct fi_rig *own, struct call_ep *e)
{
	uint64_t end = ft_now_ns() + FI_RIG_WAIT_MS * UINT64_C(1000000);
	struct fi_msg_tagged msg = {
		.addr = FI_ADDR_UNSPEC, .tag = SOUGHT_TAG,
	};
	struct fi_rig_done d = { .err = FI_ENOMSG };

	while (d.err && ft_now_ns() < end) {
		while (fi_rig_again(own, fi_trecvmsg(e->ep, &msg, FI_PEEK |
						     FI_COMPLETION)))
			;
		if (!fi_rig_next(own, e->cq[1], &d))
			return false;
	}
	return !d.err;
}

static bool call_word(struct fi_rig *own, struct call_ep *e, fi_addr_t from,
		      const char *word)
{
	struct fi_rig_done d;

	memset(own->mem, 0, 64);
	while (fi_rig_again(own, fi_trecv(e->ep, own->mem, 64, NULL, from,
					  SOUGHT_TAG, 0, NULL)))
		;
	return call_done(own, e->cq[1], &d) && !strcmp((char *)own->mem, word);
}

static void call_sought_client(struct fi_rig *r)
{
	struct call_ep e = { .counts = NULL };
	bool late = call_moonrail(r), good;
	size_t len = 512;
	struct fi_rig own;
	fi_addr_t from;

	if (!fi_rig_ok(r, call_stranger(r, &own, &e), "a domain of its own"))
		return;
	good = late || call_by_socket(r, own.av, &from);
	memset(r->buf, 0, len);
	good = !fi_getname(&e.ep->fid, r->buf, &len) && good;
	while (fi_rig_again(r, fi_send(r->ep, r->buf, 512, NULL, r->peer,
				       NULL)))
		;
	good = call_sent(r) && good;
	/* others cannot tell later whom it was from */
	if (late)
		good = call_come(&own, &e) &&
		       call_by_socket(r, own.av, &from) && good;
	fi_rig_ok(r, good && call_word(&own, &e, from, "one"),
		  "what came from one who was found later is his");
	while (fi_rig_again(r, fi_send(r->ep, r->buf, 8, NULL, r->peer, NULL)))
		;
	good = call_sent(r);
	fi_rig_ok(r, good && call_word(&own, &e, from, "two"),
		  "and is not overtaken");
	fi_rig_meet(r);
	fi_rig_ok(r, call_stranger_close(&own, &e), "and all of it closes");
}

static bool call_hear(struct fi_rig *r, size_t len)
{
	struct fi_rig_done d;

	while (fi_rig_again(r, fi_recv(r->ep, r->buf, len, NULL,
				       FI_ADDR_UNSPEC, NULL)))
		;
	return call_done(r, r->rx, &d);
}

static bool call_say(struct fi_rig *r, fi_addr_t to, const char *word)
{
	while (fi_rig_again(r, fi_tsend(r->ep, word, strlen(word) + 1, NULL,
					to, SOUGHT_TAG, NULL)))
		;
	return call_sent(r);
}

void call_sought(struct fi_rig *r)
{
	fi_addr_t to;
	bool good;

	if (!r->server) {
		call_sought_client(r);
		return;
	}
	good = call_hear(r, 512) &&
	       fi_av_insert(r->av, r->buf, 1, &to, 0, NULL) == 1 &&
	       call_say(r, to, "one") && call_hear(r, 8) &&
	       call_say(r, to, "two");
	fi_rig_ok(r, good, "words to one who does not know the sender");
	fi_rig_meet(r);
	fi_av_remove(r->av, &to, 1, 0);
}

/* --- an endpoint that holds as much as it can ------------------------------ */

#define FULL_LEN	16000u
#define FULL_QUIET_NS	UINT64_C(200000000)
#define FULL_OTHERS	200u	/* messages, where there is no such limit */

static void call_full_make(struct fi_rig *r, uint64_t i, uint64_t last)
{
	memcpy(r->buf, &i, sizeof(i));
	memcpy(r->buf + sizeof(i), &last, sizeof(last));
}

/* Until no more is taken; how many. 0: that went wrong. */
static uint64_t call_full_fill(struct fi_rig *r)
{
	uint64_t taken = ft_now_ns(), n = 0;
	ssize_t ret;

	fi_rig_fill(r->buf, FULL_LEN, 9);
	while (ft_now_ns() - taken < FULL_QUIET_NS &&
	       (call_moonrail(r) || n < FULL_OTHERS)) {
		call_full_make(r, n, 0);
		ret = fi_send(r->ep, r->buf, FULL_LEN, NULL, r->peer, NULL);
		fi_rig_again(r, ret);
		if (ret)
			continue;
		if (!call_sent(r))
			return 0;
		taken = ft_now_ns();
		n++;
	}
	return n;
}

static void call_full_client(struct fi_rig *r)
{
	uint64_t n = call_full_fill(r);
	struct fi_rig_done d;
	fi_addr_t other;
	bool good;

	fi_rig_ok(r, n, "messages are sent until no more are taken");
	while (fi_rig_again(r, fi_recv(r->ep, r->mem + 4096, 512, NULL, FI_ADDR_UNSPEC,
				       NULL)))
		;
	fi_rig_meet(r);
	good = call_done(r, r->rx, &d) &&
	       fi_av_insert(r->av, r->mem + 4096, 1, &other, 0, NULL) == 1;
	while (good && fi_rig_again(r, fi_send(r->ep, "other", 6, NULL, other,
					       NULL)))
		;
	fi_rig_ok(r, good && call_sent(r),
		  "others of its process are sent to all the same");
	fi_rig_meet(r);
	call_full_make(r, n, 1);
	while (fi_rig_again(r, fi_send(r->ep, r->buf, FULL_LEN, NULL, r->peer,
				       NULL)))
		;
	good = call_sent(r);
	fi_rig_meet(r);
	fi_rig_ok(r, good && !fi_av_remove(r->av, &other, 1, 0),
		  "and it when it has room again");
}

/* By an endpoint of its own: an atomic, and a message that comes. */
static bool call_full_other(struct fi_rig *r, struct call_ep *e)
{
	uint64_t one = 1, old;
	char name[512] = "";
	size_t len = sizeof(name);
	struct fi_rig own = *r;
	struct fi_rig_done d;

	own.tx = e->cq[0];
	own.rx = e->cq[1];
	while (fi_rig_again(&own, fi_fetch_atomic(e->ep, &one, 1, NULL, &old,
						  NULL, r->peer, r->remote,
						  r->key, FI_UINT64, FI_SUM,
						  NULL)))
		;
	if (!fi_rig_ok(r, call_done(&own, e->cq[0], &d),
		       "while one endpoint is full, another has its answers"))
		return false;
	if (fi_getname(&e->ep->fid, name, &len))
		return false;
	memcpy(r->buf, name, sizeof(name));
	while (fi_rig_again(r, fi_send(r->ep, r->buf, sizeof(name), NULL,
				       r->peer, NULL)))
		;
	while (fi_rig_again(&own, fi_recv(e->ep, r->mem, 64, NULL,
					  FI_ADDR_UNSPEC, NULL)))
		;
	return call_sent(r) && call_done(&own, e->cq[1], &d) &&
	       !strcmp((char *)r->mem, "other");
}

/* All of them, in their order. */
static bool call_full_all(struct fi_rig *r)
{
	uint64_t n = 0, head[2];
	struct fi_rig_done d;

	do {
		while (fi_rig_again(r, fi_recv(r->ep, r->mem, FULL_LEN, NULL,
					       FI_ADDR_UNSPEC, NULL)))
			;
		if (!call_done(r, r->rx, &d) || d.e.len != FULL_LEN)
			return false;
		memcpy(head, r->mem, sizeof(head));
		call_full_make(r, head[0], head[1]);
		if (head[0] != n++ || memcmp(r->mem, r->buf, FULL_LEN))
			return false;
	} while (!head[1]);
	return true;
}

/* Nobody receives what comes for an endpoint: it waits, and nothing else. */
void call_full(struct fi_rig *r)
{
	struct call_ep e = { .counts = NULL };
	bool good;

	if (!r->server) {
		call_full_client(r);
		return;
	}
	fi_rig_meet(r);
	good = call_open(r, FI_CQ_FORMAT_TAGGED, 0, &e) &&
	       call_full_other(r, &e);
	fi_rig_ok(r, good, "and its messages");
	fi_rig_meet(r);
	fi_rig_fill(r->buf, FULL_LEN, 9);
	fi_rig_ok(r, call_full_all(r), "what waited comes in order and whole");
	fi_rig_meet(r);
	fi_rig_ok(r, call_close(r, &e), "and the other endpoint closes");
}
