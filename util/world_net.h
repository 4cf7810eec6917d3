/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_UTIL_WORLD_NET_H
#define TEI_UTIL_WORLD_NET_H

/* Sockets and links of the real world. The comments of struct tei_world_net
 * describe the functions. */

#include "util/world.h"

void world_net_sockets(int fd, unsigned long ino, tei_net_socket_fn *fn,
		       void *arg);
bool world_net_same(const struct tei_socket *s);
int world_net_own_addr(int fd, struct sockaddr *sa, uint32_t *len);
int world_net_peer_addr(int fd, struct sockaddr *sa, uint32_t *len);
bool world_net_listens(int fd);
bool world_net_tcp_state(int fd, struct tei_tcp_state *out);
void world_net_cut(int fd);
int world_net_dup(int fd);
void world_net_close(int fd);
enum tei_net_answer world_net_connect(const struct sockaddr *sa, uint32_t len,
				      uint64_t wait_ns);
enum tei_net_bind world_net_bindable(const struct sockaddr *sa, uint32_t len,
				     bool listen);
int world_net_interfaces(struct ifaddrs **out);
void world_net_interfaces_free(struct ifaddrs *list);
uint32_t world_net_interface_index(const char *name);
bool world_net_interface_name(uint32_t index, char *name);
int world_net_interface_up(uint32_t index);
int world_net_changes_open(void);
bool world_net_changes_read(int fd);

#endif /* TEI_UTIL_WORLD_NET_H */
