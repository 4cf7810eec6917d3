/* SPDX-License-Identifier: BSD-2-Clause */
#include "util/hint.h"

#include <errno.h>
#include <stddef.h>

#define HINT_ANY	(-1)	/* value of "place" in a row that applies to all
				 * places */

/* The hints. If several rows match, the first one is used. The text of a hint
 * has at most 159 bytes. */
static const struct {
	int place;		/* place of the error: enum tei_hint_place or
				 * HINT_ANY */
	int error;		/* errno, or a TEI_HINT_… value below 0 of
				 * hint.h */
	const char *hint;
} hint_rows[] = {
	{ TEI_HINT_CONTROL, TEI_HINT_SILENT,
	  "is that a moonrail control port, and is its process running and not "
	  "stopped?" },
	{ TEI_HINT_CONTROL, TEI_HINT_NO_ZONE,
	  "a link-local address needs its interface: [fe80::1%eth0]:PORT" },
	{ TEI_HINT_DATA, TEI_HINT_LARGE_STALL,
	  "the peer answers small messages: if only large requests stall, "
	  "check the MTU on the way (ping -M do -s 1472 ADDRESS)" },
	{ TEI_HINT_DATA, TEI_HINT_FELL_SILENT,
	  "the peer no longer answers: is its process running and not stopped, "
	  "and is the network to its host up?" },
	{ TEI_HINT_DATA, TEI_HINT_NO_ANSWER,
	  "does a firewall drop the data port? pin the ports with "
	  "MOONRAIL_DATA_PORTS=LOW-HIGH or FI_TCP_PORT_LOW_RANGE/_HIGH_RANGE "
	  "and open them" },
	{ TEI_HINT_CONTROL, ECONNREFUSED,
	  "is the process running, and is this its present port? A firewall "
	  "may also refuse the port" },
	{ TEI_HINT_CONTROL, ETIMEDOUT,
	  "is the host up, and does a firewall drop packets to this port? "
	  "MC_HANDSHAKE_CONNECT_TIMEOUT limits the wait" },
	{ TEI_HINT_CONTROL, EADDRNOTAVAIL,
	  "all ephemeral ports may be in use: see ss -s, widen "
	  "net.ipv4.ip_local_port_range" },
	{ TEI_HINT_BIND, EADDRINUSE,
	  "another process has the ports: widen MC_MIN_RPC_PORT and "
	  "MC_MAX_RPC_PORT" },
	{ TEI_HINT_BIND, EADDRNOTAVAIL,
	  "no interface of this host has that address: MC_TCP_BIND_ADDRESS "
	  "names the address to bind" },
	{ TEI_HINT_BIND, EACCES,
	  "ports below 1024 need a privilege: choose others with "
	  "MC_MIN_RPC_PORT and MC_MAX_RPC_PORT" },
	{ TEI_HINT_THREAD, EAGAIN,
	  "the limit on threads is reached: raise ulimit -u, pids.max of the "
	  "cgroup or TasksMax of the service" },
	{ TEI_HINT_THREAD, EPERM,
	  "a seccomp filter forbids creating threads: allow clone and clone3" },
	{ TEI_HINT_THREAD, EACCES,
	  "a seccomp filter forbids creating threads: allow clone and clone3" },
	{ TEI_HINT_THREAD, ENOSYS,
	  "a seccomp filter forbids creating threads: allow clone and clone3" },
	{ TEI_HINT_DATA, EACCES,
	  "the target has unregistered that range: sync the segment, or "
	  "register the range again at the target" },
	{ TEI_HINT_DATA, ENOMEM,
	  "check the locked-memory limit (ulimit -l) at both ends" },
	{ TEI_HINT_DATA, ECONNREFUSED,
	  "the data port refused the connection: has the process ended, or "
	  "does a firewall refuse it? MOONRAIL_DATA_PORTS=LOW-HIGH pins the "
	  "ports" },
	{ TEI_HINT_DATA, ETIMEDOUT,
	  "the data port did not answer: is the host up, does a firewall drop "
	  "its packets? MOONRAIL_DATA_PORTS=LOW-HIGH pins the ports" },
	{ TEI_HINT_DATA, EADDRNOTAVAIL,
	  "all ephemeral ports may be in use: see ss -s, widen "
	  "net.ipv4.ip_local_port_range" },
	{ HINT_ANY, EHOSTUNREACH,
	  "no route to that address: see ip route get ADDRESS; is the host up, "
	  "does a firewall reject it?" },
	{ HINT_ANY, ENETUNREACH,
	  "no route to that address: see ip route get ADDRESS at both ends" },
	{ HINT_ANY, EMFILE,
	  "too many open files: raise ulimit -n, or LimitNOFILE of the "
	  "service" },
	{ HINT_ANY, ENFILE,
	  "too many open files on this machine: raise fs.file-max" },
	{ TEI_HINT_CONTROL, EPERM,
	  "a firewall rule of this host or a seccomp filter forbids the "
	  "connection" },
	{ TEI_HINT_CONTROL, EACCES,
	  "a firewall rule of this host or a seccomp filter forbids the "
	  "connection" },
	{ TEI_HINT_OBJECT, EPERM,
	  "a seccomp filter may forbid that system call" },
	{ TEI_HINT_OBJECT, ENOSYS,
	  "a seccomp filter may forbid that system call" },
	{ HINT_ANY, EAFNOSUPPORT,
	  "this host has no such address family: is IPv6 disabled?" },
	{ TEI_HINT_DATA, ENOTCONN,
	  "the connection was lost: check that the peer lives and that its "
	  "rails can be reached" },
	{ TEI_HINT_DATA, ECONNRESET,
	  "the connection was lost: check that the peer lives and that its "
	  "rails can be reached" },
	{ TEI_HINT_DATA, ECONNABORTED,
	  "the connection was lost: check that the peer lives and that its "
	  "rails can be reached" },
	{ TEI_HINT_DATA, ECANCELED,
	  "the connection was lost: check that the peer lives and that its "
	  "rails can be reached" },
	{ TEI_HINT_DATA, EIO,
	  "the connection was lost: check that the peer lives and that its "
	  "rails can be reached" },
	{ TEI_HINT_DATA, ESHUTDOWN,
	  "the connection was lost: check that the peer lives and that its "
	  "rails can be reached" },
	{ TEI_HINT_CONTROL, ECONNRESET,
	  "the peer's process ended, or that port is not a moonrail control "
	  "port" },
};

const char *tei_hint(enum tei_hint_place place, int error)
{
	size_t i;

	for (i = 0; i < sizeof(hint_rows) / sizeof(hint_rows[0]); i++)
		if (hint_rows[i].error == error &&
		    (hint_rows[i].place == HINT_ANY ||
		     hint_rows[i].place == (int)place))
			return hint_rows[i].hint;
	return NULL;
}
