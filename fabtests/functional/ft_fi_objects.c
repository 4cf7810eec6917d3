/* SPDX-License-Identifier: BSD-2-Clause */
/* The libfabric provider: counters of remote operations at the target, poll
 * sets, address vectors, event queues and refused calls. Runs with moonrail and
 * with other providers that support the same. */
#include <netinet/in.h>
#include <poll.h>
#include <rdma/fi_collective.h>
#include <rdma/fi_trigger.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fabtests/common/ft_clock.h"
#include "fabtests/common/ft_options.h"
#include "fabtests/common/ft_port.h"
#include "fabtests/common/ft_test.h"
#include "fabtests/functional/fi_rig.h"

/* libfabric 2.0 has deprecated poll sets. */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

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

/* Waits until the counter is at least n, for at most FI_RIG_WAIT_MS. Returns
 * true if it is then exactly n. */
static bool obj_counts(struct fi_rig *r, struct fid_cntr *c, uint64_t n)
{
	uint64_t end = ft_now_ns() + FI_RIG_WAIT_MS * UINT64_C(1000000);

	while (fi_cntr_read(c) < n && ft_now_ns() < end)
		fi_rig_idle(r);
	if (fi_cntr_read(c) == n)
		return true;
	ft_diag("the counter is %llu, expected %llu",
		(unsigned long long)fi_cntr_read(c),
		(unsigned long long)n);
	return false;
}

static bool obj_write(struct fi_rig *r, size_t len, uint64_t at, uint64_t key)
{
	return obj_sent(r, fi_write(r->ep, r->buf, len, NULL, r->peer,
				    r->remote + at, key, NULL));
}

/* --- counters at the target ---------------------------------------------- */

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
	fi_rig_ok(r, good, "writes_and_reads_to_counting_target_complete");
	if (obj_has_atomics(r))
		fi_rig_ok(r, obj_atomics(r),
			  "atomics_to_counting_target_complete");
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
	fi_rig_ok(r, good, "target_counts_write_when_its_bytes_are_in_place");
	fi_rig_meet(r);
	/* moonrail counts a fetching atomic as a remote read, the sockets
	 * provider as a remote write. */
	writes = WRITES + 1 + (obj_moonrail(r) ? more : 2 * more);
	fi_rig_ok(r, obj_counts(r, r->counter[1], writes),
		  "target_counts_writes_injected_writes_and_atomics");
	fi_rig_ok(r, obj_counts(r, r->counter[0],
				READS + (obj_moonrail(r) ? more : 0)),
		  "target_counts_reads");
}

static void obj_events(struct fi_rig *r)
{
	if (r->server)
		obj_events_server(r);
	else
		obj_events_client(r);
}

/* Posts one atomic to the registration with key 170 and waits for it. kind is
 * 0: sum, 1: fetching sum, 2: swap, 3: compare-and-swap, 4: read. */
static bool obj_atomic_kind(struct fi_rig *r, int kind)
{
	uint64_t one = 1, compare = 2, old;

	switch (kind) {
	case 0:
		return obj_sent(r, fi_atomic(r->ep, &one, 1, NULL, r->peer, 0,
					     170, FI_UINT64, FI_SUM, NULL));
	case 1:
		return obj_sent(r, fi_fetch_atomic(r->ep, &one, 1, NULL, &old,
						   NULL, r->peer, 0, 170,
						   FI_UINT64, FI_SUM, NULL));
	case 2:
		return obj_sent(r, fi_fetch_atomic(r->ep, &one, 1, NULL, &old,
						   NULL, r->peer, 0, 170,
						   FI_UINT64, FI_ATOMIC_WRITE,
						   NULL));
	case 3:
		return obj_sent(r, fi_compare_atomic(r->ep, &one, 1, NULL,
						     &compare, NULL, &old, NULL,
						     r->peer, 0, 170, FI_UINT64,
						     FI_CSWAP, NULL));
	default:
		return obj_sent(r, fi_fetch_atomic(r->ep, NULL, 1, NULL, &old,
						   NULL, r->peer, 0, 170,
						   FI_UINT64, FI_ATOMIC_READ,
						   NULL));
	}
}

/* Registers memory with key 170 and binds n counters to it; of[k] are the flags
 * of counter k. After each kind of atomic, counter k must have the value
 * want[k][kind]. */
