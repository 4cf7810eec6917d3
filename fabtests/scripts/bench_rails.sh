#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# make bench-rails: the engine on several shaped rails against iperf3 on the
# same rails, in one run (rails_lib.sh). BUILD is the build folder, SRC the
# sources; the arguments are words that choose (bench_rails.sh help). Ends with
# 1 if a run failed, whatever the figures; 77 where there can be no rails.
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
make bench-rails [BENCH='WORD…']

  equal2 equal4 1+3 1+1+2+4         steady rails, in units
  random halved                     rates that change while it runs
  tail                              one request of 64 MiB: when each rail ends
  small                             4 KiB beside bulk: how long it takes
                                    parts; all of them
  256M 32x1M                        requests of the steady parts; both
  write read                        operations; both
  unit=N seconds=S                  Mbit/s of one unit (a quarter of it for
                                    1+1+2+4); of a steady case at least: 200, 3
  seed=N out=DIR                    of random; tables and plots:
                                    BUILD/bench-rails
TEXT
}

parts='' requests='' ops='' unit=200 seconds=3 seed=1 out=$BUILD/bench-rails
for word; do
	case $word in
	equal2|equal4|1+3|1+1+2+4|random|halved|tail|small) parts="$parts $word" ;;
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
: "${parts:=equal2 equal4 1+3 1+1+2+4 random halved tail small}"
: "${requests:=256M 32x1M}" "${ops:=write read}"

# --- rails, and what iperf3 says they carry -----------------------------------

# rates WORD: of a part, in Mbit/s.
rates()
{
	case $1 in
	equal4) echo "$((unit / 2)) $((unit / 2)) $((unit / 2)) $((unit / 2))" ;;
	1+3) echo "$unit $((unit * 3))" ;;
	1+1+2+4) echo "$((unit / 2)) $((unit / 2)) $unit $((unit * 2))" ;;
	*) echo "$unit $unit" ;;
	esac
}

