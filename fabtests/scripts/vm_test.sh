#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# timeout: 360
#
# make check-vm: what needs RDMA devices, in a machine that has some.
set -u
: "${SRC:?}" "${BUILD:?}"
if [ "${SANITIZE:-no}" = yes ]; then
	echo 'SKIP: sanitized programs are too slow for emulation'
	exit 77
fi
# shellcheck disable=SC2016
exec sh "$SRC/fabtests/scripts/run_in_vm.sh" -r 2 -t 340 \
	sh -c '"$1"; status=$?; sh "$2" rdma && exit "$status"' sh \
	"$BUILD/fabtests/ft_verbs" "$SRC/fabtests/functional/ft_info.sh"
