/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_FUNCTIONAL_FT_HOSTILE_H
#define TEI_FABTESTS_FUNCTIONAL_FT_HOSTILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * The frame format of the control channel, which an attacker can learn by
 * watching it: "MRcc", version 1, type, flags (2 bytes), id (4), length (4),
 * and the payload. Numbers are big-endian.
 */
#define HOSTILE_HEADER 16
#define HOSTILE_GET_DESC 2
#define HOSTILE_DESC 130

void hostile_frame(uint8_t head[HOSTILE_HEADER], uint8_t type, uint32_t length);

/* Connects to "host:port". Returns the socket, or -1 on failure. */
int hostile_connect(const char *address);

/* Sends as many bytes as the socket accepts without waiting. Ignores errors. */
void hostile_send(int fd, const void *bytes, size_t len);

/* Closes the connection with a TCP reset. */
void hostile_reset(int fd);

/* Opens segments at servers that send false answers (ft_hostile_server.c). */
void hostile_servers(void);

#endif /* TEI_FABTESTS_FUNCTIONAL_FT_HOSTILE_H */
