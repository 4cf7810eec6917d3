#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# ft_fi_mpi.sh [long]
#
# Runs ft_fi_mpi.c, an MPI program, with two and with four ranks of Open MPI over
# the libfabric provider: messages use the ofi MTL, one-sided operations the ofi
# BTL. No other transport is allowed, so the test fails if the provider is not
# found. The loopback interface is the rail; FT_FI_MPI_RAILS selects other rails,
# "" all.
set -u
: "${BUILD:?}" "${SRC:?}"

skip()
{
	echo "$*"
	exit 77
}

# Prints the path of Open MPI's tool. Debian may have MPICH's tool as well.
tool()
{
	command -v "$1.openmpi" || command -v "$1"
}

libfabric_of()
{
	ldd "$1" | sed -n 's/.*libfabric\.so[^ ]* => \([^ ]*\).*/\1/p'
}

provider=$BUILD/lib/libfabric/libmoonrail-fi.so
[ -e "$provider" ] || skip 'built without the provider'
[ "${SANITIZE:-no}" = no ] || skip "MPI programs are not sanitized"
mpicc=$(tool mpicc) mpirun=$(tool mpirun)
# ompi_info of the same installation
info=${mpirun%/*}/ompi_info
[ -x "$info" ] || info=
if [ -z "$mpicc" ] || [ -z "$mpirun" ] || [ -z "$info" ]; then
	skip 'no Open MPI: mpicc, mpirun or ompi_info is missing'
fi
# without this, mpirun refuses even --version to root
OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM
"$mpirun" --version | grep -q 'Open' || skip "$mpirun does not belong to Open MPI"
"$mpicc" --showme >/dev/null 2>&1 || skip "$mpicc does not belong to Open MPI"
tmp=$(mktemp -d) || exit
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM
"$info" --all --parsable >"$tmp/info" || skip "$info fails"
for part in mtl btl; do
	grep -q "^mca:$part:ofi:version" "$tmp/info" ||
		skip "this Open MPI has no ofi $part"
done
mtl=$(sed -n 's/^path:pkglibdir://p' "$tmp/info" | sed 1q)/mca_mtl_ofi.so
if [ -e "$mtl" ] && [ "$(libfabric_of "$mtl")" != "$(libfabric_of "$provider")" ]
then
	skip "Open MPI uses another libfabric: $(libfabric_of "$mtl")"
fi

OMPI_CC=${CC:-cc} "$mpicc" -std=c11 -O2 -Wall -Wextra -o "$tmp/ft_fi_mpi" \
	"$SRC/fabtests/functional/ft_fi_mpi.c" || exit 1
FI_PROVIDER_PATH=$BUILD/lib/libfabric
FI_MOONRAIL_ADDR=${FT_FI_MPI_RAILS-lo}
# Open MPI does not name a provider when it asks libfabric.
FI_MOONRAIL_ENABLE=1
export FI_PROVIDER_PATH FI_MOONRAIL_ADDR FI_MOONRAIL_ENABLE
[ -n "$FI_MOONRAIL_ADDR" ] || unset FI_MOONRAIL_ADDR
limit=120
[ "${1:-}" = long ] && limit=600
status=0
for ranks in 2 4; do
	timeout --foreground -k 5 $limit "$mpirun" --oversubscribe \
		--bind-to none -np $ranks \
		--mca pml cm --mca mtl ofi \
		--mca mtl_ofi_provider_include moonrail \
		--mca osc rdma --mca btl self,ofi \
		--mca btl_ofi_provider_include moonrail \
		"$tmp/ft_fi_mpi" "$@" || {
		echo "not ok - $ranks ranks: mpirun ended with $?"
		status=1
	}
done
exit $status
