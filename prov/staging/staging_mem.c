/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * GPU staging: host memory that the copy engine of a GPU, the rails and copies
 * inside this host access.
 */
#include "prov/staging/staging_int.h"

#include <stdio.h>
#include <sys/mman.h>

#include "topo/tei_topo.h"

/* Writes the location of the GPU, or "*" if it is unknown, to "location".
 * Returns the NUMA node for memory of that GPU, or -1. */
static int mem_node(struct tei_staging *s, const void *gpu,
		    char location[TEI_TOPO_NAME])
{
	struct tei_err none;
	int device;

	snprintf(location, TEI_TOPO_NAME, "%s", TEI_TOPO_ANY);
	if (!tei_gpu_where(staging_gpu(s), gpu, 1, &device, &none) &&
	    device >= 0)
		snprintf(location, TEI_TOPO_NAME, "cuda:%d", device);
	return tei_rail_node_near(staging_rails(s), location);
}

/* Permits copies by processes of this host, and places the memory. The order
 * matters: share may replace the mapping, and with it the preferred node. */
static int mem_share(struct tei_staging *s, char *mem, size_t len, int node,
		     uint32_t access, uint64_t *serial, struct tei_err *err)
{
	int ret = s->ops->share(s->arg, mem, len, access & TEI_RAIL_REMOTE,
				serial);

	if (ret)
		return tei_err_fail(err, ret, "staging", NULL,
				    "bounce buffers of GPU memory: %zu bytes cannot be mapped",
				    len);
	tei_topo_prefer(mem, len, node);
	return 0;
}

/* Ends the copies by processes of this host. Waits for at most the shorter of
 * wait_ns and MOONRAIL_FENCE_MS: a copy is short unless a process is stopped in the
 * middle of it. */
static int mem_unshare(struct tei_staging *s, char *mem, uint64_t wait_ns)
{
	uint64_t fence = staging_fence_ns(s);
	int ret;

	ret = s->ops->unshare(s->arg, mem,
			      tei_now_ns() +
				      (wait_ns < fence ? wait_ns : fence));
	/* copies were never permitted, or an earlier call has ended them */
	return ret == TEI_ERR_NOT_REGISTERED ? 0 : ret;
}

int staging_mem_open(struct tei_staging *s, const void *gpu, size_t len,
		     uint32_t access, char **out, uint64_t *serial,
		     struct tei_err *err)
{
	char location[TEI_TOPO_NAME];
	int node = mem_node(s, gpu, location);
	char *mem = tei_topo_map(node, len);
	struct tei_rail_mr *mr;
	int ret;

	if (!mem)
		return tei_err_fail(
			err, TEI_ERR_MEMORY, "staging", NULL,
			"no memory for bounce buffers of GPU memory");
	ret = mem_share(s, mem, len, node, access, serial, err);
	if (ret) {
		munmap(mem, len);
		return ret;
	}
	ret = tei_gpu_mem_pin(staging_gpu(s), gpu, mem, len, err);
	if (ret)
		goto err_discard;
	ret = tei_rail_mr_reg(staging_rails(s), mem, len, location, access, err,
			      &mr);
	if (ret)
		goto err_discard;
	*out = mem;
	return 0;
err_discard:
	staging_mem_discard(s, mem, len);
	return ret;
}

int staging_mem_close(struct tei_staging *s, char *mem, uint64_t wait_ns)
{
	struct tei_err err;
	int ret;

	ret = mem_unshare(s, mem, wait_ns);
	if (ret)
		return ret;
	ret = tei_rail_mr_dereg(staging_rails(s), mem, wait_ns, &err);
	if (ret == TEI_ERR_NOT_REGISTERED)
		ret = 0; /* an earlier call has already
			  * unregistered the memory */
	/* wait for the copies too: the callback of a copy may still be running
	 * in its thread */
	if (!ret)
		ret = tei_gpu_mem_remove(staging_gpu(s), mem,
					 tei_now_ns() + wait_ns);
	if (ret == TEI_ERR_NOT_REGISTERED)
		ret = 0; /* the memory could not be pinned */
	if (!ret)
		s->ops->release(s->arg, mem);
	return ret;
}

void staging_mem_discard(struct tei_staging *s, char *mem, size_t len)
{
	int ret = staging_mem_close(s, mem, staging_timeout_ns(s));

	if (!ret)
		munmap(mem, len);
	else
		TEI_WARN("staging", "%zu bytes for bounce buffers of GPU memory stay allocated, because they are still in use: %s",
			 len, tei_err_name(ret));
}
