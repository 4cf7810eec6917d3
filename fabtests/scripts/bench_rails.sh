#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# make bench-rails: compares the engine on several rails of limited rate with
# iperf3 on the same rails, in one run (rails_lib.sh). BUILD is the build folder
# and SRC the source folder. The arguments are words that select cases
# (bench_rails.sh help). Rows and failures are printed as soon as they are known.
# The exit status is 1 if a run failed or a goal was missed, and 77 if no rails
# can be made.
set -u
: "${BUILD:?}" "${SRC:?}"
LC_ALL=C
export LC_ALL
scripts=$SRC/fabtests/scripts
# shellcheck source=fabtests/scripts/rails_lib.sh
. "$scripts/rails_lib.sh"
# shellcheck source=fabtests/scripts/bench_lib.sh
. "$scripts/bench_lib.sh"

usage()
{
	cat <<'TEXT'
make bench-rails [BENCH='WORD…'] [UNIT=N]	all of it: half an hour

  equal2 equal4 1+3 1+1+2+4         steady rails, in units
  random halved                     rates that change while it runs
  tail                              one request of 64 MiB: when each rail ends
  small                             4 KiB beside bulk, all the time and once a
                                    second: how long it takes
  faults                            each fault several times: until the other
                                    rail carries, and until both do again
  lasting                           silence of 10 s: the same
  flaps                             the last of ten flaps beside the first
  frozen dead                       a target beside one that is stopped, for
                                    half a second and for longer than
                                    MC_SLICE_TIMEOUT, or killed
  calm calm=S                       beside eight spinning processes no rail is
                                    suspected: in 60 seconds, or in S (600 are
                                    what it was made for)
  initiators                        64 that connect to one target at once
  cached                            64 targets in 64 places and with no limit
                                    parts; all of them
  256M 32x1M                        requests of the steady parts; both
  write read                        operations; both
  unit=N seconds=S                  Mbit/s of one unit (half of it for equal4
                                    and 1+1+2+4); of a steady case at least:
                                    200, 3. UNIT=N is unit=N
  rounds=N                          of faults, lasting, flaps: 5
  faults=TEXT                       only those that have it in their names, as
                                    link, drop_0_in, reset
  limit=S                           what would begin after so many seconds is
                                    left out, which is said: 3600
  seed=N out=DIR                    of random; tables and plots:
                                    BUILD/bench-rails
TEXT
}

parts='' requests='' ops='' unit=200 seconds=3 seed=1 times=5 only='' limit=3600
calm_s=60 frozen_s=6 lasting_s=10
out=$BUILD/bench-rails
for word; do
	case $word in
	equal2|equal4|1+3|1+1+2+4|random|halved|tail|small) parts="$parts $word" ;;
	faults|lasting|flaps|frozen|dead|calm) parts="$parts $word" ;;
	initiators|cached) parts="$parts $word" ;;
	calm=[1-9]*) parts="$parts calm" calm_s=${word#*=} ;;
	faults=?*) parts="$parts faults" only=${word#*=} ;;
	rounds=[1-9]*) times=${word#*=} ;;
	limit=[1-9]*) limit=${word#*=} ;;
	256M|32x1M) requests="$requests $word" ;;
	write|read) ops="$ops $word" ;;
	unit=[1-9]*) unit=${word#*=} ;;
	seconds=[1-9]*) seconds=${word#*=} ;;
	seed=[0-9]*) seed=${word#*=} ;;
	out=?*) out=${word#*=} ;;
	help) usage; exit 0 ;;
	*) printf "bench-rails: unknown word '%s'\n" "$word" >&2
		usage >&2; exit 2 ;;
	esac
done
: "${parts:=equal2 equal4 1+3 1+1+2+4 random halved tail small faults lasting
flaps frozen dead initiators cached calm}"
: "${requests:=256M 32x1M}" "${ops:=write read}"

# missed CASE SIDE ROUND LOG: records a failed run and prints it at once.
missed()
{
	fail "$@"
	progress ''
	echo "FAILED: $(tail -n 1 "$out/failures")"
}