static bool obj_atomics_counted(struct fi_rig *r, struct fid_cntr **c,
				const uint64_t *of, const uint64_t (*want)[5],
				int n)
{
	struct fid_mr *mr;
	bool good = true;
	int ret, i, k;

	ret = fi_mr_reg(r->domain, r->mem, 4096,
			FI_REMOTE_WRITE | FI_REMOTE_READ, 0, 170, 0, &mr, NULL);
	for (k = 0; k < n && !ret; k++)
		ret = fi_mr_bind(mr, &c[k]->fid, of[k]);
	if (!fi_rig_ok(r, !ret,
		       "counters_are_bound_to_registration_for_atomics"))
		exit(FT_FAIL);
	fi_rig_meet(r);
	for (i = 0; i < 5; i++) {
		fi_rig_meet(r);
		for (k = 0; k < n; k++)
			good = obj_counts(r, c[k], want[k][i]) && good;
		fi_rig_meet(r);
	}
	good = !fi_close(&mr->fid) && good;
	fi_rig_meet(r);
	return good;
}

/* Tests counters of a registration: first one for reads and one for writes,
 * then one for both. */
static void obj_atomics_server(struct fi_rig *r)
{
	static const uint64_t of[3] = {
		FI_REMOTE_READ, FI_REMOTE_WRITE,
		FI_REMOTE_READ | FI_REMOTE_WRITE,
	};
	/* expected values of each counter after each kind of atomic */
	static const uint64_t want[3][5] = {
		{ 0, 1, 2, 3, 4 }, { 1, 2, 3, 4, 4 }, { 1, 2, 3, 4, 5 },
	};
	struct fi_cntr_attr attr = { .events = FI_CNTR_EVENTS_COMP };
	struct fid_cntr *c[3];
	bool good;
	int i;

	for (i = 0; i < 3; i++)
		if (fi_cntr_open(r->domain, &attr, &c[i], NULL))
			exit(FT_FAIL);
	good = obj_atomics_counted(r, c, of, want, 2);
	good = obj_atomics_counted(r, c + 2, of + 2, want + 2, 1) && good;
	for (i = 0; i < 3; i++)
		good = !fi_close(&c[i]->fid) && good;
	fi_rig_ok(r, good, "counters_of_registration_count_all_atomics");
}

static void obj_atomics_client(struct fi_rig *r)
{
	bool good = true;
	int i, run;

	for (run = 0; run < 2; run++) {
		fi_rig_meet(r);
		for (i = 0; i < 5; i++) {
			good = obj_atomic_kind(r, i) && good;
			fi_rig_meet(r);
			fi_rig_meet(r);
		}
		fi_rig_meet(r);
	}
	fi_rig_ok(r, good, "atomics_of_each_kind_complete");
}

/* Tests the counters of a registration. The peer writes once before the
 * counters are bound, and writes and reads afterwards. */
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
	if (!fi_rig_ok(r, !ret, "registration_with_counters_is_opened"))
		exit(FT_FAIL);
	fi_rig_meet(r);
	fi_rig_meet(r);
	fi_rig_ok(r, !fi_mr_bind(mr, &c[0]->fid, FI_REMOTE_READ) &&
			     !fi_mr_bind(mr, &c[1]->fid, FI_REMOTE_WRITE) &&
			     fi_mr_bind(mr, &c[1]->fid, FI_REMOTE_WRITE),
		  "counters_are_bound_to_registration_only_once");
	fi_rig_ok(r, fi_close(&c[1]->fid) == -FI_EBUSY,
		  "counter_of_registration_cannot_be_closed_before_it");
	fi_rig_meet(r);
	fi_rig_ok(r, obj_counts(r, c[1], 2) && obj_counts(r, c[0], 1),
		  "counters_of_registration_count_from_the_binding_on");
	fi_rig_meet(r);
	ret = fi_close(&mr->fid);
	for (i = 0; i < 2 && !ret; i++)
		ret = fi_close(&c[i]->fid);
	fi_rig_ok(r, !ret, "counters_close_after_their_registration");
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
	fi_rig_ok(r, good, "writes_and_reads_of_two_registrations_complete");
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
	ft_ok(all, "valid_policies_by_size_are_accepted");
	for (i = 0, all = true; i < sizeof(bad) / sizeof(bad[0]); i++)
		all = !obj_takes("FI_MOONRAIL_CONFIG", bad[i]) && all;
	ft_ok(all, "invalid_policies_by_size_are_refused");
	ft_ok(!obj_takes("FI_OFI_MRAIL_CONFIG", "x"),
	      "policies_are_also_read_from_FI_OFI_MRAIL_CONFIG");
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

