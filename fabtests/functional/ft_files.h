/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_FUNCTIONAL_FT_FILES_H
#define TEI_FABTESTS_FUNCTIONAL_FT_FILES_H

/* Common parts of the tests of file segments. te_meta publishes two files under
 * the name FILES_NAME. */

#include "fabtests/functional/fx.h"

#define FILES_COUNT 2
#define FILES_FIRST (3 * FX_MIB + 5)	/* bytes of the first file */
#define FILES_SECOND FX_MIB
#define FILES_SIZE (FILES_FIRST + FILES_SECOND)
#define FILES_MEM (5 * FX_MIB)
#define FILES_NAME "nvmeof/test"

struct files_rig {
	char dir[64];
	char path[FILES_COUNT][96];
	char meta[160];		/* metadata connection string */
	char server[32];	/* name under which this process's engine is
				 * known */
	transfer_engine_t engine;
	struct fx_buf mem;
	segment_id_t seg;
};

/* Creates the files and a folder of segments, in FT_FILES_DIR if it is set,
 * otherwise in TMPDIR. Sets MOONRAIL_SEGMENT_DIR. */
bool files_make(struct files_rig *rig);
/* Creates the engine with a transport (NULL means none) and registers its
 * memory. */
bool files_engine(struct files_rig *rig, const char *transport);
void files_close(struct files_rig *rig);
/* Removes the files. */
void files_remove(struct files_rig *rig);
/* Runs te_meta with the rig's metadata server. Returns its exit status, or
 * -1. */
int files_meta(const struct files_rig *rig, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* Registers the segment and mounts its files for the engine of this process. */
bool files_register(struct files_rig *rig);
/* Returns true if the files contain the pattern of that sequence. */
bool files_check(const struct files_rig *rig, uint64_t sequence);
/* Submits one request and waits. Returns its status, or minus the code of
 * submitTransfer. err may be NULL. */
int files_one(struct files_rig *rig, int op, uint64_t at, void *local,
	      uint64_t len, struct te_error *err);

/* --- ft_files_bad.c ------------------------------------------------------ */
void files_bad(void);

#endif /* TEI_FABTESTS_FUNCTIONAL_FT_FILES_H */
