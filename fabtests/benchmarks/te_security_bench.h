/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_BENCHMARKS_TE_SECURITY_BENCH_H
#define TEI_FABTESTS_BENCHMARKS_TE_SECURITY_BENCH_H

#include <stdbool.h>

/* A client that may slow the other clients of a target. */
struct sb_client {
	const char *name;
	const char *does;
	bool secret;			/* target and all clients have the
					 * shared secret */
	int settle_ms;			/* time until all that it has requested
					 * is done */
	int spend_s;			/* time until it has used up its rate
					 * limit */
	/* Runs the client in a process of its own, which leads a process group.
	 * Never returns. */
	void (*run)(const char *target);
};

/* The clients. The first one does nothing, so its result is the error of the
 * method. */
extern const struct sb_client sb_clients[];
extern const int sb_clients_count;

#endif /* TEI_FABTESTS_BENCHMARKS_TE_SECURITY_BENCH_H */
