/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_TOOLS_TE_META_H
#define TEI_TOOLS_TE_META_H

/* Declarations that the source files of te_meta share. All functions are called
 * in one thread. */

#include <stdbool.h>
#include <stdint.h>

#include "meta/tei_meta.h"

enum meta_exit {
	META_EXIT_OK,
	META_EXIT_FAILED,		/* the command was refused, or the store
					 * failed */
	META_EXIT_USAGE = 3,		/* wrong options, or the output cannot
					 * be written */
};

enum meta_verb {
	META_REGISTER,
	META_MOUNT,
	META_UNMOUNT,
	META_LIST,
	META_SHOW,
	META_REMOVE,
	META_SERVE,
};

/* The command and its options. The strings are in argv or are constants. */
struct meta_opts {
	enum meta_verb verb;
	const char *metadata_server;
	const char *name;		/* name of the segment, or NULL */
	const char *server;		/* name of the engine's server, or
					 * NULL */
	uint64_t size;			/* size of each file, bytes; 0 means its
					 * present size */
	char **paths;
	uint32_t path_count;
	bool all;			/* used by list: also list the
					 * descriptors of processes */
	bool help, version;
	/* used by serve: */
	const char *host;
	uint64_t port; /* port to listen at; 0 means any free port */
	uint64_t max_keys, max_connections;
	uint64_t max_value, memory;	/* limits, bytes: for one value, and for
					 * all keys and values together */
	bool plain;		    /* serve only the requests of Mooncake's
				     * protocol */
};

/* Returns true if name has the form ram/NAME, which is the segment of a
 * process. */
bool meta_process_name(const char *name);

/* Parses the command line. Returns 0, or META_EXIT_USAGE after a message on
 * stderr. */
int meta_parse(int argc, char **argv, struct meta_opts *opts);
void meta_help(void);

/* A file or block device that exists, can be read, and has the stated size. */
struct meta_file {
	char *path;			/* absolute path of the file; freed by
					 * meta_check_free */
	uint64_t length;
};

/* Checks a file. want: expected size of the file; 0 means any size. A block
 * device may be larger than want. Returns 0, or -1 after a message on stderr.
 * In both cases the caller frees *out with meta_check_free. */
int meta_check(const char *path, uint64_t want, struct meta_file *out);
void meta_check_free(struct meta_file *files, uint32_t count);

/* Runs register, mount, unmount or remove. Returns an exit status. */
int meta_change(struct tei_meta_store *store, const struct meta_opts *opts,
		uint64_t deadline_ns);

/* Runs serve until SIGTERM or SIGINT. Returns an exit status. */
int meta_serve(const struct meta_opts *opts);

#endif /* TEI_TOOLS_TE_META_H */
