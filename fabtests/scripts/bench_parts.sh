# shellcheck shell=sh
# SPDX-License-Identifier: BSD-2-Clause
#
# Sourced by bench.sh: the parts of the benchmark and their goals. The caller sets
# these lists of words:
: "${transports:=}" "${sizes:=}" "${ops:=}" "${batches:=}" "${threads:=}"
: "${rounds:=5}" "${seconds:=1}" "${form:=quick}" "${segments:=1000}" "${out:=}"
: "${te_bench:=}" "${buffer:=128M}"

# device TRANSPORT: prints the option that selects one rail on the loopback.
device()
{
	[ "$1" != tcp ] || echo --device_name=127.0.0.1
}

# --- the engine against a plain libfabric loop -------------------------------

# transfer_options "TRANSPORT OP SIZE bBATCH tTHREADS"
transfer_options()
{
	# shellcheck disable=SC2086
	set -- $1
	echo "--protocol=$1 $(device "$1") --operation=$2 --block_size=$3" \
		"--batch_size=${4#b} --threads=${5#t} --buffer_size=$buffer" \
		"--duration=$seconds"
}

transfer_run()
{
	mode=loopback merge=0
	case $2 in
	raw) mode=raw ;;
	raw-fd) mode='raw --wait_fd' ;;
	merged) merge=1 ;;
	esac
	# shellcheck disable=SC2046,SC2086
	MOONRAIL_MERGE=$merge run_rate "$1" "$2" "$3" --mode=$mode \
		$(transfer_options "$1")
}

# transfer_goal "TRANSPORT OP SIZE bBATCH tTHREADS": adds the row with the goal of
# the design.
transfer_goal()
{
	case $1 in
	*' write 64 b1 t1') row "$1" engine raw us '<=' 1.15 ;;
	*' b1 '*) row "$1" engine raw us '<=' '' ;;
	*' write 4K b128 t1') row "$1" engine raw MB/s '>=' 0.90 ;;
	*' 1M b128 t1'|*' 16M b128 t1'|*' 16M b8 t1') row "$1" engine raw MB/s '>=' 0.97 ;;
	*) row "$1" engine raw MB/s '>=' '' ;;
	esac
}

# transfer_batch SIZE BATCH: prints the batch size. In the quick form a batch of
# 16 MiB blocks has 8 of them, which is 128 MiB, as with blocks of 1 MiB.
transfer_batch()
{
	if [ "$1" = 16M ] && [ "$2" = 128 ] && [ "$form" = quick ]; then
		echo 8
	else
		echo "$2"
	fi
}

# transfer_sides "TRANSPORT OP SIZE bBATCH tTHREADS": prints the programs to run:
# engine  the engine without merging
# raw     the plain libfabric loop
# merged  the engine with adjacent small requests merged; not compared with raw,
#         which does not merge
# raw-fd  the plain loop with a wait descriptor for its queues, for small blocks;
#         it shows how much of raw's lead comes from queues without one
transfer_sides()
{
	sides='engine raw'
	case $1 in
	tcp*M*) ;;
	tcp*' b128 t1') sides="$sides merged" ;;
	esac
	case $1 in
	tcp*' 64 '*' t1'|tcp*' 4K '*' t1') sides="$sides raw-fd" ;;
	esac
	echo "$sides"
}

transfer_cases()
{
	for t in $transports; do
		case $t in tcp|shm) ;; *) continue ;; esac
		for b in $batches; do for n in $threads; do
			for op in $ops; do for s in $sizes; do
				echo "$t $op $s b$(transfer_batch "$s" "$b") t$n"
			done; done
		done; done
	done
}

# transfer_times "TRANSPORT OP SIZE bBATCH tTHREADS": prints the factor by which
# the case needs more rounds. The rate of large blocks over tcp varies between two
# and seven GB/s in phases of about a second, with the plain loop too: on AMD
# processors "rep movsb", the kernel's copy, takes six times as long if the
# destination lies 1 to 16 bytes behind the source, modulo 4096, and headers shift
# that distance. The medians of such cases need more runs.
transfer_times()
{
	case $1 in
	tcp*M\ b*\ t1) echo 3 ;;
	*) echo 1 ;;
	esac
}

# transfer_aside SIDE CASE: adds the row of merged or raw-fd if it was run.
transfer_aside()
{
	case $1$(transfer_sides "$2")' '$2 in
	merged*merged*) row "$2" merged engine MB/s '>=' '' ;;
	raw-fd*raw-fd*' b1 '*) row "$2" engine raw-fd us '<=' '' ;;
	raw-fd*raw-fd*) row "$2" engine raw-fd MB/s '>=' '' ;;
	esac
}

