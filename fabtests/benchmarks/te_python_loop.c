/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A library in C, with which bench_python.py compares the calls of Python. It
 * does what batch_transfer_sync_write does: it submits one batch of writes,
 * waits for it and frees it. The functions return 0 on success.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <moonrail.h>

static transfer_engine_t engine;
static segment_id_t target;

int loop_open(const char *name, const char *peer, void *memory, size_t length);
int loop_write(const uint64_t *local, const uint64_t *remote, const uint64_t *length,
	       size_t count, double *us);
void loop_close(void);

int loop_open(const char *name, const char *peer, void *memory, size_t length)
{
	engine = createTransferEngine("P2PHANDSHAKE", name, "", 0, 1);
	if (!engine)
		return 1;
	target = openSegment(engine, peer);
	return target < 0 ? 2 : registerLocalMemory(engine, memory, length, "*", 1);
}

static double loop_now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* Writes `count` ranges as one batch. Sets *us to the time that it took, in
 * microseconds. */
int loop_write(const uint64_t *local, const uint64_t *remote, const uint64_t *length,
	       size_t count, double *us)
{
	struct transfer_request *requests;
	struct transfer_status status = { STATUS_FAILED, 0 };
	batch_id_t batch;
	double start = loop_now_us();
	size_t i;

	requests = calloc(count, sizeof(*requests));
	if (!requests)
		return 1;
	for (i = 0; i < count; i++) {
		requests[i].opcode = OPCODE_WRITE;
		requests[i].source = (void *)(uintptr_t)local[i];
		requests[i].target_id = target;
		requests[i].target_offset = remote[i];
		requests[i].length = length[i];
	}
	batch = allocateBatchID(engine, count);
	if (!submitTransfer(engine, batch, requests, count))
		te_wait_batch(engine, batch, -1, &status);
	freeBatchID(engine, batch);
	free(requests);
	*us = loop_now_us() - start;
	return status.status != STATUS_COMPLETED;
}

void loop_close(void)
{
	destroyTransferEngine(engine);
	engine = NULL;
}
