/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_COMMON_FT_PORT_H
#define TEI_FABTESTS_COMMON_FT_PORT_H

#include <stdbool.h>

/* Returns a TCP socket that is bound to a numeric address and port, or
 * connected to them if bound is false. A read times out after 2 s. Returns -1
 * on failure. */
int ft_port_socket(const char *address, int port, bool bound);

/*
 * Returns a port that is free now, or 0 if there is none. The port lies outside
 * the range that the kernel assigns automatically, if that range leaves any
 * ports, so that a killed server can bind it again. No other caller on this
 * machine gets the same port until this process has ended.
 */
int ft_port(const char *address);

#endif /* TEI_FABTESTS_COMMON_FT_PORT_H */
