/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_BENCHMARKS_TE_SECURITY_BENCH_H
#define TEI_FABTESTS_BENCHMARKS_TE_SECURITY_BENCH_H

#include <stdbool.h>

/* A client that others may suffer from. */
struct sb_client {
	const char *name;
	const char *does;
	bool secret;			/* target, client and the others have it */
	int settle_ms;			/* until all that it asked for is over */
	int spend_s;			/* until it has spent its credit */
	/* In a process of its own, the first of its group; never returns. */
	void (*run)(const char *target);
};

/* The first one does nothing: what is measured there is the method's error. */
extern const struct sb_client sb_clients[];
extern const int sb_clients_count;

#endif /* TEI_FABTESTS_BENCHMARKS_TE_SECURITY_BENCH_H */
