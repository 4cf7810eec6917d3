#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# timeout: 500
#
# Tests the parts of make bench: the modes of te_bench that it uses, the selection
# of cases, the medians and the verdicts. Measured values are not checked.
set -u
: "${BUILD:?}" "${SRC:?}"
# With the default, each endpoint of ofi_rxm has receive buffers of 70 megabytes, which
# take longer to allocate than a test runs.
export FI_OFI_RXM_MSG_RX_SIZE=1024
scripts=$SRC/fabtests/scripts
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
export LD_LIBRARY_PATH="$BUILD/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export MOONRAIL_SEGMENT_DIR="$tmp/dir"
bad=0

# check TITLE COMMAND…: runs COMMAND and prints "ok" or "not ok".
check()
{
	title=$1
	shift
	if "$@" >"$tmp/out" 2>&1; then
		echo "ok - $title"
	else
		cat "$tmp/out"
		echo "not ok - $title"
		bad=1
	fi
}

# mode NAME FIELD OPTION…: runs te_bench in that mode. Succeeds if its JSON object
# has a number FIELD.
mode()
{
	name=$1 member=$2
	shift 2
	"$BUILD/bin/te_bench" --mode="$name" --duration=0.05 --json "$@" \
		>"$tmp/json" 2>&1 || { cat "$tmp/json"; return 1; }
	tail -n 1 "$tmp/json" | grep -q "\"$member\":[0-9]" ||
		{ cat "$tmp/json"; return 1; }
}

report()
{
	awk -v summary="$tmp/summary" -f "$scripts/bench_report.awk" \
		"$tmp/runs" "$tmp/rows"
}

# Tests medians of an odd and of an even number of runs, and goals that are met,
# missed and not measured.
medians()
{
	cat >"$tmp/runs" <<-TEXT
	case,side,round,metric,value
	x,a,1,MB/s,300
	x,a,2,MB/s,100
	x,a,3,MB/s,98
	x,b,1,MB/s,110
	x,b,2,MB/s,90
	y,a,1,MB/s,5
	z,a,1,us,5
	z,b,1,us,0
	TEXT
	printf '%s\n' 'x|a|b|MB/s|>=|0.97' 'x|a|b|MB/s|<=|0.97' \
		'y|a||MB/s|<=|6' 'y|a|b|MB/s|>=|1' 'z|a|b|us|<=|1' \
		>"$tmp/rows"
	report >"$tmp/table" || return 1
	cat "$tmp/summary"
	grep -qx 'x,a,b,MB/s,100,98,300,100,90,110,1,0.97,met' "$tmp/summary" &&
		grep -q '^x,a,b,.*,0.97,NOT met$' "$tmp/summary" &&
		grep -q '^y,a,,MB/s,5,5,5,0,0,0,5,6,met$' "$tmp/summary" &&
		grep -q '^y,a,b,.*,1,not measured$' "$tmp/summary" &&
		grep -q '^z,a,b,.*,1,not measured$' "$tmp/summary" &&
		grep -q '^2 goals met, 1 not met' "$tmp/table"
}

# Tests a table that begins at a later row and is not complete.
rows_from()
{
	medians || return
	awk -v summary="$tmp/summary" -v from=4 -v part=yes \
		-f "$scripts/bench_report.awk" "$tmp/runs" "$tmp/rows" \
		>"$tmp/table" || return
	cat "$tmp/table"
	[ "$(grep -c '^[xyz] ' "$tmp/table")" = 2 ] &&
		grep -q '^y .*not measured$' "$tmp/table" &&
		! grep -q 'goals met' "$tmp/table"
}

# Tests that a missing value does not count as 0, which would meet a goal.
figures()
{
	out=$tmp/figures
	mkdir "$out" && : >"$out/failures" || return
	out=$out sh -c '. "$1"
		for value in 0 0.25 1.5e+06 "" nan null; do
			record x a 1 us "$value"
		done' sh "$scripts/bench_lib.sh"
	cat "$out/runs.csv" "$out/failures"
	[ "$(wc -l <"$out/runs.csv")" -eq 3 ] &&
		[ "$(grep -c '^x, a, run 1: no figure of us$' \
			"$out/failures")" -eq 3 ]
}

bench()
{
	sh "$scripts/bench.sh" out="$tmp/bench" buffer=8M "$@"
}

