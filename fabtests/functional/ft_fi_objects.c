/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The libfabric provider: what is counted at the target, and its objects, with
 * moonrail's provider and with others that do the same.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fabtests/common/ft_clock.h"
#include "fabtests/common/ft_test.h"
#include "fabtests/functional/fi_rig.h"

#define WRITES		4
#define READS		3
#define WRITE_LEN	200000u

static bool obj_moonrail(const struct fi_rig *r)
{
	return !strcmp(r->provider, "moonrail");
}

static bool obj_sent(struct fi_rig *r, ssize_t ret)
{
	struct fi_rig_done d;

	return !fi_rig_again(r, ret) && fi_rig_next(r, r->tx, &d) && !d.err;
}

/* Counts to n and not beyond. */
static bool obj_counts(struct fi_rig *r, struct fid_cntr *c, uint64_t n)
{
	uint64_t end = ft_now_ns() + FI_RIG_WAIT_MS * UINT64_C(1000000);

	while (fi_cntr_read(c) < n && ft_now_ns() < end)
		fi_rig_idle(r);
	if (fi_cntr_read(c) == n)
		return true;
	ft_diag("%llu counted, not %llu", (unsigned long long)fi_cntr_read(c),
		(unsigned long long)n);
	return false;
}

static bool obj_write(struct fi_rig *r, size_t len, uint64_t at, uint64_t key)
{
	return obj_sent(r, fi_write(r->ep, r->buf, len, NULL, r->peer,
				    r->remote + at, key, NULL));
}

/* --- what is counted at the target --------------------------------------- */

static bool obj_has_atomics(struct fi_rig *r)
{
	size_t n = 0;

	return !fi_atomicvalid(r->ep, FI_UINT64, FI_SUM, &n) && n;
}

static bool obj_atomics(struct fi_rig *r)
{
	uint64_t one = 1, old;

	return obj_sent(r, fi_atomic(r->ep, &one, 1, NULL, r->peer, r->remote,
				     r->key, FI_UINT64, FI_SUM, NULL)) &&
	       obj_sent(r, fi_fetch_atomic(r->ep, &one, 1, NULL, &old, NULL,
					   r->peer, r->remote, r->key,
					   FI_UINT64, FI_SUM, NULL));
}

static void obj_events_client(struct fi_rig *r)
{
	uint8_t *back = r->buf + FI_RIG_BUF / 2;
	bool good = true;
	int i;

	for (i = 0; i < WRITES; i++) {
		fi_rig_fill(r->buf, WRITE_LEN, (uint32_t)i);
		good = obj_write(r, WRITE_LEN, 4096, r->key) && good;
		fi_rig_meet(r);
	}
	while (fi_rig_again(r, fi_inject_write(r->ep, r->buf, 8, r->peer,
					       r->remote, r->key)))
		;
	for (i = 0; i < READS; i++)
		good = obj_sent(r, fi_read(r->ep, back, 100 + (size_t)i, NULL,
					   r->peer, r->remote, r->key,
					   NULL)) && good;
	fi_rig_ok(r, good, "writes and reads that the target counts");
	if (obj_has_atomics(r))
		fi_rig_ok(r, obj_atomics(r), "atomics that it counts");
	fi_rig_meet(r);
}

static void obj_events_server(struct fi_rig *r)
{
	uint64_t more = obj_has_atomics(r), writes;
	bool good = true;
	uint32_t i;

	for (i = 0; i < WRITES; i++) {
		good = obj_counts(r, r->counter[1], i + 1) &&
		       fi_rig_same(r->mem + 4096, WRITE_LEN, i) && good;
		fi_rig_meet(r);
	}
	fi_rig_ok(r, good, "a write is counted when its bytes are there");
	fi_rig_meet(r);
	/* an atomic that fetches is a read, if not for sockets */
	writes = WRITES + 1 + (obj_moonrail(r) ? more : 2 * more);
	fi_rig_ok(r, obj_counts(r, r->counter[1], writes),
		  "all that was written, injected and atomic, is counted");
	fi_rig_ok(r, obj_counts(r, r->counter[0],
				READS + (obj_moonrail(r) ? more : 0)),
		  "and all that was read");
}

static void obj_events(struct fi_rig *r)
{
	if (r->server)
		obj_events_server(r);
	else
		obj_events_client(r);
}

/* Those of one registration; before and after its key was given away. */
static void obj_mr_server(struct fi_rig *r)
{
	struct fi_cntr_attr attr = { .events = FI_CNTR_EVENTS_COMP };
	struct fid_cntr *c[2];
	struct fid_mr *mr;
	int ret = 0, i;

	for (i = 0; i < 2 && !ret; i++)
		ret = fi_cntr_open(r->domain, &attr, &c[i], NULL);
	if (!ret)
		ret = fi_mr_reg(r->domain, r->mem, 4096,
				FI_REMOTE_WRITE | FI_REMOTE_READ, 0, 160, 0,
				&mr, NULL);
	if (!fi_rig_ok(r, !ret, "counters of a registration"))
		exit(FT_FAIL);
	fi_rig_meet(r);
	fi_rig_meet(r);
	fi_rig_ok(r, !fi_mr_bind(mr, &c[0]->fid, FI_REMOTE_READ) &&
			     !fi_mr_bind(mr, &c[1]->fid, FI_REMOTE_WRITE) &&
			     fi_mr_bind(mr, &c[1]->fid, FI_REMOTE_WRITE),
		  "are bound to it, once");
	fi_rig_ok(r, fi_close(&c[1]->fid) == -FI_EBUSY,
		  "and kept for it");
	fi_rig_meet(r);
	fi_rig_ok(r, obj_counts(r, c[1], 2) && obj_counts(r, c[0], 1),
		  "they count what is done to it from then on");
	fi_rig_meet(r);
	ret = fi_close(&mr->fid);
	for (i = 0; i < 2 && !ret; i++)
		ret = fi_close(&c[i]->fid);
	fi_rig_ok(r, !ret, "and close after it");
}

