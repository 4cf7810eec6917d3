/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_FUNCTIONAL_FT_SECURITY_H
#define TEI_FABTESTS_FUNCTIONAL_FT_SECURITY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Size of a frame's header on the control channel, and message types; the
 * format is described in ft_security.c. */
#define SEC_HEAD	16
#define SEC_PING	1
#define SEC_GET_DESC	2
#define SEC_AUTH	15
#define SEC_DESC	130

/* Writes the header of a frame with that payload length to out. */
void sec_frame(uint8_t *out, uint8_t version, uint8_t type, uint32_t length);

/* Connects from the given local address to the port of name on 127.0.0.1.
 * Returns the socket, or -1 if the connection fails. */
int sec_connect(const char *name, const char *from);

/* Listens on 127.0.0.1 and writes "ADDRESS:PORT" to name. Returns the socket,
 * or -1. */
int sec_listen(char *name, size_t len);

/* Creates a file of one line that only its owner may read. */
bool sec_file(const char *path, const char *text);

/* Tests the limit of notifications that are kept for the application. */
void sec_limits(void);

#endif /* TEI_FABTESTS_FUNCTIONAL_FT_SECURITY_H */
