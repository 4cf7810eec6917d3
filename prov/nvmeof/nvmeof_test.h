/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_NVMEOF_TEST_H
#define TEI_PROV_NVMEOF_TEST_H

/* Shared by the module's unit tests. */

#include <pthread.h>

#include "prov/nvmeof/nvmeof_int.h"
#include "util/clock.h"
#include "util/settings.h"
#include "util/tei_test.h"

extern const struct tei_test_case nvmeof_fault_cases[];
extern const struct tei_test_case nvmeof_op_cases[];

#define RIG_FILES	3
#define RIG_MEM		(6u << 20)

/* A context, a segment of files on the disk, memory that is registered. */
struct rig {
	struct tei_settings settings;
	struct tei_nvmeof *ctx;
	struct tei_nvmeof_seg *seg;
	struct tei_nvmeof_file file[RIG_FILES];
	char dir[64], path[RIG_FILES][96];
	uint64_t size;			/* of the segment */
	unsigned char *mem;		/* RIG_MEM bytes */
};

/* An operation and a way to wait for it. */
struct run {
	struct tei_nvmeof_op op;
	pthread_mutex_t lock;
	pthread_cond_t cond;
	int calls, code, sys_errno;
	char text[TEI_ERR_TEXT], hint[TEI_ERR_TEXT];
};

/* Storage that is silent, of one file. */
struct silence {
	struct rig *rig;
	struct nvmeof_file *file;	/* NULL: over */
	struct tei_list kept;		/* ios; the context's lock */
	pthread_mutex_t lock;
	pthread_cond_t cond;
};

/* io: "uring" or "threads". False: the case was skipped. */
bool rig_start(struct rig *r, const char *io, const char *sync, bool direct);
void rig_stop(struct rig *r);
/* Opens the files anew. */
void rig_reopen(struct rig *r);

void run_start(struct rig *r, struct run *t, bool read, uint64_t offset,
	       void *local, uint64_t length);
/* done's code. */
int run_wait(struct run *t);
/* Whether done is called within some seconds, and with 0. */
bool run_ends(struct run *t);
/* Both. */
int run_op(struct rig *r, struct run *t, bool read, uint64_t offset,
	   void *local, uint64_t length);

/* Until silence_end, which has to come. */
void silence_begin(struct silence *s, struct rig *r, int file, bool looks);
void silence_end(struct silence *s);

/* Calls fn once with each back end that can be had; says which it was. */
void rig_each(void (*fn)(const char *io));

#endif /* TEI_PROV_NVMEOF_TEST_H */
