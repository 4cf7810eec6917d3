/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Tests to which callers of fi_getinfo moonrail is offered.
 */
#include <stdlib.h>
#include <string.h>

#include "prov/moonrail/moonrail_info.h"
#include "prov/moonrail/moonrail_int.h"
#include "prov/moonrail/moonrail_test.h"

/* init_stands_in: the wrapper below returns init_rdma instead of calling the
 * real function. init_rdma: this host has an RDMA device. */
static bool init_rdma, init_stands_in;

bool __real_tei_rail_transport_present(const struct tei_settings *settings,
				       const char *transport,
				       const char *devices,
				       uint64_t info_flags);
bool __wrap_tei_rail_transport_present(const struct tei_settings *settings,
				       const char *transport,
				       const char *devices,
				       uint64_t info_flags);

bool __wrap_tei_rail_transport_present(const struct tei_settings *settings,
				       const char *transport,
				       const char *devices,
				       uint64_t info_flags)
{
	if (init_stands_in && !strcmp(transport, "rdma"))
		return init_rdma;
	return __real_tei_rail_transport_present(settings, transport, devices,
						 info_flags);
}

/* Returns the result of fi_getinfo for hints that name the given provider, or
 * no provider if it is NULL. */
static int init_getinfo(const char *provider)
{
	struct fi_info *hints = fi_allocinfo(), *info = NULL;
	int ret;

	CU_ASSERT_FATAL(hints != NULL);
	if (provider)
		hints->fabric_attr->prov_name = strdup(provider);
	ret = moonrail_getinfo(MOONRAIL_API, NULL, NULL, 0, hints, &info);
	if (!ret)
		fi_freeinfo(info);
	fi_freeinfo(hints);
	return ret;
}

static void test_ip_interfaces_are_offered_only_on_request(void)
{
	init_stands_in = true;
	init_rdma = false;
	CU_ASSERT_EQUAL(init_getinfo(NULL), -FI_ENODATA);
	CU_ASSERT_EQUAL(init_getinfo("moonrail"), 0);
	setenv("FI_PROVIDER", "shm,moonrail", 1);
	CU_ASSERT_EQUAL(init_getinfo(NULL), 0);
	setenv("FI_PROVIDER", "^moonrail", 1);
	CU_ASSERT_EQUAL(init_getinfo(NULL), -FI_ENODATA);
	unsetenv("FI_PROVIDER");
	init_stands_in = false;
}

static void test_rdma_devices_are_offered_to_all_callers(void)
{
	init_stands_in = true;
	init_rdma = true;
	CU_ASSERT_EQUAL(init_getinfo(NULL), 0);
	CU_ASSERT_EQUAL(init_getinfo("moonrail"), 0);
	init_stands_in = false;
}

const struct tei_test_case moonrail_init_cases[] = {
	{ "ip_interfaces_are_offered_only_on_request",
	  test_ip_interfaces_are_offered_only_on_request },
	{ "rdma_devices_are_offered_to_all_callers",
	  test_rdma_devices_are_offered_to_all_callers },
	{ NULL, NULL },
};