part_transfers()
{
	transfer_cases >"$out/cases"
	while read -r c <&3; do
		# shellcheck disable=SC2046
		alternate_often "$(transfer_times "$c")" "$c" transfer_run \
			$(transfer_sides "$c")
		transfer_goal "$c"
	done 3<"$out/cases"
	for aside in merged raw-fd; do
		while read -r c; do
			transfer_aside $aside "$c"
		done <"$out/cases"
	done
	rm -f "$out/cases"
}

# --- copies on this host against memcpy --------------------------------------

copy_run()
{
	# shellcheck disable=SC2086
	set -- "$1" "$2" "$3" $1
	case $2 in
	memcpy) mode='memcpy' ;;
	self) mode='self --protocol=auto' ;;
	mapped) mode='loopback --protocol=local --alloc' ;;
	*) mode='loopback --protocol=local' ;;
	esac
	# shellcheck disable=SC2086
	run_rate "$1" "$2" "$3" --mode=$mode --operation="$5" \
		--block_size="$6" --batch_size="${7#b}" --threads="${8#t}" \
		--buffer_size=$buffer --duration="$seconds"
}

part_copy()
{
	for t in $transports; do
		case $t in
		self) goal=0.95 ;;
		local) goal=0.9 ;;
		mapped) ;;
		*) continue ;;
		esac
		for b in $batches; do for n in $threads; do
			for op in $ops; do for s in $sizes; do
				case "$t $s" in
				'mapped 4K') goal=0.8 ;;
				'mapped '*) goal=0.9 ;;
				esac
				c="$t $op $s b$(transfer_batch "$s" "$b") t$n"
				alternate "$c" copy_run "$t" memcpy
				case $b in
				1) row "$c" "$t" memcpy us '<=' '' ;;
				*) row "$c" "$t" memcpy MB/s '>=' "$goal" ;;
				esac
			done; done
		done; done
	done
}

# --- the plain loop against fi_rma_bw ----------------------------------------
#
# The plain loop makes the same calls as fi_rma_bw -U, which requests
# FI_DELIVERY_COMPLETE only as the default of the endpoint. Some providers ignore
# that default and complete earlier than in the other parts.

free_port()
{
	port=$((${port:-$((21000 + $$ % 9000))} + 1))
}

find_rma_bw()
{
	command -v "${FABTESTS:+$FABTESTS/}fi_rma_bw" ||
		command -v "${FABTESTS:+$FABTESTS/bin/}fi_rma_bw"
}

# rma_iterations SIZE: prints the iterations that take about $seconds on a
# loopback.
rma_iterations()
{
	case $1 in
	64) n=100000 ;;
	4K) n=60000 ;;
	64K) n=18000 ;;
	1M) n=2200 ;;
	*) n=128 ;;
	esac
	awk -v n=$n -v s="$seconds" 'BEGIN { n *= s; print int(n < 128 ? 128 : n) }'
}

# rma_theirs CASE ROUND PROVIDER OP SIZE: runs fi_rma_bw, which prints megabytes
# per second in the fifth column. With -j 0 every write has a completion.
rma_theirs()
{
	free_port
	case $3 in
	# The port names the memory of each side, so both need different ports.
	shm) here="-E=$port -B $port" there="-E=$port -B $((port + 9000))" ;;
	*) here="-s 127.0.0.1 -B $port" there="-P $port" ;;
	esac
	options="-p $3 -o $4 -U -W 64 -j 0 -S $(bytes_of "$5")"
	options="$options -I $(rma_iterations "$5")"
	# shellcheck disable=SC2086
	timeout 60 "$rma" $options $here >"$out/server" 2>&1 &
	server=$!
	sleep 0.2
	# shellcheck disable=SC2086
	rate=$(timeout 50 "$rma" $options $there 127.0.0.1 2>"$out/stderr" |
		awk '$5 + 0 > 0 { print $5 }' | tail -n 1)
	wait "$server" 2>/dev/null
	record_rate "$1" fi_rma_bw "$2" "$rate" "$out/stderr"
}

rma_run()
{
	# shellcheck disable=SC2086
	set -- "$1" "$2" "$3" $1
	progress "$1, $2, run $3 of $rounds"
	if [ "$2" = fi_rma_bw ]; then
		rma_theirs "$1" "$3" "$4" "$5" "$6"
		return
	fi
	protocol=tcp
	[ "$4" != shm ] || protocol=shm
	# shellcheck disable=SC2046
	run_rate "$1" raw "$3" --mode=raw --bidirectional --plain_calls \
		--provider="$4" \
		--protocol=$protocol $(device $protocol) --operation="$5" \
		--block_size="$6" --buffer_size="$6" --batch_size=64 \
		--duration="$seconds"
}

