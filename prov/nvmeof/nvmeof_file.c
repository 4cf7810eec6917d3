/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "prov/nvmeof/nvmeof_int.h"
#include "topo/tei_topo.h"
#include "util/clock.h"
#include "util/text.h"

/*
 * Each file is opened twice if it supports O_DIRECT: aligned pieces bypass the
 * page cache, unaligned edges use it. The kernel keeps both views consistent
 * page by page. Therefore direct pieces consist of whole pages even if the
 * device has smaller blocks: an edge of one operation and a direct piece of
 * another operation are then never in the same page, unless their ranges
 * overlap.
 */

int nvmeof_explain(struct tei_err *err, int code, const struct nvmeof_file *f,
		   int sys_errno, const char *fmt, ...)
{
	char what[TEI_ERR_TEXT];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(what, sizeof(what), fmt, ap);
	va_end(ap);
	memset(err, 0, sizeof(*err));
	err->code = code;
	err->prov_errno = sys_errno;
	err->when_ns = tei_now_ns();
	snprintf(err->rail, sizeof(err->rail), "nvmeof");
	snprintf(err->provider, sizeof(err->provider), "%s",
		 f->seg->ctx->backend->name);
	snprintf(err->peer, sizeof(err->peer), "%.95s", f->seg->name);
	snprintf(err->text, sizeof(err->text), "%.70s: %.45s%s%.38s",
		 f->path ? f->path : f->name, what, sys_errno ? ": " : "",
		 sys_errno ? strerror(sys_errno) : "");
	return code;
}

uint32_t nvmeof_file_at(const struct tei_nvmeof_seg *seg, uint64_t offset)
{
	uint32_t low = 0, high = seg->count, mid;

	while (high - low > 1) {
		mid = low + (high - low) / 2;
		if (seg->file[mid].offset <= offset)
			low = mid;
		else
			high = mid;
	}
	return low;
}

/* --- opening ------------------------------------------------------------- */

static bool file_remote(int fd)
{
	static const uint32_t magic[] = {
		0x6969, 0xff534d42, 0xfe534d42, 0x65735546, 0x00c36400,
		/* file systems: NFS, CIFS, SMB2, FUSE, Ceph, 9p, Lustre */
		0x01021997, 0x0bd00bd0,
	};
	struct statfs fs;
	size_t i;

	if (fstatfs(fd, &fs))
		return true;
	for (i = 0; i < sizeof(magic) / sizeof(magic[0]); i++)
		if ((uint32_t)fs.f_type == magic[i])
			return true;
	return false;
}

/* Gets the alignment of direct requests; sets mem_align to 0 if the file does
 * not support direct requests. */
static void file_alignment(struct nvmeof_file *f)
{
	f->block = NVMEOF_BLOCK;
	f->mem_align = NVMEOF_BLOCK;
#ifdef STATX_DIOALIGN
	struct statx sx;

	if (statx(f->direct, "", AT_EMPTY_PATH, STATX_DIOALIGN, &sx) ||
	    !(sx.stx_mask & STATX_DIOALIGN))
		return;
	f->mem_align = sx.stx_dio_mem_align;
	if (sx.stx_dio_offset_align > f->block)
		f->block = sx.stx_dio_offset_align;
	if (!sx.stx_dio_offset_align)
		f->mem_align = 0;
#endif
}

/*
 * Opens the file, which is already open, a second time with O_DIRECT. Uses
 * /proc, because the path may lead to another file by now.
 */
static void file_open_direct(struct nvmeof_file *f)
{
	int mode = fcntl(f->cached, F_GETFL) & O_ACCMODE;
	char path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", f->cached);
	f->direct = open(path, mode | O_CLOEXEC | O_NOCTTY | O_DIRECT);
	if (f->direct < 0)
		return;
	file_alignment(f);
	if (f->mem_align && f->block <= TEI_NVMEOF_PIECE &&
	    !(f->block & (f->block - 1)))
		return;
	close(f->direct);
	f->direct = -1;
}

static int file_length(const struct nvmeof_file *f, const struct stat *st,
		       struct tei_err *err)
{
	uint64_t length = (uint64_t)st->st_size;

	if (f->device && ioctl(f->cached, BLKGETSIZE64, &length))
		return nvmeof_explain(err, TEI_ERR_NO_DEVICE, f, errno,
				      "its size is unknown");
	if (length >= f->length)
		return 0;
	return nvmeof_explain(err, TEI_ERR_NO_DEVICE, f, 0,
			      "has %llu bytes, not %llu",
			      (unsigned long long)length,
			      (unsigned long long)f->length);
}