# in_time CASE: succeeds if the time limit has not been reached; otherwise records
# the case as skipped.
in_time()
{
	[ $(($(date +%s) - begun)) -lt "$limit" ] && return
	skip "$1" "more than limit=$limit seconds are over"
	progress ''
	echo "left out: $(tail -n 1 "$out/skipped")"
	return 1
}

# --- rails, and the rate that iperf3 reaches on them --------------------------

# rates PART: prints the rates of the rails of a part, in Mbit/s.
rates()
{
	case $1 in
	equal4) echo "$((unit / 2)) $((unit / 2)) $((unit / 2)) $((unit / 2))" ;;
	1+3) echo "$unit $((unit * 3))" ;;
	1+1+2+4) echo "$((unit / 2)) $((unit / 2)) $unit $((unit * 2))" ;;
	*) echo "$unit $unit" ;;
	esac
}

# begin CASE RATE…: makes rails and a target. Sets sum to the rate of iperf3 and
# nominal to the sum of the rates, in Mbit/s.
begin()
{
	case_name=$1
	shift
	in_time "$case_name" || return
	progress "$case_name"
	nominal=0 shaped=''
	for rate; do
		nominal=$((nominal + rate)) shaped="$shaped ${rate}mbit"
	done
	# shellcheck disable=SC2086
	if ! rails_up $shaped || ! rails_iperf >"$rails_dir/log" 2>&1 ||
			! rails_target b t --buffer_size=256M; then
		missed "$case_name" rails 1 "$rails_dir/log"
		return 1
	fi
	sum=$(cat "$rails_dir/sum")
	record "$case_name" iperf3 1 Mbit/s "$sum"
}

end()
{
	rails_stop t
	rails_down
}

# crossed HOST: sets total to the bytes that HOST has received on all rails.
crossed()
{
	total=0
	for rail in $(seq 0 $((rails_n - 1))); do
		total=$((total + $(rails_bytes "$1" "$rail" rx)))
	done
}

# all_crossed HOST: succeeds if HOST has received as many bytes as the initiator
# reports, since total had the value of was.
all_crossed()
{
	crossed "$1"
	[ $((total - was)) -lt "$(rails_json i bytes)" ] || return 0
	echo 'the bytes did not cross the rails' >"$rails_dir/i.err"
	missed "$case_name" engine 1 "$rails_dir/i.err"
	return 1
}

# finish SECONDS: waits for the end of the initiator. Records a failure if it
# fails or still runs.
finish()
{
	rails_wait i "$1" && return
	rails_stop i KILL
	missed "$case_name" engine 1 "$rails_dir/i.err"
	return 1
}

# --- steady -------------------------------------------------------------------

options()
{
	case $1 in
	256M) echo '--block_size=256M --batch_size=1' ;;
	*) echo '--block_size=1M --batch_size=32' ;;
	esac
}

# verified OP OPTION…: verifies every byte of a short run of the same kind.
verified()
{
	verified_op=$1
	shift
	rails_bench a i "$rails_segment" --operation="$verified_op" --verify \
		--buffer_size=256M --duration=0.1 "$@"
	finish 120
}

# steady PART OP REQUEST GOAL: compares the engine with iperf3 at constant rates.
steady()
{
	# shellcheck disable=SC2046
	begin "$1 $2 $3" $(rates "$1") || { end; return; }
	# shellcheck disable=SC2046
	verified "$2" $(options "$3") || { end; return; }
	host=b
	[ "$2" = write ] || host=a
	rails_mark
	rails_watch "$host" watch 20
	crossed "$host"
	was=$total
	# shellcheck disable=SC2046
	rails_bench a i "$rails_segment" --operation="$2" --buffer_size=256M \
		--duration="$seconds" $(options "$3")
	if finish 120; then
		rails_stop watch
		if all_crossed "$host"; then
			record "$case_name" engine 1 Mbit/s "$(rails_json i \
				gb_per_s | awk '{ print $1 * 8000 }')"
			row_now "$case_name" engine iperf3 Mbit/s '>=' "$4"
			series
		fi
	fi
	end
}

