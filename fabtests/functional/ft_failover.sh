#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# timeout: 400
#
# One of two rails breaks in mid-transfer, in several ways, and is repaired. No
# transfer may fail and every byte must be right. The other rail must soon carry
# as much as it can, and the repaired one must carry again. The rail that breaks
# has the first address. The hosts have no other connection, except that one
# fault is also tested with a control pair. The time limits are wide, because the
# machine may be busy.
#
# FAILOVER_ALL=1 makes the faults one after the other and prints two times in ms:
# from the fault until the other rail carries nine tenths of its rate, and from
# the repair until both rails carry nine tenths of theirs. Both start before the
# command that makes the fault or the repair; "never" means: not within 2.5 s. No
# byte is verified then, so that all bytes go in the direction that is counted.
#
# The rails have reached nine tenths of their rates at the time from which every
# window that begins within 200 ms contains so many bytes. A window is 100 ms
# long for the other rail and 200 ms for both rails. Of the 15 packets of 64 KiB
# that cross a rail in 40 ms, two are missing now and then, and the last tenth
# of a window may belong to a gap. A window that is not full is therefore
# extended by up to a fifth, because it may end in a pause of a busy machine,
# whose bytes follow immediately. So a pause goes unnoticed if it loses up to 12
# ms in 100 ms, instead of 10 ms. A rail that constantly lacks more than a tenth
# is noticed, except in windows that a burst fills.
#
# FAILOVER_MS, RECOVERY_MS	limits of the two times
# FAILOVER_OUT			seconds until the repair (default 0.7)
# FAILOVER_RATE			bytes per second that one rail carries, according
#				to iperf3
# FAILOVER_WATCH		file for the rails' counters over time
# FAILOVER_CONTROL=yes		adds a control pair
#
# Arguments, such as "rails_drop 0 both", name a fault; only that one is made.
set -u
: "${BUILD:?}" "${SRC:?}"
# shellcheck source=fabtests/scripts/rails_lib.sh
. "$SRC/fabtests/scripts/rails_lib.sh"
rails_begin || exit
bad=0
failover_ms=${FAILOVER_MS:-} recovery_ms=${RECOVERY_MS:-}
all=${FAILOVER_ALL:-}
[ $# -eq 0 ] || [ -n "${FAILOVER_ONE:-}" ] || all=1
patience=90		# seconds
# seconds in which the other rail must carry the bytes of a third of a second, and
# the repaired one those of a sixth: several times what a fully loaded machine needs
soon=15
[ "${SANITIZE:-no}" = no ] || soon=45
[ -n "$all" ] || export MC_SLICE_TIMEOUT=60
rate=${FAILOVER_RATE:-24000000}	# of data, at 200 Mbit/s

# crossed RAIL SECONDS BYTES: waits until the rail has carried that many more bytes.
# Fails if that takes longer.
crossed()
{
	was=$(($(rails_bytes b "$1" rx) + $(rails_bytes b "$1" tx)))
	until=$(($(rails_now) + $2 * 1000))
	while :; do
		now=$(($(rails_bytes b "$1" rx) + $(rails_bytes b "$1" tx)))
		[ $((now - was)) -lt "$3" ] || return 0
		[ "$(rails_now)" -lt "$until" ] || break
		sleep 0.05
	done
	echo "rail $1: $((now - was)) bytes in $2 s"
	return 1
}

# since OPERATION MS MADE WINDOW RAIL…: prints the time from MS until these rails
# carry 0.9 of their rates. This time has come when every window of WINDOW ms that
# begins within the next 200 ms has 0.9 of the bytes. The windows until 200 ms after
# MADE must have them too, because before MADE the fault may not exist yet.
since()
{
	from=2		# rx
	[ "$1" = write ] || from=3
	ms=$2 made=$3 window=$4
	shift 4
	awk -F , -v ms="$ms" -v made="$made" -v w="$window" -v rails="$*" \
		-v rate="$rate" -v column="$from" '
	function full(i, j)
	{
		return (b[j] - b[i]) * 1000 >= .9 * m * rate * (t[j] - t[i])
	}
	BEGIN { m = split(rails, rail, " "); n = from = 0 }
	NR > 1 && $1 + 0 >= ms {
		t[n] = $1
		for (i = 1; i <= m; i++)
			b[n] += $(column + 2 * rail[i])
		n++
	}
	END {
		for (i = j = 0; i < n; i++) {
			while (j < n - 1 && t[j] < t[i] + w)
				j++
			if (t[j] < t[i] + w)
				break
			k = j
			while (!full(i, k) && k < n - 1 &&
			       t[k + 1] <= t[i] + 1.2 * w)
				k++
			if (!full(i, k))
				from = i + 1
			else if (t[i] - t[from] >= 200 && t[i] - made >= 200) {
				print t[from] - ms
				exit
			}
		}
		print "never"
	}' "$rails_dir/watch.out"
}

# judged FROM TO BURST [PART UNTIL]: prints the result of since for a fault at
# 500 ms. The other rail carries nothing between FROM and TO, then BURST bytes at
# one time, and until UNTIL only PART of its rate. 9999 stands for "never".
judged()
{
	awk -v from="$1" -v to="$2" -v burst="$3" -v part="${4:-1.04}" \
		-v until="${5:-0}" -v rate="$rate" 'BEGIN {
		print "ms"
		for (ms = 0; ms < 2000; ms += 5) {
			if (ms < from || ms >= to)
				sent += (ms < until ? part : 1.04) * rate / 200
			if (ms >= to) {
				sent += burst
				burst = 0
			}
			printf "%d,0,0,0,%d\n", ms, sent
		}
	}' >"$rails_dir/watch.out"
	since read 500 500 100 1 | sed s/never/9999/
}

