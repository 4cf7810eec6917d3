/* SPDX-License-Identifier: BSD-2-Clause */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "meta/meta_store_int.h"
#include "meta/tei_meta_store.h"
#include "util/clock.h"
#include "util/err.h"
#include "util/settings.h"

/*
 * Persistent segment records of P2PHANDSHAKE, which has no server: each record
 * is a file <folder>/<name>.json. A rename replaces a file atomically, so
 * readers take no lock. Writers lock the file <folder>/.lock. They sync the
 * file and the folder, so a written record survives a crash of the host.
 */

#define DIR_SUFFIX	".json"
#define DIR_SUFFIX_LEN	(sizeof(DIR_SUFFIX) - 1)
#define DIR_RETRY_NS	2000000

struct dir_text {
	char *data;			/* content of the file, terminated */
	size_t len;
};

static int dir_errno(struct tei_err *err, const char *path)
{
	int code = errno == ENOMEM ? TEI_ERR_MEMORY : TEI_ERR_METADATA;

	return tei_err_fail(err, code, "meta", NULL, "%.100s: %s", path,
			    strerror(errno));
}

/* Sets *out to the path <folder>/<name><suffix>, without "nvmeof/" in the name.
 * The caller frees *out. */
static int dir_path(const struct tei_meta_store *s, const char *name,
		    const char *suffix, char **out, struct tei_err *err)
{
	const char *dir = s->settings->store.segment_dir;

	if (!*dir)
		return tei_err_fail(err, TEI_ERR_UNSUPPORTED, "meta",
				    "set MOONRAIL_SEGMENT_DIR to a folder that all processes share",
				    "MOONRAIL_SEGMENT_DIR is not set, so P2PHANDSHAKE has no file segments");
	if (!strncmp(name, TEI_META_PERSISTENT,
		     sizeof(TEI_META_PERSISTENT) - 1))
		name += sizeof(TEI_META_PERSISTENT) - 1;
	if (asprintf(out, "%s/%s%s", dir, name, suffix) >= 0)
		return 0;
	return tei_err_fail(err, TEI_ERR_MEMORY, "meta", NULL,
			    "no memory for a path");
}

/*
 * Returns the version of the file, a number that is computed from the inode
 * number and the modification time. A file that replaces it has another
 * version. Never returns META_ABSENT.
 */
static int64_t dir_version(const struct stat *st)
{
	uint64_t v = (uint64_t)st->st_ino * UINT64_C(0x9e3779b97f4a7c15) +
		     (uint64_t)st->st_mtim.tv_sec * TEI_NS_PER_SEC +
		     (uint64_t)st->st_mtim.tv_nsec;

	return (int64_t)(v >> 1);
}

static bool dir_read_all(int fd, struct dir_text *t)
{
	ssize_t n = 1;

	t->data = malloc(TEI_META_PERSISTENT_MAX + 2);
	if (!t->data)
		return false;
	for (t->len = 0; n > 0 && t->len <= TEI_META_PERSISTENT_MAX;
	     t->len += n > 0 ? (size_t)n : 0)
		n = read(fd, t->data + t->len,
			 TEI_META_PERSISTENT_MAX + 1 - t->len);
	t->data[t->len] = 0;
	if (n < 0)
		free(t->data);
	return n >= 0;
}

int meta_dir_read(struct tei_meta_store *store, const char *name,
		  uint64_t deadline_ns, char **json, size_t *len,
		  int64_t *version, struct tei_err *err)
{
	struct dir_text text;
	struct stat st;
	char *path;
	int fd, rc;

	(void)deadline_ns;
	rc = dir_path(store, name, DIR_SUFFIX, &path, err);
	if (rc)
		return rc;
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	if (fd < 0 && errno == ENOENT) {
		*json = NULL;
		*len = 0;
		*version = META_ABSENT;
	} else if (fd < 0 || fstat(fd, &st) || !dir_read_all(fd, &text)) {
		rc = dir_errno(err, path);
	} else {
		*json = text.data;
		*len = text.len;
		*version = dir_version(&st);
	}
	if (fd >= 0)
		close(fd);
	free(path);
	return rc;
}

/* Locks the folder. Sets *out to a file descriptor, which the caller closes to
 * unlock the folder. */
