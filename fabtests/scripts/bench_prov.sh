#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# make bench-prov: compares the libfabric provider over one rail with the provider
# below it, in alternate runs. If network namespaces can be made, it then compares
# the provider over several rails of limited rate with fi_mrail and with iperf3
# over the same rails. The results are medians of ROUNDS (5), with MS (300)
# milliseconds for each value. The single rail is loopback, in a network namespace
# of its own if one can be made (own_network.sh), at real-time priority if that is
# permitted. BELOW names the other providers, PARTS (one equal 1+3) the parts to
# run, and UNIT is the rate of the slowest rail in Mbit/s (200). The exit status
# is 1 if a run failed; the measured values do not change it.
set -u
: "${BUILD:?}" "${SRC:?}"
LC_ALL=C
export LC_ALL
# shellcheck source=fabtests/scripts/rails_lib.sh
. "$SRC/fabtests/scripts/rails_lib.sh"
# shellcheck source=fabtests/scripts/own_network.sh
. "$SRC/fabtests/scripts/own_network.sh"
rounds=${ROUNDS:-5} ms=${MS:-300} unit=${UNIT:-200}
below=${BELOW:-'tcp;ofi_rxm tcp'} mrail=${MRAIL:-'tcp;ofi_rxm;ofi_mrail'}
dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT

# run PROVIDER FIGURES [COMMAND…]: measures and prints the values. COMMAND is a
# prefix of the command that measures.
run()
{
	who=$1 what=$2
	shift 2
	"$@" "$BUILD/fabtests/te_fi_bench" "$who" "$ms" "$what" >"$dir/out" \
		2>"$dir/err"
	status=$?
	if [ $status -eq 0 ]; then
		sed -n 's/^figures //p' "$dir/out"
	elif [ $status -ne 77 ]; then
		cat "$dir/out" "$dir/err" >&2
	fi
	return $status
}

# median FILE COLUMN: prints the median of a column.
median()
{
	cut -d ' ' -f "$2" "$dir/$1" | sort -n |
		sed -n "$((($(grep -c . "$dir/$1") + 1) / 2))p"
}

# row TEXT A B: prints a row with A, B and A / B.
row()
{
	awk -v what="$1" -v a="$2" -v b="$3" 'BEGIN {
		printf "%-26s %12s %12s %7.2f\n", what, a, b, b ? a / b : 0 }'
}

# --- one rail -----------------------------------------------------------------

# quietly COMMAND…: runs COMMAND in a network of its own and at real-time
# priority, as far as that is possible.
quietly()
{
	set -- chrt -r 1 "$@"
	chrt -r 1 true 2>/dev/null || shift 3
	own_network "$@"
}

one()
{
	other='' n=0 column=1
	for p in $below; do
		run "$p" l >/dev/null && { other=$p; break; }
	done
	[ -n "$other" ] || { echo "none of $below is there"; return 1; }
	printf 'congestion control: %s\n' \
		"$(quietly sysctl -n net.ipv4.tcp_congestion_control)"
	while [ $((n += 1)) -le "$rounds" ]; do
		run moonrail ltwr quietly >>"$dir/mine" &&
			run "$other" ltwr quietly >>"$dir/other" || return
	done
	printf '%-26s %12s %12s %7s\n' 'one rail' moonrail "$other" ratio
	for what in 'tagged 64 B, us one way' 'tagged 64 KiB, MB/s' \
		'tagged 1 MiB, MB/s' 'tagged 4 MiB, MB/s' \
		'write 64 KiB, MB/s' 'write 1 MiB, MB/s' 'write 4 MiB, MB/s' \
		'read 64 KiB, MB/s' 'read 1 MiB, MB/s' 'read 4 MiB, MB/s'; do
		row "$what" "$(median mine $column)" "$(median other $column)"
		column=$((column + 1))
	done
}

# --- shaped rails -------------------------------------------------------------

# crossed: prints the bytes that b has received on each rail.
crossed()
{
	for rail in $(seq 0 $((rails_n - 1))); do
		rails_bytes b "$rail" rx
	done | paste -s -d ' '
}

# shaped NAME RATE…: measures over rails with these rates, in Mbit/s.
shaped()
{
	name=$1 rates='' n=0
	shift
	for rate; do
		rates="$rates ${rate}mbit"
	done
	rm -f "$dir/mine" "$dir/other" "$dir/shares"
	# shellcheck disable=SC2086
	if ! rails_up -c no $rates || ! rails_iperf >"$dir/out" 2>&1; then
		cat "$dir/out"
		return 1
	fi
	rails_fi
	sum=$(awk '{ print $1 / 8 }' "$rails_dir/sum")
	while [ $((n += 1)) -le $(((rounds + 1) / 2)) ]; do
		was=$(crossed)
		run moonrail t3w3 >>"$dir/mine" || return
		echo "$was $(crossed)" | awk '{
			for (i = 1; i <= NF / 2; i++)
				all += $(i + NF / 2) - $i
			for (i = 1; i <= NF / 2; i++)
				printf "%.0f ", 100 * ($(i + NF / 2) - $i) / all
			print "" }' >>"$dir/shares"
		run "$mrail" w3 >>"$dir/other" || echo 0 >>"$dir/other"
	done
	printf '\n%-26s %12s %12s %7s\n' "$name:$rates" moonrail 'all rails' ratio
	row 'tagged 4 MiB, MB/s' "$(median mine 1)" "$sum"
	row 'write 4 MiB, MB/s' "$(median mine 2)" "$sum"
	if grep -q '[1-9]' "$dir/other"; then
		printf '%-26s %12s %12s\n' '' moonrail fi_mrail
		row 'write 4 MiB, MB/s' "$(median mine 2)" "$(median other 1)"
	else
		echo "$mrail: does not run"
	fi
	echo "bytes by rail, percent: $(paste -s -d ',' "$dir/shares")"
	rails_down
}

for part in ${PARTS:-one equal 1+3}; do
	case $part in
	one) one || exit 1; continue ;;
	equal) set -- "$((unit * 2))" "$((unit * 2))" ;;
	1+3) set -- "$unit" "$((unit * 3))" ;;
	*) echo "bench-prov: unknown part '$part'" >&2; exit 2 ;;
	esac
	if [ -z "$rails_dir" ]; then
		command -v iperf3 >/dev/null || { echo 'no iperf3'; exit 0; }
		rails_at_end() { rm -rf "$dir"; }
		rails_begin || exit 0
	fi
	shaped "$part" "$@" || exit 1
done
