/* SPDX-License-Identifier: BSD-2-Clause */
/* The libfabric provider: the results of fi_getinfo for different hints, and
 * variants of the calls that ft_fi_rdm and ft_fi_objects do not use. Runs with
 * moonrail and with one of its lower providers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fabtests/common/ft_clock.h"
#include "fabtests/common/ft_options.h"
#include "fabtests/common/ft_test.h"
#include "fabtests/functional/ft_fi_calls.h"

bool call_moonrail(const struct fi_rig *r)
{
	return !strcmp(r->provider, "moonrail");
}

bool call_done(struct fi_rig *r, struct fid_cq *cq, struct fi_rig_done *d)
{
	return fi_rig_next(r, cq, d) && !d->err;
}

bool call_sent(struct fi_rig *r)
{
	struct fi_rig_done d;

	return call_done(r, r->tx, &d);
}

/* --- a second endpoint, which sends to itself ----------------------------- */

bool call_open(struct fi_rig *r, enum fi_cq_format format, uint64_t flags,
	       struct call_ep *e)
{
	struct fi_cq_attr attr = {
		.format = format, .wait_obj = FI_WAIT_UNSPEC,
	};
	char name[512];
	size_t len = sizeof(name);

	return !fi_cq_open(r->domain, &attr, &e->cq[0], NULL) &&
	       !fi_cq_open(r->domain, &attr, &e->cq[1], NULL) &&
	       !fi_endpoint(r->domain, r->info, &e->ep, NULL) &&
	       !fi_ep_bind(e->ep, &r->av->fid, 0) &&
	       !fi_ep_bind(e->ep, &e->cq[0]->fid, FI_TRANSMIT | flags) &&
	       !fi_ep_bind(e->ep, &e->cq[1]->fid, FI_RECV | flags) &&
	       (!e->counts || !fi_ep_bind(e->ep, &e->counts->fid,
					  FI_SEND | FI_RECV)) &&
	       !fi_enable(e->ep) && !fi_getname(&e->ep->fid, name, &len) &&
	       fi_av_insert(r->av, name, 1, &e->self, 0, NULL) == 1;
}

bool call_close(struct fi_rig *r, struct call_ep *e)
{
	return !fi_close(&e->ep->fid) && !fi_close(&e->cq[0]->fid) &&
	       !fi_close(&e->cq[1]->fid) &&
	       !fi_av_remove(r->av, &e->self, 1, 0);
}

bool call_await(struct fid_cq *cq, void *entry, fi_addr_t *src)
{
	uint64_t end = ft_now_ns() + FI_RIG_WAIT_MS * UINT64_C(1000000);
	ssize_t n;

	do {
		n = src ? fi_cq_readfrom(cq, entry, 1, src) :
			  fi_cq_read(cq, entry, 1);
	} while (n == -FI_EAGAIN && ft_now_ns() < end);
	return n == 1;
}

bool call_domain(struct fi_rig *r, uint32_t format, const char *node,
		 const char *service, struct fi_rig *own)
{
	struct fi_info *h = call_hints(r->provider);
	struct fi_av_attr attr = { .type = FI_AV_MAP };

	*own = *r;
	h->caps |= FI_SOURCE | FI_DIRECTED_RECV;
	h->addr_format = format;
	return !call_info(h, node, service, FI_SOURCE, &own->info) &&
	       (!format || own->info->addr_format == format) &&
	       !fi_fabric(own->info->fabric_attr, &own->fabric, NULL) &&
	       !fi_domain(own->fabric, own->info, &own->domain, NULL) &&
	       !fi_av_open(own->domain, &attr, &own->av, NULL);
}

bool call_domain_close(struct fi_rig *own)
{
	bool good = !fi_close(&own->av->fid) && !fi_close(&own->domain->fid) &&
		    !fi_close(&own->fabric->fid);

	fi_freeinfo(own->info);
	return good;
}

