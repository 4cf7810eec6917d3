/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Transfers in a program that sleeps in epoll. Four batches to a target are
 * always in progress. A timer stands for the rest of the program.
 *
 *	$ event_loop 127.0.0.1:15023
 */
#define _POSIX_C_SOURCE 200809L

#include <stdint.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include <moonrail.h>

enum { BLOCK = 256 << 10, DEPTH = 4, BATCHES = 64 };

static char memory[DEPTH * BLOCK];
static transfer_engine_t engine;
static segment_id_t segment;
static struct te_buffer target;
static int submitted, completed, ticks;

static int submit(void)
{
	int slot = submitted++ % DEPTH;
	struct transfer_request request = {
		.opcode = OPCODE_WRITE,
		.source = memory + slot * BLOCK,
		.target_id = segment,
		.target_offset = target.addr + (uint64_t)slot * BLOCK,
		.length = BLOCK,
	};
	batch_id_t batch = allocateBatchID(engine, 1);

	if (batch == INVALID_BATCH)
		return -1;
	return submitTransfer(engine, batch, &request, 1) ? -1 : 0;
}

/* Fetches all ended batches and submits a new batch for each of them. */
static int on_ended(void)
{
	struct te_ended ended[DEPTH];
	size_t count;

	do {
		count = DEPTH;
		if (te_ended_batches(engine, ended, sizeof(ended[0]), &count))
			return -1;
		for (size_t i = 0; i < count; i++) {
			freeBatchID(engine, ended[i].batch_id);
			if (ended[i].status != STATUS_COMPLETED)
				return -1;
			completed++;
			if (submitted < BATCHES && submit())
				return -1;
		}
	} while (count == DEPTH);
	return 0;
}

static int on_timer(int timer)
{
	uint64_t expired;

	if (read(timer, &expired, sizeof(expired)) == sizeof(expired))
		ticks += (int)expired;
	return 0;
}

static int loop(int epoll, int timer)
{
	struct epoll_event event;

	for (int i = 0; i < DEPTH; i++)
		if (submit())
			return -1;
	while (completed < BATCHES) {
		if (epoll_wait(epoll, &event, 1, 30000) < 1)
			return -1;
		if (event.data.fd == timer ? on_timer(timer) : on_ended())
			return -1;
	}
	return 0;
}

static int watch(void)
{
	struct itimerspec every = { { 0, 1000000 }, { 0, 1000000 } };
	int epoll = epoll_create1(EPOLL_CLOEXEC);
	int timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	struct epoll_event tick = { .events = EPOLLIN, .data.fd = timer };
	/* The file descriptor belongs to the engine. The program must not close
	 * it. */
	struct epoll_event ended = { .events = EPOLLIN };
	int ret = -1;

	ended.data.fd = te_event_fd(engine);
	if (epoll >= 0 && timer >= 0 && ended.data.fd >= 0 &&
	    !timerfd_settime(timer, 0, &every, NULL) &&
	    !epoll_ctl(epoll, EPOLL_CTL_ADD, timer, &tick) &&
	    !epoll_ctl(epoll, EPOLL_CTL_ADD, ended.data.fd, &ended))
		ret = loop(epoll, timer);
	close(timer);
	close(epoll);
	return ret;
}

int main(int argc, char **argv)
{
	size_t one = 1;
	int ret = -1;

	if (argc < 2) {
		fprintf(stderr, "usage: event_loop SEGMENT\n");
		return 2;
	}
	engine = createTransferEngine("P2PHANDSHAKE", "127.0.0.1", "", 0, 1);
	if (!engine ||
	    registerLocalMemory(engine, memory, sizeof(memory), "*", 0))
		return 1;
	segment = openSegment(engine, argv[1]);
	if (segment >= 0 &&
	    !te_segment_buffers(engine, segment, &target, sizeof(target),
				&one) && target.length >= sizeof(memory))
		ret = watch();
	/* After an error, waits until the tasks in progress have ended. */
	te_drain(engine, -1);
	unregisterLocalMemory(engine, memory);
	destroyTransferEngine(engine);
	printf("%d of %d batches completed, %d timer ticks meanwhile\n",
	       completed, BATCHES, ticks);
	return ret ? 1 : 0;
}
