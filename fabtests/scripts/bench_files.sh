#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# bench_files.sh [DEPTH [SECONDS [ROUNDS [WORD...]]]]
#
# Compares a file segment with fio's io_uring engine: the same file, block size
# and depth, direct and sequential I/O, registered buffers. Both run once per
# round and take turns at being first. The script prints the medians of both
# rates and of the processor time per byte. The rate of a disk varies from one
# second to the next, so the script also prints the median of the ratios of the
# rounds, with the interval that contains the true median with a probability of
# 98 %. The verdict is "met" if the whole interval is beyond the goal, "missed"
# if all of it is short of the goal, and otherwise "open". The goals are at least
# 0.95 of fio's rate, and at most fio's processor time. A missed goal makes the
# script fail. The runs with durable writes have no goal, because fio runs
# without durability.
# Both use as many blocks of memory as the depth. With more memory, large blocks
# would not fit the processor's caches, and the rate would fall to two thirds.
# Words select cases: read, write, 4k, 128k, 1M.
#
# BUILD is set by the Makefile. BENCH_DIR is the folder of the file. Without it,
# root uses a loop device on memory, whose rate is constant. The processor time
# of the loop device's threads is not counted.
set -u
: "${BUILD:?}"
depth=${1:-32} seconds=${2:-0.5} rounds=${3:-11}
words=
[ $# -le 3 ] || { shift 3; words=" $* "; }
size=256M
command -v fio >/dev/null || {
	echo 'bench-files: needs fio (apt-get install fio)' >&2
	exit 1
}
grep -q -- '-O[23]' "$BUILD/flags" || {
	echo "bench-files: the build isn't optimised" >&2
	exit 1
}
grep -q '^[1-9]' "/proc/$$/schedstat" 2>/dev/null || {
	echo 'bench-files: the kernel does not count CPU in schedstat' >&2
	exit 1
}
dir=$(cd "${BENCH_DIR:-/var/tmp}" && pwd) || exit 1
loop=
[ -n "${BENCH_DIR:-}" ] || [ "$(id -u)" -ne 0 ] || dir=/dev/shm
tmp=$(mktemp -d "$dir/bench_files.XXXXXX")
trap '[ -z "$loop" ] || losetup -d "$loop"; rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM
LD_LIBRARY_PATH="$BUILD/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
MOONRAIL_SEGMENT_DIR=$tmp
MOONRAIL_FILE_DEPTH=$depth
export LD_LIBRARY_PATH MOONRAIL_SEGMENT_DIR MOONRAIL_FILE_DEPTH

# field NAME FILE: prints the first number of that name in a JSON file.
field()
{
	grep -o "\"$1\" *: *[0-9.e+-]*" "$2" | head -n 1 | sed 's/.*: *//'
}

# figures BYTES SECONDS CPU_SECONDS PROGRAM: prints bytes per second and CPU
# seconds per GB. Fails if a value is 0, because then the run measured nothing.
figures()
{
	awk -v bytes="$1" -v seconds="$2" -v cpu="$3" 'BEGIN {
		if (!(bytes > 0 && seconds > 0 && cpu > 0))
			exit 1
		print bytes / seconds, cpu / (bytes / 1e9)
	}' && return
	printf 'bench-files: %s: %s bytes in %s s, with %s s of CPU: no figures\n' \
		"$4" "${1:-no}" "${2:-no}" "${3:-no}" >&2
	return 1
}

# cpu_ns FILE: prints the sum of the CPU times in lines of schedstat, ns.
cpu_ns()
{
	awk '{ sum += $1 } END { printf "%.0f\n", sum }' "$1"
}

# run_fio OP BLOCK: runs fio and prints bytes per second and CPU seconds per GB.
# fio's own CPU time leaves out the threads that the kernel makes for its
# requests, which take up to a third more. So this function reads the CPU time of
# all threads of the job's process before and after the run. Threads that end
# during the run, such as those idle for 5 s, are not counted.
run_fio()
{
	# shellcheck disable=SC2016 # for the shell that fio starts
	cpu='cat /proc/$PPID/task/*/schedstat'
	(cd "$tmp" && exec fio --name=x --filename="$file" --size=$size --rw="$1" --bs="$2" \
		--ioengine=io_uring --iodepth="$depth" --direct=1 \
		--registerfiles=1 --fixedbufs=1 --time_based \
		--runtime="$(awk "BEGIN { print $seconds * 1000 }")ms" --allow_file_create=0 \
		--exec_prerun="$cpu" --exec_postrun="$cpu" \
		--output-format=json --output="$tmp/fio") >/dev/null 2>&1 ||
		return 1
	sed -n "/\"$1\" *: *{/,\$p" "$tmp/fio" >"$tmp/part"
	figures "$(field io_bytes "$tmp/part")" \
		"$(awk -v bytes="$(field io_bytes "$tmp/part")" \
			-v bw="$(field bw_bytes "$tmp/part")" \
			'BEGIN { print (bw > 0 ? bytes / bw : 0) }')" \
		"$(awk -v before="$(cpu_ns "$tmp/x.prerun.txt")" \
			-v after="$(cpu_ns "$tmp/x.postrun.txt")" \
			'BEGIN { print (after - before) / 1e9 }')" fio
}

