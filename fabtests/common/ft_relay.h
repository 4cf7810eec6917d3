/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_COMMON_FT_RELAY_H
#define TEI_FABTESTS_COMMON_FT_RELAY_H

#include <stdbool.h>
#include <sys/types.h>

/*
 * A process that forwards TCP connections to a server of this host. It delays
 * all data in both directions. It ends with the process that started it. An
 * object may be used by one thread only.
 */
struct ft_relay {
	pid_t pid;	/* 0 if the relay does not run */
	int port;	/* port of 127.0.0.1 at which the relay accepts
			 * connections */
};

/* Starts a relay to the port to_port of 127.0.0.1. Returns false and prints the
 * cause on failure. */
bool ft_relay_start(struct ft_relay *relay, int to_port, unsigned int delay_ms);
void ft_relay_stop(struct ft_relay *relay);

#endif /* TEI_FABTESTS_COMMON_FT_RELAY_H */
