/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_FUNCTIONAL_FT_FILES_H
#define TEI_FABTESTS_FUNCTIONAL_FT_FILES_H

/* What the tests of file segments share: two files, one name, te_meta. */

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
	char server[32];	/* by which the engine here is known */
	transfer_engine_t engine;
	struct fx_buf mem;
	segment_id_t seg;
};

/*
 * Files and a folder of segments, in FT_FILES_DIR if that is set, else TMPDIR;
 * MOONRAIL_SEGMENT_DIR is set.
 */
bool files_make(struct files_rig *rig);
/* The engine, with transport (NULL: none) and its memory. */
bool files_engine(struct files_rig *rig, const char *transport);
void files_close(struct files_rig *rig);
/* Takes the files away. */
void files_remove(struct files_rig *rig);
/* te_meta's exit status; with the rig's metadata server. */
int files_meta(const struct files_rig *rig, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* register and mount for the engine here. */
bool files_register(struct files_rig *rig);
/* The files hold what fx_buf_fill makes of sequence. */
bool files_check(const struct files_rig *rig, uint64_t sequence);
/* One request: its status, or minus submitTransfer's code. err may be NULL. */
int files_one(struct files_rig *rig, int op, uint64_t at, void *local,
	      uint64_t len, struct te_error *err);

/* --- ft_files_bad.c ------------------------------------------------------ */
void files_bad(void);

#endif /* TEI_FABTESTS_FUNCTIONAL_FT_FILES_H */
