/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_LOCAL_STATS_H
#define TEI_PROV_LOCAL_STATS_H

#include <stdint.h>

struct tei_local;

/*
 * Counters since tei_local_init. Each counter is exact, but the counters are
 * not read at the same moment.
 */
struct tei_local_counters {
	uint64_t tx_bytes;	/* bytes copied by writes */
	uint64_t rx_bytes;	/* bytes copied by reads */
	uint64_t pieces;	/* number of pieces copied */
	uint64_t errors;	/* number of pieces that failed */
	uint64_t queued_bytes;	/* bytes of operations whose copy has not
				 * started */
	uint64_t mapped;	/* number of pieces copied by mapping memory */
	uint32_t threads;	/* number of copy threads started */
	uint32_t regions;
};

void tei_local_stats(struct tei_local *ctx, struct tei_local_counters *out);

#endif /* TEI_PROV_LOCAL_STATS_H */