part_rma_bw()
{
	if ! rma=$(find_rma_bw); then
		skip rma_bw 'no fi_rma_bw in PATH; FABTESTS=DIR names its folder'
		return
	fi
	for t in $transports; do
		case $t in tcp|shm) ;; *) continue ;; esac
		provider=$(raw_provider "$t") || {
			skip "rma_bw $t" 'the plain loop finds no provider'
			continue
		}
		for op in $ops; do for s in $sizes; do
			c="$provider $op $s"
			alternate "$c" rma_run raw fi_rma_bw
			row "$c" raw fi_rma_bw MB/s '>=' 0.97
		done; done
	done
}

# raw_provider TRANSPORT: prints the provider that the plain loop uses.
raw_provider()
{
	# shellcheck disable=SC2046
	timeout 60 "$te_bench" --mode=raw --protocol="$1" $(device "$1") \
		--duration=0.05 --block_size=64 --batch_size=1 \
		--buffer_size=64K --json 2>/dev/null </dev/null |
		field provider | grep .
}

# --- others ------------------------------------------------------------------

# The rate of a single TCP stream, for comparison.
part_iperf3()
{
	command -v iperf3 >/dev/null 2>&1 || {
		skip iperf3 'is not installed'
		return
	}
	c='tcp write 1M b128 t1'
	alternate "$c" iperf3_run engine-beside iperf3
	row "$c" engine-beside iperf3 MB/s '>=' ''
}

iperf3_run()
{
	if [ "$2" != iperf3 ]; then
		transfer_run "$@"
		return
	fi
	progress "$1, $2, run $3 of $rounds"
	free_port
	iperf3 -s -1 -B 127.0.0.1 -p "$port" >"$out/server" 2>&1 &
	server=$!
	tries=0
	until rate=$(iperf3 -c 127.0.0.1 -p "$port" -t "$(awk -v s="$seconds" \
			'BEGIN { print s < 1 ? 1 : int(s) }')" -J 2>&1 |
			awk '/sum_received/ { on = 1 }
			     on && /bits_per_second/ {
				sub(/,/, ""); print $2 / 8e6; found = 1; exit }
			     END { exit !found }'); do
		tries=$((tries + 1))
		[ "$tries" -lt 20 ] || break
		sleep 0.1
	done
	kill "$server" 2>/dev/null
	wait "$server" 2>/dev/null
	record_rate "$1" iperf3 "$3" "$rate" "$out/server"
}

ucx_iterations()
{
	case $1 in
	64) n=1500000 ;;
	4K) n=200000 ;;
	64K) n=30000 ;;
	1M) n=3000 ;;
	*) n=128 ;;
	esac
	awk -v n=$n -v s="$seconds" 'BEGIN { n *= s; print int(n < 32 ? 32 : n) }'
}

# ucx_run CASE SIDE ROUND: runs ucx_perftest, whose last CSV line has megabytes
# (2^20) per second.
ucx_run()
{
	if [ "$2" != ucx ]; then
		transfer_run "$@"
		return
	fi
	# shellcheck disable=SC2086
	set -- "$1" "$2" "$3" $1
	progress "$1, $2, run $3 of $rounds"
	free_port
	test=ucp_put_bw
	[ "$5" = write ] || test=ucp_get
	UCX_TLS=tcp UCX_NET_DEVICES=lo timeout 60 ucx_perftest -p "$port" \
		>"$out/server" 2>&1 &
	server=$!
	sleep 0.2
	rate=$(UCX_TLS=tcp UCX_NET_DEVICES=lo timeout 50 ucx_perftest \
		127.0.0.1 -p "$port" -t $test -s "$(bytes_of "$6")" \
		-n "$(ucx_iterations "$6")" -w 100 -O 128 -f -v \
		2>"$out/stderr" | awk -F, '$6 + 0 > 0 { print $6 * 1.048576 }' |
		tail -n 1)
	kill "$server" 2>/dev/null
	wait "$server" 2>/dev/null
	record_rate "$1" ucx "$3" "$rate" "$out/stderr"
}

# ucx_perftest cannot flush after each window, and its small puts complete as soon
# as they are copied from the source. So writes have no goal. A get completes when
# its bytes have arrived.
part_ucx()
{
	command -v ucx_perftest >/dev/null 2>&1 || {
		skip ucx 'ucx_perftest is not installed'
		return
	}
	for op in $ops; do for s in $sizes; do
		c="tcp $op $s b$(transfer_batch "$s" 128) t1"
		alternate "$c" ucx_run engine-ucx ucx
		row "$c" engine-ucx ucx MB/s '>=' "$([ "$op" = write ] || echo 1)"
	done; done
}

