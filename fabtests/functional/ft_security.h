/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_FUNCTIONAL_FT_SECURITY_H
#define TEI_FABTESTS_FUNCTIONAL_FT_SECURITY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Frames of the control channel, written out: see ft_security.c. */
#define SEC_HEAD	16
#define SEC_PING	1
#define SEC_GET_DESC	2
#define SEC_AUTH	15
#define SEC_DESC	130

void sec_frame(uint8_t *out, uint8_t version, uint8_t type, uint32_t length);

/* From a given address of this host; -1 where nobody answers. */
int sec_connect(const char *name, const char *from);

/* Listens on 127.0.0.1; name gets where. */
int sec_listen(char *name, size_t len);

/* A file of one line that only its owner may read. */
bool sec_file(const char *path, const char *text);

/* What is held for others is bounded. */
void sec_limits(void);

#endif /* TEI_FABTESTS_FUNCTIONAL_FT_SECURITY_H */
