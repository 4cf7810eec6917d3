/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/te_meta.h"

/* Checks the files of a segment before they are published: each file must
 * exist, have the stated size, and be readable at both ends. */

static int check_wrong(const char *path, const char *why)
{
	fprintf(stderr, "te_meta: %s: %s\n", path, why);
	return -1;
}

/* Returns the length of a file or block device, bytes, and sets *device to true
 * for a block device. On failure returns 0 and sets *why to the reason. */
static uint64_t check_length(int fd, bool *device, const char **why)
{
	uint64_t length = 0;
	struct stat st;

	*why = "is empty";
	if (fstat(fd, &st)) {
		*why = strerror(errno);
		return 0;
	}
	*device = S_ISBLK(st.st_mode);
	if (*device)
		return ioctl(fd, BLKGETSIZE64, &length) ? 0 : length;
	if (S_ISREG(st.st_mode))
		return (uint64_t)st.st_size;
	*why = "is neither a file nor a block device";
	return 0;
}

static int check_read(int fd, const char *path, uint64_t length)
{
	char byte;

	if (pread(fd, &byte, 1, 0) == 1 &&
	    pread(fd, &byte, 1, (off_t)(length - 1)) == 1)
		return 0;
	return check_wrong(path, errno ? strerror(errno) : "can't be read");
}

static int check_open(int fd, const char *path, uint64_t want, uint64_t *length)
{
	const char *why = NULL;
	bool device = false;
	char text[96];

	*length = check_length(fd, &device, &why);
	if (!*length)
		return check_wrong(path, why);
	if (want && (device ? *length < want : *length != want)) {
		snprintf(text, sizeof(text),
			 "has %" PRIu64 " bytes, not %" PRIu64, *length, want);
		return check_wrong(path, text);
	}
	if (want)
		*length = want;
	errno = 0;
	return check_read(fd, path, *length);
}

int meta_check(const char *path, uint64_t want, struct meta_file *out)
{
	int fd, ret;

	out->path = realpath(path, NULL);
	if (!out->path)
		return check_wrong(path, strerror(errno));
	fd = open(out->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0)
		return check_wrong(path, strerror(errno));
	ret = check_open(fd, path, want, &out->length);
	close(fd);
	return ret;
}

void meta_check_free(struct meta_file *files, uint32_t count)
{
	uint32_t i;

	for (i = 0; files && i < count; i++)
		free(files[i].path);
	free(files);
}
