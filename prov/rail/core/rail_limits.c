/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Finds out which limit a refused registration has met, and its value.
 *
 * Providers pass on the kernel's error code, which says little:
 *
 *  ENOMEM, EAGAIN	memlock (the kernel's ib_umem_get), no memory, or a full
 *			table of the device
 *  EPERM		a memlock limit of 0
 *  ENOSPC		the maximum number of registrations is reached
 *  ENOKEY		the random keys that were tried are all taken
 *  EINVAL, E2BIG	more bytes than the device registers at once; but
 *			drivers use EINVAL for other reasons too. In
 *			libfabric's own code (up to 2.6) no provider returns
 *			E2BIG, and EINVAL is only for requests that moonrail
 *			never makes (several ranges, flags)
 *
 * libfabric does not report a device's size limit, and its limit on the number
 * of registrations is an optimum that verbs leaves out. So libibverbs is
 * queried, but only if the provider has loaded it and only after a refusal.
 */

#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <rdma/fi_errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_mr.h"
#include "util/text.h"

/* --- the limits ---------------------------------------------------------- */

/* Functions of libibverbs. They are available only if the provider has loaded
 * the library. */
struct limits_verbs {
	void *library;
	struct ibv_device **(*list)(int *n);
	void (*free_list)(struct ibv_device **list);
	const char *(*name)(struct ibv_device *device);
	struct ibv_context *(*open)(struct ibv_device *device);
	int (*close)(struct ibv_context *context);
	int (*query)(struct ibv_context *context, struct ibv_device_attr *attr);
};

static bool limits_symbol(void *library, const char *name, void *function)
{
	void *symbol = dlsym(library, name);

	memcpy(function, &symbol, sizeof(symbol));
	return symbol != NULL;
}

static bool limits_verbs_load(struct limits_verbs *v)
{
	v->library = dlopen("libibverbs.so.1", RTLD_LAZY | RTLD_NOLOAD);
	if (!v->library)
		return false;
	if (limits_symbol(v->library, "ibv_get_device_list", &v->list) &&
	    limits_symbol(v->library, "ibv_free_device_list", &v->free_list) &&
	    limits_symbol(v->library, "ibv_get_device_name", &v->name) &&
	    limits_symbol(v->library, "ibv_open_device", &v->open) &&
	    limits_symbol(v->library, "ibv_close_device", &v->close) &&
	    limits_symbol(v->library, "ibv_query_device", &v->query))
		return true;
	dlclose(v->library);
	return false;
}

static void limits_device(const struct limits_verbs *v,
			  struct ibv_device *device, struct rail_limits *out)
{
	struct ibv_context *context = v->open(device);
	struct ibv_device_attr attr;

	if (!context)
		return;
	memset(&attr, 0, sizeof(attr));
	if (!v->query(context, &attr)) {
		out->max_size = attr.max_mr_size;
		out->max_count = attr.max_mr > 0 ? (uint64_t)attr.max_mr : 0;
	}
	v->close(context);
}

/* Queries the limits of the RDMA device with this name. Leaves *out unchanged
 * if the device cannot be queried. */
static void limits_ask(const char *name, struct rail_limits *out)
{
	struct ibv_device **list;
	struct limits_verbs v;
	int i;

	if (!limits_verbs_load(&v))
		return;
	list = v.list(NULL);
	for (i = 0; list && list[i]; i++) {
		if (strcmp(v.name(list[i]), name))
			continue;
		limits_device(&v, list[i], out);
		break;
	}
	if (list)
		v.free_list(list);
	dlclose(v.library);
}

/* Returns the number of registrations on the rail. */
static uint64_t limits_count(const struct rail *rail)
{
	uint64_t n = 0;
	uint32_t i;

	rail_sched_enter(rail->dp);
	for (i = 0; i < rail->dp->memory.mrs.n; i++)
		n += rail_mr_at(rail->dp, i)->part[rail->index].n;
	rail_sched_leave(rail->dp);
	return n;
}

/* Returns how much memory this process has pinned, in KiB. */
static uint64_t limits_pinned(void)
{
	FILE *f = fopen("/proc/self/status", "re");
	unsigned long long kib = 0;
	char line[128];

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "VmPin: %llu", &kib) == 1)
			break;
	if (f)
		fclose(f);
	return kib;
}

/* Fills in the memlock limit and the pinned memory, and clears the other
 * fields. */
static void limits_pins(struct rail_limits *out)
{
	struct rlimit limit = { .rlim_cur = RLIM_INFINITY };

	memset(out, 0, sizeof(*out));
	getrlimit(RLIMIT_MEMLOCK, &limit);
	out->memlock = limit.rlim_cur == RLIM_INFINITY ? UINT64_MAX :
							 limit.rlim_cur;
	out->pinned_kib = limits_pinned();
}