optimised()
{
	! grep -q -e -fsanitize -e --coverage "$BUILD/flags" &&
		grep -q -e ' -O[23]' "$BUILD/flags"
}

small()
{
	bench tcp 64 write b1 rounds=2 seconds=0.02 || return 1
	[ "$(grep -c '^tcp write 64 b1 t1,engine,.,us,' "$tmp/bench/runs.csv")" = 2 ] &&
		grep -q '^tcp write 64 b1 t1,engine,raw,us,' "$tmp/bench/summary.csv" &&
		grep -q '^tcp write 64 b1 t1,engine,raw-fd,us,' "$tmp/bench/summary.csv"
}

# in_turn SIDE…: succeeds if the rounds of small() ran these sides in this order.
in_turn()
{
	sed -n 's/^tcp write 64 b1 t1,\([a-z-]*\),.,us,.*/\1/p' \
		"$tmp/bench/runs.csv" >"$tmp/sides"
	cat "$tmp/sides"
	printf '%s\n' "$@" | cmp -s - "$tmp/sides"
}

# In the quick form the batch of large blocks is smaller; the goal is the same.
large()
{
	bench tcp 16M write b128 rounds=1 seconds=0.02 buffer=128M || return 1
	grep -Eq '^tcp write 16M b8 t1,engine,raw,MB/s,.*,0\.97,(NOT )?met$' \
		"$tmp/bench/summary.csv"
}

# Copies through mappings are compared with memcpy.
mapped()
{
	bench mapped 4K 64K write rounds=1 seconds=0.02 || return 1
	grep -Eq '^mapped write 4K b128 t1,mapped,memcpy,MB/s,.*,0\.8,(NOT )?met$' \
		"$tmp/bench/summary.csv" &&
		grep -Eq '^mapped write 64K b128 t1,mapped,memcpy,MB/s,.*,0\.9,(NOT )?met$' \
			"$tmp/bench/summary.csv"
}

# The goals of the prepared lists in the report are those for tcp over
# loopback.
prepared()
{
	bench prepared tcp write rounds=1 seconds=0.02 || return 1
	grep -Eq '^tcp write 256 x 1K,ratio,.*,2,(NOT )?met$' \
		"$tmp/bench/summary.csv" &&
		grep -Eq '^tcp write 1000 x 64K,.*,1\.05,(NOT )?met$' \
			"$tmp/bench/summary.csv"
}

# The rows of memory have as many runs as other rows, and print their spread.
memory()
{
	bench segments segments=2 rounds=2 seconds=0.02 || return 1
	[ "$(grep -c '^each of 2 used,used_kib,.,KiB,' "$tmp/bench/runs.csv")" = 2 ] &&
		grep -q '^each of 2 used  *[0-9.]* \[.*\.\..*\]' "$tmp/out" &&
		[ "$(grep -c '^cost with 2 open,ratio,.,' "$tmp/bench/runs.csv")" = 2 ]
}

# Memory and time of an engine have rows, the latter with a goal.
creation()
{
	bench create rounds=1 seconds=0.02 || return 1
	grep -Eq '^engine with one tcp rail,default,,ms,.*,150,(NOT )?met$' \
		"$tmp/bench/summary.csv" &&
		grep -Eq '^engine .*,small,,MiB,[1-9].*,40,(NOT )?met$' \
			"$tmp/bench/summary.csv"
}

# The rate of two pairs of processes is the sum of their rates, or none if one pair
# fails. TE_BENCH is a program in place of te_bench.
pairs()
{
	out=$tmp/pairs
	mkdir "$out" && : >"$out/failures" || return 1
	cat >"$tmp/pair" <<-TEXT
	#!/bin/sh
	mkdir "$out/first" 2>/dev/null || \${SECOND:-true} || exit 1
	echo '{"gb_per_s":1.5,"bytes":3}'
	TEXT
	chmod +x "$tmp/pair"
	out=$out te_bench=$tmp/pair sh -c '. "$1"
		te_bench=$3
		. "$2"
		processes_run "tcp write 1M b16" p2 1
		rmdir "$out/first"
		SECOND=false processes_run "tcp write 1M b16" p2 2' sh \
		"$scripts/bench_lib.sh" "$scripts/bench_scaling.sh" \
		"$tmp/pair" >"$tmp/said" 2>&1
	cat "$tmp/said" "$out/runs.csv" "$out/failures"
	[ "$(cat "$out/runs.csv")" = 'tcp write 1M b16,p2,1,MB/s,3000' ] &&
		grep -q 'p2, run 2: no figure of MB/s$' "$out/failures"
}

