/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_FUNCTIONAL_FT_FILES_H
#define TEI_FABTESTS_FUNCTIONAL_FT_FILES_H

/* Common parts of the tests of file segments. te_meta registers two files as a
 * segment with the name FILES_NAME. */

#include "fabtests/functional/fx.h"

#define FILES_COUNT 2
#define FILES_FIRST (3 * FX_MIB + 5)	/* size of the first file */
#define FILES_SECOND FX_MIB
#define FILES_SIZE (FILES_FIRST + FILES_SECOND)
#define FILES_MEM (5 * FX_MIB)
#define FILES_NAME "nvmeof/test"

struct files_rig {
	char dir[64];
	char path[FILES_COUNT][96];
	char meta[160];		/* connection string of the metadata server */
	char server[32];	/* name of this process's engine, for which
				 * te_meta mounts the files */
	transfer_engine_t engine;
	struct fx_buf mem;
	segment_id_t seg;
};

/* Creates a folder with the files, in FT_FILES_DIR if it is set, or else in
 * TMPDIR or /var/tmp. The folder is also MOONRAIL_SEGMENT_DIR. Returns true on
 * success. */
bool files_make(struct files_rig *rig);
/* Creates the engine with a transport (NULL means none) and registers its
 * memory. Returns true on success. */
bool files_engine(struct files_rig *rig, const char *transport);
void files_close(struct files_rig *rig);
/* Removes the files and the folder. */
void files_remove(struct files_rig *rig);
/* Runs te_meta with the rig's metadata server and these arguments. Returns its
 * exit status, or -1 if it did not exit. */
int files_meta(const struct files_rig *rig, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* Registers the segment, and mounts its files for the engine of this process.
 * Returns true on success. */
bool files_register(struct files_rig *rig);
/* Returns true if the files contain the pattern of `sequence`. */
bool files_check(const struct files_rig *rig, uint64_t sequence);
/* Submits one request and waits until it ends. Returns its status, or the
 * negative code of submitTransfer. `err` receives the error record and may be
 * NULL. */
int files_one(struct files_rig *rig, int op, uint64_t at, void *local,
	      uint64_t len, struct te_error *err);

/* --- ft_files_bad.c ------------------------------------------------------ */
void files_bad(void);

#endif /* TEI_FABTESTS_FUNCTIONAL_FT_FILES_H */
