#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# timeout: 120
#
# The libfabric provider's messages and atomics over two rails between two
# hosts, while links are cut and packets lost.
set -u
: "${BUILD:?}" "${SRC:?}"
# shellcheck source=fabtests/scripts/rails_lib.sh
. "$SRC/fabtests/scripts/rails_lib.sh"
[ -e "$BUILD/lib/libfabric" ] || { echo 'built without the provider'; exit 77; }
rails_begin || exit
seconds=${FT_FI_SECONDS:-6}
rails_up -c no 400mbit 400mbit || exit 1
FT_FI_CLIENT=$(rails_ns a) FT_FI_SERVER=$(rails_ns b)
export FT_FI_CLIENT FT_FI_SERVER
"$BUILD/fabtests/ft_fi_traffic" "$seconds" >"$rails_dir/traffic" 2>&1 &
traffic=$!
rails_mark
for round in $(seq 0 2 $((seconds - 2))); do
	rails_at $((round + 1))
	case $((round % 6)) in
	0) rails_drop $((round / 2 % 2)) both ;;
	2) rails_link $((round / 2 % 2)) down ;;
	4) rails_reset $((round / 2 % 2)) ;;
	esac
	rails_at $((round + 2))
	rails_restore 0
	rails_restore 1
done
wait $traffic
status=$?
cat "$rails_dir/traffic"
rails_down
exit $status