static int dir_lock(const struct tei_meta_store *s, uint64_t deadline_ns,
		    int *out, struct tei_err *err)
{
	struct timespec pause = { .tv_nsec = DIR_RETRY_NS };
	char *path;
	int fd, rc = dir_path(s, ".lock", "", &path, err);

	if (rc)
		return rc;
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
	while (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB)) {
		if (errno != EINTR &&
		    (errno != EWOULDBLOCK || tei_now_ns() >= deadline_ns)) {
			rc = dir_errno(err, path);
			close(fd);
			free(path);
			return rc;
		}
		nanosleep(&pause, NULL);
	}
	if (fd < 0)
		rc = dir_errno(err, path);
	else
		*out = fd;
	free(path);
	return rc;
}

/* Writes json to the temporary file "path" and syncs that file. */
static int dir_write_new(const char *path, const char *json, size_t len,
			 struct tei_err *err)
{
	int fd, rc = 0;
	size_t done = 0;
	ssize_t n;

	unlink(path); /* removes the temporary file of a writer that was
		       * killed */
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	while (fd >= 0 && done < len) {
		n = write(fd, json + done, len - done);
		if (n < 0 && errno != EINTR)
			break;
		done += n > 0 ? (size_t)n : 0;
	}
	if (fd < 0 || done < len || fsync(fd))
		rc = dir_errno(err, path);
	if (fd >= 0)
		close(fd);
	if (rc)
		unlink(path);
	return rc;
}

static int dir_sync(const struct tei_meta_store *s, struct tei_err *err)
{
	char *path;
	int fd, rc = dir_path(s, "", "", &path, err);

	if (rc)
		return rc;
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	/* EINVAL means that the file system does not support fsync of
	 * folders */
	if (fd < 0 || (fsync(fd) && errno != EINVAL))
		rc = dir_errno(err, path);
	if (fd >= 0)
		close(fd);
	free(path);
	return rc;
}

/* Replaces the file of the record, or removes it if json is NULL. The caller
 * holds the lock of the folder. */
static int dir_replace(const struct tei_meta_store *s, const char *name,
		       const char *path, const char *json, size_t len,
		       struct tei_err *err)
{
	char *fresh;
	int rc;

	if (!json)
		return unlink(path) ? dir_errno(err, path) : dir_sync(s, err);
	rc = dir_path(s, name, ".new", &fresh, err);
	if (rc)
		return rc;
	rc = dir_write_new(fresh, json, len, err);
	if (!rc && rename(fresh, path)) {
		rc = dir_errno(err, path);
		unlink(fresh);
	}
	free(fresh);
	return rc ? rc : dir_sync(s, err);
}

int meta_dir_write(struct tei_meta_store *store, const char *name,
		   const char *json, size_t len, int64_t version,
		   uint64_t deadline_ns, struct tei_err *err)
{
	int64_t now = META_ABSENT;
	struct stat st;
	char *path;
	int lock = -1, rc;

	rc = dir_path(store, name, DIR_SUFFIX, &path, err);
	if (rc)
		return rc;
	rc = dir_lock(store, deadline_ns, &lock, err);
	if (rc)
		goto free_path;
	if (!stat(path, &st))
		now = dir_version(&st);
	if (now != version)
		rc = META_CONFLICT;
	else
		rc = dir_replace(store, name, path, json, len, err);
	close(lock);
free_path:
	free(path);
	return rc;
}

int meta_dir_list(struct tei_meta_store *store, const char *folder,
		  uint64_t deadline_ns, struct meta_names *names,
		  struct tei_err *err)
{
	struct dirent *entry;
	char *path;
	size_t len;
	DIR *dir;
	int rc;

	(void)deadline_ns;
	if (strcmp(folder, TEI_META_PERSISTENT) != 0)
		return tei_err_fail(err, TEI_ERR_UNSUPPORTED, "meta",
				    "the name of a segment is the address of its process",
				    "P2PHANDSHAKE keeps no list of processes");
	rc = dir_path(store, "", "", &path, err);
	if (rc)
		return rc;
	dir = opendir(path);
	if (!dir)
		rc = dir_errno(err, path);
	while (dir && !rc && (entry = readdir(dir))) {
		len = strlen(entry->d_name);
		if (len <= DIR_SUFFIX_LEN ||
		    strcmp(entry->d_name + len - DIR_SUFFIX_LEN, DIR_SUFFIX))
			continue;
		entry->d_name[len - DIR_SUFFIX_LEN] = 0;
		if (!meta_names_add(names, entry->d_name))
			rc = tei_err_fail(err, TEI_ERR_MEMORY, "meta", NULL,
					  "no memory for the names of segments");
	}
	if (dir)
		closedir(dir);
	free(path);
	return rc;
}
