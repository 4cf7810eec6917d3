#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# timeout: 400
#
# A rail of two breaks in mid-transfer, in several ways, and is mended:
# no transfer fails, every byte is right, the other rail soon carries what it
# can, and the broken one carries again. The rail that breaks is the one with
# the first address, and there is no other way between the hosts, but for one
# fault, which is made beside a control pair as well. How long it takes is only
# bounded: a machine may be busy.
#
# FAILOVER_ALL=1 makes them one at a time and prints the times, in milliseconds,
# from the fault until the other rail carries nine tenths of its rate, and from
# the mending until both of theirs ("never": not within 2.5 s), each counted
# from before the command that does it. Nothing is verified then, so that all
# bytes go one way, of which they are counted. The other rail is looked at in
# windows of 100 ms, and both in windows of 200 ms: of the 15 packets of 64 KiB
# that cross it in 40 ms two miss now and then, and the last tenth of a window
# may be part of a gap. A window that is not full ends later, by up to a fifth,
# if it is so then: its end may be in a pause of a busy machine, which is made
# up for at once. So what is not seen of a pause is 12 ms in 100 that are
# lost, instead of 10; and a rail that lacks more than a tenth all the time is
# seen, but for the windows that a burst fills.
# FAILOVER_MS and RECOVERY_MS, if set, are limits of them; FAILOVER_OUT is how
# long the rail stays broken, in seconds, 0.7; FAILOVER_RATE what one rail
# carries, in bytes per second, as iperf3 says it; FAILOVER_WATCH a file for the
# rails' counters over time. With arguments, as "rails_drop 0 both", only that
# is tried. FAILOVER_CONTROL=yes: beside a control pair.
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
# until the other rail has carried a third of a second's worth, and the mended
# one a sixth: several times what a machine with all cores taken needs
soon=15
[ "${SANITIZE:-no}" = no ] || soon=45
[ -n "$all" ] || export MC_SLICE_TIMEOUT=60
rate=${FAILOVER_RATE:-24000000}	# of data, at 200 Mbit/s

# crossed RAIL SECONDS BYTES: that many bytes more cross it within the time.
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

# since OPERATION MS MADE WINDOW RAIL… : how long after MS these rails carry 0.9
# of their rates, in any window of so many ms that begins in the next 200, and
# until 200 after MADE, before which they may have carried it for want of a
# fault.
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

# judged FROM TO BURST [PART UNTIL]: what since says of a fault at 500 where the
# other rail carries nothing between these times, then so many bytes at once,
# and until UNTIL that part of its rate only. "never" is 9999.
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

# judge_is TITLE LEAST MOST ARGUMENT…: what judged says of them.
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

# judge: a pause later on is none of the failover, a gap is all of it.
judge()
{
	judge_is 'a pause that is made up for is no failover' 0 0 \
		790 808 137344
	judge_is 'a gap is all of it' 100 150 500 650 137344
	judge_is 'so is a pause that is not made up for' 190 220 690 715 0
	judge_is 'or of which much is missing' 190 220 690 715 137344
	judge_is 'a rail that lacks 15 %, but for a burst' 9999 9999 \
		700 700 137344 .85 2000
	judge_is 'and one that does so for 400 ms' 300 330 \
		600 600 137344 .85 900
}

# in_time WHAT MS LIMIT
in_time()
{
	[ -n "$3" ] || return 0
	[ "$2" != never ] && [ "$2" -le "$3" ] && return
	echo "$1 took $2 ms, limit $3"
	return 1
}

# bench OPERATION SECONDS: two requests at a time, so that one that waits for a
# broken rail stops the other rail, too.
bench()
{
	set -- --operation="$1" --duration="$2"
	[ -n "$all" ] || set -- "$@" --verify
	rails_bench a i "$rails_segment" --buffer_size=16M --block_size=1M \
		--batch_size=1 --threads=2 --warmup=0 "$@"
}

# over OPERATION FAULT…: the other rail goes on, and this one comes back.
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

# check TITLE OPERATION FAULT…
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

# one OPERATION FAULT…: as a script of its own, beside the others.
one()
{
	n=$((n + 1)) op=$1
	shift
	FAILOVER_ONE=1 FAILOVER_OP=$op sh "$0" "$@" >"$rails_dir/one.$n" 2>&1 &
	eval "pid$n=\$!"
}

# some NUMBER…: waits for these.
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
	check "$*, in mid-${FAILOVER_OP:-write}${FAILOVER_CONTROL:+, beside a control pair}" \
		"${FAILOVER_OP:-write}" "$@"
	exit "$bad"
fi
check 'a link down, in mid-write' write rails_link 0 down
check 'packets lost both ways, in mid-write' write rails_drop 0 both
check 'connections refused, in mid-read' read rails_refuse 0
check 'packets lost on the way there' write rails_drop 0 in
check 'packets lost on the way back' read rails_drop 0 out
check 'packets that do not leave' write rails_drop 0 out a
check 'connections reset' write rails_reset 0
exit "$bad"