static void file_hold(const struct nvmeof_file *f)
{
	const struct tei_nvmeof *ctx = f->seg->ctx;

	if (ctx->hooks.hold)
		ctx->hooks.hold(ctx->hooks.hold_arg, f);
}

/*
 * Returns true if the error "why" of an attempt to open a file for writing may
 * not concern reads: missing permission, read-only mount, immutable file,
 * running program.
 */
static bool file_may_read(int why)
{
	return why == EACCES || why == EROFS || why == EPERM || why == ETXTBSY;
}

static int file_open(struct nvmeof_file *f, bool use_direct,
		     struct tei_err *err)
{
	struct stat st;

	if (!f->path) {
		nvmeof_explain(err, TEI_ERR_NO_DEVICE, f, 0,
			       "not mounted on this server");
		snprintf(err->hint, sizeof(err->hint),
			 "te_meta mount --server=NAME sets its path on this server");
		return err->code;
	}
	file_hold(f);
	f->cached = open(f->path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (f->cached < 0 && file_may_read(errno)) {
		f->read_only = errno;
		f->cached = open(f->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK |
					  O_NOCTTY);
	}
	if (f->cached < 0 || fstat(f->cached, &st))
		return nvmeof_explain(err, TEI_ERR_NO_DEVICE, f, errno,
				      "cannot be opened");
	f->device = S_ISBLK(st.st_mode);
	if (!f->device && !S_ISREG(st.st_mode))
		return nvmeof_explain(err, TEI_ERR_NO_DEVICE, f, 0,
				      "neither a file nor a block device");
	/* clear O_NONBLOCK: it was set so that open does not wait for a writer
	 * if the path leads to a FIFO, and with it, io_uring would not wait for
	 * the storage */
	fcntl(f->cached, F_SETFL, 0);
	f->dev = f->device ? st.st_rdev : st.st_dev;
	f->ino = st.st_ino;
	f->numa = tei_topo_block_node(f->dev);
	f->remote = file_remote(f->cached);
	if (use_direct)
		file_open_direct(f);
	return file_length(f, &st, err);
}

/*
 * Registers a file descriptor with the back end, which saves the kernel a
 * look-up per request. Returns its slot, or -1 if it is not registered.
 */
static int file_fix(const struct nvmeof_file *f, int fd)
{
	struct tei_nvmeof *ctx = f->seg->ctx;

	return fd >= 0 && ctx->backend->fix_file ?
	       ctx->backend->fix_file(ctx, fd) : -1;
}

static void file_close(struct nvmeof_file *f)
{
	file_hold(f);
	nvmeof_cufile_file_remove(f);
	if (f->direct >= 0)
		close(f->direct);
	if (f->cached >= 0)
		close(f->cached);
	free(f->path);
	free(f->name);
}

/* --- checking ------------------------------------------------------------ */

static int file_check_stat(const struct nvmeof_file *f, const struct stat *st,
			   struct tei_err *err)
{
	if (f->device)
		return 0;
	if (!st->st_nlink)
		return nvmeof_explain(err, TEI_ERR_NO_DEVICE, f, 0,
				      "was removed");
	return file_length(f, st, err);
}

int nvmeof_file_glance(const struct nvmeof_file *f, struct tei_err *err)
{
	struct stat st;

	if (fstat(f->cached, &st))
		return nvmeof_explain(err, TEI_ERR_NO_DEVICE, f, errno,
				      "its state cannot be read");
	return file_check_stat(f, &st, err);
}

int nvmeof_file_check(const struct nvmeof_file *f, struct tei_err *err)
{
	struct stat st;

	file_hold(f);
	if (stat(f->path, &st))
		return nvmeof_explain(err, TEI_ERR_NO_DEVICE, f, errno,
				      "no longer exists");
	if ((f->device ? st.st_rdev : st.st_dev) != f->dev ||
	    (!f->device && st.st_ino != f->ino) ||
	    f->device != S_ISBLK(st.st_mode))
		return nvmeof_explain(err, TEI_ERR_NO_DEVICE, f, 0,
				      "was replaced by another file");
	return file_check_stat(f, &st, err);
}

/* --- segments ------------------------------------------------------------ */

static int seg_add(struct tei_nvmeof_seg *seg, const struct tei_nvmeof_file *in)
{
	struct nvmeof_file *f = &seg->file[seg->count++];

	f->seg = seg;
	f->direct = f->cached = -1;
	f->direct_slot = f->cached_slot = -1;
	f->numa = -1;
	f->length = in->length;
	f->offset = seg->size;
	seg->size += in->length;
	tei_list_init(&f->unsynced);
	tei_list_init(&f->syncing);
	tei_list_init(&f->ended);
	tei_list_init(&f->look_node);
	tei_list_init(&f->queue);
	tei_list_init(&f->turn_node);
	tei_list_init(&f->busy_node);
	f->path = in->path ? strdup(in->path) : NULL;
	f->name = strdup(in->name ? in->name : "");
	return f->name && (f->path || !in->path) ? 0 : TEI_ERR_MEMORY;
}

/* Releases the slots of all files, at most 64 per call. */
static void seg_unfix(const struct tei_nvmeof_seg *seg)
{
	const struct nvmeof_backend *backend = seg->ctx->backend;
	uint32_t i, n = 0;
	int slots[64];

	for (i = 0; i < seg->count; i++) {
		if (seg->file[i].direct_slot >= 0)
			slots[n++] = seg->file[i].direct_slot;
		if (seg->file[i].cached_slot >= 0)
			slots[n++] = seg->file[i].cached_slot;
		if (n && (i + 1 == seg->count || n >= 63)) {
			backend->unfix_files(seg->ctx, slots, n);
			n = 0;
		}
	}
}

void nvmeof_seg_free(struct tei_nvmeof_seg *seg)
{
	uint32_t i;

	seg_unfix(seg);
	for (i = 0; i < seg->count; i++)
		file_close(&seg->file[i]);
	free(seg->name);
	free(seg);
}

/* Opens all files, and logs the first few that cannot be used. */
static void seg_open_files(struct tei_nvmeof_seg *seg)
{
	uint32_t i, bad = 0, direct = 0;

	for (i = 0; i < seg->count; i++) {
		struct nvmeof_file *f = &seg->file[i];

		f->broken = file_open(f, seg->ctx->use_direct, &f->why);
		f->direct_slot = file_fix(f, f->direct);
		f->cached_slot = file_fix(f, f->cached);
		nvmeof_cufile_file_add(seg->ctx, f);
		direct += f->direct >= 0;
		if (f->broken && bad++ < 4)
			TEI_WARN("nvmeof", "segment %s: %s", seg->name,
				 f->why.text);
	}
	TEI_INFO("nvmeof", "segment %s: %u file%s by %s, %u with O_DIRECT, %u unusable",
		 seg->name, seg->count, tei_plural(seg->count),
		 seg->ctx->backend->name, direct, bad);
}

int tei_nvmeof_seg_open(struct tei_nvmeof *ctx, const char *name,
			const struct tei_nvmeof_file *files, uint32_t count,
			struct tei_err *err, struct tei_nvmeof_seg **out)
{
	struct tei_nvmeof_seg *seg;
	uint32_t i;
	int ret = 0;

