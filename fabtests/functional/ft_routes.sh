#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# The peer has more rails than this host. Host a has one rail and host b has
# two; b's second rail is reached through a router. If the rail pair with
# matching addresses breaks during a run, or never connects, the transfers use
# the other pair. If both rails of b are in the network of a's rail, they share
# the load, unless b's memory is near one of them.
set -u
: "${BUILD:?}" "${SRC:?}"
# shellcheck source=fabtests/scripts/rails_lib.sh
. "$SRC/fabtests/scripts/rails_lib.sh"
rails_begin || exit

routed()
{
	rails_up -c no 200mbit 200mbit &&
		rails_run a ip addr flush dev "$(rails_dev 1)" &&
		rails_run a ip route add 10.77.1.0/24 via "$(rails_addr b 0)" &&
		rails_run b sysctl -qw net.ipv4.ip_forward=1
}

# Drops TCP between a and b's first rail. Packets that b forwards still pass.
part()
{
	rails_rule 0 a OUTPUT -d "$(rails_addr b 0)" -p tcp -j DROP &&
		rails_rule 0 a INPUT -s "$(rails_addr b 0)" -p tcp -j DROP
}

# Puts all rails into one network, on the first wire. b's firewall counts the
# bytes that arrive for each of its rails.
flat()
{
	rails_up -c no 200mbit 200mbit &&
		rails_run a ip addr flush dev "$(rails_dev 1)" &&
		rails_run a ip addr flush dev "$(rails_dev 0)" &&
		rails_run a ip addr add "$(rails_addr a 0)/16" \
			dev "$(rails_dev 0)" &&
		rails_run b sysctl -qw net.ipv4.conf.all.arp_ignore=0 &&
		rails_rule 0 b INPUT -d "$(rails_addr b 0)" -j ACCEPT &&
		rails_rule 0 b INPUT -d "$(rails_addr b 1)" -j ACCEPT
}

# received RAIL: prints the bytes that b has received for RAIL.
received()
{
	rails_run b iptables -w 10 -nvxL INPUT |
		awk -v addr="$(rails_addr b "$1")" '$9 == addr { print $2 }'
}

# target DEVICES [OPTION…]: starts te_bench as the target on b.
target()
{
	devices=$1
	shift
	rails_start b t env MC_LOG_LEVEL=info "$BUILD/bin/te_bench" \
		--mode=target --protocol=tcp --device_name="$devices" \
		--local_server_name="$(rails_addr b 1)" --buffer_size=16M \
		"$@" && rails_segment=$(rails_line t)
}

# write DEVICES SECONDS: starts te_bench on a, which writes to the target.
write()
{
	rails_start a i env MC_LOG_LEVEL=info MC_SLICE_TIMEOUT=20 \
		MC_MIN_RPC_PORT=17000 MC_MAX_RPC_PORT=17000 \
		"$BUILD/bin/te_bench" --mode=initiator --json \
		--protocol=tcp --device_name="$1" \
		--local_server_name="$(rails_addr a 0)" \
		--segment_id="$rails_segment" --operation=write \
		--buffer_size=16M --block_size=1M --batch_size=4 \
		--duration="$2" --warmup=0 --verify
}

# written STATUS: succeeds if the initiator ended with status 0 and verified
# some bytes.
written()
{
	cat "$rails_dir/i.err" "$rails_dir/i.out"
	[ "$1" -eq 0 ] && [ "$(rails_json i verified_bytes)" -gt 0 ]
}

# aside: succeeds if the initiator's log says that it uses b's second rail.
aside()
{
	grep -q " to r1 at $(rails_addr b 1):" "$rails_dir/i.err"
}

# written_aside STATUS: succeeds if written and aside both succeed.
written_aside()
{
	written "$1" && aside
}

# reached BYTES: waits until b has received BYTES over the first wire.
reached()
{
	patience=100
	while [ "$(rails_bytes b 0 rx)" -lt "$1" ]; do
		rails_alive "$(rails_pid i)" && [ $((patience -= 1)) -gt 0 ] ||
			return
		sleep 0.2
	done
}

# begun: waits until the transfer has been running for a while.
begun()
{
	reached $((4 << 20)) && sleep 0.5
}

# up: waits until the transfer uses b's second rail and te_info shows the
# writer's only rail as UP. Fails if the writer ends before that.
up()
{
	patience=100 rails_x=
	until aside && [ "$rails_x" = up ]; do
		if ! rails_alive "$(rails_pid i)" ||
		   [ $((patience -= 1)) -le 0 ]; then
			echo "the rail that goes round is $rails_x"
			return 1
		fi
		rails_run a "$BUILD/bin/te_info" --watch --count=1 \
			--segment="$(rails_addr a 0):17000" \
			>"$rails_dir/watch" || continue
		rails_x=$(awk '$1 == "r0" { print $3; exit }' \
			"$rails_dir/watch")
		sleep 0.1
	done
}

breaks()
{
	# The writer runs until the test stops it.
	routed && target r0,r1 && write r0 60 && begun || return
	part || return
	was=$(rails_bytes b 0 rx)
	up && reached $((was + (4 << 20))) || return
	rails_stop i
	written_aside $?
}

# never DEVICES: the first pair is cut before the transfer begins. DEVICES are
# b's rails, in the order in which the target publishes them.
never()
{
	routed && part && target "$1" && write r0 0.1 || return
	rails_wait i 60
	written_aside $?
}

# no_way HOST: two networks, and HOST's link of the second one is down, while
# connections break on the first one. The transfer cannot move to the second
# network: connecting is refused at once (HOST is a), or stays unanswered (b).
no_way()
{
	rails_up -c no 200mbit 200mbit && target r0,r1 &&
		write r0,r1 4 && begun || return
	rails_link 1 down "$1"
	cuts=0
	while [ $((cuts += 1)) -le 5 ]; do
		rails_refuse 0
		sleep 0.2
		rails_restore 0
		sleep 0.2
	done
	rails_wait i 60
	written $?
}

# Each of b's rails carries at least a third of the bytes.
shared()
{
	flat && target r0,r1 && write r0 3 || return
	rails_wait i 60
	written $? || return
	rx0=$(received 0) rx1=$(received 1)
	echo "rail 0: $rx0, rail 1: $rx1"
	[ "$rx0" -gt $((rx1 / 2)) ] && [ "$rx1" -gt $((rx0 / 2)) ]
}

# near RAIL OTHER: b's memory is near RAIL, so OTHER carries next to nothing.
near()
{
	flat && target r0,r1 --nic_priority_matrix="{\"cpu:0\":
		[[\"$1\"],[\"$2\"]],\"*\":[[\"$1\"],[\"$2\"]]}" &&
		write r0 3 || return
	rails_wait i 60
	written $? || return
	rx0=$(received "${1#r}") rx1=$(received "${2#r}")
	echo "near: $rx0, far: $rx1"
	[ "$rx0" -gt $((8 << 20)) ] && [ "$rx1" -lt $((1 << 20)) ]
}

rails_case a_pair_that_breaks_is_gone_round breaks
rails_case a_pair_that_never_connects_is_gone_round never r1,r0
rails_case first_pair_that_never_connects_is_gone_round never r0,r1
rails_case pair_without_a_route_fails_no_task no_way a
rails_case pair_with_a_misleading_route_fails_no_task no_way b
rails_case rails_of_one_network_share_the_load shared
rails_case rail_near_the_targets_memory_is_used near r0 r1
rails_case other_rail_near_the_targets_memory_is_used near r1 r0
rails_exit