# The plot has the median and the spread of each number of threads.
points()
{
	out=$tmp/points
	mkdir "$out" || return 1
	cat >"$out/runs.csv" <<-TEXT
	case,side,round,metric,value
	tcp write 4K b32,t1,1,MB/s,300
	tcp write 4K b32,t1,2,MB/s,100
	tcp write 4K b32,t1,2,us,7
	tcp write 4K b32,raw-t1,1,MB/s,50
	tcp write 4K b32,t8,1,MB/s,98
	TEXT
	out=$out sh -c '. "$1"; scaling_points "tcp write 4K b32" t' sh \
		"$scripts/bench_scaling.sh" >"$tmp/said" 2>&1
	cat "$tmp/said"
	printf '1 200 100 300\n8 98 98 98\n' | cmp -s - "$tmp/said"
}

# Uses a substitute for Mooncake's program, which prints its lines.
mooncake()
{
	cat >"$tmp/mooncake" <<-'TEXT'
	#!/bin/sh
	case $* in
	*--mode=target*)
		echo 'I1 engine.cpp:1] P2P handshake, listening on 127.0.0.1:15' >&2
		exec sleep 60 ;;
	*--segment_id=127.0.0.1:15\ *--block_size=65536\ *)
		echo 'I1 bench.cpp:1] duration 1.00, throughput 1234.50 MB/s' >&2 ;;
	*)	exit 1 ;;
	esac
	TEXT
	chmod +x "$tmp/mooncake"
	MOONCAKE=$tmp/mooncake bench mooncake rounds=1 seconds=0.02
	[ $? -eq 1 ] &&
		grep -Eq '^tcp write 64K b32,engine-beside,mooncake,.*,1234.5,.*,1.5,(NOT )?met$' \
			"$tmp/bench/summary.csv" &&
		grep -q '^tcp write 1M b32, mooncake, run 1: ' \
			"$tmp/bench/failures"
}

# The run is too short for a verdict, which the table says. All requests succeed.
security()
{
	"$BUILD/fabtests/te_security_bench" --out="$tmp" --seconds=0.1 "$1"
	[ $? -eq 1 ] && [ "$(grep -c "^$1,.*,NOT shown$" "$tmp/security.csv")" = "$2" ]
}

refused()
{
	! bench tcp 64 write b1 rounds=1 seconds=0.02
}

unknown_word()
{
	bench tpc
	[ $? -eq 2 ]
}

# refuses STATUS PATTERN OPTION…: succeeds if te_bench exits with STATUS and prints
# a line that matches PATTERN.
refuses()
{
	status=$1 pattern=$2
	shift 2
	"$BUILD/bin/te_bench" --buffer_size=1M --duration=0.05 "$@" \
		>"$tmp/said" 2>&1
	[ $? -eq "$status" ] &&
		grep -q -e "$pattern" "$tmp/said" && return
	echo "$*:"
	cat "$tmp/said"
	return 1
}

# Names take "-" for "_", one dash for two, and abbreviations. A wrong value is
# refused with its option and the allowed range.
options_read()
{
	mode memcpy gb_per_s --buffer-size 1M -block_size=4K --verif=false ||
		return 1
	refuses 2 '^te_bench: --threads=0: must be a number from 1 to 1024$' \
		--threads=0 &&
		refuses 2 '^te_bench: --block_size=1Q: must be a size .* from 1 ' \
			--block-size 1Q &&
		refuses 2 '^te_bench: --mode=x: must be one of initiator ' -mode=x &&
		refuses 2 '^te_bench: --verify=2: must be true or false$' \
			--verify=2 &&
		refuses 2 '^te_bench: --seed needs a value$' --seed &&
		refuses 2 '^te_bench: unknown argument --t=1; see' --t=1 &&
		refuses 2 '^te_bench: unknown argument word; see' word &&
		refuses 0 '^usage: te_bench ' --help --threads=0
}