static void obj_mr_client(struct fi_rig *r)
{
	bool good;

	fi_rig_meet(r);
	good = obj_write(r, 64, 0, 160);
	fi_rig_meet(r);
	fi_rig_meet(r);
	good = obj_write(r, 64, 0, 160) && obj_write(r, 2000, 64, 160) &&
	       obj_write(r, 64, 0, r->key) && good;
	good = obj_sent(r, fi_read(r->ep, r->buf, 99, NULL, r->peer, r->remote,
				   160, NULL)) && good;
	fi_rig_ok(r, good, "writes and reads of two registrations");
	fi_rig_meet(r);
}

static void obj_mr(struct fi_rig *r)
{
	if (r->server)
		obj_mr_server(r);
	else
		obj_mr_client(r);
}

/* --- policies by size ---------------------------------------------------- */

static bool obj_takes(const char *variable, const char *config)
{
	struct fi_info *hints = fi_allocinfo(), *info = NULL;
	int ret;

	setenv(variable, config, 1);
	hints->fabric_attr->prov_name = strdup("moonrail");
	ret = fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info);
	fi_freeinfo(hints);
	if (!ret)
		fi_freeinfo(info);
	unsetenv(variable);
	return !ret;
}

static void obj_config(void)
{
	static const char *const good[] = {
		"", "0:fixed", "16384:fixed,ULONG_MAX:striping",
		"1:adaptive,2:round-robin,-1:striping",
	};
	static const char *const bad[] = {
		"fixed", "12", "12:", ":fixed", "12:fast", "12:fixed,",
		"12:fixed,12:striping", "13:fixed,12:striping", "-2:fixed",
		"12k:fixed", " 12:fixed", "-1:fixed,5:fixed", ",",
	};
	bool all = true;
	size_t i;

	for (i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		all = obj_takes("FI_MOONRAIL_CONFIG", good[i]) && all;
	ft_ok(all, "policies by size are taken");
	for (i = 0, all = true; i < sizeof(bad) / sizeof(bad[0]); i++)
		all = !obj_takes("FI_MOONRAIL_CONFIG", bad[i]) && all;
	ft_ok(all, "those that make no sense are not");
	ft_ok(!obj_takes("FI_OFI_MRAIL_CONFIG", "x"),
	      "a variable of another name is read too");
}

static bool obj_send(struct fi_rig *r, size_t len)
{
	fi_rig_fill(r->buf, len, (uint32_t)len);
	return obj_sent(r, fi_send(r->ep, r->buf, len, NULL, r->peer, NULL));
}

static bool obj_recv(struct fi_rig *r, size_t len)
{
	struct fi_rig_done d;

	while (fi_rig_again(r, fi_recv(r->ep, r->buf, len, NULL,
				       FI_ADDR_UNSPEC, NULL)))
		;
	return fi_rig_next(r, r->rx, &d) && !d.err && d.e.len == len &&
	       fi_rig_same(r->buf, len, (uint32_t)len);
}

/* Each of them is of another policy, and some are cut. */
static void obj_policies(struct fi_rig *r)
{
	static const size_t len[] = {
		10, 1000, 1001, 9000, 20000, 70001, 1000001, 3000003,
	};
	uint8_t *there = r->server ? r->mem : r->buf;
	bool good = true;
	size_t i;

	for (i = 0; i < sizeof(len) / sizeof(len[0]); i++) {
		good = (r->server ? obj_recv(r, len[i]) :
				    obj_send(r, len[i])) && good;
		if (!r->server)
			good = obj_write(r, len[i], 0, r->key) && good;
		fi_rig_meet(r);
		good = fi_rig_same(there, len[i], (uint32_t)len[i]) && good;
		fi_rig_meet(r);
	}
	fi_rig_ok(r, good, "messages and writes of all sizes by all policies");
}

static void obj_two_rails(void)
{
	bool missing;

	setenv("FI_MOONRAIL_ADDR", "127.0.0.1,127.0.0.2", 1);
	setenv("FI_MOONRAIL_CONFIG", "500:fixed,1000:striping,8000:adaptive,"
	       "80000:round-robin,1500000:striping", 1);
	ft_ok(fi_rig_run("moonrail", 0, obj_policies, &missing) && !missing,
	      "two rails with policies");
	unsetenv("FI_MOONRAIL_ADDR");
	unsetenv("FI_MOONRAIL_CONFIG");
}

/* ------------------------------------------------------------------------- */

static void obj_all(struct fi_rig *r)
{
	if (obj_moonrail(r)) {
		fi_rig_meet(r);
		obj_mr(r);
	}
}

/* The other one may not be there. */
static void obj_with(const char *other, uint64_t caps, fi_rig_fn fn,
		     const char *what)
{
	bool missing = true;

	ft_ok(fi_rig_run("moonrail", caps, fn, &missing) && !missing,
	      "moonrail: %s", what);
	if (!fi_rig_run(other, caps, fn, &missing) && !missing)
		ft_ok(false, "%s: %s", other, what);
}

int main(void)
{
	if (!fi_rig_path())
		return ft_skip("built without the provider");
	obj_config();
	obj_two_rails();
	obj_with("sockets", FI_RMA_EVENT, obj_events, "events at the target");
	obj_with("tcp", 0, obj_all, "objects");
	return ft_result();
}
