/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One request with many memory ranges on both sides: writes a column of a
 * matrix to a column of the target's matrix, and reads it back in reverse
 * order.
 *
 *	$ target
 *	127.0.0.1:15023
 *	$ scatter_gather 127.0.0.1:15023	(in another terminal)
 */
#include <stdio.h>
#include <string.h>

#include <moonrail.h>

#define ROWS 16
#define COLUMNS 1024

static double ours[ROWS][COLUMNS];
static double column[ROWS];

static int complain(const char *call)
{
	struct te_error err = { 0 };

	te_last_error(&err, sizeof(err));
	fprintf(stderr, "%s: %s%s%s\n", call, err.text,
		err.hint[0] ? "; " : "", err.hint);
	return 1;
}

/* Submits one task, which may have many ranges, and waits for it. */
static int transfer(transfer_engine_t engine, const struct te_request *request)
{
	struct transfer_status status = { STATUS_WAITING, 0 };
	batch_id_t batch = allocateBatchID(engine, 1);

	if (batch == INVALID_BATCH)
		return complain("allocateBatchID");
	/* The lists of ranges are not used after te_submit has returned. */
	if (te_submit(engine, batch, request, sizeof(*request), 1, 0)) {
		freeBatchID(engine, batch);
		return complain("te_submit");
	}
	te_wait_batch(engine, batch, -1, &status);
	freeBatchID(engine, batch);
	if (status.status != STATUS_COMPLETED) {
		fprintf(stderr, "the transfer ended with status %d\n",
			status.status);
		return 1;
	}
	printf("%zu bytes in %u pieces\n", status.transferred_bytes,
	       request->remote_count);
	return 0;
}

/* Writes a column of this matrix to the same column of the matrix at base. */
static int write_column(transfer_engine_t engine, segment_id_t target,
			uint64_t base, size_t i)
{
	struct te_local local[ROWS];
	struct te_remote remote[ROWS];
	struct te_request request = {
		.opcode = TE_WRITE, .target_id = target,
		.local = local, .local_count = ROWS,
		.remote = remote, .remote_count = ROWS,
	};

	for (size_t row = 0; row < ROWS; row++) {
		local[row].addr = &ours[row][i];
		local[row].length = sizeof(double);
		remote[row].addr = base + (row * COLUMNS + i) * sizeof(double);
		remote[row].length = sizeof(double);
	}
	return transfer(engine, &request);
}

/* Reads the same column, last row first, into one range. The two sides need the
 * same total length, not the same number of ranges. */
static int read_column(transfer_engine_t engine, segment_id_t target,
		       uint64_t base, size_t i)
{
	struct te_local local = { column, sizeof(column) };
	struct te_remote remote[ROWS];
	struct te_request request = {
		.opcode = TE_READ, .target_id = target,
		.local = &local, .local_count = 1,
		.remote = remote, .remote_count = ROWS,
	};

	for (size_t row = 0; row < ROWS; row++) {
		remote[row].addr = base + ((ROWS - 1 - row) * COLUMNS + i) *
						  sizeof(double);
		remote[row].length = sizeof(double);
	}
	return transfer(engine, &request);
}

static int run(transfer_engine_t engine, const char *name)
{
	segment_id_t target;
	struct te_buffer buffer;
	size_t one = 1;

	if (registerLocalMemory(engine, ours, sizeof(ours), "*", 0) ||
	    registerLocalMemory(engine, column, sizeof(column), "*", 0))
		return complain("registerLocalMemory");
	target = openSegment(engine, name);
	if (target < 0)
		return complain("openSegment");
	if (te_segment_buffers(engine, target, &buffer, sizeof(buffer),
			       &one) || !one || buffer.length < sizeof(ours))
		return complain("te_segment_buffers");
	for (size_t row = 0; row < ROWS; row++)
		ours[row][7] = (double)row;
	if (write_column(engine, target, buffer.addr, 7) ||
	    read_column(engine, target, buffer.addr, 7))
		return 1;
	for (size_t row = 0; row < ROWS; row++)
		printf("%g%c", column[row], row + 1 < ROWS ? ' ' : '\n');
	return closeSegment(engine, target) ? complain("closeSegment") : 0;
}

int main(int argc, char **argv)
{
	transfer_engine_t engine;
	int ret = 1;

	if (argc != 2) {
		fprintf(stderr, "usage: %s TARGET\n", argv[0]);
		return 1;
	}
	engine = createTransferEngine("P2PHANDSHAKE", "127.0.0.1", "", 0, 1);
	if (engine)
		ret = run(engine, argv[1]);
	else
		complain("createTransferEngine");
	destroyTransferEngine(engine);
	return ret;
}
