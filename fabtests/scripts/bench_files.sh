#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# bench_files.sh [DEPTH [SECONDS [ROUNDS [WORD...]]]]
#
# A file segment beside fio's io_uring engine: the same file, block size and
# depth, direct, sequential, with registered buffers, in turns, each as often
# first as the other. Prints medians of both rates and of the processor time per
# byte, and, since disks change their rate from one second to the next, of the
# ratios of each round: with the interval in which the true median is by 98 %,
# and whether that is beyond the goal (met), short of it (missed), or neither
# (open). The goals are a rate of at least 0.95 of fio's, and of processor time
# not more than fio's; what is missed makes the script fail. What durability
# costs beside a fio without it has no goal.
# The bytes come from, or go to, as many blocks of memory as the depth in both:
# with more of them large blocks go past the processor's caches, at two thirds of
# the rate. Words narrow it down: read, write, 4k, 128k, 1M.
#
# BUILD as the Makefile sets it. BENCH_DIR is where the file goes; without, and
# as root, it is a loop device on memory, whose rate is the same all the time.
# The loop device's threads copy there, and count for neither.
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

# field NAME FILE: the first number of that name in JSON.
field()
{
	grep -o "\"$1\" *: *[0-9.e+-]*" "$2" | head -n 1 | sed 's/.*: *//'
}

# figures BYTES SECONDS CPU_SECONDS WHO: "bytes per second, CPU seconds per GB".
# Of nothing there is no rate: what moved no byte, or took no time or CPU, was
# not measured.
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

# cpu_ns FILE: of all threads whose schedstat it holds
cpu_ns()
{
	awk '{ sum += $1 } END { printf "%.0f\n", sum }' "$1"
}

# run_fio OP BLOCK: "bytes per second, CPU seconds per GB". What fio says of its
# CPU leaves out the threads that the kernel makes for its requests, which take
# up to a third more; so those of the job's process are read before and after.
# Of threads that end meanwhile, as idle ones do after 5 s, nothing is counted.
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

# run_files OP BLOCK SYNC
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

# median FILE COLUMN
median()
{
	sort -g -k"$2,$2" "$1" | awk -v c="$2" '{ v[NR] = $c }
		END { print v[int((NR + 1) / 2)] }'
}

# ratio COLUMN LEAST MOST: of the rounds, "median low high verdict". '-': no bound.
ratio()
{
	paste "$tmp/a" "$tmp/b" | awk -v c="$1" '{ print $(c + 2) / $c }' |
		sort -g | awk -v least="$2" -v most="$3" '{ v[NR] = $1 }
		END {
			# binomial: so many at either end are left out
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

# wanted OP BLOCK: no word, or one for each, names another.
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

# compare OP BLOCK SYNC
compare()
{
	wanted "$1" "$2" || return 0
	: >"$tmp/a"
	: >"$tmp/b"
	for round in $(seq "$rounds"); do
		# a disk that was idle may be faster for a while
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
# fio's rate without any flush: what durability costs
compare write 128k data || bad=1
compare write 128k dsync || bad=1
exit $bad
