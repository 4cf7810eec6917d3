# shellcheck shell=sh
# SPDX-License-Identifier: BSD-2-Clause
#
# Sourced by bench.sh: the parts that show how the engine scales (threads, rails,
# processes), measure the creation of an engine, and compare te_bench with
# Mooncake's transfer_engine_bench. The caller sets these variables:
: "${transports:=}" "${ops:=}" "${rounds:=5}" "${seconds:=1}" "${out:=}" "${te_bench:=}"
: "${buffer:=128M}" "${mooncake:=}" "${json:=}"

# large_goal GOAL: prints a goal that is meant for a machine with many processors,
# or nothing on a smaller one.
large_goal()
{
	[ "$(nproc)" -lt 16 ] || echo "$1"
}

# loopback_rails N: prints N loopback addresses, each of which is a rail.
loopback_rails()
{
	awk -v n="$1" 'BEGIN { for (i = 1; i <= n; i++)
		printf "%s127.0.0.%d", (i > 1 ? "," : ""), i }'
}

# --- threads and rails --------------------------------------------------------

# scaling_run "TRANSPORT OP SIZE bBATCH" SIDE ROUND: runs one side:
# tN      the engine with N threads on one rail
# raw-tN  the plain libfabric loop with N threads
# rN      the engine with one thread on N rails
# others  the engine with one thread on one rail
scaling_run()
{
	# shellcheck disable=SC2086
	set -- "$1" "$2" "$3" $1
	scaling_mode=loopback scaling_threads=1 scaling_rails=1
	case $2 in
	raw-t*) scaling_mode=raw scaling_threads=${2#raw-t} ;;
	t*) scaling_threads=${2#t} ;;
	r*) scaling_rails=${2#r} ;;
	esac
	run_rate "$1" "$2" "$3" --mode=$scaling_mode --protocol="$4" \
		--device_name="$(loopback_rails "$scaling_rails")" \
		--operation="$5" --block_size="$6" --batch_size="${7#b}" \
		--threads="$scaling_threads" --buffer_size="$buffer" \
		--duration="$seconds"
}

part_threads()
{
	for op in $ops; do
		c="tcp $op 4K b32"
		alternate "$c" scaling_run t1 t2 t4 t8 raw-t1 raw-t2 raw-t4 raw-t8
		for n in 2 4 8; do
			row "$c" t$n t1 MB/s '>=' \
				"$([ $n != 4 ] || large_goal 2.5)"
		done
		for n in 1 2 4 8; do
			row "$c" t$n raw-t$n MB/s '>=' \
				"$([ $n != 4 ] || large_goal 1.5)"
		done
	done
}

part_rails()
{
	for op in $ops; do
		c="tcp $op 1M b32"
		alternate "$c" scaling_run r1 r2 r4 r8
		for n in 2 4 8; do
			row "$c" r$n r1 MB/s '>=' \
				"$([ $n != 8 ] || large_goal 1)"
		done
	done
}

# --- several processes at once -------------------------------------------------

# processes_run "TRANSPORT OP SIZE bBATCH" pN ROUND: runs N pairs of processes at
# once, and records the sum of their rates.
processes_run()
{
	# shellcheck disable=SC2086
	set -- "$1" "$2" "$3" $1
	progress "$1, $2, run $3 of $rounds"
	i=1 pairs=''
	while [ "$i" -le "${2#p}" ]; do
		timeout 120 "$te_bench" --json --mode=loopback --protocol="$4" \
			--device_name=127.0.0.1 --operation="$5" \
			--block_size="$6" --batch_size="${7#b}" \
			--buffer_size="$buffer" --duration="$seconds" \
			</dev/null >"$out/pair-$i" 2>"$out/stderr-$i" &
		pairs="$pairs $!"
		i=$((i + 1))
	done
	i=1
	for pair in $pairs; do
		if ! wait "$pair"; then
			fail "$1" "$2" "$3" "$out/stderr-$i"
			: >"$out/pair-$i"
		fi
		i=$((i + 1))
	done
	record "$1" "$2" "$3" MB/s "$(sed -n \
		's/.*"gb_per_s":\([0-9.e+-]*\).*/\1/p' "$out"/pair-* |
		awk -v n="${2#p}" '{ sum += $1 }
			END { if (NR == n) print sum * 1000 }')"
	rm -f "$out"/pair-* "$out"/stderr-*
}

part_processes()
{
	for op in $ops; do
		c="tcp $op 1M b16"
		alternate "$c" processes_run p1 p2 p4
		for n in 2 4; do
			row "$c" p$n p1 MB/s '>=' ''
		done
	done
}

# --- the creation of an engine -------------------------------------------------

# create_run CASE SIDE ROUND: measures engines with one tcp rail. The side
# "small" has smaller receive buffers of libfabric, see moonrail(7).
create_run()
{
	(
		unset FI_OFI_RXM_MSG_RX_SIZE
		[ "$2" != small ] || export FI_OFI_RXM_MSG_RX_SIZE=1024
		run_te "$1" "$2" "$3" --mode=create --protocol=tcp \
			--device_name=127.0.0.1 --duration="$seconds" || exit 0
		record "$1" "$2" "$3" ms "$(echo "$json" | field create_ms)"
		record "$1" "$2" "$3" MiB "$(echo "$json" |
			field private_kib | awk '{ print $1 / 1024 }')"
	)
}

