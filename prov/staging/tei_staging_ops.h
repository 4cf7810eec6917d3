/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_STAGING_OPS_H
#define TEI_PROV_STAGING_OPS_H

/*
 * The functions that the owner of GPU staging supplies, a part of
 * tei_staging.h. With them the owner registers the host memory of the module,
 * and copies between processes of this host.
 */

#include <stdbool.h>
#include <stdint.h>

#include "util/err.h"

struct staging_slot;

/* Size of the memory for the owner's operation of a copy, bytes. */
#define TEI_STAGING_COPY 192u

/*
 * A copy between memory of this process and a remote bounce slot of a process of
 * this host. The module sets the members and clears op. From the call of copy
 * until tei_staging_copy_done, the owner owns the struct.
 */
struct tei_staging_copy {
	void *near;			/* the process; the owner defines the
					 * type */
	char *local;			/* memory of this process */
	uint64_t slot;			/* address of the slot at the process */
	uint64_t serial;		/* number that share has returned at the
					 * process for the slot */
	uint32_t length;		/* bytes, at most TEI_STAGING_PIECE */
	bool read;			/* true: from the slot to local; false:
					 * the other way */
	union {
		uint64_t align;
		char room[TEI_STAGING_COPY];
	} op;				/* memory for the owner's operation */
};

/* Each function may be called by several threads at a time. */
struct tei_staging_ops {
	/*
	 * Registers the memory of a pool with the transports of the owner's
	 * carriers. Returns 0 or a tei_code. mem_remove reverses mem_add: when
	 * mem_remove returns 0, no operation accesses the memory. Both are
	 * called with the pools' admin lock held, and may block.
	 */
	int (*mem_add)(void *arg, void *mem, uint64_t len);
	int (*mem_remove)(void *arg, void *mem, uint64_t deadline_ns);

	/*
	 * Permits copies inside this host from and to new memory of the module,
	 * which has no pages yet: copies by this process and, if "remote" is
	 * true, by other processes. May replace the mapping of the memory by
	 * shared memory, which other processes can map, too. *serial gets a
	 * number that no other call of this process returns, or 0 if copies are
	 * not possible, which is no error. Returns 0, or a tei_code if the
	 * memory cannot be used; the caller then unmaps it. May block.
	 */
	int (*share)(void *arg, void *mem, uint64_t len, bool remote,
		     uint64_t *serial);
	/*
	 * Reverses share. When it returns 0, no copy inside this host accesses
	 * the memory, now or later. Returns TEI_ERR_BUSY at the deadline, and
	 * TEI_ERR_NOT_REGISTERED if copies are not permitted (any longer).
	 * Blocks.
	 */
	int (*unshare)(void *arg, void *mem, uint64_t deadline_ns);
	/* Frees the pages of memory after unshare, when nothing accesses the
	 * memory any longer. The caller then unmaps it. */
	void (*release)(void *arg, void *mem);

	/*
	 * Starts a copy. The copy accesses the slot only if copies are
	 * permitted with that serial, because other memory may have its
	 * addresses by now. Returns 0 if the owner will call tei_staging_copy_done
	 * once, possibly before copy returns. Returns TEI_ERR_NOT_REGISTERED
	 * if copies are not permitted with that serial; the module then does
	 * not access the slot. Returns another tei_code if the copy is not
	 * possible for another reason; the module then uses the rails. Called
	 * by the thread "tei-remote", without a lock. May copy a short piece of
	 * mapped memory in the calling thread; other threads copy everything
	 * else.
	 */
	int (*copy)(void *arg, struct tei_staging_copy *copy);
	/*
	 * Cancels a copy that has not ended. The owner starts no further part
	 * of the copy, and calls tei_staging_copy_done after the parts that are
	 * being copied, possibly before copy_cancel returns. Does not wait.
	 * Called by the thread "tei-remote", without a lock.
	 */
	void (*copy_cancel)(void *arg, struct tei_staging_copy *copy);

	/*
	 * Makes a thread that may block call tei_staging_slot_renew for this
	 * slot. Called by the thread "tei-remote", with its lock held. Returns
	 * false if no thread is available; the module then tries again later.
	 */
	bool (*renew)(void *arg, struct staging_slot *slot);
};

/*
 * Reports the end of a copy. code: 0 if all bytes are in place, otherwise a
 * tei_code; TEI_ERR_CANCELED if copy_cancel has ended the copy. If the copy has
 * failed with another code than TEI_ERR_NOT_REGISTERED, the module moves the
 * bytes over the rails. The owner does not access the memory of the copy any
 * longer. err: the error record, or NULL. Any thread, with no lock held.
 */
void tei_staging_copy_done(struct tei_staging_copy *copy, int code,
			   const struct tei_err *err);

#endif /* TEI_PROV_STAGING_OPS_H */
