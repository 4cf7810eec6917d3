#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# timeout: 360
#
# make check-vm: segments beyond plain memory, in a machine that has
# NVMe-oF and two NUMA nodes.
set -u
: "${SRC:?}" "${BUILD:?}"
if [ "${SANITIZE:-no}" = yes ]; then
	echo 'SKIP: sanitized programs are too slow for emulation'
	exit 77
fi
# shellcheck disable=SC2016
exec sh "$SRC/fabtests/scripts/run_in_vm.sh" -f -n -t 340 sh -c '
	FT_FILES_DIR=/mnt/nvmeof "$1/ft_files" && "$1/ft_nvmeof" &&
	"$1/ft_numa"
' sh "$BUILD/fabtests"