/* Returns true if the error "ret" may mean that a limit was reached, so that
 * rail_limits_text can explain it. */
static bool limits_are(int ret)
{
	return ret == -FI_ENOMEM || ret == -FI_EAGAIN || ret == -FI_EPERM ||
	       ret == -FI_ENOSPC || ret == -FI_ENOKEY || ret == -FI_EINVAL ||
	       ret == -FI_E2BIG;
}

void rail_limits_get(const struct rail *rail, int ret, struct rail_limits *out)
{
	const struct fi_info *info = rail->fab.info;

	memset(out, 0, sizeof(*out));
	if (!limits_are(ret))
		return;
	limits_pins(out);
	out->count = limits_count(rail);
	out->key_size = info->domain_attr->mr_key_size;
	out->max_count = info->domain_attr->mr_cnt;
	if (info->nic && info->nic->device_attr && info->nic->device_attr->name)
		limits_ask(info->nic->device_attr->name, out);
}

/* --- the texts ----------------------------------------------------------- */

static int limits_size(char *out, size_t cap, uint64_t bytes)
{
	static const char *const unit[] = { "bytes", "KiB", "MiB", "GiB",
					    "TiB", "PiB", "EiB" };
	unsigned int i = 0;

	while (bytes && !(bytes & 1023) && i + 1 < sizeof(unit) / sizeof(*unit)) {
		bytes >>= 10;
		i++;
	}
	return snprintf(out, cap, "%llu %s", (unsigned long long)bytes,
			unit[i]);
}

static int limits_memlock(const struct rail_limits *l, char *out, size_t cap)
{
	if (l->memlock == UINT64_MAX)
		return snprintf(out, cap, "memlock is not limited");
	return snprintf(out, cap, "the memlock limit is %llu KiB (ulimit -l), "
			"%llu KiB are pinned",
			(unsigned long long)l->memlock >> 10,
			(unsigned long long)l->pinned_kib);
}

static void limits_registrations(const struct rail_limits *l,
				 const char *before, char *out, size_t cap)
{
	int n = snprintf(out, cap, "%sthere %s %llu registration%s", before,
			 l->count == 1 ? "is" : "are",
			 (unsigned long long)l->count, tei_plural(l->count));

	if (l->max_count && (size_t)n < cap)
		snprintf(out + n, cap - (size_t)n, ", the device allows %llu",
			 (unsigned long long)l->max_count);
}

/* Describes the sizes that were tried, for an error that may mean that a
 * registration was too large. */
static void limits_sizes(const struct rail_limits *l,
			 const struct rail_reg_tried *t, char *out, size_t cap)
{
	char most[32], least[32], max[32];
	int n;

	limits_size(most, sizeof(most), t->most);
	limits_size(least, sizeof(least), t->least);
	n = t->most == t->least ?
		    snprintf(out, cap, "refused at %s", most) :
		    snprintf(out, cap, "refused from %s down to %s", most,
			     least);
	if (!l->max_size) {
		snprintf(out + n, cap - (size_t)n,
			 "; the provider does not "
			 "report the largest size of a registration");
		return;
	}
	limits_size(max, sizeof(max), l->max_size);
	snprintf(out + n, cap - (size_t)n,
		 "; the device allows %s per registration%s", max,
		 t->least <= l->max_size ?
			      ", so the size is not the cause" : "");
}

void rail_limits_text(const struct rail_limits *l,
		      const struct rail_reg_tried *t, int ret, char *out,
		      size_t cap)
{
	bool memory = ret == -FI_ENOMEM || ret == -FI_EAGAIN;
	bool size = ret == -FI_EINVAL || ret == -FI_E2BIG;
	int n = 0;

	*out = '\0';
	if (size && !t->done) {
		limits_sizes(l, t, out, cap);
		return;
	}
	if (memory || (ret == -FI_EPERM && l->memlock != UINT64_MAX))
		n = limits_memlock(l, out, cap);
	else if (ret == -FI_ENOKEY)
		n = snprintf(out, cap, "no key of %zu bytes is free",
			     l->key_size);
	else if (size)
		n = snprintf(out, cap, "%u of %u parts were registered", t->done,
			     t->pieces);
	else if (ret != -FI_ENOSPC)
		return;
	limits_registrations(l, n ? "; " : "", out + n, cap - (size_t)n);
}

void rail_limits_memory(int ret, char *out, size_t cap)
{
	struct rail_limits l;

	limits_pins(&l);
	*out = '\0';
	if (ret == -FI_ENOMEM || ret == -FI_EAGAIN ||
	    (ret == -FI_EPERM && l.memlock != UINT64_MAX))
		limits_memlock(&l, out, cap);
}
