/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An initiator: writes a line into the memory of a target and reads it back.
 *
 *	$ initiator 127.0.0.1:15023
 *	$ initiator storage-1 zookeeper://10.0.0.1:2181
 *
 * In a cluster, a name belongs to one process only. The name of this process
 * consists of its host and pid, so that several initiators can run at the same
 * time.
 */
#define _POSIX_C_SOURCE 200809L

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <moonrail.h>

#define LINE 4096
#define WAIT_US (30 * 1000 * 1000)

static char memory[2 * LINE]; /* the first line is written to the target, the
			       * second one receives the line that is read
			       * back */

static int complain(const char *call)
{
	struct te_error err = { 0 };

	te_last_error(&err, sizeof(err));
	fprintf(stderr, "%s: %s%s%s\n", call, err.text,
		err.hint[0] ? "; " : "", err.hint);
	return 1;
}

/* Submits one request and waits until it has ended. */
static int transfer(transfer_engine_t engine, struct transfer_request *request)
{
	struct transfer_status status = { STATUS_WAITING, 0 };
	struct te_error err = { 0 };
	batch_id_t batch = allocateBatchID(engine, 1);

	if (batch == INVALID_BATCH)
		return complain("allocateBatchID");
	if (submitTransfer(engine, batch, request, 1)) {
		complain("submitTransfer");
	} else if (te_wait_batch(engine, batch, WAIT_US, &status)) {
		/* The request has not ended in time. Cancels it and waits for
		 * its end. */
		te_cancel_batch(engine, batch);
		te_wait_batch(engine, batch, -1, &status);
	}
	if (status.status == STATUS_FAILED || status.status == STATUS_TIMEOUT) {
		te_task_error(engine, batch, 0, &err, sizeof(err));
		fprintf(stderr, "%s (rail %s, peer %s)\n", err.text, err.rail,
			err.peer);
	}
	freeBatchID(engine, batch);
	return status.status != STATUS_COMPLETED;
}

static int there_and_back(transfer_engine_t engine, segment_id_t segment)
{
	struct transfer_request request = { .target_id = segment };
	struct te_buffer buffer;
	size_t count = 1;

	/* Gets the address of the target's first buffer. */
	if (te_segment_buffers(engine, segment, &buffer, sizeof(buffer),
			       &count) || !count || buffer.length < LINE)
		return complain("te_segment_buffers");
	snprintf(memory, LINE, "hello from an initiator");
	request.opcode = OPCODE_WRITE;
	request.source = memory;
	request.target_offset = buffer.addr;
	request.length = LINE;
	if (transfer(engine, &request))
		return 1;
	request.opcode = OPCODE_READ;
	request.source = memory + LINE;
	if (transfer(engine, &request))
		return 1;
	printf("read back \"%s\"\n", memory + LINE);
	return strcmp(memory, memory + LINE) != 0;
}

static int connect_to(transfer_engine_t engine, const char *name)
{
	segment_id_t segment = openSegment(engine, name);
	int ret;

	if (segment < 0)
		return complain("openSegment");
	ret = there_and_back(engine, segment);
	closeSegment(engine, segment);
	return ret;
}

int main(int argc, char **argv)
{
	char host[64] = "", name[96] = "127.0.0.1";
	transfer_engine_t engine;
	int ret = 1;

	if (argc < 2) {
		fprintf(stderr, "usage: initiator SEGMENT [METADATA_SERVER]\n");
		return 2;
	}
	if (argc > 2) {
		gethostname(host, sizeof(host) - 1);
		snprintf(name, sizeof(name), "%s-%ld", host, (long)getpid());
	}
	engine = createTransferEngine(argc > 2 ? argv[2] : "P2PHANDSHAKE",
				      name, "", 0, 1);
	if (!engine)
		return complain("createTransferEngine");
	/* The last argument, 0: peers cannot access the memory, and it is not
	 * published. */
	if (registerLocalMemory(engine, memory, sizeof(memory), "*", 0))
		complain("registerLocalMemory");
	else
		ret = connect_to(engine, argv[1]);
	unregisterLocalMemory(engine, memory);
	destroyTransferEngine(engine);
	return ret;
}