/* Moves messages and writes of different lengths, so that each policy of
 * FI_MOONRAIL_CONFIG applies to some of them. Some are cut into slices. */
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
	fi_rig_ok(r, good, "messages_and_writes_by_all_policies_are_intact");
}

static void obj_two_rails(void)
{
	bool missing;

	setenv("FI_MOONRAIL_ADDR", "127.0.0.1,127.0.0.2", 1);
	setenv("FI_MOONRAIL_CONFIG", "500:fixed,1000:striping,8000:adaptive,"
	       "80000:round-robin,1500000:striping", 1);
	ft_ok(fi_rig_run("moonrail", 0, obj_policies, &missing) && !missing,
	      "two_rails_with_policies_pass");
	unsetenv("FI_MOONRAIL_ADDR");
	unsetenv("FI_MOONRAIL_CONFIG");
}

/* --- poll sets ----------------------------------------------------------- */

static int obj_await_poll(struct fi_rig *r, struct fid_poll *set)
{
	uint64_t end = ft_now_ns() + FI_RIG_WAIT_MS * UINT64_C(1000000);
	void *context;
	int n;

	do {
		n = fi_poll(set, &context, 1);
		if (!n)
			usleep(100);
	} while (!n && ft_now_ns() < end);
	return fi_rig_ok(r, n == 1, "poll_set_reports_the_queue") ? n : 0;
}

static void obj_poll(struct fi_rig *r)
{
	struct fi_poll_attr attr = { .flags = 0 };
	struct fi_rig_done d;
	struct fid_poll *set;
	void *context;

	if (!fi_rig_ok(r, !fi_poll_open(r->domain, &attr, &set) &&
				  !fi_poll_add(set, &r->rx->fid, 0) &&
				  !fi_poll(set, &context, 1),
		       "poll_set_of_empty_queue_reports_nothing"))
		return;
	while (fi_rig_again(r, fi_recv(r->ep, r->buf, 64, NULL, FI_ADDR_UNSPEC,
				       NULL)))
		;
	while (fi_rig_again(r, fi_send(r->ep, r->buf + 64, 8, NULL, r->self,
				       NULL)))
		;
	obj_await_poll(r, set);
	fi_rig_ok(r, fi_rig_next(r, r->rx, &d) && !d.err &&
			     fi_rig_next(r, r->tx, &d) && !d.err &&
			     !fi_poll(set, &context, 1) &&
			     !fi_poll_del(set, &r->rx->fid, 0) &&
			     !fi_close(&set->fid),
			     "poll_set_of_queue_read_empty_reports_nothing");
}

static void obj_poll_counter(struct fi_rig *r)
{
	struct fi_poll_attr attr = { .flags = 0 };
	struct fi_cntr_attr how = { .events = FI_CNTR_EVENTS_COMP };
	struct fid_poll *set;
	struct fid_cntr *c;
	void *got = NULL;
	bool good;

	good = !fi_cntr_open(r->domain, &how, &c, r) &&
	       !fi_poll_open(r->domain, &attr, &set) &&
	       !fi_poll_add(set, &c->fid, 0) && !fi_poll(set, &got, 1) &&
	       !fi_cntr_add(c, 3) && fi_poll(set, &got, 1) == 1 && got == r &&
	       !fi_poll(set, &got, 1) && fi_close(&c->fid) == -FI_EBUSY &&
	       fi_poll_del(set, &r->rx->fid, 0) == -FI_EINVAL &&
	       fi_poll_add(set, &r->av->fid, 0) == -FI_EINVAL &&
	       !fi_close(&set->fid) && !fi_close(&c->fid);
	fi_rig_ok(r, good, "poll_set_of_counter_reports_each_change_once");
}

/* --- address vectors ----------------------------------------------------- */

static bool obj_is_at(struct fid_av *av, fi_addr_t addr, uint32_t ip,
		      uint16_t port)
{
	struct sockaddr_in in;
	size_t len = sizeof(in);

	return !fi_av_lookup(av, addr, &in, &len) && len == sizeof(in) &&
	       ntohl(in.sin_addr.s_addr) == ip && ntohs(in.sin_port) == port;
}

