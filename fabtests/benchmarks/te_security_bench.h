/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_BENCHMARKS_TE_SECURITY_BENCH_H
#define TEI_FABTESTS_BENCHMARKS_TE_SECURITY_BENCH_H

#include <stdbool.h>

/* A kind of misbehaving client. te_security_bench measures how much it slows
 * the other clients of a target. */
struct sb_client {
	const char *name;
	const char *does;
	bool secret;			/* the target and all clients have the
					 * shared secret */
	int settle_ms;			/* time after it was stopped until the
					 * target has handled all of its
					 * requests, ms */
	int spend_s;			/* time after its start until it has
					 * used up its rate limit, s */
	/* Runs the client against the target with this segment name. Called in
	 * a new process, which leads a process group. Never returns. */
	void (*run)(const char *target);
};

/* The clients. The first one does nothing: its result is the error of the
 * measurement. */
extern const struct sb_client sb_clients[];
extern const int sb_clients_count;

#endif /* TEI_FABTESTS_BENCHMARKS_TE_SECURITY_BENCH_H */
