/* SPDX-License-Identifier: BSD-2-Clause */

/*
 * Tests of te_wait_batch and the other waiting calls, of event file
 * descriptors, cancellation, flush and deadlines, with an initiator and a
 * target process. The program ft_wait_cost tests the cost of waiting.
 */

#include "fabtests/functional/ft_wait.h"

static const struct wait_part wait_parts[] = {
	{ "basics", wait_basics, false },
	{ "bad-input", wait_bad_input, false },
	{ "timeouts", wait_timeouts, false },
	{ "threads", wait_threads, false },
	{ "freed", wait_freed, false },
	{ "destroyed", wait_destroyed, false },
	{ "blocking", wait_blocking, false },
	{ "blocking-stopped", wait_blocking_stopped, false },
	{ "blocking-destroyed", wait_blocking_destroyed, false },
	{ "cookies", wait_cookies, false },
	{ "reuse", wait_reuse, false },
	{ "any", wait_any, false },
	{ "relative", wait_relative, false },
	{ "batch-fd", wait_batch_fd, false },
	{ "epoll", wait_epoll, false },
	{ "element-sizes", wait_element_sizes, false },
	{ "levels", wait_levels, false },
	{ "event-storm", wait_event_storm, false },
	{ "cancel", wait_cancel, false },
	{ "cancel-stopped", wait_cancel_stopped, false },
	{ "cancel-local", wait_cancel_local, false },
	{ "flush", wait_flush, false },
	{ "deadline", wait_deadline, false },
	{ "deadline-running", wait_deadline_running, false },
	{ "deadline-destroyed", wait_deadline_destroyed, false },
	{ "killed", wait_killed, true },
};

int main(int argc, char **argv)
{
	return wait_main(argc, argv, wait_parts,
			 sizeof(wait_parts) / sizeof(*wait_parts));
}
