#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# timeout: 1260
#
# make check-vm: runs the tests that need RDMA devices, NVMe-oF or two NUMA nodes,
# in one virtual machine that has all of them. Emulation is slow, so two tests run
# at the same time. A test that measures which of two NICs carries more bytes runs
# alone.
set -u
: "${SRC:?}" "${BUILD:?}"
if [ "${SANITIZE:-no}" = yes ]; then
	echo 'SKIP: sanitized programs are too slow for emulation'
	exit 77
fi
if [ "${1:-}" != inside ]; then
	# If the kernel of the machine fails, the tests have no result; run again.
	log=$(mktemp "${TMPDIR:-/tmp}/moonrail-vm-log.XXXXXX") || exit 1
	trap 'rm -f "$log"' EXIT
	for turn in 1 2; do
		sh "$SRC/fabtests/scripts/run_in_vm.sh" -f -n -r 2 -t 600 \
			sh "$0" inside >"$log" 2>&1
		status=$?
		if [ "$status" -ne 126 ] || [ "$turn" -eq 2 ]; then
			break
		fi
		sed 's/^/# /' "$log"
	done
	cat "$log"
	exit "$status"
fi

files()
{
	FT_FILES_DIR=/mnt/nvmeof "$BUILD/fabtests/ft_files"
	a=$?
	"$BUILD/fabtests/ft_nvmeof" && return "$a"
}

sent()
{
	cat "/sys/class/net/ve$1/statistics/tx_bytes"
}

# renew RAIL: makes both soft RoCE devices of a rail again. With this kernel, a
# device whose link went down under traffic may let nothing through afterwards.
renew()
{
	for end in e p; do
		rdma link del "rx$end$1"
		rdma link add "rx$end$1" type rxe netdev "v$end$1"
	done
}

# Tests that messages and atomics of the provider continue while the rail that
# carries more of them has no link.
traffic()
{
	zero=$(sent 0) one=$(sent 1) n=0
	"$BUILD/fabtests/ft_fi_traffic" 15 &
	ends=$!
	while a=$(($(sent 0) - zero)) b=$(($(sent 1) - one))
	      [ $((a + b)) -lt 3000000 ] && [ $((n += 1)) -lt 300 ]
	do
		sleep 0.2
	done
	rail=0
	[ "$a" -gt "$b" ] || rail=1
	ip link set "ve$rail" down
	sleep 5
	ip link set "ve$rail" up
	ip route replace "10.77.$rail.2" dev "ve$rail" table $((101 + 2 * rail))
	wait "$ends"
	status=$?
	echo "# rail $rail was cut after $a and $b bytes"
	renew "$rail"
	[ "$n" -lt 300 ] || {
		echo 'not ok - the_provider_uses_the_rail_that_is_cut'
		return 1
	}
	return "$status"
}

# Tests the libfabric provider on the same rails. rxm of libfabric 1.17 needs
# FI_OFI_RXM_USE_SRX if a peer leaves. The small memory of the machine requires
# FI_OFI_RXM_MSG_RX_SIZE, and the queues of its devices require FI_UNIVERSE_SIZE.
provider()
{
	[ -e "$BUILD/lib/libfabric" ] || {
		echo '# built without the provider'
		return 0
	}
	export FI_OFI_RXM_USE_SRX=1 FI_OFI_RXM_MSG_RX_SIZE=1024
	export FI_UNIVERSE_SIZE=32 MC_SLICE_TIMEOUT=60
	export FT_FI_CLIENT_RAILS=rxe0,rxe1 FT_FI_SERVER_RAILS=rxp0,rxp1
	"$BUILD/fabtests/ft_fi_memory" moonrail || return
	"$BUILD/fabtests/ft_fi_rdm" moonrail || return
	traffic
}

# The test of te_info runs last, because it takes a port down.
devices()
{
	"$BUILD/fabtests/ft_verbs"
	a=$?
	renew 1 # its last case takes the link of rail 1 down
	(provider)
	b=$?
	sh "$SRC/fabtests/functional/ft_info.sh" rdma || return
	[ "$a" -ne 0 ] || return "$b"
	return "$a"
}

# te_bench allocates memory on the requested nodes, and moves it between nodes.
places()
{
	for mode in loopback self memcpy; do
		"$BUILD/bin/te_bench" --mode=$mode --protocol=tcp \
			--device_name=127.0.0.1 --location=segments:4096:1,0 \
			--target_location=cpu:1 --pages=small \
			--buffer_size=4M --block_size=96K --batch_size=8 \
			--duration=0.2 || {
			echo "not ok - te_bench_${mode}_on_two_nodes"
			return 1
		}
		echo "ok - te_bench_${mode}_on_two_nodes"
	done
}

files >/run/files.log 2>&1 &
files=$!
devices
devices=$?
wait "$files"
files=$?
cat /run/files.log
"$BUILD/fabtests/ft_numa"
numa=$?
places
places=$?
for status in "$devices" "$files" "$numa" "$places"; do
	[ "$status" -eq 0 ] || exit "$status"
done
