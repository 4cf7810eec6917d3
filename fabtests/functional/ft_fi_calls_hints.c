/* SPDX-License-Identifier: BSD-2-Clause */
/* The results of fi_getinfo for different hints. */
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "fabtests/common/ft_test.h"
#include "fabtests/functional/ft_fi_calls.h"

/* The endpoint protocol number that fi_moonrail(7) states, and the number of
 * version 0.1.0, which is negative as an int. */
#define CALL_PROTOCOL		0x6d6f6f6e
#define CALL_PROTOCOL_010	0xed6f6f6eu

struct fi_info *call_hints(const char *provider)
{
	struct fi_info *h = fi_allocinfo();

	h->fabric_attr->prov_name = strdup(provider);
	h->ep_attr->type = FI_EP_RDM;
	h->caps = FI_MSG | FI_TAGGED;
	return h;
}

int call_info(struct fi_info *h, const char *node, const char *service,
	      uint64_t flags, struct fi_info **info)
{
	int ret = fi_getinfo(FI_VERSION(1, 17), node, service, flags, h, info);

	fi_freeinfo(h);
	return ret;
}

static bool call_refuses(struct fi_info *h)
{
	struct fi_info *info;
	int ret = call_info(h, NULL, NULL, 0, &info);

	if (!ret)
		fi_freeinfo(info);
	return ret == -FI_ENODATA;
}

static bool call_port_is(const void *addr, uint16_t port)
{
	const struct sockaddr_in *in = addr;

	return in && in->sin_family == AF_INET &&
	       ntohl(in->sin_addr.s_addr) == 0x7f000001 &&
	       ntohs(in->sin_port) == port;
}

static bool call_node(const char *provider, uint64_t flags)
{
	struct fi_info *h = call_hints(provider), *info;
	bool good;

	h->addr_format = FI_SOCKADDR_IN;
	if (call_info(h, "127.0.0.1", "4711", flags, &info))
		return false;
	good = info->addr_format == FI_SOCKADDR_IN &&
	       call_port_is(flags ? info->src_addr : info->dest_addr, 4711);
	fi_freeinfo(info);
	return good;
}

/* Returns true if fi_getinfo refuses hints that no provider can meet. */
static bool call_unmet(const char *provider)
{
	struct fi_info *h = call_hints(provider);
	bool good;

	h->ep_attr->type = FI_EP_DGRAM;
	good = call_refuses(h);
	h = call_hints(provider);
	h->tx_attr->iov_limit = 4096;
	return call_refuses(h) && good;
}

void call_hints_of(const char *provider)
{
	struct fi_info *info = NULL;
	bool good;

	good = !call_info(call_hints(provider), NULL, NULL, 0, &info);
	if (!ft_ok(good, "%s_is_found", provider))
		return;
	good = info->caps & FI_TAGGED && info->caps & FI_RECV &&
	       !(info->caps & (FI_RMA | FI_ATOMIC | FI_RMA_EVENT)) &&
	       info->ep_attr->type == FI_EP_RDM && info->tx_attr->iov_limit &&
	       info->tx_attr->size && info->rx_attr->size;
	ft_ok(good, "%s_grants_only_requested_capabilities", provider);
	ft_ok(strstr(fi_tostr(info, FI_TYPE_INFO), "FI_EP_RDM") &&
		      strstr(fi_tostr(&info->caps, FI_TYPE_CAPS), "FI_TAGGED"),
	      "%s_info_can_be_printed", provider);
	fi_freeinfo(info);
	ft_ok(call_unmet(provider),
	      "%s_refuses_hints_that_cannot_be_met", provider);
	ft_ok(call_node(provider, 0) && call_node(provider, FI_SOURCE),
	      "%s_uses_node_and_service_of_peer_and_source", provider);
}

/* Returns true if fi_getinfo of this API version answers hints with the
 * registration mode `mode` with the mode `is`. Versions before 1.5 have only
 * two modes. */
static bool call_old(uint32_t version, int mode, int is)
{
	struct fi_info *h = call_hints("moonrail"), *info;
	bool good;

	h->domain_attr->mr_mode = mode;
	if (fi_getinfo(version, NULL, NULL, 0, h, &info)) {
		fi_freeinfo(h);
		return false;
	}
	good = info->domain_attr->mr_mode == is &&
	       info->fabric_attr->api_version == version;
	fi_freeinfo(info);
	fi_freeinfo(h);
	return good;
}

