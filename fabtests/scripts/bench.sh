#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# make bench: compares the engine with other programs on this host, in one run.
# BUILD is the build folder and SRC the source folder. The arguments are words
# that select cases (bench.sh help). All programs run in a network namespace of
# their own if one can be made (own_network.sh). The exit status is 1 if a run
# failed; the measured values do not change it.
set -u
: "${BUILD:?}" "${SRC:?}"
LC_ALL=C
export LC_ALL
scripts=$SRC/fabtests/scripts
# shellcheck source=fabtests/scripts/bench_lib.sh
. "$scripts/bench_lib.sh"
# shellcheck source=fabtests/scripts/own_network.sh
. "$scripts/own_network.sh"
# shellcheck source=fabtests/scripts/bench_parts.sh
. "$scripts/bench_parts.sh"
# shellcheck source=fabtests/scripts/bench_scaling.sh
. "$scripts/bench_scaling.sh"

usage()
{
	cat <<'TEXT'
make bench [BENCH='WORD…']

Words of one line narrow it down; without one, all of it is run, and in the
quick form one thread, writes of 64, 4K and 1M, 200 segments.
  quick full                        some minutes, or an hour; quick
  transfers copy rma_bw iperf3 ucx mooncake prepared idle segments create
  threads rails processes           parts; the names of the next lines alone
                                    mean transfers, the last three mean copy
  tcp shm local mapped self         transports; mapped: local, with memory from
                                    te_alloc
  64 4K 64K 1M 16M                  block sizes
  write read                        operations
  b1 b128                           requests per batch
  t1 t4                             threads
  rounds=N seconds=S segments=N     runs of a case (5), of what length (0.3,
                                    full 1), segments opened
  buffer=SIZE                       memory of each side, larger than the caches
                                    and with a block for each thread (128M)
  out=DIR                           tables and plots; BUILD/bench

In the quick form a batch of 16 MiB blocks has 8. libfabric's fi_rma_bw is
looked up in PATH, or in FABTESTS=DIR; MOONCAKE=FILE is Mooncake's
transfer_engine_bench. The parts threads, rails and processes measure 1 to 8
threads, 1 to 8 rails and 1 to 4 pairs of processes, and draw scaling.svg.
TEXT
}

parts='' transports='' sizes='' ops='' batches='' threads=''
mooncake=${MOONCAKE:-}
form=quick rounds=5 seconds='' segments='' buffer=128M out=$BUILD/bench

for word; do
	case $word in
	quick|full) form=$word ;;
	transfers|copy|rma_bw|iperf3|ucx|mooncake|prepared|idle|segments)
		parts="$parts $word" ;;
	create|threads|rails|processes) parts="$parts $word" ;;
	tcp|shm|local|mapped|self) transports="$transports $word" ;;
	64|4K|64K|1M|16M) sizes="$sizes $word" ;;
	write|read) ops="$ops $word" ;;
	b1|b128) batches="$batches ${word#b}" ;;
	t1|t4) threads="$threads ${word#t}" ;;
	rounds=[1-9]*) rounds=${word#*=} ;;
	seconds=[0-9.]*) seconds=${word#*=} ;;
	buffer=[1-9]*) buffer=${word#*=} ;;
	segments=[1-9]*) segments=${word#*=} ;;
	out=?*) out=${word#*=} ;;
	help) usage; exit 0 ;;
	*) printf "bench: unknown word '%s'\n" "$word" >&2; usage >&2; exit 2 ;;
	esac
done

if [ -z "$parts" ]; then
	case " $transports " in
	*' tcp '*|*' shm '*) parts=transfers ;;
	esac
	case " $transports " in
	*' local '*|*' mapped '*|*' self '*) parts="$parts copy" ;;
	esac
	if [ -z "$parts" ]; then
		parts='transfers copy rma_bw iperf3 ucx mooncake prepared'
		parts="$parts idle segments create threads rails processes"
		[ -z "$sizes$ops$batches$threads" ] || parts=transfers
	fi
fi
: "${transports:=tcp shm local mapped self}" "${batches:=1 128}"
if [ "$form" = full ]; then
	: "${sizes:=64 4K 64K 1M 16M}" "${ops:=write read}" "${threads:=1 4}"
	: "${seconds:=1}" "${segments:=1000}"
else
	: "${sizes:=64 4K 1M}" "${ops:=write}" "${threads:=1}"
	: "${seconds:=0.3}" "${segments:=200}"
fi

bench_check_build || exit 1
if [ "${BENCH_NETWORK:-host}" = host ]; then
	export BENCH_NETWORK=own
	own_network sh "$0" "$@"
	exit
fi
bench_begin
[ "$form" = full ] || echo 'the whole set: make bench BENCH=full, an hour'
for part in $parts; do
	"part_$part"
done
bench_report