static void obj_names(struct fi_rig *r)
{
	struct fi_av_attr attr = { .type = FI_AV_TABLE };
	fi_addr_t a[6], one;
	struct fid_av *av;
	bool good;

	if (!fi_rig_ok(r, !fi_av_open(r->domain, &attr, &av, NULL),
		       "second_address_vector_is_opened"))
		return;
	good = fi_av_insertsvc(av, "127.0.0.9", "4003", &one, 0, NULL) == 1 &&
	       obj_is_at(av, one, 0x7f000009, 4003);
	fi_rig_ok(r, good, "address_is_inserted_by_node_and_service");
	good = fi_av_insertsym(av, "127.0.0.254", 2, "5009", 3, a, 0, NULL) ==
		       6 && obj_is_at(av, a[0], 0x7f0000fe, 5009) &&
	       obj_is_at(av, a[2], 0x7f0000fe, 5011) &&
	       obj_is_at(av, a[4], 0x7f0000ff, 5010);
	fi_rig_ok(r, good, "row_of_addresses_is_inserted_by_insertsym");
	good = !fi_av_remove(av, &a[4], 1, 0) && !fi_close(&av->fid);
	fi_rig_ok(r, good, "address_vector_closes_after_a_removal");
}

static bool obj_event(struct fid_eq *eq, uint64_t count, void *context)
{
	struct fi_eq_entry e;
	uint32_t event = 0;

	return fi_eq_sread(eq, &event, &e, sizeof(e), 5000, 0) == sizeof(e) &&
	       event == FI_AV_COMPLETE && e.data == count &&
	       e.context == context;
}

/* Inserts two addresses, of which the second is invalid, into an address vector
 * that reports to an event queue. Checks both events. */
static void obj_av_events(struct fi_rig *r)
{
	struct fi_av_attr attr = { .type = FI_AV_MAP, .flags = FI_EVENT };
	struct fi_eq_attr eattr = { .wait_obj = FI_WAIT_UNSPEC };
	char more[8];
	struct fi_eq_err_entry err = {
		.err_data = more, .err_data_size = sizeof(more),
	};
	struct fi_eq_entry e;
	struct sockaddr_in in[2];
	struct fid_eq *eq;
	struct fid_av *av = NULL;
	fi_addr_t a[2];
	uint32_t event;
	bool good;

	memset(in, 0, sizeof(in));
	in[0].sin_family = AF_INET;
	in[0].sin_addr.s_addr = htonl(0x7f000009);
	in[0].sin_port = htons(4000);
	good = !fi_eq_open(r->fabric, &eattr, &eq, NULL) &&
	       !fi_av_open(r->domain, &attr, &av, NULL);
	fi_rig_ok(r, good && fi_av_insert(av, in, 1, a, 0, NULL) == -FI_ENOEQ,
		  "address_vector_with_events_needs_an_event_queue");
	good = !fi_av_bind(av, &eq->fid, 0) &&
	       !fi_av_insert(av, in, 2, a, 0, r) &&
	       fi_eq_read(eq, &event, &e, sizeof(e), 0) == -FI_EAVAIL &&
	       fi_eq_readerr(eq, &err, 0) == sizeof(err) && err.data == 1 &&
	       err.err && err.context == r && err.err_data == more &&
	       !err.err_data_size && obj_event(eq, 1, r) &&
	       a[0] != FI_ADDR_NOTAVAIL && a[1] == FI_ADDR_NOTAVAIL;
	fi_rig_ok(r, good, "address_vector_reports_failed_insertions_first");
	fi_rig_ok(r, fi_close(&eq->fid) == -FI_EBUSY && !fi_close(&av->fid) &&
			     !fi_close(&eq->fid),
		  "event_queue_closes_only_after_its_address_vector");
}

/* --- file descriptors ---------------------------------------------------- */

static bool obj_readable(int fd, int ms)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, ms) == 1;
}

/* Calls fi_trywait until it allows the caller to sleep. Returns true if the
 * file descriptor is not readable then. */
