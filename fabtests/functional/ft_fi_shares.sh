#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# The libfabric provider's policies (FI_MOONRAIL_CONFIG) over two rails of which
# one is three times as fast as the other: how many percent of the bytes of
# writes and of tagged messages, counted by the receiving host's links, really
# come by the slow one.
set -u
: "${BUILD:?}" "${SRC:?}"
# shellcheck source=fabtests/scripts/rails_lib.sh
. "$SRC/fabtests/scripts/rails_lib.sh"
[ -e "$BUILD/lib/libfabric" ] || { echo 'built without the provider'; exit 77; }
rails_begin || exit
rails_up -c no 150mbit 450mbit || exit 1
rails_fi
n=0 failed=0
# percent of the CPUs' time that other programs may use before a share that is out
# of range is measured again
busy_limit=25

# share CONFIG FIGURES: percent of the bytes that come by rail 0
share()
{
	slow=$(rails_bytes b 0 rx) fast=$(rails_bytes b 1 rx)
	FI_MOONRAIL_CONFIG=$1 "$BUILD/fabtests/te_fi_bench" moonrail 300 "$2" \
		>"$rails_dir/bench" 2>&1 || cat "$rails_dir/bench" >&2
	slow=$(($(rails_bytes b 0 rx) - slow))
	fast=$(($(rails_bytes b 1 rx) - fast))
	# no less than the operations of one figure before it is measured
	[ $((slow + fast)) -gt 2000000 ] || { echo -1; return; }
	echo $((100 * slow / (slow + fast)))
}

# Ticks of all CPUs that processes and the hypervisor used, ticks of all CPUs,
# and ticks that this script and its children used.
cpu_ticks()
{
	awk '$1 == "cpu" { print $2 + $3 + $4 + $9,
			   $2 + $3 + $4 + $5 + $6 + $7 + $8 + $9 }' /proc/stat
	sed 's/.*) //' /proc/$$/stat | awk '{ print $12 + $13 + $14 + $15 }'
}

# measure CONFIG FIGURES: sets got, and busy to the percent of the CPUs' time
# that other programs used meanwhile.
measure()
{
	before=$(cpu_ticks)
	got=$(share "$1" "$2")
	# shellcheck disable=SC2046,SC2086
	busy=$(echo $before $(cpu_ticks) | awk '{
		all = $5 - $2
		other = $4 - $1 - ($6 - $3)
		print (all > 0 ? int(100 * other / all) : 0) }')
}

# within LEAST MOST: the share that was measured last is between them.
within()
{
	[ "$got" -ge "$1" ] && [ "$got" -le "$2" ]
}

# doubted LEAST MOST: the share is not within them, but the benchmark has moved
# its bytes and other programs were busy.
doubted()
{
	! within "$1" "$2" && [ "$got" -ge 0 ] && [ "$busy" -ge "$busy_limit" ]
}

# check CONFIG FIGURES LEAST MOST WHAT
check()
{
	n=$((n + 1)) verdict='ok' why=''
	measure "$1" "$2"
	if doubted "$3" "$4"; then
		echo "# $got %, other programs used $busy % of the CPUs; again"
		measure "$1" "$2"
		! doubted "$3" "$4" ||
			why=" # SKIP other programs used $busy % of the CPUs"
	fi
	if [ -z "$why" ] && ! within "$3" "$4"; then
		verdict='not ok' failed=1
	fi
	echo "$verdict $n - $5: $got % by the slow rail ($3 to $4); others used $busy % of the CPUs$why"
}

# the only endpoint is the first one, and so is its rail
check -1:fixed w2 97 100 'writes, fixed'
check -1:round-robin w2 45 55 'writes, round-robin'
check -1:striping w2 45 55 'writes, striping'
check -1:adaptive w2 17 35 'writes, adaptive'
check -1:fixed t2 97 100 'messages, fixed'
check -1:round-robin t2 45 55 'messages, round-robin'
check -1:striping t2 45 55 'messages, striping'
check '' t2 17 35 'messages, none said'
# what is larger than the last size is adaptive
check 65536:striping t1 45 55 'messages of 64 KiB, striping up to there'
check 65535:striping w2 17 35 'writes of 1 MiB, striping up to 64 KiB'
rails_down
exit $failed