part_create()
{
	c='engine with one tcp rail'
	alternate "$c" create_run default small
	row "$c" default '' ms '<=' 150
	row "$c" small '' ms '<=' 150
	row "$c" default '' MiB '<=' ''
	row "$c" small '' MiB '<=' 40
}

# --- Mooncake -------------------------------------------------------------------

# mooncake_run "tcp OP SIZE b32" SIDE ROUND: runs Mooncake's transfer_engine_bench
# with its pool of connections, or te_bench with the same options. Mooncake counts
# whole seconds and prints the rate in its log.
mooncake_run()
{
	if [ "$2" != mooncake ]; then
		scaling_run "$@"
		return
	fi
	progress "$1, $2, run $3 of $rounds"
	# shellcheck disable=SC2086
	set -- "$1" "$2" "$3" $1
	options="--metadata_server=P2PHANDSHAKE --protocol=tcp"
	options="$options --local_server_name=127.0.0.1 --operation=$5"
	options="$options --block_size=$(bytes_of "$6") --batch_size=${7#b}"
	options="$options --buffer_size=$(bytes_of "$buffer") --threads=1"
	# shellcheck disable=SC2086
	MC_TCP_ENABLE_CONNECTION_POOL=1 timeout 120 "$mooncake" --mode=target \
		$options >"$out/server" 2>&1 </dev/null &
	server=$!
	tries=0 segment=''
	while [ -z "$segment" ] && [ "$tries" -lt 100 ]; do
		sleep 0.1
		segment=$(sed -n 's/.*listening on \([^ ,]*:[0-9]*\).*/\1/p' \
			"$out/server" | head -n 1)
		tries=$((tries + 1))
	done
	# The address is printed before the target has registered its memory.
	sleep 1
	# shellcheck disable=SC2086
	MC_TCP_ENABLE_CONNECTION_POOL=1 timeout 120 "$mooncake" \
		--mode=initiator --segment_id="$segment" \
		--duration="$seconds" --report_unit=MB $options \
		>"$out/stderr" 2>&1 </dev/null
	rate=$(sed -n 's|.*throughput \([0-9.]*\) MB/s.*|\1|p' "$out/stderr" |
		tail -n 1)
	kill "$server" 2>/dev/null
	wait "$server" 2>/dev/null
	record_rate "$1" mooncake "$3" "$rate" "$out/stderr"
}

part_mooncake()
{
	if [ -z "$mooncake" ]; then
		skip mooncake 'MOONCAKE=FILE names its transfer_engine_bench'
		return
	elif [ ! -x "$mooncake" ]; then
		skip mooncake "MOONCAKE=$mooncake: not a program"
		return
	fi
	other_seconds=$seconds
	seconds=$(awk -v s="$seconds" 'BEGIN { print s < 1 ? 1 : int(s) }')
	for op in $ops; do
		for c in "tcp $op 64K b32" "tcp $op 1M b32"; do
			alternate "$c" mooncake_run engine-beside mooncake
			case $c in
			*64K*) row "$c" engine-beside mooncake MB/s '>=' 1.5 ;;
			*) row "$c" engine-beside mooncake MB/s '>=' 1.2 ;;
			esac
		done
	done
	seconds=$other_seconds
}

# --- plots ----------------------------------------------------------------------

# scaling_points "CASE" PREFIX: prints "N median lowest highest" of the sides
# PREFIX1, PREFIX2 …
scaling_points()
{
	awk -F, -v c="$1" -v prefix="$2" '
	$1 == c && $4 == "MB/s" && index($2, prefix) == 1 &&
	substr($2, length(prefix) + 1) ~ /^[0-9]+$/ {
		print substr($2, length(prefix) + 1), $5
	}' "$out/runs.csv" | sort -n -k 1,1 -k 2,2 | awk '
	function end() {
		if (n)
			print x, (v[int((n + 1) / 2)] + v[int(n / 2) + 1]) / 2,
				v[1], v[n]
	}
	$1 != x { end(); x = $1; n = 0 }
	{ v[++n] = $2 }
	END { end() }'
}

# scaling_plot: writes scaling.svg if one of the parts was run.
scaling_plot()
{
	for op in $ops; do
		scaling_points "tcp $op 4K b32" t >"$out/threads-engine-$op.dat"
		scaling_points "tcp $op 4K b32" raw-t >"$out/threads-raw-$op.dat"
		scaling_points "tcp $op 1M b32" r >"$out/rails-engine-$op.dat"
		scaling_points "tcp $op 1M b16" p >"$out/processes-engine-$op.dat"
	done
	if [ -n "$(cat "$out"/threads-*.dat "$out"/rails-*.dat \
			"$out"/processes-*.dat)" ]; then
		draw scaling
	fi
	rm -f "$out"/*.dat
}
