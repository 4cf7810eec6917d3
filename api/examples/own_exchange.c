/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The application exchanges the addresses itself, as MPI or a scheduler does:
 * without a metadata server and without names. Two processes are connected by a
 * socket. One process sends the descriptor of its segment (a blob) over the
 * socket. The other process opens the segment with that descriptor.
 *
 *	$ own_exchange
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <moonrail.h>

static char memory[4096];

static int send_all(int sock, const void *data, size_t size)
{
	const char *at = data;

	while (size) {
		ssize_t sent = send(sock, at, size, MSG_NOSIGNAL);

		if (sent < 1)
			return -1;
		at += sent;
		size -= (size_t)sent;
	}
	return 0;
}

static int receive_all(int sock, void *data, size_t size)
{
	return recv(sock, data, size, MSG_WAITALL) == (ssize_t)size ? 0 : -1;
}

/* The target sends the length of its blob, and then the blob. */
static int tell(transfer_engine_t engine, int sock)
{
	size_t size = 0;
	uint64_t length;
	char *blob, done;
	int ret = -1;

	/* Gets the length of the blob first. */
	if (te_segment_export(engine, 0, NULL, &size))
		return -1;
	blob = malloc(size);
	if (blob && !te_segment_export(engine, 0, blob, &size)) {
		length = size;
		ret = send_all(sock, &length, sizeof(length));
		if (!ret)
			ret = send_all(sock, blob, size);
	}
	free(blob);
	/* Waits for the byte that the initiator sends after its write. */
	if (!ret)
		ret = receive_all(sock, &done, 1);
	if (!ret)
		printf("the target has \"%s\"\n", memory);
	return ret;
}

/* The initiator receives the blob and opens the segment. */
static segment_id_t hear(transfer_engine_t engine, int sock)
{
	segment_id_t segment = -1;
	uint64_t length;
	char *blob;

	if (receive_all(sock, &length, sizeof(length)) || length > TE_BLOB_MAX)
		return -1;
	blob = malloc(length);
	if (!blob || receive_all(sock, blob, length) ||
	    te_segment_import(engine, blob, length, 0, &segment))
		segment = -1;
	free(blob);
	return segment;
}

static int write_to(transfer_engine_t engine, int sock)
{
	struct transfer_request request = { .opcode = OPCODE_WRITE };
	struct transfer_status status = { STATUS_WAITING, 0 };
	struct te_buffer buffer;
	size_t one = 1;
	batch_id_t batch;

	request.target_id = hear(engine, sock);
	if (request.target_id < 0 ||
	    te_segment_buffers(engine, request.target_id, &buffer,
			       sizeof(buffer), &one) || !one)
		return -1;
	strcpy(memory, "no name was needed");
	request.source = memory;
	request.target_offset = buffer.addr;
	request.length = sizeof(memory);
	batch = allocateBatchID(engine, 1);
	if (batch == INVALID_BATCH || submitTransfer(engine, batch, &request, 1))
		return -1;
	te_wait_batch(engine, batch, -1, &status);
	freeBatchID(engine, batch);
	return status.status == STATUS_COMPLETED ? send_all(sock, "", 1) : -1;
}

/* An engine cannot be used after a fork, so each process creates its own
 * engine. */
static int run(int sock, int target)
{
	transfer_engine_t engine;
	int ret = -1;

	engine = createTransferEngine("P2PHANDSHAKE", "127.0.0.1", "", 0, 1);
	if (!engine)
		return 1;
	if (!registerLocalMemory(engine, memory, sizeof(memory), "*", target)) {
		ret = target ? tell(engine, sock) : write_to(engine, sock);
		unregisterLocalMemory(engine, memory);
	}
	destroyTransferEngine(engine);
	return ret ? 1 : 0;
}

int main(void)
{
	int pair[2], ret, status = 0;
	pid_t child;

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
		return 1;
	child = fork();
	if (child < 0)
		return 1;
	close(pair[child == 0]);
	ret = run(pair[child != 0], child != 0);
	if (!child)
		return ret;
	close(pair[1]);
	waitpid(child, &status, 0);
	return ret || status;
}
