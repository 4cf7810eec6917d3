#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# bench_files.sh [DEPTH [SECONDS [ROUNDS]]]
#
# A file segment beside fio's io_uring engine: the same file, block size and
# depth, direct, sequential, with registered buffers, in turns, each as often
# first as the other where ROUNDS is even. Prints medians of both, the ratio of
# the rates, and of the processor time per byte. BUILD as the Makefile sets it;
# BENCH_DIR is where the file goes.
set -u
: "${BUILD:?}"
depth=${1:-32} seconds=${2:-1} rounds=${3:-4}
size=256M
command -v fio >/dev/null || {
	echo 'bench-files: needs fio (apt-get install fio)' >&2
	exit 1
}
grep -q -- '-O[23]' "$BUILD/flags" || {
	echo "bench-files: the build isn't optimised" >&2
	exit 1
}
tmp=$(mktemp -d "${BENCH_DIR:-/var/tmp}/bench_files.XXXXXX")
trap 'rm -rf "$tmp"' EXIT
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

# run_fio OP BLOCK: "bytes per second, CPU seconds per GB"
run_fio()
{
	fio --name=x --filename="$tmp/file" --size=$size --rw="$1" --bs="$2" \
		--ioengine=io_uring --iodepth="$depth" --direct=1 \
		--registerfiles=1 --fixedbufs=1 --time_based \
		--runtime="$seconds" --allow_file_create=0 \
		--output-format=json --output="$tmp/fio" >/dev/null 2>&1 ||
		return 1
	sed -n "/\"$1\" *: *{/,\$p" "$tmp/fio" >"$tmp/part"
	awk -v bw="$(field bw_bytes "$tmp/part")" \
		-v usr="$(field usr_cpu "$tmp/fio")" \
		-v sys="$(field sys_cpu "$tmp/fio")" \
		'BEGIN { print bw, (usr + sys) / 100 / (bw / 1e9) }'
}

# run_files OP BLOCK SYNC
run_files()
{
	case $2 in 4k) batch=2048 ;; 128k) batch=512 ;; *) batch=128 ;; esac
	MOONRAIL_FILE_SYNC=$3 "$BUILD/bin/te_bench" --protocol=nvmeof \
		--local_server_name=127.0.0.1 --segment_id=nvmeof/bench \
		--operation="$1" --block_size="$2" --batch_size=$batch \
		--buffer_size=$size --duration="$seconds" --wait --json \
		>"$tmp/te" 2>"$tmp/err" || {
		cat "$tmp/err" >&2
		return 1
	}
	awk -v bytes="$(field bytes "$tmp/te")" \
		-v cpu="$(field cpu_seconds "$tmp/te")" \
		-v seconds="$(field seconds "$tmp/te")" \
		'BEGIN { print bytes / seconds, cpu / (bytes / 1e9) }'
}

# median FILE COLUMN
median()
{
	sort -g -k"$2,$2" "$1" | awk -v c="$2" '{ v[NR] = $c }
		END { print v[int((NR + 1) / 2)] }'
}

# compare OP BLOCK SYNC
compare()
{
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
	awk -v op="$1" -v bs="$2" -v sync="$3" \
		-v fr="$(median "$tmp/a" 1)" -v fc="$(median "$tmp/a" 2)" \
		-v mr="$(median "$tmp/b" 1)" -v mc="$(median "$tmp/b" 2)" \
	'BEGIN {
		printf "%-6s %5s %-6s %9.1f %9.1f %6.2f %8.3f %8.3f %6.2f\n",
			op, bs, sync, fr / 1e6, mr / 1e6, mr / fr, fc, mc,
			mc / fc
	}'
}

head -c "$size" /dev/urandom >"$tmp/file" && sync "$tmp/file"
"$BUILD/bin/te_meta" register --server=127.0.0.1 bench "$tmp/file" || exit 1
printf 'depth %s, %s runs of %s s each, medians; %s\n' "$depth" "$rounds" \
	"$seconds" "$(fio --version)"
printf '%-6s %5s %-6s %9s %9s %6s %8s %8s %6s\n' op block sync \
	'fio MB/s' MB/s ratio 'fio s/GB' s/GB ratio
bad=0
for block in 4k 128k 1M; do
	compare read $block none || bad=1
	compare write $block none || bad=1
done
# fio's rate without any flush: what durability costs
compare write 128k data || bad=1
compare write 128k dsync || bad=1
exit $bad
