/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_TOOLS_TE_META_H
#define TEI_TOOLS_TE_META_H

/* What the sources of te_meta share. One thread. */

#include <stdbool.h>
#include <stdint.h>

#include "meta/tei_meta.h"

enum meta_exit {
	META_EXIT_OK,
	META_EXIT_FAILED,		/* refused, or the store did */
	META_EXIT_USAGE = 3,		/* wrong options, no output */
};

enum meta_verb {
	META_REGISTER,
	META_MOUNT,
	META_UNMOUNT,
	META_LIST,
	META_SHOW,
	META_REMOVE,
};

/* Points into argv. */
struct meta_opts {
	enum meta_verb verb;
	const char *metadata_server;
	const char *name;		/* of the segment, or NULL */
	const char *server;		/* or NULL */
	uint64_t size;			/* of each file; 0: as it is */
	char **paths;
	uint32_t path_count;
	bool help, version;
};

/* 0 or META_EXIT_USAGE, told on stderr. */
int meta_parse(int argc, char **argv, struct meta_opts *opts);
void meta_help(void);

/* A file or block device that is there, can be read and has this many bytes. */
struct meta_file {
	char *path;			/* absolute, owned */
	uint64_t length;
};

/*
 * Looks at path. want: its length as stated, 0: not stated; a block device may
 * be longer. 0, or -1, told on stderr. check_free is for either end.
 */
int meta_check(const char *path, uint64_t want, struct meta_file *out);
void meta_check_free(struct meta_file *files, uint32_t count);

/* register, mount, unmount, remove: an exit code. */
int meta_change(struct tei_meta_store *store, const struct meta_opts *opts,
		uint64_t deadline_ns);

#endif /* TEI_TOOLS_TE_META_H */
