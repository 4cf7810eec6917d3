/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Event queues. Their entries come from fi_eq_write and from address vectors.
 */
#include <stdlib.h>
#include <string.h>

#include "prov/moonrail/moonrail_fabric.h"
#include "util/clock.h"
#include "util/list.h"
#include "util/world.h"

struct eq_event {
	struct tei_list link;
	uint32_t event;
	bool error;			/* the member "bytes" holds a struct
					 * fi_eq_err_entry */
	size_t len;
	uint8_t bytes[];
};

static ssize_t eq_take(struct moonrail_eq *eq, uint32_t *event, void *buf,
		       size_t len, uint64_t flags)
{
	struct eq_event *e;
	ssize_t ret;

	if (tei_list_empty(&eq->events))
		return -FI_EAGAIN;
	e = tei_list_first(&eq->events, struct eq_event, link);
	if (e->error)
		return -FI_EAVAIL;
	if (len < e->len)
		return -FI_ETOOSMALL;
	*event = e->event;
	if (e->len)
		memcpy(buf, e->bytes, e->len);
	ret = (ssize_t)e->len;
	if (!(flags & FI_PEEK)) {
		tei_list_del(&e->link);
		free(e);
	}
	return ret;
}

static ssize_t eq_sread(struct fid_eq *fid, uint32_t *event, void *buf,
			size_t len, int timeout, uint64_t flags)
{
	struct moonrail_eq *eq = tei_container_of(fid, struct moonrail_eq, fid);
	uint64_t now = tei_now_ns();
	uint64_t end = timeout < 0 ? UINT64_MAX :
				     now + (uint64_t)timeout * TEI_NS_PER_MS;
	ssize_t ret;

	tei_mutex_lock(&eq->lock);
	while ((ret = eq_take(eq, event, buf, len, flags)) == -FI_EAGAIN &&
	       (now = tei_now_ns()) < end)
		tei_mutex_wait(&eq->cond, &eq->lock,
			       end - now < TEI_NS_PER_SEC ? end - now :
							    TEI_NS_PER_SEC);
	tei_mutex_unlock(&eq->lock);
	return ret;
}

static ssize_t eq_read(struct fid_eq *fid, uint32_t *event, void *buf,
		       size_t len, uint64_t flags)
{
	return eq_sread(fid, event, buf, len, 0, flags);
}

static ssize_t eq_readerr(struct fid_eq *fid, struct fi_eq_err_entry *buf,
			  uint64_t flags)
{
	struct moonrail_eq *eq = tei_container_of(fid, struct moonrail_eq, fid);
	struct eq_event *e = NULL;
	void *own;

	tei_mutex_lock(&eq->lock);
	if (!tei_list_empty(&eq->events))
		e = tei_list_first(&eq->events, struct eq_event, link);
	if (e && !e->error)
		e = NULL;
	if (e) {
		/* keep the caller's buffer for error data: there are no such
		 * data to return */
		own = buf->err_data_size &&
		      FI_VERSION_GE(eq->fabric->fid.api_version,
				    FI_VERSION(1, 5)) ? buf->err_data : NULL;
		memcpy(buf, e->bytes, sizeof(*buf));
		buf->err_data = own;
		if (!(flags & FI_PEEK)) {
			tei_list_del(&e->link);
			free(e);
		}
	}
	tei_mutex_unlock(&eq->lock);
	return e ? (ssize_t)sizeof(*buf) : -FI_EAGAIN;
}

static ssize_t eq_add(struct moonrail_eq *eq, uint32_t event, const void *buf,
		      size_t len, bool error)
{
	struct eq_event *e = malloc(sizeof(*e) + len);

	if (!e)
		return -FI_ENOMEM;
	e->event = event;
	e->error = error;
	e->len = len;
	if (len)
		memcpy(e->bytes, buf, len);
	tei_mutex_lock(&eq->lock);
	tei_list_add_tail(&eq->events, &e->link);
	moonrail_wait_signal(&eq->wait);
	tei_cond_broadcast(&eq->cond);
	tei_mutex_unlock(&eq->lock);
	return (ssize_t)len;
}