/* Returns true if fi_getinfo with FI_PROV_ATTR_ONLY returns the attributes of
 * moonrail without addresses. In some cases libfabric itself answers, and lists
 * all providers. */
static bool call_listed(uint64_t flags)
{
	struct fi_info *info = NULL, *i;

	if (call_info(call_hints("moonrail"), NULL, NULL,
		      FI_PROV_ATTR_ONLY | flags, &info))
		return false;
	for (i = info; i; i = i->next)
		if (i->fabric_attr->prov_name &&
		    !strcmp(i->fabric_attr->prov_name, "moonrail"))
			break;
	if (i && (i->src_addr || i->dest_addr || !i->fabric_attr->prov_version))
		i = NULL;
	fi_freeinfo(info);
	return i;
}

/* Returns true if fi_getinfo refuses hints with values that exceed the limits
 * which it returns for hints without such values. */
static bool call_beyond(void)
{
	struct fi_info *h = call_hints("moonrail");
	bool good;

	h->ep_attr->max_msg_size = SIZE_MAX;
	good = call_refuses(h);
	h = call_hints("moonrail");
	h->ep_attr->max_order_waw_size = 8;
	good = call_refuses(h) && good;
	h = call_hints("moonrail");
	h->rx_attr->total_buffered_recv = 1;
	good = call_refuses(h) && good;
	h = call_hints("moonrail");
	h->domain_attr->max_err_data = 8;
	good = call_refuses(h) && good;
	h = call_hints("moonrail");
	h->ep_attr->protocol = FI_PROTO_RXM;
	return call_refuses(h) && good;
}

#define CALL_ORDER_ATOMIC	(FI_ORDER_ATOMIC_RAR | FI_ORDER_ATOMIC_RAW | \
				 FI_ORDER_ATOMIC_WAR | FI_ORDER_ATOMIC_WAW)

/* Returns true if fi_getinfo grants the message order `order`, plus the orders
 * that moonrail always has, and no others. The sizes for ordered reads after
 * writes and writes after writes must be at least `raw` and `waw`. */
static bool call_order(uint64_t order, size_t raw, size_t waw)
{
	const uint64_t want = order | FI_ORDER_SAS | CALL_ORDER_ATOMIC;
	struct fi_info *h = call_hints("moonrail"), *info;
	bool good;

	h->caps |= FI_RMA | FI_ATOMIC;
	h->tx_attr->msg_order = h->rx_attr->msg_order = order;
	if (call_info(h, NULL, NULL, 0, &info))
		return false;
	good = info->tx_attr->msg_order == want &&
	       info->rx_attr->msg_order == want &&
	       info->ep_attr->max_order_raw_size >= raw &&
	       info->ep_attr->max_order_waw_size >= waw;
	fi_freeinfo(info);
	return good;
}

static void call_orders(void)
{
	static const uint64_t asked[] = {
		FI_ORDER_SAW, FI_ORDER_WAS, FI_ORDER_RAR, FI_ORDER_RAS,
		FI_ORDER_RMA_RAR,
	};
	bool good = call_order(0, 0, 0);
	size_t i;

	for (i = 0; i < sizeof(asked) / sizeof(asked[0]); i++)
		good = call_order(asked[i], 0, 0) && good;
	ft_ok(good && call_order(FI_ORDER_RAW, 1u << 30, 0) &&
		      call_order(FI_ORDER_RMA_RAW, 1u << 30, 0) &&
		      call_order(FI_ORDER_WAW, 0, 1u << 30) &&
		      call_order(FI_ORDER_RMA_WAW, 0, 1u << 30) &&
		      call_order(FI_ORDER_ATOMIC_WAW | FI_ORDER_ATOMIC_RAW,
				 8064, 8064),
	      "message_orders_are_offered_to_hints_that_request_them");
}

/* Returns true if fi_getinfo refuses hints in which the domain attribute with
 * the number `which` has an invalid value. */
static bool call_no_way(int which)
{
	struct fi_info *h = call_hints("moonrail");

	switch (which) {
	case 0:
		h->domain_attr->threading = 99;
		break;
	case 1:
		h->domain_attr->control_progress = 77;
		break;
	case 2:
		h->domain_attr->data_progress = 77;
		break;
	case 3:
		h->domain_attr->resource_mgmt = 55;
		break;
	default:
		h->domain_attr->av_type = 9;
	}
	return call_refuses(h);
}