static void call_all(struct fi_rig *r)
{
	static const fi_rig_fn part[] = {
		call_counter, call_counter_errors, call_formats, call_waits,
		call_error_entry, call_selective,
		call_selective_look, call_turns, call_signal, call_polled,
		call_pieces, call_too_long, call_rma_pieces, call_inject,
		call_more,
		call_directed, call_removed,
		call_cancel_multi, call_longs, call_room, call_socket_names, call_two_names,
		call_addresses, call_texts, call_many, call_sought, call_full, call_own_full,
		call_registrations, call_described, call_many_buffers,
		call_bound_queue, call_one_way, call_early_data, call_void_keys,
		call_closed, call_sender_gone, call_cut_unread, call_too_soon,
		call_other_host, call_own_rails, call_kinds,
	};
	size_t i;

	for (i = 0; i < sizeof(part) / sizeof(part[0]); i++) {
		fi_rig_meet(r);
		part[i](r);
	}
}

static void call_memory(struct fi_rig *r)
{
	call_registrations(r);
	fi_rig_meet(r);
	call_rma_pieces(r);
	fi_rig_meet(r);
	call_described(r);
}

static bool call_run(const char *provider, bool *missing)
{
	bool good = fi_rig_run(provider, FI_DIRECTED_RECV | FI_SOURCE, call_all,
			       missing);

	if (!*missing)
		call_hints_of(provider);
	return good;
}

/* Runs the memory cases with each combination of registration modes: virtual
 * addresses or offsets; keys chosen by the provider or by the program;
 * registered or unregistered local memory. */
static void call_models(void)
{
	static const int mode[] = {
		FI_MR_VIRT_ADDR, FI_MR_PROV_KEY,
		FI_MR_VIRT_ADDR | FI_MR_PROV_KEY | FI_MR_ALLOCATED |
			FI_MR_LOCAL,
	};
	bool missing, good = true;
	size_t i;

	for (i = 0; i < sizeof(mode) / sizeof(mode[0]); i++) {
		fi_rig_mr_mode = mode[i];
		good = fi_rig_run("moonrail", 0, call_memory, &missing) && good;
	}
	fi_rig_mr_mode = 0;
	ft_ok(good, "moonrail_works_with_all_registration_modes");
}

/* Runs the cases in which a process does not respond for longer than
 * MC_SLICE_TIMEOUT. */
static void call_silent_peers(void)
{
	char seconds[8];
	bool missing;

	snprintf(seconds, sizeof(seconds), "%d", CALL_SILENT_S);
	setenv("MC_SLICE_TIMEOUT", seconds, 1);
	ft_ok(fi_rig_run("moonrail", 0, call_stopped, &missing) && !missing,
	      "moonrail_cases_with_stopped_process_end_well");
	ft_ok(fi_rig_run("moonrail", FI_DIRECTED_RECV, call_late, &missing) &&
		      !missing,
	      "moonrail_cases_with_late_process_end_well");
	ft_ok(fi_rig_run("moonrail", 0, call_given_up, &missing) && !missing,
	      "moonrail_cases_with_failed_large_message_end_well");
	unsetenv("MC_SLICE_TIMEOUT");
}

static void call_moonrail_only(void)
{
	bool missing;

	ft_ok(fi_rig_run("moonrail", 0, call_gone, &missing) && !missing,
	      "moonrail_cases_with_ended_process_end_well");
	setenv("MOONRAIL_MAX_PEERS", "3", 1);
	ft_ok(fi_rig_run("moonrail", 0, call_visitors, &missing) && !missing,
	      "moonrail_cases_with_visiting_processes_end_well");
	unsetenv("MOONRAIL_MAX_PEERS");
	call_silent_peers();
	call_models();
	call_own_hints();
	call_unclosed();
}

/* With an argument, the test uses only the provider of that name. */
int main(int argc, char **argv)
{
	const char *only = ft_options_word(argc, argv, "PROVIDER",
					   "the only provider to test");

	if (!fi_rig_path_for_test())
		return ft_skip("built without the provider");
	if (!only)
		call_moonrail_only();
	return fi_rig_main(only, call_run, "calls");
}
