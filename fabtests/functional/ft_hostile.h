/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_FUNCTIONAL_FT_HOSTILE_H
#define TEI_FABTESTS_FUNCTIONAL_FT_HOSTILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * What a stranger finds out by watching the control channel: a frame is
 * "MRcc", version 1, type, flags (2), id (4), length (4), big-endian, and the
 * payload.
 */
#define HOSTILE_HEADER 16
#define HOSTILE_GET_DESC 2
#define HOSTILE_DESC 130

void hostile_frame(uint8_t head[HOSTILE_HEADER], uint8_t type, uint32_t length);

/* Connected to "host:port", or -1. */
int hostile_connect(const char *address);

/* Sends, however much is taken; errors are nobody's business. */
void hostile_send(int fd, const void *bytes, size_t len);

/* Closes with a reset instead of an end. */
void hostile_reset(int fd);

/* ft_hostile_server.c: an opener meets a peer that lies. */
void hostile_servers(void);

#endif /* TEI_FABTESTS_FUNCTIONAL_FT_HOSTILE_H */