static bool call_no_ways(void)
{
	bool good = true;
	int i;

	for (i = 0; i < 5; i++)
		good = call_no_way(i) && good;
	return good;
}

/* Returns true if fi_getinfo accepts hints with this protocol and answers with
 * CALL_PROTOCOL. */
static bool call_protocol(struct fi_info *h, uint32_t protocol)
{
	struct fi_info *info;
	bool good;

	h->ep_attr->protocol = protocol;
	if (fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, h, &info))
		return false;
	good = info->ep_attr->protocol == CALL_PROTOCOL;
	fi_freeinfo(info);
	return good;
}

/* Checks that fi_getinfo accepts its own result as hints, and refuses a later
 * protocol version. fi_tostr must have a name for each value, except for the
 * protocol, which libfabric does not know. */
static bool call_given(void)
{
	struct fi_info *h = call_hints("moonrail");
	bool good;

	if (call_info(h, NULL, NULL, 0, &h))
		return false;
	good = call_protocol(h, h->ep_attr->protocol) &&
	       call_protocol(h, CALL_PROTOCOL_010);
	h->ep_attr->protocol = CALL_PROTOCOL_010;
	good = !strstr(fi_tostr(h, FI_TYPE_INFO), "Unknown") &&
	       !strstr(fi_tostr(h, FI_TYPE_INFO), "UNSPEC") && good;
	h->ep_attr->protocol = CALL_PROTOCOL;
	h->ep_attr->protocol_version++;
	return call_refuses(h) && good;
}

/* Returns true if fi_getinfo refuses a source address of another host. */
static bool call_elsewhere(void)
{
	struct fi_info *info;

	return call_info(call_hints("moonrail"), "203.0.113.9", NULL, FI_SOURCE,
			 &info) == -FI_ENODATA &&
	       call_node("moonrail", FI_SOURCE);
}

/* Returns true if fi_getinfo offers moonrail for a loopback address. `named` is
 * the provider name in the hints; NULL means none. */
static bool call_offered(const char *named)
{
	struct fi_info *h = call_hints(named ? named : ""), *info = NULL, *i;

	if (!named) {
		free(h->fabric_attr->prov_name);
		h->fabric_attr->prov_name = NULL;
	}
	if (call_info(h, "127.0.0.1", NULL, FI_SOURCE, &info))
		return false;
	for (i = info; i; i = i->next)
		if (!strcmp(i->fabric_attr->prov_name, "moonrail"))
			break;
	fi_freeinfo(info);
	return i;
}

/* Does the same as call_offered(NULL) while an environment variable has this
 * value. */
static bool call_offered_with(const char *variable, const char *value)
{
	bool offered;

	setenv(variable, value, 1);
	offered = call_offered(NULL);
	unsetenv(variable);
	return offered;
}

/* Tests when moonrail is offered to hints without a provider name. libfabric
 * has read FI_PROVIDER before, so only moonrail sees the new value. */
static void call_unasked(void)
{
	ft_ok(call_offered("moonrail"), "hints_that_name_moonrail_find_it");
	ft_ok(!call_offered(NULL) &&
		      !call_offered_with("FI_MOONRAIL_ENABLE", "0"),
	      "hints_without_a_name_do_not_find_moonrail_over_ip");
	ft_ok(call_offered_with("FI_MOONRAIL_ENABLE", "1"),
	      "enable_offers_moonrail_to_hints_without_a_name");
	ft_ok(call_offered_with("FI_PROVIDER", "moonrail") &&
		      call_offered_with("FI_PROVIDER", "verbs,Moonrail"),
	      "provider_list_with_moonrail_offers_it");
	ft_ok(!call_offered_with("FI_PROVIDER", "^shm") &&
		      !call_offered_with("FI_PROVIDER", "^moonrail") &&
		      !call_offered_with("FI_PROVIDER", "tcp,moonrail2") &&
		      !call_offered_with("FI_PROVIDER", ""),
	      "provider_list_without_moonrail_does_not_offer_it");
}

/* Returns true if fi_getinfo accepts the domain name `name` in hints, and sets
 * *info. `rails` is the value of FI_MOONRAIL_ADDR, or NULL. */
static bool call_named(const char *name, const char *rails,
		       struct fi_info **info)
{
	struct fi_info *h = call_hints("moonrail");
	bool found;

