#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# Two equal rails between two hosts. Transfers use both rails and move the right
# bytes, with a separate control link and without one. The functions of
# rails_lib.sh that set rates, make faults and read counters work.
set -u
: "${BUILD:?}" "${SRC:?}"
# shellcheck source=fabtests/scripts/rails_lib.sh
. "$SRC/fabtests/scripts/rails_lib.sh"
rails_begin || exit

# moved OPERATION: sets rx0 and rx1 to the bytes that rails 0 and 1 have
# received: at host b for a write, at host a for a read.
moved()
{
	host=b
	[ "$1" = write ] || host=a
	rx0=$(rails_bytes "$host" 0 rx)
	rx1=$(rails_bytes "$host" 1 rx)
}

# transfer OPERATION: moves at least 32 MiB and verifies it. Succeeds if each
# rail carried more than a fifth of the bytes.
transfer()
{
	moved "$1"
	was0=$rx0 was1=$rx1
	rails_bench a "i-$1" "$rails_segment" --operation="$1" --buffer_size=32M \
		--block_size=1M --batch_size=32 --duration=0.1 --warmup=0 \
		--verify || return
	rails_wait "i-$1" 60 || { cat "$rails_dir/i-$1.err"; return 1; }
	moved "$1"
	bytes=$(rails_json "i-$1" bytes)
	echo "bytes $bytes, rail 0 $((rx0 - was0)), rail 1 $((rx1 - was1))"
	[ "$(rails_json "i-$1" verified_bytes)" -ge $((32 << 20)) ] &&
		[ $((rx0 - was0)) -gt $((bytes / 5)) ] &&
		[ $((rx1 - was1)) -gt $((bytes / 5)) ]
}

transfers()
{
	rails_up -c "$1" 400mbit 400mbit && rails_target b t --buffer_size=32M ||
		return
	transfer read && transfer write && rails_stop t
}

# answers HOST RAIL: succeeds if b refuses HOST's connection to b's address on
# RAIL. A refusal proves that packets pass in both directions.
answers()
{
	rails_run "$1" timeout 0.3 bash -c \
		"exec 3<>/dev/tcp/$(rails_addr b "$2")/9" 2>&1 | grep -q refused
}

# well RAIL [HOST]: succeeds if b answers HOST (default: a) over RAIL within 20
# attempts.
well()
{
	for try in $(seq 20); do
		! answers "${2:-a}" "$1" || return 0
	done
	echo "rail $1 is silent, $try times"
	return 1
}

faults()
{
	rails_up 100mbit 100mbit && well 0 && well 1 || return
	for way in in out both; do
		rails_drop 0 "$way" && ! answers a 0 && well 1 &&
			rails_restore 0 && well 0 || return
	done
	rails_link 1 down && ! answers a 1 && well 0 && rails_restore &&
		well 1 && rails_rate 1 50mbit &&
		rails_run a tc qdisc show dev r1 | grep -q 'rate 50Mbit' &&
		rails_restore 1 &&
		rails_run a tc qdisc show dev r1 | grep -q 'rate 100Mbit'
}

three_hosts()
{
	rails_up -n 3 -c no 100mbit 100mbit && well 0 && well 1 c
}

rails_case 'two rails and a control pair, both ways, verified' transfers yes
rails_case 'two rails alone, both ways, verified' transfers no
rails_case 'three hosts reach each other' three_hosts
rails_case 'faults are made and mended, on one rail alone' faults
rails_exit