static bool obj_calm(struct fi_rig *r, struct fid *fid, int fd)
{
	uint64_t end = ft_now_ns() + FI_RIG_WAIT_MS * UINT64_C(1000000);

	while (fi_trywait(r->fabric, &fid, 1))
		if (ft_now_ns() > end)
			return false;
	return !obj_readable(fd, 0);
}

static void obj_eq_descriptor(struct fi_rig *r)
{
	struct fi_eq_attr attr = { .wait_obj = FI_WAIT_FD, .size = 8,
				   .flags = FI_WRITE };
	struct fi_eq_entry in = { .context = r }, e;
	struct fid *fid;
	struct fid_eq *eq;
	uint32_t event = 0;
	int fd = -1;
	bool good;

	good = !fi_eq_open(r->fabric, &attr, &eq, NULL);
	if (!fi_rig_ok(r, good && !fi_control(&eq->fid, FI_GETWAIT, &fd) &&
			       fd >= 0,
			       "event_queue_with_descriptor_is_opened"))
		return;
	fid = &eq->fid;
	fi_rig_ok(r, obj_calm(r, fid, fd),
		  "descriptor_of_empty_event_queue_is_not_readable");
	good = fi_eq_write(eq, FI_AV_COMPLETE, &in, sizeof(in), 0) ==
		       sizeof(in) && obj_readable(fd, FI_RIG_WAIT_MS) &&
	       fi_trywait(r->fabric, &fid, 1) == -FI_EAGAIN;
	fi_rig_ok(r, good, "descriptor_of_event_queue_with_event_is_readable");
	good = fi_eq_read(eq, &event, &e, sizeof(e), 0) == sizeof(e) &&
	       e.context == r && obj_calm(r, fid, fd);
	fi_rig_ok(r, good,
		  "descriptor_of_event_queue_read_empty_is_not_readable");
	fi_rig_ok(r, !fi_close(fid), "event_queue_with_descriptor_closes");
}

static bool obj_to_self(struct fi_rig *r)
{
	struct fi_rig_done d;

	while (fi_rig_again(r, fi_trecv(r->ep, r->mem, 8, NULL, FI_ADDR_UNSPEC,
					77, 0, NULL)))
		;
	while (fi_rig_again(r, fi_tsend(r->ep, r->buf, 8, NULL, r->self, 77,
					NULL)))
		;
	return fi_rig_next(r, r->tx, &d) && !d.err;
}

/* Tests the file descriptor of a completion queue: not readable after several
 * completions were read without a sleep, and readable when there is a
 * completion. */
static void obj_cq_descriptor(struct fi_rig *r)
{
	struct fi_rig_done d;
	bool good = true;
	int fd = -1, i;

	good = !fi_control(&r->rx->fid, FI_GETWAIT, &fd);
	for (i = 0; i < 3 && good; i++)
		good = obj_to_self(r) && fi_rig_next(r, r->rx, &d) && !d.err;
	fi_rig_ok(r, good && obj_calm(r, &r->rx->fid, fd),
		  "descriptor_of_queue_read_empty_is_not_readable");
	good = obj_to_self(r) && obj_readable(fd, FI_RIG_WAIT_MS) &&
	       fi_rig_next(r, r->rx, &d) && !d.err &&
	       obj_calm(r, &r->rx->fid, fd);
	fi_rig_ok(r, good, "descriptor_of_queue_with_completion_is_readable");
}

/* --- attributes of objects, and refused calls ---------------------------- */

static void obj_raw_key(struct fi_rig *r)
{
	uint64_t base = 1, key = 0;
	uint8_t raw[16];
	size_t len = 4;

	fi_rig_ok(r, fi_mr_raw_attr(r->mr, &base, raw, &len, 0) ==
				     -FI_ETOOSMALL && len == 8 &&
			     !fi_mr_raw_attr(r->mr, &base, raw, &len, 0) &&
			     !fi_mr_map_raw(r->domain, base, raw, len, &key,
					    0) && key == fi_mr_key(r->mr) &&
			     !fi_mr_unmap_key(r->domain, key),
		  "raw_key_is_exported_and_mapped");
}

static void obj_options(struct fi_rig *r)
{
	size_t min = 333, len = sizeof(min);
	bool good;

	good = !fi_setopt(&r->ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV,
			  &min, sizeof(min));
	min = 0;
	good = !fi_getopt(&r->ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV,
			  &min, &len) && min == 333 && good;
	fi_rig_ok(r, good, "endpoint_option_is_set_and_read");
}

