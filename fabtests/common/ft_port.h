/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_COMMON_FT_PORT_H
#define TEI_FABTESTS_COMMON_FT_PORT_H

#include <stdbool.h>

/* Returns a TCP socket for a numeric address and a port. If `bound` is true,
 * the socket is bound to them, and otherwise connected to them. A read from the
 * socket times out after 2 s. Returns -1 on failure. */
int ft_port_socket(const char *address, int port, bool bound);

/*
 * Returns a port that is free now, or 0 if there is none. No other caller on
 * this machine gets the same port until this process has ended. If possible,
 * the port lies outside the range that the kernel assigns automatically, so
 * that a killed server can bind it again.
 */
int ft_port(const char *address);

#endif /* TEI_FABTESTS_COMMON_FT_PORT_H */
