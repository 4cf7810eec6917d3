/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_COMMON_FT_RELAY_H
#define TEI_FABTESTS_COMMON_FT_RELAY_H

#include <stdbool.h>
#include <sys/types.h>

/*
 * A process that passes TCP connections on to a server of this host and delays
 * every piece of data in both directions. It ends with the process that started
 * it. One thread uses an object.
 */
struct ft_relay {
	pid_t pid;	/* 0 if the relay does not run */
	int port;	/* port of 127.0.0.1 at which the relay accepts
			 * connections */
};

/* Starts a relay to that port of 127.0.0.1. Prints the cause of a failure. */
bool ft_relay_start(struct ft_relay *relay, int to_port, unsigned int delay_ms);
void ft_relay_stop(struct ft_relay *relay);

#endif /* TEI_FABTESTS_COMMON_FT_RELAY_H */