# The completion of --mode offers the modes that te_bench accepts.
completion_knows_every_mode()
{
	bash -c '. "$1"; _moonrail_values --mode' bash \
		"$SRC/tools/completion/moonrail.bash" | tr ' ' '\n' |
		LC_ALL=C sort >"$tmp/modes"
	"$BUILD/bin/te_bench" --mode=x 2>&1 |
		sed 's/.*must be one of //; s/,//g; s/ or / /' | tr ' ' '\n' |
		LC_ALL=C sort | diff - "$tmp/modes"
}

registers()
{
	mode register register_us --device_name=127.0.0.1 --batch_size=8 \
		--location=cpu:0 &&
		grep -q '"location":"cpu:0","pages":"any"' "$tmp/json" && return
	cat "$tmp/json"
	return 1
}

places_refused()
{
	for place in cpu cpu: cpu:x cpu:-1 cpu:00 cuda:1x gpu:0 segments:4096 \
		segments:4096: segments:3:0 'segments:4096:0,' \
		segments:4096:0,x; do
		refuses 2 '^te_bench: --location=.*: must be cpu:N' \
			--mode=self --location="$place" &&
			refuses 2 '^te_bench: --target_location=.*: must be' \
				--mode=self --target_location="$place" ||
				return 1
	done
	refuses 2 '--gpu=x: must be' --mode=self --gpu=x &&
		refuses 2 'give one of them' --mode=self --gpu=1 --location=cpu:0 &&
		refuses 2 'goes with --mode=' --mode=idle --location=cpu:0 &&
		refuses 2 'goes with --mode=' --mode=target --location=cpu:0 &&
		refuses 2 'goes with the modes that' --mode=demo --pages=small &&
		refuses 2 'needs a --location on one node' --mode=register \
			--location=segments:4096:0,0 &&
		refuses 2 'go with --protocol=nvmeof' --mode=self \
			--file_sync=none &&
		refuses 1 'on NUMA node 1000: the node does not exist' \
			--mode=memcpy --location=cpu:1000 &&
		refuses 1 'on NUMA node 1000: the node does not exist' \
			--mode=self --target_location=segments:4096:0,1000 &&
		refuses 1 'PAGE is smaller than a page of the memory' \
			--mode=memcpy --location=segments:512:0,0
}

# Both sides get their memory from te_alloc. The own memory of the initiator is
# private, so a mapping of shared memory is that of the target's memory.
alloc_mapped()
{
	mode loopback gb_per_s --protocol=local --alloc --verify \
		--buffer_size=4M --block_size=4K --batch_size=128 || return 1
	"$BUILD/bin/te_bench" --mode=loopback --protocol=local --alloc \
		--buffer_size=4M --duration=60 >"$tmp/said" 2>&1 &
	pid=$!
	until grep -q moonrail-memory "/proc/$pid/maps"; do
		sleep 0.05
		kill -0 "$pid" || {
			cat "$tmp/said"
			return 1
		}
	done
	kill "$pid"
	wait "$pid"
	refuses 2 '--alloc goes with --mode=' --mode=self --alloc
}

# The deadline passes before the first batch has ended.
one_batch()
{
	for name in memcpy self raw loopback; do
		mode "$name" gb_per_s --buffer_size=1M --duration=0.000001 &&
			grep -q '"operations":[1-9]' "$tmp/json" || return 1
	done
}

huge_or_refused()
{
	mode memcpy gb_per_s --pages=huge --buffer_size=4M ||
		refuses 1 'of huge pages: .*nr_hugepages' --mode=memcpy \
			--pages=huge
}

# Writes a file segment with each choice of --file_sync and --file_io.
files_asked()
{
	mkdir "$tmp/dir" && truncate -s 1M "$tmp/file" || return 1
	"$BUILD/bin/te_meta" register --server=127.0.0.1 asked "$tmp/file" ||
		return 1
	refuses 2 'goes with --operation=write' --protocol=nvmeof \
		--segment_id=nvmeof/asked --verify &&
		refuses 1 'than the files have' --protocol=nvmeof \
			--segment_id=nvmeof/asked --buffer_size=2M \
			--local_server_name=127.0.0.1 || return 1
	for choice in 'data auto' 'dsync threads' 'none threads'; do
		mode initiator gb_per_s --protocol=nvmeof --operation=write \
			--segment_id=nvmeof/asked --buffer_size=1M --verify \
			--local_server_name=127.0.0.1 --block_size=64K \
			--batch_size=16 --file_depth=4 \
			--file_sync="${choice% *}" --file_io="${choice#* }" ||
			return 1
	done
}

