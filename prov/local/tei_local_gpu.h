/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_LOCAL_GPU_H
#define TEI_PROV_LOCAL_GPU_H

/*
 * GPU memory of processes of this host. A process publishes the handles of its
 * GPU memory in its shared registration table; a peer maps the memory with them
 * and copies with its GPU. A handle may be accompanied by files of the GPU
 * driver, of which the peer gets file descriptors of its own. This module does
 * not access GPU memory: it passes the handles and the files on, and protects
 * the memory while a peer copies.
 *
 * Every call may be made from any thread.
 */

#include <stdbool.h>
#include <stdint.h>

#include "util/err.h"

struct tei_local;
struct tei_local_peer;

#define TEI_LOCAL_GPU_DATA 96u	/* size of a handle, bytes */
#define TEI_LOCAL_GPU_FILES 256u /* maximum number of files of GPU memory */

/* A file that belongs to GPU memory. */
struct tei_local_gpu_file {
	int fd;
	uint64_t number;	/* any number, which is published with the
				 * file */
};

/*
 * Publishes GPU memory, which peers may then read and write, with its handle of
 * TEI_LOCAL_GPU_DATA bytes and n files. The memory must not overlap published
 * GPU memory. Returns 0, TEI_ERR_UNSUPPORTED (no shared registration table),
 * TEI_ERR_TOO_MANY, TEI_ERR_MEMORY or TEI_ERR_CONTEXT (forked child). If the
 * result is 0, the context owns the file descriptors and closes them when the
 * memory is withdrawn.
 */
int tei_local_gpu_add(struct tei_local *ctx, const void *base, uint64_t len,
		      const void *data, const struct tei_local_gpu_file *files,
		      uint32_t n);

/*
 * Withdraws the GPU memory that starts at base. When it returns 0, no peer
 * accesses the memory, now or later, although peers may have mapped it. At the
 * deadline returns TEI_ERR_BUSY, and the memory stays published; a peer that is
 * stopped during a copy causes that, a peer that has ended does not. Returns
 * TEI_ERR_NOT_REGISTERED if the memory is not published.
 */
int tei_local_gpu_remove(struct tei_local *ctx, const void *base,
			 uint64_t deadline_ns);
/* Withdraws all GPU memory, for ever. Returns false if peers still access some
 * of it at the deadline. */
bool tei_local_gpu_clear(struct tei_local *ctx, uint64_t deadline_ns);

/* GPU memory of a peer. */
struct tei_local_gpu {
	uint64_t base, len;
	uint64_t serial;	/* number of the registration */
	uint32_t place;		/* position in the peer's table */
	uint32_t first;		/* position of the first file in the table */
	uint32_t files;		/* number of files, at most
				 * TEI_LOCAL_GPU_FILES */
	uint64_t data[TEI_LOCAL_GPU_DATA / 8];
};

/* Finds the GPU memory of the peer that contains [addr, addr + len). Returns
 * false if the peer has not published it. */
bool tei_local_gpu_find(const struct tei_local_peer *peer, uint64_t addr,
			uint64_t len, struct tei_local_gpu *out);
/* Returns true if the memory is still published with that registration and the
 * peer's process has not ended. Makes no system call in most cases. */
bool tei_local_gpu_valid(const struct tei_local_peer *peer, uint32_t place,
			 uint64_t serial);

/*
 * Gets the files of a peer's GPU memory: fills what->files elements of "files".
 * The caller closes their file descriptors. Returns 0, or a code with *err filled
 * and no file descriptor open: TEI_ERR_NOT_REGISTERED (unregistered meanwhile),
 * TEI_ERR_CONTEXT (the peer has ended) or TEI_ERR_UNSUPPORTED (the kernel
 * refuses).
 */
int tei_local_gpu_files(struct tei_local_peer *peer,
			const struct tei_local_gpu *what,
			struct tei_local_gpu_file *files, struct tei_err *err);

/* A range of a peer's GPU memory that is about to be accessed. */
struct tei_local_gpu_range {
	uint64_t addr, len;
	uint32_t place;		/* members of struct tei_local_gpu */
	uint64_t serial;
};

/*
 * Protects the range until tei_local_gpu_leave: tei_local_gpu_remove of the peer
 * waits. Returns 0 with *claim set, or a code with *err filled:
 * TEI_ERR_TOO_MANY (no copy slot is free at the moment), TEI_ERR_NOT_REGISTERED
 * or TEI_ERR_CONTEXT (the peer has ended, or has closed its context).
 */
int tei_local_gpu_enter(struct tei_local *ctx, struct tei_local_peer *peer,
			const struct tei_local_gpu_range *range, void **claim,
			struct tei_err *err);
/* Takes no lock and does not block. */
void tei_local_gpu_leave(void *claim);
/* Counts bytes that the GPU has copied from or to a peer (tei_local_stats). */
void tei_local_gpu_count(struct tei_local *ctx, bool read, uint64_t bytes);

/* Returns true if the process lives and still is the one that was opened, so
 * that what was copied to its memory is there. Makes no system call in most
 * cases. */
bool tei_local_peer_sound(struct tei_local_peer *peer);

#endif /* TEI_PROV_LOCAL_GPU_H */