	seg = calloc(1, sizeof(*seg) + count * sizeof(seg->file[0]));
	if (seg) {
		seg->ctx = ctx;
		seg->refs = 1;
		seg->name = strdup(name);
		for (i = 0; i < count && !ret; i++)
			ret = seg_add(seg, &files[i]);
	}
	if (!seg || !seg->name || ret) {
		if (seg)
			nvmeof_seg_free(seg);
		return tei_err_fail(err, TEI_ERR_MEMORY, "nvmeof", NULL,
				    "out of memory for segment '%.64s'", name);
	}
	seg_open_files(seg);
	*out = seg;
	return 0;
}

struct tei_nvmeof_seg *tei_nvmeof_seg_hold(struct tei_nvmeof_seg *seg)
{
	__atomic_add_fetch(&seg->refs, 1, __ATOMIC_RELAXED);
	return seg;
}

void tei_nvmeof_seg_put(struct tei_nvmeof_seg *seg)
{
	if (seg && !__atomic_sub_fetch(&seg->refs, 1, __ATOMIC_ACQ_REL) &&
	    !nvmeof_blocking_close(seg->ctx, seg))
		nvmeof_seg_free(seg);
}

bool tei_nvmeof_seg_covers(const struct tei_nvmeof_seg *seg, uint64_t offset,
			   uint64_t length)
{
	return length && offset < seg->size && length <= seg->size - offset;
}

bool tei_nvmeof_seg_failed(const struct tei_nvmeof_seg *seg)
{
	uint32_t i;

	for (i = 0; i < seg->count; i++)
		if (__atomic_load_n(&seg->file[i].broken, __ATOMIC_RELAXED))
			return true;
	return false;
}