# --- changing -----------------------------------------------------------------

# change SECONDS: changes the rates as the lines "second rail rate" on standard
# input say, and returns after SECONDS. The file changes gets the real times.
change()
{
	while read -r at rail rate; do
		rails_at "$at"
		rails_rate "$rail" "${rate}mbit"
		echo "$(rails_now) $rail $rate"
	done >"$rails_dir/changes"
	rails_at "$1"
}

# area FIRST LAST: prints the Mbit that the rates allowed between these times, in
# milliseconds.
area()
{
	awk -v from="$1" -v to="$2" -v rates="$shaped" '
	BEGIN {
		n = split(rates, r, /mbit */)
		for (i = 1; i < n; i++)
			now += r[i]
		at = from
	}
	{
		if ($1 > at) {
			area += now * ($1 - at)
			at = $1
		}
		now += $3 - r[$2 + 1]
		r[$2 + 1] = $3
	}
	END { print (area + now * (to - at)) / 1000 }' "$rails_dir/changes"
}

# changing PART OP SECONDS GOAL <CHANGES: compares the engine's rate from its first
# byte on with the capacity: the rates over that time, multiplied by the share of
# them that iperf3 reaches.
changing()
{
	cat >"$out/plan"
	# shellcheck disable=SC2046
	begin "$1 $2 32x1M" $(rates "$1") || { end; return; }
	verified "$2" --block_size=1M --batch_size=32 || { end; return; }
	host=b
	[ "$2" = write ] || host=a
	rails_mark
	rails_watch "$host" watch 20
	crossed "$host"
	was=$total
	rails_bench a i "$rails_segment" --operation="$2" --buffer_size=256M \
		--duration="$3" --block_size=1M --batch_size=32
	tries=0
	while [ "$tries" -lt 200 ] && [ $((total - was)) -lt 4000000 ]; do
		sleep 0.05
		crossed "$host"
		tries=$((tries + 1))
	done
	# The received bytes and the rate give the time of the first byte.
	first=$(($(rails_now) - $(awk -v b=$((total - was)) -v s="$sum" \
		'BEGIN { printf "%d", b * 8 / 1000 / s }')))
	rails_zero=$((rails_zero + first))
	change "$3" <"$out/plan"
	finish 60 && {
		last=$(rails_json i seconds | awk '{ printf "%d", $1 * 1000 }')
		rails_stop watch
		! all_crossed "$host" || {
			record "$case_name" engine 1 Mbit/s "$(rails_json i \
				gb_per_s | awk '{ print $1 * 8000 }')"
			record "$case_name" capacity 1 Mbit/s "$(awk -v s="$sum" \
				-v n="$nominal" -v a="$(area 0 "$last")" \
				-v ms="$last" \
				'BEGIN { print s / n * a / ms * 1000 }')"
		}
		row_now "$case_name" engine capacity Mbit/s '>=' "$4"
		series
	}
	end
}

random_plan()
{
	awk -v seed="$seed" -v unit="$unit" 'BEGIN {
		srand(seed)
		for (t = 0; t < 8; t++)
			for (r = 0; r < 2; r++)
				printf "%.1f %d %d\n", t + rand() / 4, r,
					unit * (0.25 + 1.5 * rand())
	}' | sort -n
}

# --- the tail -----------------------------------------------------------------

# tail_of PART: measures how long before the last rail the first rail ends in the
# last request of a run with requests of 64 MiB, in percent of its duration.
tail_of()
{
	# shellcheck disable=SC2046
	begin "tail $1 write 64M" $(rates "$1") || { end; return; }
	for round in 1 2 3 4 5; do
		rails_mark
		rails_watch b watch 2
		crossed b
		was=$total
		rails_bench a i "$rails_segment" --operation=write --warmup=1 \
			--buffer_size=64M --block_size=64M --batch_size=1 \
			--duration=0.1
		finish 60 || break
		rails_stop watch
		all_crossed b || break
		record "$case_name" rails "$round" tail% "$(awk -F, \
			-v us="$(rails_json i p50)" -f "$scripts/rails_tail.awk" \
			"$rails_dir/watch.out")"
		record "$case_name" engine "$round" Mbit/s \
			"$(rails_json i gb_per_s | awk '{ print $1 * 8000 }')"
	done
	row_now "$case_name" rails '' tail% '<=' 5
	row_now "$case_name" engine iperf3 Mbit/s '>=' ''
	series
	end
}

