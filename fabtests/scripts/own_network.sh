# shellcheck shell=sh
# SPDX-License-Identifier: BSD-2-Clause
#
# Sourced by what measures over loopback.

# own_network COMMAND…: in a network namespace of its own if that can be made,
# where no congestion control spreads packets over time: bbr on loopback halves
# or doubles a figure from run to run.
# shellcheck disable=SC2016 # the inner shell's
own_network()
{
	own_set_up='ip link set lo up &&
		sysctl -qw net.ipv4.tcp_congestion_control=reno && exec "$@"'
	if unshare -n sh -c "$own_set_up" sh true 2>/dev/null; then
		unshare -n sh -c "$own_set_up" sh "$@"
	else
		"$@"
	fi
}
