/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Sealed memfds: files in memory whose size can no longer change, so an access
 * to a mapping of the file is never beyond its end.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "prov/local/local_memfd.h"

#define MEMFD_SEALS (F_SEAL_SHRINK | F_SEAL_GROW)

/* Returns true if the process may create a file of that size. Without this
 * check, the kernel could send SIGXFSZ. */
static bool memfd_size_allowed(uint64_t size)
{
	struct rlimit limit;

	return getrlimit(RLIMIT_FSIZE, &limit) ||
	       limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= size;
}

int local_memfd_create(const char *name, unsigned int flags, uint64_t size)
{
	int fd, err;

	if (!memfd_size_allowed(size)) {
		errno = EFBIG;
		return -1;
	}
	fd = memfd_create(name, flags | MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return -1;
	if (!ftruncate(fd, (off_t)size) &&
	    !fcntl(fd, F_ADD_SEALS, MEMFD_SEALS | F_SEAL_SEAL))
		return fd;
	err = errno;
	close(fd);
	errno = err;
	return -1;
}

uint64_t local_memfd_inode(int fd)
{
	struct stat st;

	return fstat(fd, &st) ? 0 : st.st_ino;
}

static enum tei_local_reason memfd_reason(int err)
{
	switch (err) {
	case EACCES:
	case EPERM:
		return TEI_LOCAL_NO_PERMISSION;
	case EMFILE:
	case ENFILE:
	case ENOMEM:
		return TEI_LOCAL_NO_RESOURCE;
	default:
		return TEI_LOCAL_BAD_MAGIC;
	}
}

/* Returns TEI_LOCAL_OK for a file that has the expected properties, so that
 * opening and accessing it neither blocks nor has side effects. */
static enum tei_local_reason memfd_check(int fd,
					 const struct local_memfd_want *want)
{
	struct statfs fs;
	struct stat st;

	if (fstat(fd, &st) || !S_ISREG(st.st_mode) ||
	    (uint64_t)st.st_size != want->size || fstatfs(fd, &fs) ||
	    fs.f_type != (want->huge ? HUGETLBFS_MAGIC : TMPFS_MAGIC) ||
	    (want->inode && st.st_ino != want->inode))
		return TEI_LOCAL_BAD_MAGIC;
	return want->same_user && st.st_uid != geteuid() ?
		       TEI_LOCAL_NO_PERMISSION :
		       TEI_LOCAL_OK;
}

enum tei_local_reason local_memfd_open(pid_t pid, int number,
				       const struct local_memfd_want *want,
				       int *out)
{
	enum tei_local_reason reason;
	char path[64];
	int look, fd, seals;

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)pid, number);
	look = open(path, O_PATH | O_CLOEXEC);
	if (look < 0)
		return memfd_reason(errno);
	reason = memfd_check(look, want);
	if (reason != TEI_LOCAL_OK)
		goto out_check;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", look);
	fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0) {
		reason = memfd_reason(errno);
		goto out_check;
	}
	seals = fcntl(fd, F_GET_SEALS);
	if (seals < 0 || (seals & MEMFD_SEALS) != MEMFD_SEALS)
		reason = TEI_LOCAL_BAD_MAGIC;
	else
		reason = memfd_check(fd, want);
	if (reason == TEI_LOCAL_OK)
		*out = fd;
	else
		close(fd);
out_check:
	close(look);
	return reason;
}
