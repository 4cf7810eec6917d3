#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# fi_pingpong (libfabric-bin of Debian) between two hosts, over moonrail's
# provider and over the one below it, with all its sizes; it checks the bytes.
set -u
: "${BUILD:?}" "${SRC:?}"
# shellcheck source=fabtests/scripts/rails_lib.sh
. "$SRC/fabtests/scripts/rails_lib.sh"
[ -e "$BUILD/lib/libfabric" ] || { echo 'built without the provider'; exit 77; }
command -v fi_pingpong >/dev/null || { echo 'no fi_pingpong'; exit 77; }
[ "${SANITIZE:-no}" = no ] || { echo 'fi_pingpong is not sanitized'; exit 77; }
rails_begin || exit
export FI_PROVIDER_PATH="$BUILD/lib/libfabric"

# pingpong PROVIDER: runs a server on host b and a client on host a.
pingpong()
{
	rails_up -c no 1gbit 1gbit || return
	rails_start b server fi_pingpong -p "$1" -e rdm -c -S all -I 5
	for _ in $(seq 100); do
		rails_run b ss -H -l -t -n | grep -q :47592 && break
		sleep 0.05
	done
	rails_run a timeout 60 fi_pingpong -p "$1" -e rdm -c -S all -I 5 \
		"$(rails_addr b 0)" && rails_wait server 10
}

rails_case fi_pingpong_over_moonrail_works pingpong moonrail
rails_case fi_pingpong_over_tcp_ofi_rxm_works pingpong 'tcp;ofi_rxm'
rails_exit
