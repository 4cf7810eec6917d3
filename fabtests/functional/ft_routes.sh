#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# timeout: 120
#
# More rails there than here: host a has one, host b two, the second of which is
# reached by way of a router. When the pair that the addresses suggest breaks in
# mid-run, or never gets through, the transfers go by the other one.
set -u
: "${BUILD:?}" "${SRC:?}"
# shellcheck source=fabtests/scripts/rails_lib.sh
. "$SRC/fabtests/scripts/rails_lib.sh"
rails_begin || exit
bad=0

# check TITLE COMMAND…
check()
{
	title=$1
	shift
	if "$@" >"$rails_dir/log" 2>&1; then
		echo "ok - $title"
	else
		cat "$rails_dir/log"
		tail -n 20 "$rails_dir"/*.err
		echo "not ok - $title"
		bad=1
	fi
	rails_down
}

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

# target DEVICES
target()
{
	rails_start b t env MC_LOG_LEVEL=info "$BUILD/bin/te_bench" \
		--mode=target --protocol=tcp --device_name="$1" \
		--local_server_name="$(rails_addr b 1)" --buffer_size=16M &&
		rails_segment=$(rails_line t)
}

# write SECONDS
write()
{
	rails_start a i env MC_LOG_LEVEL=info MC_SLICE_TIMEOUT=20 \
		"$BUILD/bin/te_bench" --mode=initiator --json \
		--protocol=tcp --device_name=r0 \
		--local_server_name="$(rails_addr a 0)" \
		--segment_id="$rails_segment" --operation=write \
		--buffer_size=16M --block_size=1M --batch_size=4 \
		--duration="$1" --warmup=0 --verify
}

# written STATUS: all of it, and it went where it had to.
written()
{
	cat "$rails_dir/i.err" "$rails_dir/i.out"
	[ "$1" -eq 0 ] && [ "$(rails_json i verified_bytes)" -gt 0 ] &&
		grep -q " to r1 at $(rails_addr b 1):" "$rails_dir/i.err"
}

breaks()
{
	routed && target r0,r1 && write 4 || return
	sleep 1
	part || return
	was=$(rails_bytes b 0 rx)
	rails_wait i 60
	written $? && [ $(($(rails_bytes b 0 rx) - was)) -gt $((4 << 20)) ]
}

# never DEVICES: in that order.
never()
{
	routed && part && target "$1" && write 0.1 || return
	rails_wait i 60
	written $?
}

check a_pair_that_breaks_is_gone_round breaks
check a_pair_that_never_connects_is_gone_round never r1,r0
check first_as_it_may_be never r0,r1
exit $bad
