/* SPDX-License-Identifier: BSD-2-Clause */
/* Peers: those that are found late. */
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