# run_files OP BLOCK SYNC: runs te_bench with a file segment and prints the same two
# figures as run_fio.
run_files()
{
	case $2 in 4k) batch=2048 ;; 128k) batch=512 ;; *) batch=128 ;; esac
	case $2 in *k) own=${2%k} ;; *) own=1024 ;; esac
	"$BUILD/bin/te_bench" --protocol=nvmeof --file_sync="$3" \
		--local_server_name=127.0.0.1 --segment_id=nvmeof/bench \
		--operation="$1" --block_size="$2" --batch_size=$batch \
		--buffer_size=$size --own_size=$((own * depth))k \
		--duration="$seconds" --wait --json \
		>"$tmp/te" 2>"$tmp/err" || {
		cat "$tmp/err" >&2
		return 1
	}
	figures "$(field bytes "$tmp/te")" "$(field seconds "$tmp/te")" \
		"$(field cpu_seconds "$tmp/te")" te_bench
}

# median FILE COLUMN: prints the median of a column.
median()
{
	sort -g -k"$2,$2" "$1" | awk -v c="$2" '{ v[NR] = $c }
		END { print v[int((NR + 1) / 2)] }'
}

# ratio COLUMN LEAST MOST: prints "median low high verdict" of the ratios of the
# rounds. LEAST and MOST are the goal; "-" means no bound.
ratio()
{
	paste "$tmp/a" "$tmp/b" | awk -v c="$1" '{ print $(c + 2) / $c }' |
		sort -g | awk -v least="$2" -v most="$3" '{ v[NR] = $1 }
		END {
			# The binomial distribution gives the number of values
			# to leave out at either end.
			sum = p = 0.5 ^ NR
			for (k = 0; sum < 0.01; sum += p) {
				p *= (NR - k) / (k + 1)
				k++
			}
			low = v[k > 0 ? k : 1]
			high = v[k > 0 ? NR + 1 - k : NR]
			verdict = "open"
			if (least == "-" && most == "-")
				verdict = "-"
			else if (least != "-" && high < least + 0 ||
				 most != "-" && low > most + 0)
				verdict = "missed"
			else if ((least == "-" || low >= least + 0) &&
				 (most == "-" || high <= most + 0))
				verdict = "met"
			print v[int((NR + 1) / 2)], low, high, verdict
		}'
}

# wanted OP BLOCK: succeeds if the words select the case. If no word names an
# operation, or no word names a block size, all of them are selected.
wanted()
{
	case $words in
	*' read '* | *' write '*)
		case $words in *" $1 "*) ;; *) return 1 ;; esac ;;
	esac
	case $words in
	*' 4k '* | *' 128k '* | *' 1M '*)
		case $words in *" $2 "*) ;; *) return 1 ;; esac ;;
	esac
}

# compare OP BLOCK SYNC: runs a case and prints its row. Fails if a goal is missed.
compare()
{
	wanted "$1" "$2" || return 0
	: >"$tmp/a"
	: >"$tmp/b"
	for round in $(seq "$rounds"); do
		# The order changes, because an idle disk may be faster at first.
		[ $((round % 2)) -eq 1 ] || {
			run_files "$1" "$2" "$3" >>"$tmp/b" || return 1
		}
		run_fio "$1" "$2" >>"$tmp/a" || return 1
		[ $((round % 2)) -eq 0 ] || {
			run_files "$1" "$2" "$3" >>"$tmp/b" || return 1
		}
	done
	least=0.95 most=1
	[ "$3" = none ] || least=- most=-
	# shellcheck disable=SC2046
	set -- "$1" "$2" "$3" $(ratio 1 $least -) $(ratio 2 - $most)
	awk -v op="$1" -v bs="$2" -v sync="$3" -v ratio="$4" -v low="$5" \
		-v high="$6" -v verdict="$7" -v cr="$8" -v cverdict="${11}" \
		-v fr="$(median "$tmp/a" 1)" -v fc="$(median "$tmp/a" 2)" \
		-v mr="$(median "$tmp/b" 1)" -v mc="$(median "$tmp/b" 2)" \
	'BEGIN {
		printf "%-6s %5s %-6s %9.1f %9.1f %6.3f [%.3f %.3f] %-6s %8.3f %8.3f %6.2f %s\n",
			op, bs, sync, fr / 1e6, mr / 1e6, ratio, low, high,
			verdict, fc, mc, cr, cverdict
	}'
	[ "$7" != missed ] && [ "${11}" != missed ]
}

file=$tmp/file
head -c "$size" /dev/urandom >"$file" && sync "$file"
if [ "$dir" = /dev/shm ] && [ -z "${BENCH_DIR:-}" ]; then
	loop=$(losetup -f --show --direct-io=on "$file" 2>/dev/null) &&
		file=$loop
fi
"$BUILD/bin/te_meta" register --server=127.0.0.1 bench "$file" || exit 1
printf '%s, depth %s, %s rounds of %s s each, medians; %s\n' \
	"${loop:+a loop device on }$dir" "$depth" "$rounds" \
	"$seconds" "$(fio --version)"
printf '%-6s %5s %-6s %9s %9s %6s %-13s %-6s %8s %8s %6s %s\n' op block sync \
	'fio MB/s' MB/s ratio '98 %' goal 'fio s/GB' s/GB ratio goal
bad=0
for block in 4k 128k 1M; do
	compare read $block none || bad=1
	compare write $block none || bad=1
done
# The cost of durable writes; fio does not flush.
compare write 128k data || bad=1
compare write 128k dsync || bad=1
exit $bad
