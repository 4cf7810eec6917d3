/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_API_ENGINE_HOST_COPY_H
#define TEI_API_ENGINE_HOST_COPY_H

/*
 * Copies inside this host for GPU staging: the functions share, unshare,
 * release, copy and copy_cancel of struct tei_staging_ops, which has their
 * contracts. arg is the engine.
 */

#include <stdbool.h>
#include <stdint.h>

struct tei_staging_copy;

int engine_host_share(void *arg, void *mem, uint64_t len, bool remote,
		      uint64_t *serial);
int engine_host_unshare(void *arg, void *mem, uint64_t deadline_ns);
void engine_host_release(void *arg, void *mem);
int engine_host_copy(void *arg, struct tei_staging_copy *copy);
void engine_host_copy_cancel(void *arg, struct tei_staging_copy *copy);

#endif /* TEI_API_ENGINE_HOST_COPY_H */