# begin CASE RATE…: rails and a target, $sum of iperf3, $nominal.
begin()
{
	case_name=$1
	shift
	progress "$case_name"
	nominal=0 shaped=''
	for rate; do
		nominal=$((nominal + rate)) shaped="$shaped ${rate}mbit"
	done
	# shellcheck disable=SC2086
	if ! rails_up $shaped || ! rails_iperf >"$rails_dir/log" 2>&1 ||
			! rails_target b t --buffer_size=256M; then
		fail "$case_name" rails 1 "$rails_dir/log"
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

# crossed HOST: bytes that have come in there on all rails.
crossed()
{
	total=0
	for rail in $(seq 0 $((rails_n - 1))); do
		total=$((total + $(rails_bytes "$1" "$rail" rx)))
	done
}

# finish SECONDS: the initiator's end, or what it said.
finish()
{
	rails_wait i "$1" && return
	rails_stop i KILL
	fail "$case_name" engine 1 "$rails_dir/i.err"
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

# steady PART OP REQUEST GOAL
steady()
{
	# shellcheck disable=SC2046
	begin "$1 $2 $3" $(rates "$1") || { end; return; }
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
		crossed "$host"
		rails_stop watch
		if [ $((total - was)) -lt "$(rails_json i bytes)" ]; then
			echo 'the bytes did not cross the rails' >"$rails_dir/i.err"
			fail "$case_name" engine 1 "$rails_dir/i.err"
		else
			record "$case_name" engine 1 Mbit/s "$(rails_json i \
				gb_per_s | awk '{ print $1 * 8000 }')"
			row "$case_name" engine iperf3 Mbit/s '>=' "$4"
			series "$host"
		fi
	fi
	end
}

# --- changing -----------------------------------------------------------------

# Rates over time: "second rail rate" per line on standard input, until $1
# seconds. $carried: what the rails could have carried, in bytes of goodput.
change()
{
	while read -r at rail rate; do
		rails_at "$at"
		rails_rate "$rail" "${rate}mbit"
		echo "$(rails_now) $rail $rate"
	done >"$rails_dir/changes"
	rails_at "$1"
}

# area FIRST LAST: Mbit that the rates allowed between these milliseconds.
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

# changing PART SECONDS GOAL <CHANGES: counted by the rails' counters, from the
# mark to the end, in iperf3's goodput per bit of rate.
changing()
{
	cat >"$out/plan"
	# shellcheck disable=SC2046
	begin "$1 write 32x1M" $(rates "$1") || { end; return; }
	rails_mark
	rails_watch b watch 20
	rails_bench a i "$rails_segment" --operation=write --buffer_size=256M \
		--duration=$(($2 + 2)) --block_size=1M --batch_size=32
	crossed b
	was=$total
	tries=0
	while [ "$tries" -lt 200 ] && [ $((total - was)) -lt 4000000 ]; do
		sleep 0.05
		crossed b
		tries=$((tries + 1))
	done
	rails_mark
	crossed b
	was=$total first=$(rails_now)
	change "$2" <"$out/plan"
	crossed b
	last=$(rails_now)
	moved=$((total - was))
	finish 60 && {
		# headers: 52 + 14 of each 1514 bytes
		record "$case_name" engine 1 Mbit/s "$(awk -v b="$moved" \
			-v ms=$((last - first)) \
			'BEGIN { print b * 8 / 1000 / ms * 1448 / 1514 }')"
		record "$case_name" capacity 1 Mbit/s "$(awk -v s="$sum" \
			-v n="$nominal" -v a="$(area "$first" "$last")" \
			-v ms=$((last - first)) \
			'BEGIN { print s / n * a / ms * 1000 }')"
		row "$case_name" engine capacity Mbit/s '>=' "$3"
		rails_stop watch
		series b
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

# tail_of PART: the rails' ends of the last of some requests of 64 MiB, as part
# of a request's time.
tail_of()
{
	# shellcheck disable=SC2046
	begin "tail $1 write 64M" $(rates "$1") || { end; return; }
	for round in 1 2 3 4 5; do
		rails_mark
		rails_watch b watch 2
		rails_bench a i "$rails_segment" --operation=write --warmup=1 \
			--buffer_size=64M --block_size=64M --batch_size=1 \
			--duration=0.1
		finish 60 || break
		rails_stop watch
		record "$case_name" rails "$round" tail% "$(awk -F, \
			-v us="$(rails_json i p50)" -f "$scripts/rails_tail.awk" \
			"$rails_dir/watch.out")"
		record "$case_name" engine "$round" Mbit/s \
			"$(rails_json i gb_per_s | awk '{ print $1 * 8000 }')"
	done
	row "$case_name" rails '' tail% '<=' 5
	row "$case_name" engine iperf3 Mbit/s '>=' ''
	series b
	end
}

# --- a small request ----------------------------------------------------------

# small_beside PART: writes of 4 KiB, one at a time, beside requests of 256 MiB,
# against the time of a slice of 64 KiB on a rail; and with nothing beside them.
small_beside()
{
	# shellcheck disable=SC2046
	begin "small $1 write 4K" $(rates "$1") || { end; return; }
	# shellcheck disable=SC2046
	set -- $(rates "$1")
	rails_watch b watch 20
	rails_bench a i "$rails_segment" --operation=write --block_size=4K \
		--batch_size=1 --duration=1 --buffer_size=256M
	finish 60 && record "$case_name" alone 1 us "$(rails_json i p50)"
	rails_bench a i "$rails_segment" --operation=write --threads=2 \
		--beside=4K --block_size=128M --batch_size=1 \
		--duration="$seconds" --buffer_size=256M
	if finish 120; then
		record "$case_name" beside 1 us "$(rails_json i p50)"
		record "$case_name" slice 1 us "$((65536 * 8 / $1))"
		record "$case_name" engine 1 Mbit/s \
			"$(rails_json i gb_per_s | awk '{ print $1 * 8000 }')"
	fi
	row "$case_name" alone slice us '<=' ''
	row "$case_name" beside slice us '<=' ''
	row "$case_name" engine iperf3 Mbit/s '>=' ''
	rails_stop watch
	series b
	end
}

# --- the figures --------------------------------------------------------------

# series HOST: throughput of each rail over time, from the watch, and its plot.
series()
{
	file=$out/$(echo "$case_name" | tr ' ' _)
	awk -F, \
		-f "$scripts/rails_series.awk" "$rails_dir/watch.out" \
		>"$file.csv"
	plots="${plots:+$plots }$file"
	! command -v gnuplot >/dev/null 2>&1 ||
		gnuplot -e "file='$file'; title='$case_name'; n=$rails_n" \
			"$scripts/rails_plot.gp" 2>"$out/stderr" ||
		fail "$case_name" plot 1 "$out/stderr"
}

command -v iperf3 >/dev/null || { echo 'bench-rails: no iperf3'; exit 77; }
bench_check_build || exit 1
rounds=1 form="unit $unit Mbit/s, seed $seed"
plots=''
rails_begin || exit
bench_begin
for part in $parts; do
	case $part in
	equal?) goal=0.97 ;;
	*) goal=0.95 ;;
	esac
	case $part in
	random) random_plan | changing random 8 0.95 ;;
	halved) printf '%s\n' "2 0 $((unit / 2))" "5 0 $unit" |
		changing halved 8 0.93 ;;
	small) small_beside equal2 ;;
	tail) tail_of equal2; tail_of 1+3 ;;
	*)	for op in $ops; do for request in $requests; do
			steady "$part" "$op" "$request" "$goal"
		done; done ;;
	esac
done
progress ''
awk -v summary="$out/summary.csv" -f "$scripts/bench_report.awk" \
	"$out/runs.csv" "$out/rows" || exit 1
for list in skipped failures; do
	[ ! -s "$out/$list" ] || { echo "$list:"; cat "$out/$list"; }
done
printf 'tables and plots of each rail over time in %s; %d s\n' "$out" \
	$(($(date +%s) - begun))
[ ! -s "$out/failures" ]
