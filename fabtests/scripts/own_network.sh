# shellcheck shell=sh
# SPDX-License-Identifier: BSD-2-Clause
#
# Sourced by scripts that measure over loopback.

# own_network COMMAND…: runs COMMAND in a network namespace of its own with reno,
# or in the present one if no namespace can be made. With bbr, results over
# loopback vary by a factor of two between runs, because bbr paces packets.
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