# --- a small request ----------------------------------------------------------

# small_once ROUND SECONDS [OPTION…]: measures single writes of 4 KiB, first alone
# and then together with requests of 128 MiB. It records the additional time: the
# median (wait) and the 99th percentile (late).
small_once()
{
	crossed b
	was=$total
	rails_bench a i "$rails_segment" --operation=write --block_size=4K \
		--batch_size=1 --duration=0.5 --buffer_size=256M
	finish 60 && all_crossed b || return
	alone=$(rails_json i p50)
	was=$total small_round=$1 small_s=$2
	shift 2
	rails_bench a i "$rails_segment" --operation=write --threads=2 \
		--beside=4K --block_size=128M --batch_size=1 \
		--duration="$small_s" --buffer_size=256M "$@"
	finish 120 && all_crossed b || return
	record "$case_name" alone "$small_round" us "$alone"
	record "$case_name" beside "$small_round" us "$(rails_json i p50)"
	record "$case_name" wait "$small_round" us "$(rails_json i p50 |
		awk -v alone="$alone" '{ print $1 - alone }')"
	record "$case_name" late "$small_round" us "$(rails_json i p99 |
		awk -v alone="$alone" '{ print $1 - alone }')"
	record "$case_name" engine "$small_round" Mbit/s \
		"$(rails_json i gb_per_s | awk '{ print $1 * 8000 }')"
}

# small_beside CASE PART GOAL SECONDS [OPTION…]: compares the times of small_once
# with the time of 64 KiB (a slice) and 4 KiB on a rail at the rate of iperf3. A
# small write alone takes less, because tbf allows bursts.
small_beside()
{
	small_case=$1 small_part=$2 small_goal=$3
	shift 3
	# shellcheck disable=SC2046
	begin "$small_case $small_part write 4K" $(rates "$small_part") ||
		{ end; return; }
	record "$case_name" slice 1 us "$(awk -v s="$sum" -v n="$rails_n" \
		'BEGIN { printf "%d", (65536 + 4096) * 8 * n / s }')"
	rails_watch b watch 20
	for round in 1 2 3 4 5; do
		small_once "$round" "$@" || break
	done
	row_now "$case_name" alone slice us '<=' ''
	row_now "$case_name" beside slice us '<=' ''
	row_now "$case_name" wait slice us '<=' "$small_goal"
	row_now "$case_name" late slice us '<=' ''
	row_now "$case_name" engine iperf3 Mbit/s '>=' ''
	rails_stop watch
	series
	end
}

# small: runs three cases: small requests all the time; one per second, when no
# part of the rails is reserved for them; and one per second with
# MOONRAIL_SMALL_FIRST=1, which always reserves it. With one request per second
# the waiting thread sleeps, so it also waits for a processor if all are busy.
small()
{
	small_beside small equal2 1 "$seconds"
	small_beside seldom equal2 '' $((seconds * 2)) --pause=1 --wait
	export MOONRAIL_SMALL_FIRST=1
	small_beside 'seldom first' equal2 1 $((seconds * 2)) --pause=1 --wait
	unset MOONRAIL_SMALL_FIRST
}

# --- plots --------------------------------------------------------------------

# series [tx]: writes and plots the rate of each rail over time.
series()
{
	file=$out/$(echo "$case_name" | tr ' ' _)
	awk -F, -v side="${1:-rx}" \
		-f "$scripts/rails_series.awk" "$rails_dir/watch.out" \
		>"$file.csv"
	columns=$(head -n 1 "$file.csv" | tr -cd , | wc -c)
	! command -v gnuplot >/dev/null 2>&1 ||
		gnuplot -e "file='$file'; title='$case_name'; n=$columns" \
			"$scripts/rails_plot.gp" 2>"$out/stderr" ||
		missed "$case_name" plot 1 "$out/stderr"
}

