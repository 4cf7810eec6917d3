/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * GPU staging: host memory that both the copy engine of a GPU and the rails
 * access.
 */
#include "prov/staging/staging_int.h"

#include <stdio.h>
#include <sys/mman.h>

#include "topo/tei_topo.h"

/* Allocates memory on the NUMA node of the GPU, if possible. Writes the
 * location of that GPU, or "*" if it is unknown, to "location". */
static void *mem_alloc(struct tei_staging *s, const void *gpu, size_t len,
		       char location[TEI_TOPO_NAME])
{
	struct tei_err none;
	int device;

	snprintf(location, TEI_TOPO_NAME, "%s", TEI_TOPO_ANY);
	if (!tei_gpu_where(staging_gpu(s), gpu, 1, &device, &none) &&
	    device >= 0)
		snprintf(location, TEI_TOPO_NAME, "cuda:%d", device);
	return tei_rail_mem_near(staging_rails(s), location, len);
}

int staging_mem_open(struct tei_staging *s, const void *gpu, size_t len,
		     uint32_t access, char **out, struct tei_err *err)
{
	char location[TEI_TOPO_NAME];
	char *mem = mem_alloc(s, gpu, len, location);
	struct tei_rail_mr *mr;
	int ret;

	if (!mem)
		return tei_err_fail(
			err, TEI_ERR_MEMORY, "staging", NULL,
			"no memory for bounce buffers of GPU memory");
	ret = tei_gpu_mem_pin(staging_gpu(s), gpu, mem, len, err);
	if (ret)
		goto err_unmap;
	ret = tei_rail_mr_reg(staging_rails(s), mem, len, location, access, err,
			      &mr);
	if (ret)
		goto err_unpin;
	*out = mem;
	return 0;
err_unpin:
	tei_gpu_mem_remove(staging_gpu(s), mem, tei_now_ns());
err_unmap:
	munmap(mem, len);
	return ret;
}

int staging_mem_close(struct tei_staging *s, char *mem, uint64_t wait_ns)
{
	struct tei_err err;
	int ret;

	ret = tei_rail_mr_dereg(staging_rails(s), mem, wait_ns, &err);
	if (ret == TEI_ERR_NOT_REGISTERED)
		ret = 0; /* an earlier call has already
			  * unregistered the memory */
	/* wait for the copies too: the callback of a copy may still be running
	 * in its thread */
	if (!ret)
		ret = tei_gpu_mem_remove(staging_gpu(s), mem,
					 tei_now_ns() + wait_ns);
	return ret;
}
