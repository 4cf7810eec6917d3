/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Poll sets. A poll set reports which of its completion queues and counters
 * have changed.
 */
#include <stdlib.h>

#include "prov/moonrail/moonrail_cq.h"
#include "prov/moonrail/moonrail_domain.h"
#include "prov/moonrail/moonrail_fabric.h"
#include "prov/moonrail/moonrail_int.h"
#include "util/list.h"

/* One object of a poll set, which holds a reference to it. */
struct poll_member {
	struct tei_list link;
	struct fid *fid;
	uint64_t value, errors;		/* value and errors of a counter at the
					 * last poll */
};

struct moonrail_poll {
	struct fid_poll fid;
	struct moonrail_domain *domain;
	struct tei_list members;	/* list of poll_member.link, guarded by
					 * domain->lock */
};

static struct moonrail_cq *poll_cq(struct fid *fid)
{
	return tei_container_of(fid, struct moonrail_cq, fid.fid);
}

static struct moonrail_cntr *poll_cntr(struct fid *fid)
{
	return tei_container_of(fid, struct moonrail_cntr, fid.fid);
}

static void poll_refer(struct fid *fid, int by)
{
	uint32_t *refs = fid->fclass == FI_CLASS_CQ ? &poll_cq(fid)->refs :
						      &poll_cntr(fid)->refs;

	*refs += (uint32_t)by;
}

static bool poll_news(struct poll_member *m) TEI_REQUIRES(moonrail_held)
{
	struct moonrail_cntr *c;
	uint64_t value, errors;
	bool news;

	if (m->fid->fclass == FI_CLASS_CQ)
		return poll_cq(m->fid)->n;
	c = poll_cntr(m->fid);
	value = __atomic_load_n(&c->value, __ATOMIC_ACQUIRE);
	errors = __atomic_load_n(&c->errors, __ATOMIC_ACQUIRE);
	news = value != m->value || errors != m->errors;
	m->value = value;
	m->errors = errors;
	return news;
}

static int poll_ask(struct fid_poll *fid, void **context, int count)
{
	struct moonrail_poll *p = tei_container_of(fid, struct moonrail_poll,
						   fid);
	struct poll_member *m;
	int n = 0;

	moonrail_progress(p->domain);
	moonrail_enter(p->domain);
	moonrail_drain(p->domain);
	tei_list_foreach(m, &p->members, struct poll_member, link) {
		if (n == count)
			break;
		if (poll_news(m))
			context[n++] = m->fid->context;
	}
	moonrail_leave(p->domain);
	return n;
}

static struct poll_member *poll_find(struct moonrail_poll *p,
				     const struct fid *fid)
	TEI_REQUIRES(moonrail_held)
{
	struct poll_member *m;

	tei_list_foreach(m, &p->members, struct poll_member, link)
		if (m->fid == fid)
			return m;
	return NULL;
}

static int poll_add(struct fid_poll *fid, struct fid *of, uint64_t flags)
{
	struct moonrail_poll *p = tei_container_of(fid, struct moonrail_poll,
						   fid);
	struct poll_member *m;

	if (flags)
		return -FI_EINVAL;
	if (of->fclass == FI_CLASS_CQ ? poll_cq(of)->domain != p->domain :
	    of->fclass != FI_CLASS_CNTR || poll_cntr(of)->domain != p->domain)
		return -FI_EINVAL;
	m = calloc(1, sizeof(*m));
	if (!m)
		return -FI_ENOMEM;
	m->fid = of;
	moonrail_enter(p->domain);
	if (poll_find(p, of)) {
		moonrail_leave(p->domain);
		free(m);
		return 0;
	}
	poll_refer(of, 1);
	tei_list_add_tail(&p->members, &m->link);
	moonrail_leave(p->domain);
	return 0;
}

static int poll_del(struct fid_poll *fid, struct fid *of, uint64_t flags)
{
	struct moonrail_poll *p = tei_container_of(fid, struct moonrail_poll,
						   fid);
	struct poll_member *m;

	if (flags)
		return -FI_EINVAL;
	moonrail_enter(p->domain);
	m = poll_find(p, of);
	if (m) {
		poll_refer(of, -1);
		tei_list_del(&m->link);
	}
	moonrail_leave(p->domain);
	free(m);
	return m ? 0 : -FI_EINVAL;
}

static int poll_close(struct fid *fid)
{
	struct moonrail_poll *p = tei_container_of(fid, struct moonrail_poll,
						   fid.fid);
	struct poll_member *m, *tmp;

	moonrail_enter(p->domain);
	tei_list_foreach_safe(m, tmp, &p->members, struct poll_member, link) {
		poll_refer(m->fid, -1);
		free(m);
	}
	moonrail_leave(p->domain);
	moonrail_domain_unref(p->domain);
	free(p);
	return 0;
}

static struct fi_ops poll_fi_ops = {
	.size = sizeof(struct fi_ops),
	.close = poll_close,
	.bind = moonrail_no_bind,
	.control = moonrail_no_control,
	.ops_open = moonrail_no_ops,
};

static struct fi_ops_poll poll_ops = {
	.size = sizeof(struct fi_ops_poll),
	.poll = poll_ask,
	.poll_add = poll_add,
	.poll_del = poll_del,
};

int moonrail_poll_open(struct fid_domain *domain, struct fi_poll_attr *attr,
		       struct fid_poll **out)
{
	struct moonrail_poll *p;

	if (attr && attr->flags)
		return -FI_EINVAL;
	p = calloc(1, sizeof(*p));
	if (!p)
		return -FI_ENOMEM;
	p->domain = tei_container_of(domain, struct moonrail_domain, fid);
	tei_list_init(&p->members);
	p->fid.fid.fclass = FI_CLASS_POLL;
	p->fid.fid.ops = &poll_fi_ops;
	p->fid.ops = &poll_ops;
	moonrail_domain_ref(p->domain);
	*out = &p->fid;
	return 0;
}