# --- faults and many peers, measured by other programs ------------------------

# part_of CASE SECONDS COMMAND…: runs COMMAND with output in $rails_dir/part.
part_of()
{
	case_name=$1
	most=$2
	shift 2
	in_time "$case_name" || return
	progress "$case_name"
	# COMMAND makes its own rails.
	timeout "$most" env -u MOONRAIL_MERGE "$@" >"$rails_dir/part" \
		2>"$out/stderr" && return
	grep '^not ok' "$rails_dir/part" >>"$out/stderr"
	missed "$case_name" engine 1 "$out/stderr"
	return 1
}

# said PATTERN: prints the group \(…\) of PATTERN in the last line that matches.
said()
{
	sed -n "s/^.*$1.*/\1/p" "$rails_dir/part" | tail -n 1
}

# fault_begin CASE: sets fault_rate to the rate of iperf3 on one of the rails, in
# bytes per second.
fault_begin()
{
	[ -z "${fault_rate:-}" ] || return 0
	progress "$1"
	if ! rails_up 200mbit 200mbit || ! rails_iperf >"$rails_dir/log" 2>&1
	then
		missed "$1" rails 1 "$rails_dir/log"
		rails_down
		return 1
	fi
	fault_rate=$(awk '{ printf "%d", $1 * 1e6 / 8 / 2 }' "$rails_dir/sum")
	record "$1" iperf3 1 Mbit/s "$(cat "$rails_dir/sum")"
	rails_down
}

# fault GOAL OPERATION FAULT…: measures the time from the fault until the other
# rail carries nine tenths of its rate, and from the repair until both rails do,
# in ms; "never" counts as 2500. fault_out is the duration of the fault in
# seconds and part of the name of the case; if it is empty, the fault is short.
fault()
{
	fault_goal=$1 fault_op=$2
	shift 2
	fault_name="$*${fault_out:+ for $fault_out s}"
	case $(echo "$fault_name" | tr ' ' _) in
	*"$only"*) ;;
	*) return ;;
	esac
	round=1
	while [ "$round" -le "$times" ]; do
		part_of "${fault_name#rails_}" 90 env "FAILOVER_OP=$fault_op" \
			"FAILOVER_RATE=$fault_rate" \
			"FAILOVER_OUT=${fault_out:-0.7}" \
			"FAILOVER_WATCH=$rails_dir/watch.out" sh \
			"$SRC/fabtests/functional/ft_failover.sh" "$@" || break
		sed -i 's/never/2500/g' "$rails_dir/part"
		record "$case_name failover" engine "$round" ms \
			"$(said ': \([0-9]*\) ms, back')"
		record "$case_name recovery" engine "$round" ms \
			"$(said 'after \([0-9]*\) ms')"
		progress ''
		sed -n 's/^ok - /  /p' "$rails_dir/part"
		# Each round replaces the plot of the round before.
		case $fault_op in
		read) series tx ;;
		*) series ;;
		esac
		round=$((round + 1))
	done
	row_now "$case_name failover" engine '' ms '<=' "$fault_goal"
	row_now "$case_name recovery" engine '' ms '<=' 2000
}

faults()
{
	fault_out=''
	fault_begin faults || return
	fault 100 write rails_link 0 down
	fault 250 write rails_drop 0 both
	fault 100 read rails_refuse 0
	fault 250 write rails_drop 0 in
	fault 250 read rails_drop 0 out
	fault 250 write rails_drop 0 out a
	# This fault ends at once.
	fault 100 write rails_reset 0
}

# Faults that last so long that probes have become rare.
lasting()
{
	fault_out=$lasting_s
	fault_begin lasting || return
	fault 250 write rails_drop 0 both
	fault 250 read rails_drop 0 out
}