static void obj_flags(struct fi_rig *r)
{
	uint64_t flags = FI_TRANSMIT | FI_TRANSMIT_COMPLETE;
	bool good;

	good = !fi_control(&r->ep->fid, FI_SETOPSFLAG, &flags);
	flags = FI_TRANSMIT;
	good = !fi_control(&r->ep->fid, FI_GETOPSFLAG, &flags) &&
	       flags & FI_TRANSMIT_COMPLETE && good;
	flags = FI_TRANSMIT;
	good = !fi_control(&r->ep->fid, FI_SETOPSFLAG, &flags) && good;
	fi_rig_ok(r, good, "operation_flags_are_set_and_read");
}

/* Returns true if FI_COMMIT_COMPLETE is refused; the provider has no persistent
 * memory. */
static bool obj_no_commits(struct fi_rig *r)
{
	struct iovec iov = { .iov_base = r->buf, .iov_len = 8 };
	struct fi_rma_iov at = { .len = 8, .key = r->key };
	struct fi_msg_rma rma = {
		.msg_iov = &iov, .iov_count = 1, .addr = r->peer,
		.rma_iov = &at, .rma_iov_count = 1,
	};

	return fi_writemsg(r->ep, &rma, FI_COMMIT_COMPLETE) == -FI_ENOSYS;
}

/* Returns true if collectives are refused. The provider must have functions for
 * them, because libfabric calls these without a check. */
static bool obj_no_collectives(struct fi_rig *r)
{
	return fi_barrier(r->ep, r->peer, NULL) == -FI_ENOSYS &&
	       fi_broadcast(r->ep, r->buf, 1, NULL, r->peer, r->peer, FI_UINT8,
			    0, NULL) == -FI_ENOSYS &&
	       fi_allreduce(r->ep, r->buf, 1, NULL, r->mem, NULL, r->peer,
			    FI_UINT8, FI_SUM, 0, NULL) == -FI_ENOSYS &&
	       fi_reduce(r->ep, r->buf, 1, NULL, r->mem, NULL, r->peer,
			 r->peer, FI_UINT8, FI_SUM, 0, NULL) == -FI_ENOSYS &&
	       fi_gather(r->ep, r->buf, 1, NULL, r->mem, NULL, r->peer,
			 r->peer, FI_UINT8, 0, NULL) == -FI_ENOSYS;
}

static bool obj_no_triggers(struct fi_rig *r)
{
	struct fi_triggered_context2 c = { .event_type = 0 };
	struct iovec iov = { .iov_base = r->buf, .iov_len = 8 };
	struct fi_ioc ioc = { .addr = r->buf, .count = 1 };
	struct fi_rma_iov at = { .len = 8, .key = r->key };
	struct fi_rma_ioc to = { .count = 1, .key = r->key };
	struct fi_msg m = {
		.msg_iov = &iov, .iov_count = 1, .addr = r->peer, .context = &c,
	};
	struct fi_msg_rma rma = {
		.msg_iov = &iov, .iov_count = 1, .addr = r->peer,
		.rma_iov = &at, .rma_iov_count = 1, .context = &c,
	};
	struct fi_msg_atomic atomic = {
		.msg_iov = &ioc, .iov_count = 1, .addr = r->peer,
		.rma_iov = &to, .rma_iov_count = 1, .datatype = FI_UINT64,
		.op = FI_SUM, .context = &c,
	};

	return fi_sendmsg(r->ep, &m, FI_TRIGGER) == -FI_ENOSYS &&
	       fi_recvmsg(r->ep, &m, FI_TRIGGER) == -FI_ENOSYS &&
	       fi_writemsg(r->ep, &rma, FI_TRIGGER) == -FI_ENOSYS &&
	       fi_atomicmsg(r->ep, &atomic, FI_TRIGGER) == -FI_ENOSYS;
}