void moonrail_eq_add_error(struct moonrail_eq *eq,
			   const struct fi_eq_err_entry *error)
{
	eq_add(eq, 0, error, sizeof(*error), true);
}

static ssize_t eq_write(struct fid_eq *fid, uint32_t event, const void *buf,
			size_t len, uint64_t flags)
{
	(void)flags;
	return eq_add(tei_container_of(fid, struct moonrail_eq, fid), event,
		      buf, len, false);
}

static const char *eq_strerror(struct fid_eq *fid, int prov_errno,
			       const void *err_data, char *buf, size_t len)
{
	(void)fid, (void)err_data;
	if (buf && len)
		strncpy(buf, fi_strerror(prov_errno), len - 1)[len - 1] = '\0';
	return fi_strerror(prov_errno);
}

static int eq_close(struct fid *fid)
{
	struct moonrail_eq *eq =
		tei_container_of(fid, struct moonrail_eq, fid.fid);
	struct eq_event *e, *tmp;

	if (__atomic_load_n(&eq->refs, __ATOMIC_ACQUIRE))
		return -FI_EBUSY;
	tei_list_foreach_safe(e, tmp, &eq->events, struct eq_event, link)
		free(e);
	__atomic_fetch_sub(&eq->fabric->refs, 1, __ATOMIC_RELEASE);
	moonrail_wait_close(&eq->wait);
	pthread_cond_destroy(&eq->cond);
	tei_mutex_fini(&eq->lock);
	free(eq);
	return 0;
}

static int eq_control(struct fid *fid, int command, void *arg)
{
	struct moonrail_eq *eq =
		tei_container_of(fid, struct moonrail_eq, fid.fid);

	return moonrail_wait_control(&eq->wait, command, arg);
}

int moonrail_eq_trywait(struct moonrail_eq *eq)
{
	bool empty;

	tei_mutex_lock(&eq->lock);
	empty = tei_list_empty(&eq->events);
	if (empty)
		moonrail_wait_reset(&eq->wait);
	tei_mutex_unlock(&eq->lock);
	return empty ? 0 : -FI_EAGAIN;
}

static struct fi_ops eq_fi_ops = {
	.size = sizeof(struct fi_ops),
	.close = eq_close,
	.bind = moonrail_no_bind,
	.control = eq_control,
	.ops_open = moonrail_no_ops,
};

static struct fi_ops_eq eq_ops = {
	.size = sizeof(struct fi_ops_eq),
	.read = eq_read,
	.readerr = eq_readerr,
	.write = eq_write,
	.sread = eq_sread,
	.strerror = eq_strerror,
};

int moonrail_eq_open(struct fid_fabric *fabric, struct fi_eq_attr *attr,
		     struct fid_eq **out, void *context)
{
	struct moonrail_eq *eq;
	int ret;

	eq = calloc(1, sizeof(*eq));
	if (!eq)
		return -FI_ENOMEM;
	ret = moonrail_wait_open(attr ? attr->wait_obj : FI_WAIT_NONE,
				 &eq->wait);
	if (ret) {
		free(eq);
		return ret;
	}
	eq->fabric = tei_container_of(fabric, struct moonrail_fabric, fid);
	__atomic_fetch_add(&eq->fabric->refs, 1, __ATOMIC_RELAXED);
	tei_mutex_init(&eq->lock);
	tei_cond_init(&eq->cond);
	tei_list_init(&eq->events);
	eq->fid.fid.fclass = FI_CLASS_EQ;
	eq->fid.fid.context = context;
	eq->fid.fid.ops = &eq_fi_ops;
	eq->fid.ops = &eq_ops;
	*out = &eq->fid;
	return 0;
}