# --- prepared lists against submitTransfer -----------------------------------

# Measures prepared lists of scattered pieces. te_bench alternates between both
# calls and reports the median of the ratios.
part_prepared()
{
	for t in $transports; do
		case $t in tcp|shm) ;; *) continue ;; esac
		for op in $ops; do
			prepared_case "$t" "$op" 256 1K 2
			prepared_case "$t" "$op" 1000 64K 1.05
		done
	done
}

# prepared_case TRANSPORT OP PIECES SIZE GOAL
prepared_case()
{
	c="$1 $2 $3 x $4"
	r=1
	while [ "$r" -le "$rounds" ]; do
		# shellcheck disable=SC2046
		! run_te "$c" prepared "$r" --mode=prepared --protocol="$1" \
			$(device "$1") --operation="$2" --batch_size="$3" \
			--block_size="$4" --duration="$seconds" ||
			record "$c" ratio "$r" 'times submitTransfer' \
				"$(echo "$json" | field ratio)"
		r=$((r + 1))
	done
	[ "$1" = tcp ] || set -- "$1" "$2" "$3" "$4" ''
	row "$c" ratio '' 'times submitTransfer' '>=' "$5"
}

# --- the cost of idle targets and of open segments ---------------------------

part_idle()
{
	for t in $transports; do
		case $t in
		tcp|local) ;;
		shm) skip 'idle shm' 'a shm target has to spin, see moonrail(7)'
			continue ;;
		*) continue ;;
		esac
		r=1
		while [ "$r" -le "$rounds" ]; do
			# shellcheck disable=SC2046
			! run_te "$t" idle "$r" --mode=idle --protocol="$t" \
				$(device "$t") --duration=2 ||
				record "idle target $t" engine "$r" \
					'% of a core' "$(echo "$json" |
					field target_cpu_percent)"
			r=$((r + 1))
		done
		row "idle target $t" engine '' '% of a core' '<=' 0.5
	done
}

# 1 000 segments need 1 000 target engines. With small receive buffers each takes
# 6 MiB; with the default they would not fit.
part_segments()
{
	free=$(awk '/^MemAvailable/ { print int($2 / 1024) }' /proc/meminfo)
	if [ "$free" -lt $((segments * 6 + 1024)) ]; then
		skip segments "$segments targets need $((segments * 6 + 1024)) MiB, $free are free"
		return
	fi
	r=1
	while [ "$r" -le "$rounds" ]; do
		segments_run "$r" || return
		r=$((r + 1))
	done
	row "$segments segments" many_us one_us us '<=' ''
	row "$segments segments" around_us one_us us '<=' ''
	row "cost with $segments open" ratio '' 'to one open' '<=' 1.05
	while read -r n; do
		row "each of $n open" open_kib '' KiB '<=' ''
		row "each of $n used" used_kib '' KiB '<=' ''
	done <"$out/counts"
	rm -f "$out/counts"
}

# segments_run ROUND: runs te_bench --mode=segments and records its results.
segments_run()
{
	# shellcheck disable=SC2046
	FI_OFI_RXM_BUFFER_SIZE=1024 FI_OFI_RXM_RX_SIZE=64 FI_OFI_RXM_TX_SIZE=64 \
		FI_OFI_RXM_MSG_RX_SIZE=16 FI_OFI_RXM_MSG_TX_SIZE=16 \
		run_te "$segments segments" engine "$1" --mode=segments \
		--protocol=tcp $(device tcp) --segments="$segments" \
		--duration="$seconds" || return
	for value in one_us many_us around_us; do
		record "$segments segments" "$value" "$1" us \
			"$(echo "$json" | field $value)"
	done
	record "cost with $segments open" ratio "$1" 'to one open' \
		"$(echo "$json" | field ratio)"
	segments_memory "$1"
}

# segments_memory ROUND: records the array "memory" of the JSON object, and writes
# the numbers of segments to $out/counts.
segments_memory()
{
	echo "$json" | grep -o '{"segments":[^}]*}' >"$out/memory"
	: >"$out/counts"
	while read -r json; do
		n=$(echo "$json" | field segments)
		echo "$n" >>"$out/counts"
		for value in open_kib used_kib; do
			record "each of $n ${value%_*}" $value "$1" KiB \
				"$(echo "$json" | field $value)"
		done
	done <"$out/memory"
	rm -f "$out/memory"
}
