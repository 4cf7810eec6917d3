#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# rails.sh up [-n HOSTS] [-c yes|no] RATE… [-- COMMAND…]
#	makes hosts and rails (see rails_up in rails_lib.sh), prints the ID of
#	the run and sets $RAILS_ID to it and $RAILS_PEER to the network namespace
#	of host b; then runs COMMAND, which may be a function of rails_lib.sh,
#	or waits for the end of standard input
# rails.sh on ID FUNCTION ARGUMENT…
#	calls a function of rails_lib.sh, without "rails_", in a run that another
#	shell has made: on ID drop 0 both, or on ID run b te_bench …
# rails.sh sweep
#	removes what killed runs have left
# BUILD is the build folder, SRC the source folder.
set -u
: "${SRC:=$(cd "$(dirname "$0")/../.." && pwd)}" "${BUILD:=$SRC/build}"
export SRC BUILD
# shellcheck source=fabtests/scripts/rails_lib.sh
. "$SRC/fabtests/scripts/rails_lib.sh"

up()
{
	rails_begin || exit
	rails_args=''
	while [ $# -gt 0 ] && [ "$1" != -- ]; do
		rails_args="$rails_args $1"
		shift
	done
	# shellcheck disable=SC2086
	rails_up $rails_args || exit
	RAILS_ID=${rails_dir##*/moonrail-rails-} RAILS_PEER=$(rails_ns b)
	export RAILS_ID RAILS_PEER
	echo "$RAILS_ID"
	if [ $# -gt 1 ]; then
		shift
		"$@"
	else
		cat >/dev/null
	fi
}

on()
{
	# shellcheck source=/dev/null
	. "${TMPDIR:-/tmp}/moonrail-rails-$1/state" || exit
	rails_function=rails_$2
	shift 2
	"$rails_function" "$@"
}

case ${1:-} in
up|on) "$@" ;;
sweep) rails_sweep ;;
*) sed -n '4,16s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