static void obj_refused(struct fi_rig *r)
{
	struct fi_atomic_attr atomic;
	struct fi_wait_attr wait = { .wait_obj = FI_WAIT_UNSPEC };
	struct fid_wait *w;
	struct fid_ep *ep;
	struct fid_stx *stx;
	size_t n;

	fi_rig_ok(r, fi_scalable_ep(r->domain, r->info, &ep, NULL) ==
				     -FI_ENOSYS &&
			     fi_stx_context(r->domain, NULL, &stx, NULL) ==
				     -FI_ENOSYS &&
			     fi_srx_context(r->domain, NULL, &ep, NULL) ==
				     -FI_ENOSYS &&
			     fi_wait_open(r->fabric, &wait, &w) == -FI_ENOSYS,
		  "unsupported_objects_are_refused");
	fi_rig_ok(r, fi_query_atomic(r->domain, FI_INT128, FI_SUM, &atomic,
				     0) == -FI_EOPNOTSUPP &&
			     fi_atomicvalid(r->ep, FI_UINT128, FI_SUM, &n) ==
				     -FI_EOPNOTSUPP,
		  "atomics_of_128_bits_are_refused");
	fi_rig_ok(r, obj_no_collectives(r), "collectives_are_refused");
	fi_rig_ok(r, obj_no_triggers(r), "triggered_operations_are_refused");
	fi_rig_ok(r, obj_no_commits(r), "commit_complete_is_refused");
}

/* --- counters alone ------------------------------------------------------- */

#define COUNTED		10

static bool obj_all_counted(struct fi_rig *r, struct fid_cntr *c)
{
	uint64_t end = ft_now_ns() + FI_RIG_WAIT_MS * UINT64_C(1000000);

	while (fi_cntr_read(c) < COUNTED && ft_now_ns() < end)
		fi_rig_idle(r);
	return fi_cntr_read(c) == COUNTED && !fi_cntr_readerr(c);
}

/* Tests an endpoint that has counters and no completion queues. The tcp
 * provider does not support this. */
static void obj_counters(struct fi_rig *r)
{
	static const uint64_t of[3] = { FI_SEND, FI_RECV, FI_READ | FI_WRITE };
	struct fi_cntr_attr attr = { .events = FI_CNTR_EVENTS_COMP };
	struct fid_cntr *c[3];
	char name[512];
	size_t len = sizeof(name);
	struct fid_ep *ep;
	fi_addr_t self;
	bool good;
	int i;

	good = !fi_endpoint(r->domain, r->info, &ep, NULL) &&
	       !fi_ep_bind(ep, &r->av->fid, 0);
	for (i = 0; i < 3 && good; i++)
		good = !fi_cntr_open(r->domain, &attr, &c[i], NULL) &&
		       !fi_ep_bind(ep, &c[i]->fid, of[i]);
	good = good && !fi_enable(ep) && !fi_getname(&ep->fid, name, &len) &&
	       fi_av_insert(r->av, name, 1, &self, 0, NULL) == 1;
	if (!fi_rig_ok(r, good, "endpoint_with_counters_only_is_opened"))
		return;
	for (i = 0; i < COUNTED; i++) {
		while (fi_rig_again(r, fi_recv(ep, r->buf + 64 * i, 64, NULL,
					       FI_ADDR_UNSPEC, NULL)))
			;
		while (fi_rig_again(r, fi_send(ep, r->buf, 32, NULL, self,
					       NULL)))
			;
		while (fi_rig_again(r, i % 2 ?
				fi_read(ep, r->buf + 4096, 100, NULL, r->peer,
					r->remote, r->key, NULL) :
				fi_write(ep, r->buf + 4096, 100, NULL, r->peer,
					 r->remote, r->key, NULL)))
			;
	}
	fi_rig_ok(r, obj_all_counted(r, c[0]) && obj_all_counted(r, c[1]) &&
			     obj_all_counted(r, c[2]),
			     "endpoint_with_counters_only_counts_operations");
	good = !fi_close(&ep->fid) && !fi_av_remove(r->av, &self, 1, 0);
	for (i = 0; i < 3; i++)
		good = !fi_close(&c[i]->fid) && good;
	fi_rig_ok(r, good, "endpoint_with_counters_only_closes");
	fi_rig_meet(r);
}

/* ------------------------------------------------------------------------- */

static void obj_all(struct fi_rig *r)
{
	obj_poll(r);
	obj_names(r);
	obj_options(r);
	obj_eq_descriptor(r);
	obj_cq_descriptor(r);
	if (!obj_moonrail(r))
		return;
	obj_poll_counter(r);
	obj_counters(r);
	obj_av_events(r);
	obj_flags(r);
	obj_raw_key(r);
	obj_refused(r);
	fi_rig_meet(r);
	obj_mr(r);
	if (r->server)
		obj_atomics_server(r);
	else
		obj_atomics_client(r);
}