	h->domain_attr->name = strdup(name);
	if (rails)
		setenv("FI_MOONRAIL_ADDR", rails, 1);
	found = !call_info(h, NULL, NULL, 0, info);
	unsetenv("FI_MOONRAIL_ADDR");
	return found && !strcmp((*info)->domain_attr->name, name);
}

/* Returns true if an endpoint opened with info has a loopback address. */
static bool call_on_loopback(struct fi_info *info)
{
	struct fi_av_attr attr = { .type = FI_AV_MAP };
	char name[512], text[512], host[64], port[16];
	size_t len = sizeof(name), n = sizeof(text);
	struct fid_fabric *f;
	struct fid_domain *d;
	struct fid_av *av;
	struct fid_ep *ep;
	bool good;

	if (fi_fabric(info->fabric_attr, &f, NULL) ||
	    fi_domain(f, info, &d, NULL) || fi_av_open(d, &attr, &av, NULL) ||
	    fi_endpoint(d, info, &ep, NULL))
		return false;
	good = !fi_getname(&ep->fid, name, &len) &&
	       fi_rig_socket(fi_av_straddr(av, name, text, &n), host, port) &&
	       (!strncmp(host, "127.", 4) || !strcmp(host, "::1"));
	return !fi_close(&ep->fid) && !fi_close(&av->fid) &&
	       !fi_close(&d->fid) && !fi_close(&f->fid) && good;
}

static void call_domain_names(void)
{
	static const char *const none[] = {
		"nosuchif0", "lo,lo", "", "lo ", "127.0.0.1",
	};
	struct fi_info *info = NULL;
	bool good = true;
	size_t i;

	ft_ok(call_named("lo", NULL, &info) && call_on_loopback(info),
	      "domain_named_like_an_interface_has_that_rail");
	fi_freeinfo(info);
	for (i = 0; i < sizeof(none) / sizeof(none[0]); i++)
		good = !call_named(none[i], NULL, &info) && good;
	ft_ok(good, "domain_with_another_name_is_refused");
	good = call_named("lo", "192.0.2.99,127.0.0.1", &info);
	if (good)
		fi_freeinfo(info);
	ft_ok(good && !call_named("lo", "192.0.2.99", &info),
	      "domain_outside_the_rails_of_the_environment_is_refused");
}

void call_own_hints(void)
{
	const int all = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_PROV_KEY |
			FI_MR_ALLOCATED | FI_MR_RAW | FI_MR_ENDPOINT;
	struct fi_info *h;
	bool good;

	ft_ok(call_listed(0) && call_listed(FI_NUMERICHOST),
	      "moonrail_provider_attributes_are_listed");
	h = call_hints("moonrail");
	h->caps |= FI_COLLECTIVE;
	good = call_refuses(h);
	h = call_hints("moonrail");
	h->tx_attr->inject_size = 1u << 30;
	good = call_refuses(h) && good;
	h = call_hints("moonrail");
	h->domain_attr->name = strdup("nosuchdomain");
	good = call_refuses(h) && good;
	h = call_hints("moonrail");
	h->tx_attr->msg_order = FI_ORDER_SAR;
	good = call_refuses(h) && good;
	h = call_hints("moonrail");
	h->tx_attr->msg_order = FI_ORDER_WAW;
	h->ep_attr->max_order_raw_size = 8;
	good = call_refuses(h) && good;
	h = call_hints("moonrail");
	h->ep_attr->tx_ctx_cnt = 2;
	good = call_refuses(h) && good;
	ft_ok(call_beyond() && good,
	      "moonrail_refuses_hints_that_it_cannot_meet");
	ft_ok(call_no_ways(), "moonrail_refuses_invalid_domain_attributes");
	call_unasked();
	call_domain_names();
	call_orders();
	ft_ok(call_elsewhere(), "moonrail_refuses_source_of_another_host");
	ft_ok(call_given(), "moonrail_accepts_and_prints_its_own_info");
	/* 1 and 2 are the modes FI_MR_BASIC and FI_MR_SCALABLE. libfabric 2.0
	 * has deprecated their names. */
	ft_ok(call_old(FI_VERSION(1, 4), 1, 1) &&
		      call_old(FI_VERSION(1, 4), 0, 2) &&
		      call_old(FI_VERSION(1, 5), 1, 1) &&
		      call_old(FI_VERSION(1, 17), all, 0),
	      "moonrail_grants_registration_mode_of_each_api_version");
}
