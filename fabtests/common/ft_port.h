/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_COMMON_FT_PORT_H
#define TEI_FABTESTS_COMMON_FT_PORT_H

#include <stdbool.h>

/* A TCP socket at, or else to, a numeric address; it reads for two seconds at
 * most. -1: it can't be had. */
int ft_port_socket(const char *address, int port, bool bound);

/*
 * A port that is free now and that the kernel gives to nobody who asks for
 * any, if it keeps any back: a server that was killed has to get it again. No
 * other caller on this machine gets it before this process has ended. 0: none.
 */
int ft_port(const char *address);

#endif /* TEI_FABTESTS_COMMON_FT_PORT_H */
