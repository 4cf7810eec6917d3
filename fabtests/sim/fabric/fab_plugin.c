/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The shared object libsim-fi.so, through which libfabric finds the provider
 * "sim". All its code is in the simulator's program, which loads it. In another
 * program the shared object offers no provider.
 */

#include <rdma/providers/fi_prov.h>

struct fi_provider *sim_fabric_provider(void) __attribute__((weak));
struct fi_provider *fi_prov_ini(void);

__attribute__((visibility("default"))) struct fi_provider *fi_prov_ini(void)
{
	return sim_fabric_provider ? sim_fabric_provider() : NULL;
}
