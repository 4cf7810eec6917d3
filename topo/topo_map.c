/* SPDX-License-Identifier: BSD-2-Clause */
#include <numaif.h>
#include <string.h>
#include <sys/mman.h>

#include "topo/tei_topo.h"

#define MAP_NODES	1024	/* as many as the kernel is built for */

void *tei_topo_map(int numa, size_t size)
{
	unsigned long bits[MAP_NODES / (8 * sizeof(unsigned long))];
	const unsigned int word = 8 * sizeof(bits[0]);
	unsigned int node = (unsigned int)numa;
	void *mem = mmap(NULL, size, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (mem == MAP_FAILED)
		return NULL;
	if (node >= MAP_NODES)
		return mem;
	memset(bits, 0, sizeof(bits));
	bits[node / word] = 1ul << node % word;
	/* preferred: on a full or forbidden node it is elsewhere */
	mbind(mem, size, MPOL_PREFERRED, bits, MAP_NODES, 0);
	return mem;
}
