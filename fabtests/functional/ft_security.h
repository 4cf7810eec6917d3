/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_FUNCTIONAL_FT_SECURITY_H
#define TEI_FABTESTS_FUNCTIONAL_FT_SECURITY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Size of a frame header on the control channel, and message types.
 * ft_security.c describes the format. */
#define SEC_HEAD	16
#define SEC_PING	1
#define SEC_GET_DESC	2
#define SEC_AUTH	15
#define SEC_DESC	130

/* Writes the header of a frame to `out`; its payload has `length` bytes. */
void sec_frame(uint8_t *out, uint8_t version, uint8_t type, uint32_t length);

/* Connects from the local address `from` to 127.0.0.1, to the port in `name`.
 * Returns the socket, or -1 on failure. */
int sec_connect(const char *name, const char *from);

/* Listens on 127.0.0.1. Writes "ADDRESS:PORT" to `name` and returns the socket,
 * or -1 on failure. */
int sec_listen(char *name, size_t len);

/* Creates a file with one line, which only its owner may read. Returns true on
 * success. */
bool sec_file(const char *path, const char *text);

/* Tests the limit of the notifications that an engine keeps for the
 * application. */
void sec_limits(void);

#endif /* TEI_FABTESTS_FUNCTIONAL_FT_SECURITY_H */
