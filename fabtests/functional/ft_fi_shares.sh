#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# The libfabric provider's policies (FI_MOONRAIL_CONFIG) over two rails, one three
# times as fast as the other. Measures which percentage of the bytes of writes and
# of tagged messages arrives over the slow rail, counted at the interfaces of the
# receiving host.
set -u
: "${BUILD:?}" "${SRC:?}"
# shellcheck source=fabtests/scripts/rails_lib.sh
. "$SRC/fabtests/scripts/rails_lib.sh"
[ -e "$BUILD/lib/libfabric" ] || { echo 'built without the provider'; exit 77; }
rails_begin || exit
rails_up -c no 150mbit 450mbit || exit 1
rails_fi
n=0 failed=0
# A share outside its range is measured again if other programs used at least this
# percentage of the CPUs' time.
busy_limit=25
# Duration of a measurement in milliseconds. In its first 50 to 100 ms, messages use the
# rail whose tx lane is open first, whatever the policy is.
duration=1500

# share CONFIG FIGURES: prints the percentage of the bytes that arrive over rail 0,
# or -1 if the benchmark moved too few.
share()
{
	slow=$(rails_bytes b 0 rx) fast=$(rails_bytes b 1 rx)
	FI_MOONRAIL_CONFIG=$1 "$BUILD/fabtests/te_fi_bench" moonrail "$duration" "$2" \
		>"$rails_dir/bench" 2>&1 || cat "$rails_dir/bench" >&2
	slow=$(($(rails_bytes b 0 rx) - slow))
	fast=$(($(rails_bytes b 1 rx) - fast))
	# The warm-up of one figure alone moves more than 2 MB.
	[ $((slow + fast)) -gt 2000000 ] || { echo -1; return; }
	echo $((100 * slow / (slow + fast)))
}

# Prints the ticks of all CPUs that processes and the hypervisor used, all ticks of
# all CPUs, and the ticks that this script and its children used.
cpu_ticks()
{
	awk '$1 == "cpu" { print $2 + $3 + $4 + $9,
			   $2 + $3 + $4 + $5 + $6 + $7 + $8 + $9 }' /proc/stat
	sed 's/.*) //' /proc/$$/stat | awk '{ print $12 + $13 + $14 + $15 }'
}

# measure CONFIG FIGURES: sets got to the share, and busy to the percentage of the
# CPUs' time that other programs used in the meantime.
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

# within LEAST MOST: succeeds if the last share is between them.
within()
{
	[ "$got" -ge "$1" ] && [ "$got" -le "$2" ]
}

# doubted LEAST MOST: succeeds if the share is outside, although the benchmark has
# moved its bytes, and other programs were busy.
doubted()
{
	! within "$1" "$2" && [ "$got" -ge 0 ] && [ "$busy" -ge "$busy_limit" ]
}

# check CONFIG FIGURES LEAST MOST TITLE: checks one share, and measures it again
# if it is in doubt.
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
	echo "$verdict $n - $5: $got % over the slow rail (expected $3 to $4); other programs used $busy % of the CPUs$why"
}

# with "fixed" the first endpoint uses the first rail
check -1:fixed w2 97 100 writes_with_fixed_use_the_first_rail
check -1:round-robin w2 45 55 writes_with_round_robin_use_both_rails_equally
check -1:striping w2 45 55 writes_with_striping_use_both_rails_equally
check -1:adaptive w2 17 35 writes_with_adaptive_follow_the_rates
check -1:fixed t2 97 100 messages_with_fixed_use_the_first_rail
check -1:round-robin t2 45 55 messages_with_round_robin_use_both_rails_equally
check -1:striping t2 45 55 messages_with_striping_use_both_rails_equally
check '' t2 17 35 messages_without_policy_follow_the_rates
# "adaptive" applies above the largest size of the policies
check 65536:striping t1 45 55 messages_of_64_kib_with_striping_up_to_64_kib_are_striped
check 65535:striping w2 17 35 writes_of_1_mib_with_striping_up_to_64_kib_are_adaptive
rails_down
exit $failed
