/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_NVMEOF_TEST_H
#define TEI_PROV_NVMEOF_TEST_H

/* Shared by the unit tests of this module. */

#include <pthread.h>

#include "prov/nvmeof/nvmeof_int.h"
#include "util/clock.h"
#include "util/settings.h"
#include "util/tei_test.h"

extern const struct tei_test_case nvmeof_fault_cases[];
extern const struct tei_test_case nvmeof_op_cases[];

#define RIG_FILES	3
#define RIG_MEM		(6u << 20)

/* A context, a segment of files on disk, and registered memory. */
struct rig {
	struct tei_settings settings;
	struct tei_nvmeof *ctx;
	struct tei_nvmeof_seg *seg;
	struct tei_nvmeof_file file[RIG_FILES];
	char dir[64], path[RIG_FILES][96];
	uint64_t size;			/* size of the segment, bytes */
	unsigned char *mem;		/* RIG_MEM bytes */
};

/* An operation for whose end a test can wait. */
struct run {
	struct tei_nvmeof_op op;
	pthread_mutex_t lock;
	pthread_cond_t cond;
	int calls, code, sys_errno;
	char text[TEI_ERR_TEXT], hint[TEI_ERR_TEXT];
};

/* Simulates storage that does not answer, for one file. */
struct silence {
	struct rig *rig;
	struct nvmeof_file *file;	/* NULL when the file answers again */
	struct tei_list kept;		/* withheld requests; guarded by the
					 * context's lock */
	pthread_mutex_t lock;
	pthread_cond_t cond;
};

/* Creates the files, the context and the memory, and opens the segment. io:
 * "uring" or "threads". Returns false if the case was skipped. */
bool rig_start(struct rig *r, const char *io, const char *sync, bool direct);
void rig_stop(struct rig *r);
/* Closes the segment and opens it again, with the files in r->file. */
void rig_reopen(struct rig *r);

void run_start(struct rig *r, struct run *t, bool read, uint64_t offset,
	       void *local, uint64_t length);
/* Waits for done and returns its code. */
int run_wait(struct run *t);
/* Returns true if done is called within some seconds with code 0. */
bool run_ends(struct run *t);
/* Starts an operation, waits for its end and returns its code. */
int run_op(struct rig *r, struct run *t, bool read, uint64_t offset,
	   void *local, uint64_t length);

/* Makes the file's storage silent until silence_end, which must be called.
 * looks: if true, the file's requests are not withheld from io_uring, so that
 * only its checks and closes wait. */
void silence_begin(struct silence *s, struct rig *r, int file, bool looks);
void silence_end(struct silence *s);

/* Calls fn once with the name of each available back end, and prints the
 * name. */
void rig_each(void (*fn)(const char *io));

#endif /* TEI_PROV_NVMEOF_TEST_H */