# judge_is TITLE LEAST MOST ARGUMENT…: checks the result of judged.
judge_is()
{
	title=$1 least=$2 most=$3
	shift 3
	took=$(judged "$@")
	if [ "$took" -ge "$least" ] && [ "$took" -le "$most" ]; then
		echo "ok - $title"
	else
		echo "not ok - $title: $took ms"
		bad=1
	fi
}

# judge: checks that a later pause does not count as failover time, and that a gap
# counts fully.
judge()
{
	judge_is 'pause_whose_bytes_follow_is_not_counted' 0 0 \
		790 808 137344
	judge_is 'gap_after_the_fault_is_counted' 100 150 500 650 137344
	judge_is 'pause_whose_bytes_are_lost_is_counted' 190 220 690 715 0
	judge_is 'pause_with_many_lost_bytes_is_counted' 190 220 690 715 137344
	judge_is 'rail_at_85_percent_never_recovers' 9999 9999 \
		700 700 137344 .85 2000
	judge_is 'rail_at_85_percent_for_400_ms_recovers_after_it' 300 330 \
		600 600 137344 .85 900
}

# in_time NAME MS LIMIT: fails with a line if MS exceeds LIMIT.
in_time()
{
	[ -n "$3" ] || return 0
	[ "$2" != never ] && [ "$2" -le "$3" ] && return
	echo "$1 took $2 ms, limit $3"
	return 1
}

# bench OPERATION SECONDS: starts te_bench with two requests at one time, so that
# a request that waits for the broken rail would also stop the other rail.
bench()
{
	set -- --operation="$1" --duration="$2"
	[ -n "$all" ] || set -- "$@" --verify
	rails_bench a i "$rails_segment" --buffer_size=16M --block_size=1M \
		--batch_size=1 --threads=2 --warmup=0 "$@"
}

# over OPERATION FAULT…: makes the fault. The other rail must carry on, and the
# broken one must carry again after its repair.
over()
{
	export MC_LOG_LEVEL=info
	rails_target b t --buffer_size=16M && bench "$1" 600 || return
	unset MC_LOG_LEVEL
	op=$1
	shift
	rails_mark
	[ -z "$all" ] || rails_watch b watch 5
	crossed 0 "$patience" 1000000 && crossed 1 "$patience" 1000000 || return
	[ -z "$all" ] || sleep 1
	cut=$(rails_now)
	"$@" || return
	cut_done=$(rails_now)
	crossed 1 "$soon" 8000000 || return
	[ -z "$all" ] || sleep "${FAILOVER_OUT:-0.7}"
	mended=$(rails_now)
	rails_restore 0 || return
	mended_done=$(rails_now)
	crossed 0 "$soon" 4000000 || return
	[ -z "$all" ] || sleep 2.5
	rails_stop i || return
	if [ -z "$all" ]; then
		[ "$(rails_json i verified_bytes)" -gt 0 ]
		return
	fi
	rails_stop watch
	[ -z "${FAILOVER_WATCH:-}" ] ||
		cp "$rails_dir/watch.out" "$FAILOVER_WATCH" || return
	failover=$(since "$op" "$cut" "$cut_done" 100 1)
	recovery=$(since "$op" "$mended" "$mended_done" 200 0 1)
	times=": $failover ms, back after $recovery ms"
	in_time failover "$failover" "$failover_ms" &&
		in_time recovery "$recovery" "$recovery_ms"
}

# check TITLE OPERATION FAULT…: runs over as one case.
check()
{
	title=$1
	shift
	times=''
	if over "$@" >"$rails_dir/log" 2>&1; then
		echo "ok - $title$times"
	else
		cat "$rails_dir/log"
		tail -n 20 "$rails_dir"/*.err
		echo "not ok - $title$times"
		bad=1
	fi
	rails_restore
	rails_stop watch >"$rails_dir/log" 2>&1
	rails_stop i >"$rails_dir/log" 2>&1
	rails_stop t >"$rails_dir/log" 2>&1
}

# one OPERATION FAULT…: starts this script in the background for one fault.
one()
{
	n=$((n + 1)) op=$1
	shift
	FAILOVER_ONE=1 FAILOVER_OP=$op sh "$0" "$@" >"$rails_dir/one.$n" 2>&1 &
	eval "pid$n=\$!"
}

# some NUMBER…: waits for the faults with these numbers and prints their output.
some()
{
	for i; do
		eval "wait \"\$pid$i\"" || bad=1
		cat "$rails_dir/one.$i"
	done
}

if [ $# -eq 0 ] && [ -z "$all" ]; then
	judge
	n=0
	one write rails_link 0 down
	one write rails_drop 0 both
	one read rails_refuse 0
	one write rails_drop 0 in
	some 1 2 3 4
	one read rails_drop 0 out
	one write rails_drop 0 out a
	one write rails_reset 0
	export FAILOVER_CONTROL=yes
	one read rails_link 0 down
	some 5 6 7 8
	exit "$bad"
fi

rails_up -c "${FAILOVER_CONTROL:-no}" 200mbit 200mbit || exit 1
if [ $# -gt 0 ]; then
	title=${FAILOVER_OP:-write}_survives_$*${FAILOVER_CONTROL:+_with_control_pair}
	check "$(echo "$title" | tr ' ' _)" "${FAILOVER_OP:-write}" "$@"
	exit "$bad"
fi
check write_survives_link_down write rails_link 0 down
check write_survives_packets_lost_both_ways write rails_drop 0 both
check read_survives_refused_connections read rails_refuse 0
check write_survives_packets_lost_to_target write rails_drop 0 in
check read_survives_packets_lost_from_target read rails_drop 0 out
check write_survives_packets_lost_at_initiator write rails_drop 0 out a
check write_survives_reset_connections write rails_reset 0
exit "$bad"
