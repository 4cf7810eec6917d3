# shellcheck shell=sh
# SPDX-License-Identifier: BSD-2-Clause
#
# Sourced by bench.sh: runs the programs, records the results and prints the
# report. Files in $out:
#   runs.csv     every run: case,side,round,metric,value
#   rows         the comparisons: case|side|against|metric|operator|goal
#   failures     failed runs, with the reason
#   skipped      cases that could not be run, with the reason
#   summary.csv  medians and ratios
# The caller sets these variables:
: "${out:=}" "${rounds:=5}" "${seconds:=1}" "${form:=quick}" "${scripts:=.}"

te_bench=$BUILD/bin/te_bench
export LD_LIBRARY_PATH="$BUILD/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
# Without merging each request is one operation; merging has rows of its own.
export MOONRAIL_MERGE=0

# Fails if the build is not optimised or is instrumented.
bench_check_build()
{
	flags=$(cat "$BUILD/flags" 2>/dev/null)
	case " $flags " in
	*' -fsanitize='*|*' --coverage '*)
		echo 'bench: the build is instrumented; configure without' \
			'--enable-asan, -ubsan, -tsan, -coverage' >&2
		return 1 ;;
	*' -O2 '*|*' -O3 '*|*' -Ofast '*) ;;
	*)	echo "bench: the build isn't optimised; configure without" \
			'--enable-debug' >&2
		return 1 ;;
	esac
}

bench_begin()
{
	mkdir -p "$out"
	echo 'case,side,round,metric,value' >"$out/runs.csv"
	: >"$out/rows"
	: >"$out/failures"
	: >"$out/skipped"
	begun=$(date +%s)
	printf '%s; %s CPUs, %s\nthis bench: %s, %s runs of %s s each, medians\n' \
		"$($te_bench --version)" "$(nproc)" "$(sed -n \
		's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)" \
		"$form" "$rounds" "$seconds"
	command -v gnuplot >/dev/null 2>&1 ||
		echo 'gnuplot is not installed: there will be tables and no plot'
	printf 'congestion control of tcp: %s\n' \
		"$(sysctl -n net.ipv4.tcp_congestion_control 2>/dev/null)"
}

# skip WHAT WHY: records a case that cannot be run.
skip()
{
	printf '%s: %s\n' "$1" "$2" >>"$out/skipped"
	progress "$1: skipped"
}

progress()
{
	[ ! -t 2 ] || printf '\r\033[K%s' "$*" >&2
}

# record CASE SIDE ROUND METRIC VALUE: records a result. If VALUE is not a
# number, it records a failed run.
record()
{
	case $5 in
	''|*[!0-9.e+-]*)
		printf '%s, %s, run %s: no figure of %s\n' "$1" "$2" "$3" \
			"$4" >>"$out/failures"
		return ;;
	esac
	printf '%s,%s,%s,%s,%s\n' "$1" "$2" "$3" "$4" "$5" >>"$out/runs.csv"
}

# row CASE SIDE AGAINST METRIC OPERATOR GOAL: adds a comparison. If AGAINST is
# empty, the value itself is compared with GOAL. If GOAL is empty, there is no
# verdict.
row()
{
	printf '%s|%s|%s|%s|%s|%s\n' "$@" >>"$out/rows"
}

# show FROM [YES]: prints the table from row FROM on. With YES more rows follow.
show()
{
	awk -v summary="$out/summary.csv" -v from="$1" -v part="${2:-}" \
		-f "$scripts/bench_report.awk" "$out/runs.csv" "$out/rows"
}

# row_now …: adds a row whose runs are complete, and prints it at once.
row_now()
{
	row "$@"
	progress ''
	show "$(wc -l <"$out/rows")" yes
}

# fail CASE SIDE ROUND LOG: records a failed run with the last line of LOG.
fail()
{
	printf '%s, %s, run %s: %s\n' "$1" "$2" "$3" \
		"$(tail -n 1 "$4" 2>/dev/null)" >>"$out/failures"
}

# record_rate CASE SIDE ROUND RATE LOG: records MB/s of a program of another
# project, or a failed run with the last line of LOG if RATE is empty.
record_rate()
{
	if [ -n "$4" ]; then
		record "$1" "$2" "$3" MB/s "$4"
	else
		fail "$1" "$2" "$3" "$5"
	fi
}

