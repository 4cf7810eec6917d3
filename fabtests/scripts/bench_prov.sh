#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# make bench-prov: the libfabric provider over one rail beside the provider
# below it, in turns; medians of ROUNDS (5), each of MS (300) milliseconds per
# figure. BELOW names the other one. Ends with 1 if a run failed, whatever the
# figures.
set -u
: "${BUILD:?}"
LC_ALL=C
export LC_ALL
rounds=${ROUNDS:-5} ms=${MS:-300}
below=${BELOW:-'tcp;ofi_rxm tcp'}
dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT

# one PROVIDER
one()
{
	"$BUILD/fabtests/te_fi_bench" "$1" "$ms" >"$dir/out" 2>"$dir/err"
	status=$?
	if [ $status -eq 0 ]; then
		sed -n 's/^figures //p' "$dir/out"
	elif [ $status -ne 77 ]; then
		cat "$dir/out" "$dir/err" >&2
	fi
	return $status
}

other=''
for p in $below; do
	one "$p" >/dev/null && { other=$p; break; }
done
[ -n "$other" ] || { echo "none of $below is there"; exit 1; }
n=0
while [ $((n += 1)) -le "$rounds" ]; do
	one moonrail >>"$dir/mine" && one "$other" >>"$dir/other" || exit 1
done
printf '%-26s %12s %12s %7s\n' '' moonrail "$other" ratio
column=1
for what in 'tagged 64 B, us one way' 'tagged 64 KiB, MB/s' \
	'tagged 1 MiB, MB/s' 'tagged 4 MiB, MB/s' 'write 64 KiB, MB/s' \
	'write 1 MiB, MB/s' 'write 4 MiB, MB/s'; do
	for f in mine other; do
		cut -d ' ' -f $column "$dir/$f" | sort -n |
			sed -n "$(((rounds + 1) / 2))p"
	done | {
		read -r a
		read -r b
		awk -v what="$what" -v a="$a" -v b="$b" 'BEGIN {
			printf "%-26s %12s %12s %7.2f\n", what, a, b, a / b }'
	}
	column=$((column + 1))
done
