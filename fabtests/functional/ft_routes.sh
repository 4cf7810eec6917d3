#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# More rails there than here: host a has one, host b two, the second of which is
# reached by way of a router. When the pair that the addresses suggest breaks in
# mid-run, or never gets through, the transfers go by the other one. Where both
# are in one network with a's rail they share its load, but for memory that is
# near one of them.
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

# Nothing of tcp between a and the first rail of b; what b forwards passes.
part()
{
	rails_rule 0 a OUTPUT -d "$(rails_addr b 0)" -p tcp -j DROP &&
		rails_rule 0 a INPUT -s "$(rails_addr b 0)" -p tcp -j DROP
}

# One network for all, on the first wire; b counts what comes for each rail.
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

# received RAIL: bytes that have come for it.
received()
{
	rails_run b iptables -w 10 -nvxL INPUT |
		awk -v addr="$(rails_addr b "$1")" '$9 == addr { print $2 }'
}

# target DEVICES [OPTION…]
target()
{
	devices=$1
	shift
	rails_start b t env MC_LOG_LEVEL=info "$BUILD/bin/te_bench" \
		--mode=target --protocol=tcp --device_name="$devices" \
		--local_server_name="$(rails_addr b 1)" --buffer_size=16M \
		"$@" && rails_segment=$(rails_line t)
}

# write DEVICES SECONDS
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

# written STATUS: all of it.
written()
{
	cat "$rails_dir/i.err" "$rails_dir/i.out"
	[ "$1" -eq 0 ] && [ "$(rails_json i verified_bytes)" -gt 0 ]
}

# aside: it goes by the other pair, as far as the log tells.
aside()
{
	grep -q " to r1 at $(rails_addr b 1):" "$rails_dir/i.err"
}

# written_aside STATUS: and it went where it had to.
written_aside()
{
	written "$1" && aside
}

# reached BYTES: of the write so many have crossed the first wire.
reached()
{
	patience=100
	while [ "$(rails_bytes b 0 rx)" -lt "$1" ]; do
		rails_alive "$(rails_pid i)" && [ $((patience -= 1)) -gt 0 ] ||
			return
		sleep 0.2
	done
}

# begun: bytes of it have, for a while.
begun()
{
	reached $((4 << 20)) && sleep 0.5
}

# up: once it does, and before all is written, the writer's only rail is UP.
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
	# until all of it was seen, however long that takes
	routed && target r0,r1 && write r0 60 && begun || return
	part || return
	was=$(rails_bytes b 0 rx)
	up && reached $((was + (4 << 20))) || return
	rails_stop i
	written_aside $?
}

# never DEVICES: in that order.
never()
{
	routed && part && target "$1" && write r0 0.1 || return
	rails_wait i 60
	written_aside $?
}

# no_way HOST: of two networks the one is gone at that host, so that the way round
# is refused at once (a) or only looks like one (b), while connections break on
# the other.
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

# A third at least for each.
shared()
{
	flat && target r0,r1 && write r0 1 || return
	rails_wait i 60
	written $? || return
	rx0=$(received 0) rx1=$(received 1)
	echo "rail 0: $rx0, rail 1: $rx1"
	[ "$rx0" -gt $((rx1 / 2)) ] && [ "$rx1" -gt $((rx0 / 2)) ]
}

# near RAIL OTHER: b's memory is near that rail.
near()
{
	flat && target r0,r1 --nic_priority_matrix="{\"cpu:0\":
		[[\"$1\"],[\"$2\"]],\"*\":[[\"$1\"],[\"$2\"]]}" &&
		write r0 1 || return
	rails_wait i 60
	written $? || return
	rx0=$(received "${1#r}") rx1=$(received "${2#r}")
	echo "near: $rx0, far: $rx1"
	[ "$rx0" -gt $((8 << 20)) ] && [ "$rx1" -lt $((1 << 20)) ]
}

rails_case a_pair_that_breaks_is_gone_round breaks
rails_case a_pair_that_never_connects_is_gone_round never r1,r0
rails_case first_as_it_may_be never r0,r1
rails_case where_there_is_no_way_nothing_fails no_way a
rails_case nor_where_it_only_looks_like_one no_way b
rails_case rails_of_one_network_share_the_load shared
rails_case what_is_near_the_targets_memory_is_taken near r0 r1
rails_case whichever_that_is near r1 r0
rails_exit
