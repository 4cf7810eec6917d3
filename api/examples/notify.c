/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Sends data and a notification. The sender writes the data; the library sends
 * the notification when all bytes have arrived. The receiver waits for the
 * notification.
 *
 *	$ notify
 *	127.0.0.1:15023
 *	$ notify 127.0.0.1:15023		(in another terminal)
 */
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include <moonrail.h>

static char memory[1 << 20];

static int receive(transfer_engine_t engine)
{
	struct pollfd arrived = { .events = POLLIN };
	char name[300];
	notify_msg_t *list;
	int count;

	if (getLocalIpAndPort(engine, name, sizeof(name)))
		return 1;
	printf("%s\n", name);
	fflush(stdout);
	/* The file descriptor is readable while a notification can be
	 * fetched. */
	arrived.fd = te_event_fd(engine);
	if (arrived.fd < 0 || poll(&arrived, 1, 60000) != 1)
		return 1;
	list = getNotifsFromEngine(engine, &count);
	for (int i = 0; i < count; i++)
		printf("%s: %s, and the memory says \"%.60s\"\n", list[i].name,
		       list[i].msg, memory);
	freeNotifsMsgBuf(list, count);
	return count < 1;
}

static int send_to(transfer_engine_t engine, const char *name)
{
	segment_id_t segment = openSegment(engine, name);
	notify_msg_t note = { "written", "one line" };
	struct transfer_request request = { .opcode = OPCODE_WRITE };
	struct transfer_status status = { STATUS_WAITING, 0 };
	struct te_buffer buffer;
	batch_id_t batch;
	size_t one = 1;

	if (segment < 0 ||
	    te_segment_buffers(engine, segment, &buffer, sizeof(buffer),
			       &one) || !one)
		return 1;
	snprintf(memory, sizeof(memory), "a line that came first");
	request.source = memory;
	request.target_id = segment;
	request.target_offset = buffer.addr;
	request.length = strlen(memory) + 1;
	batch = allocateBatchID(engine, 1);
	/* The notification is sent when all requests of this call are
	 * COMPLETED. */
	if (batch == INVALID_BATCH ||
	    submitTransferWithNotify(engine, batch, &request, 1, note))
		return 1;
	te_wait_batch(engine, batch, -1, &status);
	freeBatchID(engine, batch);
	closeSegment(engine, segment);
	return status.status != STATUS_COMPLETED;
}

int main(int argc, char **argv)
{
	transfer_engine_t engine;
	int ret = 1;

	engine = createTransferEngine("P2PHANDSHAKE", "127.0.0.1", "", 0, 1);
	if (!engine)
		return 1;
	if (!registerLocalMemory(engine, memory, sizeof(memory), "*",
				 argc < 2)) {
		ret = argc < 2 ? receive(engine) : send_to(engine, argv[1]);
		unregisterLocalMemory(engine, memory);
	}
	/* Waits until the peer has acknowledged the notification. */
	destroyTransferEngine(engine);
	return ret;
}
