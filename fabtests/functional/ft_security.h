/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_FUNCTIONAL_FT_SECURITY_H
#define TEI_FABTESTS_FUNCTIONAL_FT_SECURITY_H

#include <stdint.h>

/* Frames of the control channel, written out: see ft_security.c. */
#define SEC_HEAD	16
#define SEC_PING	1
#define SEC_AUTH	15

void sec_frame(uint8_t *out, uint8_t version, uint8_t type, uint32_t length);

/* From a given address of this host; -1 where nobody answers. */
int sec_connect(const char *name, const char *from);

/* What is held for others is bounded. */
void sec_limits(void);

/* What floods cost others: takes three minutes, wants a quiet machine. */
void sec_floods(void);

#endif /* TEI_FABTESTS_FUNCTIONAL_FT_SECURITY_H */