# Measures the recovery after the first and the last of ten flaps, as medians of
# four flaps each. ft_links makes moves of 4 MiB, of about 90 ms each, until one
# uses both rails. One move more or less changes the result by a quarter.
flaps()
{
	for round in $(seq "$times"); do
		part_of 'ten flaps' 300 "$BUILD/fabtests/ft_links" flaps || return
		record "$case_name" first "$round" ms \
			"$(said 'the first: \([0-9]*\) ms')"
		record "$case_name" last "$round" ms \
			"$(said 'the last: \([0-9]*\) ms')"
	done
	row_now "$case_name" last first ms '<=' 1.25
}

# Compares the rate of a target while another target is stopped or dead with its
# rate alone, measured by ft_links. Arguments: CASE and the arguments of ft_links.
beside()
{
	beside_case=$1
	shift
	part_of "$beside_case" 300 "$BUILD/fabtests/ft_links" "$@" || return
	record "$case_name" beside 1 MB/s "$(said ', \([0-9.]*\) MB.s next to')"
	record "$case_name" alone 1 MB/s "$(said '# \([0-9.]*\) MB.s alone')"
	row_now "$case_name" beside alone MB/s '>=' 0.95
}

frozen()
{
	beside 'frozen peer' frozen
	beside "frozen peer $frozen_s s" frozen "$frozen_s"
}

dead()
{
	beside "dead peer $frozen_s s" dead "$frozen_s"
}

calm()
{
	: >"$rails_dir/part"
	part_of "calm $calm_s s" $((calm_s + 240)) "$BUILD/fabtests/ft_links" \
		calm "$calm_s"
	changes=$(said ', \([0-9]*\) changes of state')
	[ -n "$changes" ] || return
	record "$case_name" engine 1 changes "$changes"
	row_now "$case_name" engine '' changes '<=' 0
}

initiators()
{
	part_of '64 initiators' 300 "$BUILD/fabtests/ft_many" 8 8 6 64 || return
	record "$case_name" connected 1 ms "$(said 'warmed up twice in \([0-9]*\) ms')"
	row_now "$case_name" connected '' ms '<=' 3000
}

cached()
{
	part_of 'all cached' 300 "$BUILD/fabtests/ft_many" rate 300 64 48 || return
	record "$case_name" limited 1 MB/s "$(said '=64: \([0-9.]*\) MB.s')"
	record "$case_name" unlimited 1 MB/s "$(said '=65536: \([0-9.]*\) MB.s')"
	row_now "$case_name" limited unlimited MB/s '>=' 0.95
}

command -v iperf3 >/dev/null || { echo 'bench-rails: no iperf3'; exit 77; }
bench_check_build || exit 1
rounds=1 form="a unit of $unit Mbit/s (1+3: $(rates 1+3 | tr ' ' +), \
1+1+2+4: $(rates 1+1+2+4 | tr ' ' +), equal4: $(rates equal4 | tr ' ' +)), seed $seed"
rails_begin || exit
bench_begin
for part in $parts; do
	case $part in
	equal?) goal=0.97 ;;
	*) goal=0.95 ;;
	esac
	case $part in
	random) for op in $ops; do
			random_plan | changing random "$op" 8 0.95
		done ;;
	halved) for op in $ops; do
			printf '%s\n' "2 0 $((unit / 2))" "5 0 $unit" |
				changing halved "$op" 8 0.93
		done ;;
	small|faults|lasting|flaps|frozen|dead|initiators|cached|calm) "$part" ;;
	tail) tail_of equal2; tail_of 1+3 ;;
	*)	for op in $ops; do for request in $requests; do
			steady "$part" "$op" "$request" "$goal"
		done; done ;;
	esac
done
progress ''
# All rows have been printed, so print only the totals.
show $(($(wc -l <"$out/rows") + 1)) || exit 1
if command -v gnuplot >/dev/null 2>&1; then
	made='a plot and a table'
else
	echo 'no plots: gnuplot is not installed'
	made='a table'
fi
printf '%s of each rail over time in %s; %d s\n' "$made" "$out" \
	$(($(date +%s) - begun))
[ ! -s "$out/failures" ] && [ ! -s "$out/skipped" ] &&
	! grep -q 'NOT met\|not measured' "$out/summary.csv"