# field NAME: prints a number or word of the JSON object on standard input.
field()
{
	sed -n "s/.*\"$1\":\"\{0,1\}\([^,\"}]*\).*/\1/p" | tail -n 1
}

# run_te CASE SIDE ROUND OPTION…: runs te_bench once and sets json to its output.
run_te()
{
	run_case=$1 run_side=$2 run_round=$3
	shift 3
	progress "$run_case, $run_side, run $run_round of $rounds"
	if timeout 120 "$te_bench" --json "$@" </dev/null >"$out/stdout" \
			2>"$out/stderr"; then
		json=$(tail -n 1 "$out/stdout")
		[ -z "$json" ] || return 0
	elif [ $? -eq 124 ]; then
		echo 'not done after 120 s' >>"$out/stderr"
	fi
	fail "$run_case" "$run_side" "$run_round" "$out/stderr"
	return 1
}

# run_rate CASE SIDE ROUND OPTION…: records MB/s (10^6 bytes) and the median latency.
run_rate()
{
	run_te "$@" || return
	record "$1" "$2" "$3" MB/s "$(echo "$json" | field gb_per_s |
		awk '{ print $1 * 1000 }')"
	record "$1" "$2" "$3" us "$(echo "$json" | field p50)"
}

# alternate CASE COMMAND SIDE…: runs "COMMAND CASE SIDE ROUND" for all sides in
# each round. Each round begins with another side.
alternate()
{
	alternate_often 1 "$@"
}

# alternate_often TIMES CASE COMMAND SIDE…: the same with TIMES as many rounds.
alternate_often()
{
	alt_times=$1 alt_case=$2 alt_command=$3
	shift 3
	alt_round=1
	while [ "$alt_round" -le $((rounds * alt_times)) ]; do
		for alt_side; do
			"$alt_command" "$alt_case" "$alt_side" "$alt_round"
		done
		alt_side=$1
		shift
		set -- "$@" "$alt_side"
		alt_round=$((alt_round + 1))
	done
}

bytes_of()
{
	case $1 in
	*K) echo $((${1%K} << 10)) ;;
	*M) echo $((${1%M} << 20)) ;;
	*) echo "$1" ;;
	esac
}

bench_report()
{
	progress ''
	show 0 || return 1
	for list in skipped failures; do
		[ -s "$out/$list" ] || continue
		printf '\n%s:\n' "$list"
		sed 's/^/  /' "$out/$list"
	done
	echo
	bench_plot
	scaling_plot
	printf 'tables in %s: runs.csv, summary.csv; %d s\n' "$out" \
		$(($(date +%s) - begun))
	[ ! -s "$out/failures" ]
}

# plot_side SIDE TRANSPORT OP: prints "size median min max" lines.
plot_side()
{
	awk -F, -v side="$1" -v t="$2" -v op="$3" '
	function bytes(s) {
		return s ~ /K$/ ? s * 1024 : s ~ /M$/ ? s * 1048576 : s + 0
	}
	NR > 1 && $4 == "MB/s" && split($1, w, " ") == 5 && w[1] == t &&
	w[2] == op && w[4] == "b128" && w[5] == "t1" {
		if ($2 == side) print bytes(w[3]), $5, $6, $7
		if ($3 == side) print bytes(w[3]), $8, $9, $10
	}' "$out/summary.csv" | sort -n -u -k 1,1
}

# draw NAME: writes NAME.svg with gnuplot and bench_NAME.gp, from files in $out.
draw()
{
	if ! command -v gnuplot >/dev/null 2>&1; then
		echo "no $1.svg: gnuplot is not installed"
	elif gnuplot -e "out='$out'" "$scripts/bench_$1.gp" \
			2>"$out/stderr"; then
		printf 'plot: %s\n' "$out/$1.svg"
	else
		printf 'no %s.svg: gnuplot: %s\n' "$1" \
			"$(tail -n 1 "$out/stderr")"
	fi
}

bench_plot()
{
	for plot in 'tcp write' 'tcp read' 'shm write' 'shm read'; do
		for side in engine raw ucx merged; do
			# shellcheck disable=SC2086
			plot_side "$side" $plot >"$out/$side-${plot% *}-${plot#* }.dat"
		done
	done
	if [ -z "$(cat "$out"/engine-*.dat)" ]; then
		rm -f "$out"/*.dat
		return
	fi
	draw transfers
	rm -f "$out"/*.dat
}
