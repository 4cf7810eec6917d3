#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# rails.sh up [-n HOSTS] [-c yes|no] RATE… [-- COMMAND…]
#	makes hosts and rails as rails_lib.sh says, then runs COMMAND (in a
#	shell that knows its functions), or waits for the end of its input; the
#	first line says the ID, as does $RAILS_ID; $RAILS_PEER is the network
#	namespace of host b
# rails.sh on ID FUNCTION ARGUMENT…
#	meanwhile, from elsewhere: a function without its "rails_", as
#	on ID drop 0 both, or on ID run b te_bench …
# rails.sh sweep
#	what killed runs left behind
# BUILD is the build folder, SRC the sources.
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