/* --- a process that does not exist --------------------------------------- */

/* Inserts an address of this host at which no process listens. */
static bool obj_nobodys(struct fi_rig *r, fi_addr_t *out)
{
	struct sockaddr_in in = { .sin_family = AF_INET };
	int port = ft_port("127.0.0.1");

	in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	in.sin_port = htons((uint16_t)port);
	return port > 0 && fi_av_insert(r->av, &in, 1, out, 0, NULL) == 1;
}

/* Checks that operations to a process that does not exist wait in the queue.
 * Not more than tx_attr->size of each kind may be accepted, and all of them
 * must fail in the end. */
static void obj_nobody(struct fi_rig *r)
{
	size_t most = r->info->tx_attr->size, n[2] = { 0, 0 }, i, bad = 0;
	struct fi_rig_done d;
	fi_addr_t nobody;
	bool good;

	if (r->server)
		return;
	good = obj_nobodys(r, &nobody);
	while (good && n[0] <= most &&
	       !fi_write(r->ep, r->buf, 64, NULL, nobody, 0, 5, NULL))
		n[0]++;
	good = good && n[0] && n[0] <= most;
	/* An injected message counts, too, although it completes as soon as it
	 * has been copied. */
	while (good && n[1] <= most && !fi_inject(r->ep, r->buf, 64, nobody))
		n[1]++;
	fi_rig_ok(r, good && n[1] <= most,
		  "operations_to_absent_process_are_held_up_to_queue_size");
	for (i = 0; i < n[0] && fi_rig_next(r, r->tx, &d); i++)
		bad += d.err != 0;
	fi_rig_ok(r, good && bad == n[0],
		  "operations_to_absent_process_fail");
}

static void obj_alone(struct fi_rig *r)
{
	fi_rig_ok(r, r->server ? obj_recv(r, 70000) : obj_send(r, 70000),
		  "message_with_moonrail_alone_in_FI_PROVIDER_arrives");
}

/* Checks that moonrail works if FI_PROVIDER lists only moonrail and not the
 * provider that its rails use. */
static void obj_named(void)
{
	bool missing, good;

	setenv("FI_PROVIDER", "moonrail", 1);
	good = fi_rig_run("moonrail", 0, obj_alone, &missing);
	unsetenv("FI_PROVIDER");
	ft_ok(good && !missing, "moonrail_alone_in_FI_PROVIDER_passes");
}

static void obj_waited_for(void)
{
	bool missing, good;

	/* Long enough that no operation ends before the queue is full. */
	setenv("MC_SLICE_TIMEOUT", "4", 1);
	good = fi_rig_run("moonrail", 0, obj_nobody, &missing);
	unsetenv("MC_SLICE_TIMEOUT");
	ft_ok(good && !missing, "moonrail_cases_with_absent_process_pass");
}

/* Runs the cases with moonrail and, if it exists, with another provider. */
static void obj_with(const char *other, uint64_t caps, fi_rig_fn fn,
		     const char *what)
{
	bool missing = true;

	ft_ok(fi_rig_run("moonrail", caps, fn, &missing) && !missing,
	      "moonrail_passes_%s", what);
	if (!fi_rig_run(other, caps, fn, &missing) && !missing)
		ft_ok(false, "%s_passes_%s", other, what);
}

static bool obj_run(const char *provider, bool *missing)
{
	return fi_rig_run(provider, 0, obj_all, missing);
}

/* With an argument, the test uses only the provider of that name. */
int main(int argc, char **argv)
{
	const char *only = ft_options_word(argc, argv, "PROVIDER",
					   "the only provider to test");

	if (!fi_rig_path_for_test())
		return ft_skip("built without the provider");
	if (only)
		return fi_rig_main(only, obj_run, "objects");
	/* before the first call of fi_getinfo, because libfabric reads
	 * FI_PROVIDER there */
	obj_named();
	obj_config();
	obj_waited_for();
	obj_two_rails();
	obj_with("sockets", FI_RMA_EVENT, obj_events,
		 "cases_of_events_at_the_target");
	obj_with("tcp", 0, obj_all, "cases_of_objects");
	return ft_result();
}
