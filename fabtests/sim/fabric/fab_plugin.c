/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The shared object libsim-fi.so, which libfabric loads to find the provider
 * "sim". The code of the provider is in the simulator's program itself. If
 * another program loads the shared object, it offers no provider.
 */

#include <rdma/providers/fi_prov.h>

struct fi_provider *sim_fabric_provider(void) __attribute__((weak));
struct fi_provider *fi_prov_ini(void);

__attribute__((visibility("default"))) struct fi_provider *fi_prov_ini(void)
{
	return sim_fabric_provider ? sim_fabric_provider() : NULL;
}
