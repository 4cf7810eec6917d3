#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# rails_watch.sh RAILS MS ZERO: prints the byte counters of r0, r1, … in this
# network namespace every MS milliseconds, as "ms,rx r0,tx r0,…". ms is the time
# since ZERO, which is in milliseconds since the epoch. The script runs until it
# is killed. It starts no process per sample.
set -u
rails=$1 zero=$3
printf -v pause '%d.%03d' $(($2 / 1000)) $(($2 % 1000))
exec {never}<> <(:)

printf ms
for ((i = 0; i < rails; i++)); do
	printf ',rx%d,tx%d' "$i" "$i"
done
echo
while :; do
	line=''
	now=${EPOCHREALTIME/[.,]/}
	for ((i = 0; i < rails; i++)); do
		read -r rx <"/sys/class/net/r$i/statistics/rx_bytes"
		read -r tx <"/sys/class/net/r$i/statistics/tx_bytes"
		line+=,$rx,$tx
	done
	echo "$((now / 1000 - zero))$line"
	read -r -t "$pause" -u "$never" || :
done