# If the memlock limit is too low for io_uring's buffers, te_bench works without
# registered buffers, or with threads if there is no io_uring.
files_unlocked()
(
	# shellcheck disable=SC3045 # a shell without -l sets no limit
	ulimit -l 64
	MC_LOG_LEVEL=info setpriv --bounding-set=-ipc_lock \
		"$BUILD/bin/te_bench" \
		--protocol=nvmeof --segment_id=nvmeof/asked --buffer_size=1M \
		--local_server_name=127.0.0.1 --duration=0.05 >"$tmp/said" 2>&1 &&
		grep -q -e 'io_uring.*the memlock limit (ulimit -l) is 64 KiB' \
			-e 'files by threads: ' "$tmp/said" && return
	cat "$tmp/said"
	return 1
)

# Uses a substitute for the CUDA driver.
gpu()
{
	LD_LIBRARY_PATH="$BUILD/test${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" \
		mode "$@" --buffer_size=4M
}

# Tests --target_gpu, which --mode=self refuses.
gpu_target()
{
	for operation in write read; do
		gpu loopback gb_per_s --protocol=tcp --target_gpu=1 "$@" \
			--device_name=127.0.0.1 --operation="$operation" ||
			return 1
	done
	if "$BUILD/bin/te_bench" --mode=self --target_gpu=1 >"$tmp/json" 2>&1
	then
		return 1
	fi
}

# Without a driver te_bench exits with 77 and prints the reason.
gpu_or_skip()
{
	"$BUILD/bin/te_bench" --mode=self --gpu=0 --buffer_size=4M \
		--duration=0.05 >"$tmp/json" 2>&1
	status=$?
	cat "$tmp/json"
	[ "$status" -eq 0 ] || {
		[ "$status" -eq 77 ] && grep -q 'skipped: .* CUDA' "$tmp/json"
	}
}

# files BYTES CPU: runs bench_files.sh with a substitute for fio, which reports
# BYTES in one second and CPU ns of processor time.
files()
{
	mkdir -p "$tmp/bin"
	cat >"$tmp/bin/fio" <<-TEXT
	#!/bin/sh
	[ "\$1" != --version ] || exec echo fio-0
	for word; do
		case \$word in --output=*) out=\${word#*=} ;; esac
	done
	echo 5 1 1 >x.prerun.txt
	echo $((5 + $2)) 1 1 >x.postrun.txt
	printf '"read" : {\n"io_bytes" : $1, "bw_bytes" : $1\n' >"\$out"
	TEXT
	chmod +x "$tmp/bin/fio"
	BENCH_DIR=$tmp PATH="$tmp/bin:$PATH" \
		sh "$scripts/bench_files.sh" 8 0.02 1 read 4k
}

# The engine is faster than 1 MB/s and takes less than 500 s/GB.
files_of_something()
{
	files 1000000 500000000 >"$tmp/table" || return
	cat "$tmp/table"
	grep -Eq '^read +4k none +1\.0 +[1-9].* met +500\.000 .* met$' \
		"$tmp/table"
}

# files_missed BYTES CPU PATTERN: succeeds if the script fails and its row matches
# PATTERN.
files_missed()
{
	if files "$1" "$2" >"$tmp/table"; then
		return 1
	fi
	cat "$tmp/table"
	grep -Eq "^read .*$3" "$tmp/table"
}

files_of_nothing()
{
	if files "$@" 2>"$tmp/said"; then
		return 1
	fi
	cat "$tmp/said"
	grep -q '^bench-files: fio: .* no figures$' "$tmp/said"
}

check options_are_read_or_refused_with_the_range options_read
check completion_knows_every_mode completion_knows_every_mode
check memcpy_mode_reports_rate mode memcpy gb_per_s --buffer_size=1M
check self_mode_verifies_bytes mode self gb_per_s --buffer_size=4M \
	--block_size=4K --verify --operation=write
