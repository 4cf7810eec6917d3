/* SPDX-License-Identifier: BSD-2-Clause */
#include <numaif.h>
#include <string.h>
#include <sys/mman.h>

#include "topo/tei_topo.h"

#define MAP_NODES	1024	/* largest number of NUMA nodes that a kernel
				 * supports */

void tei_topo_prefer(void *mem, size_t size, int node)
{
	unsigned long bits[MAP_NODES / (8 * sizeof(unsigned long))];
	const unsigned int word = 8 * sizeof(bits[0]);
	unsigned int bit = (unsigned int)node;

	if (bit >= MAP_NODES)
		return;
	memset(bits, 0, sizeof(bits));
	bits[bit / word] = 1ul << bit % word;
	/* with MPOL_PREFERRED, the kernel uses other nodes if this node has no
	 * memory */
	mbind(mem, size, MPOL_PREFERRED, bits, MAP_NODES, 0);
}

void *tei_topo_map(int node, size_t size)
{
	void *mem = mmap(NULL, size, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (mem == MAP_FAILED)
		return NULL;
	tei_topo_prefer(mem, size, node);
	return mem;
}
