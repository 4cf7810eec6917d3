#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# Simulates hosts whose posted slices often fail, until the acceptor of fence events
# (fabtests/sim/sim_fence.h) has accepted a number of fences.
#
#	fences.sh FENCES SEED [OPTION...]
#
# The first simulation has the seed SEED, each further one the next seed. The OPTIONs
# are those of the program simulate. Prints one line per simulation, and the sum. Stops
# at the first simulation that fails: the acceptor has refused an event, or another
# check of the simulator has failed. The environment:
#
#	BUILD		the folder of the objects
#	FENCES_JOBS	number of simulations at the same time (2)
set -eu

: "${BUILD:=build}" "${FENCES_JOBS:=2}"
fences=$1 seed=$2
shift 2
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM

# simulate SEED OPTION... runs one simulation. Writes its output to a file, and makes a
# second file if it has passed.
simulate()
{
	name=$1
	shift
	if "$BUILD/test/simulate" --seed="$name" "$@" >"$tmp/$name.out" 2>&1; then
		touch "$tmp/$name.passed"
	fi
}

# accepted SEED prints the number of fences that the simulation has counted.
accepted()
{
	sed -n 's/^\([0-9]*\) fences accepted.*/\1/p' "$tmp/$1.out"
}

sum=0 failed=0 first=$seed
while [ "$sum" -lt "$fences" ] && [ "$failed" -eq 0 ]; do
	next=$seed
	while [ "$next" -lt $((seed + FENCES_JOBS)) ]; do
		simulate "$next" "$@" &
		next=$((next + 1))
	done
	wait
	while [ "$seed" -lt "$next" ]; do
		n=$(accepted "$seed")
		if [ -e "$tmp/$seed.passed" ] && [ "${n:-0}" -gt 0 ]; then
			sum=$((sum + n))
			echo "seed $seed: $n fences accepted, $(
				sed -n 's/.*trace hash/trace hash/p' "$tmp/$seed.out")"
		else
			cat "$tmp/$seed.out"
			echo "seed $seed: failed, or without a fence"
			failed=$((failed + 1))
		fi
		rm -f "$tmp/$seed.out"
		seed=$((seed + 1))
	done
done
echo "$sum fences accepted in $((seed - first - failed)) simulations, $failed failed"
[ "$failed" -eq 0 ]