check memory_in_parts_on_a_node_is_verified mode loopback gb_per_s \
	--protocol=tcp --device_name=127.0.0.1 --location=cpu:0 \
	--target_location=segments:4096:0,0,0 --pages=small --verify \
	--buffer_size=10000000 --block_size=64K --batch_size=16 \
	--progress_cpus=0
check memory_of_te_alloc_is_mapped_and_verified alloc_mapped
check shortest_run_measures_one_batch one_batch
check memcpy_mode_uses_the_given_locations mode memcpy gb_per_s \
	--location=cpu:0 --target_location=cpu:0 --pages=transparent \
	--buffer_size=4M
check raw_mode_uses_the_given_locations mode raw gb_per_s --device_name=127.0.0.1 \
	--location=cpu:0 --target_location=cpu:0 --buffer_size=1M \
	--block_size=4K
check registration_of_memory_on_a_node_is_measured registers
check invalid_and_missing_locations_are_refused places_refused
check huge_pages_are_used_or_refused_with_the_reason huge_or_refused
check file_options_are_effective files_asked
if setpriv --bounding-set=-ipc_lock true 2>/dev/null; then
	check memlock_limit_of_files_is_reported files_unlocked
else
	echo 'skip - memlock_limit_of_files_is_reported: no permission to limit memlock'
fi
check gpu_memory_is_moved gpu self gb_per_s --gpu=0 \
	--block_size=64K
check gpu_memory_is_moved_over_a_rail gpu loopback gb_per_s --gpu=0 \
	--protocol=tcp --device_name=127.0.0.1 --operation=read \
	--block_size=1M --batch_size=4
check gpu_location_selects_gpu_memory gpu self gb_per_s --location=cuda:0 \
	--target_location=cpu:0 --block_size=64K
check gpu_of_another_process_is_reached_by_remote_bounce_slots gpu_target \
	--block_size=256K --batch_size=4 --verify
check gpu_memory_is_moved_to_gpu_of_another_process gpu_target --gpu=0 \
	--block_size=1M --batch_size=4
check gpu_mode_without_gpu_is_skipped_with_the_reason gpu_or_skip
check idle_mode_reports_cpu_percent mode idle target_cpu_percent --protocol=tcp \
	--device_name=127.0.0.1
check prepared_mode_reports_ratio mode prepared ratio --batch_size=100 \
	--block_size=1K --operation=write --device_name=127.0.0.1
check prepared_mode_without_room_is_refused refuses 2 \
	'twice --block_size times' --mode=prepared
check create_mode_reports_time_and_memory mode create private_kib --protocol=tcp \
	--device_name=127.0.0.1
check segments_mode_reports_ratio mode segments ratio --protocol=tcp --segments=3 \
	--device_name=127.0.0.1
check summary_has_medians_and_verdicts medians
check row_is_printed_when_it_is_measured rows_from
check missing_figure_is_an_error figures
check rates_of_pairs_are_added pairs
check plot_has_median_and_spread_of_each_number points
if [ "$(nproc)" -gt 1 ]; then
	check clients_next_to_a_slow_sender_are_served security dripping 3
	check clients_next_to_a_flooding_peer_are_served security peer 2
else
	echo 'skip - clients_next_to_bad_clients: only one CPU'
fi
check unknown_words_are_refused unknown_word
if optimised; then
	check single_case_is_measured_and_compared small
	check compared_programs_run_in_turn in_turn \
		engine raw raw-fd raw raw-fd engine
	check large_blocks_have_a_goal large
	check mapped_copies_have_rows_with_goals mapped
	check prepared_lists_have_rows_with_goals prepared
	check memory_of_open_segments_is_reported_per_run memory
	check creation_of_an_engine_has_goals creation
	check mooncake_is_compared_with_the_same_options mooncake
	if grep -q '^[1-9]' "/proc/$$/schedstat" 2>/dev/null; then
		check files_are_compared_with_fio files_of_something
		check rate_below_the_goal_fails files_missed 1000000000000 1 \
			'missed .* missed$'
		check files_without_bytes_have_no_rate files_of_nothing 0 50000000
		check files_without_cpu_time_have_no_cpu_per_byte files_of_nothing 100000000 0
	else
		echo 'skip - files_are_compared_with_fio: /proc/PID/schedstat counts no CPU time'
	fi
else
	check unoptimised_build_is_refused refused
fi
exit "$bad"
