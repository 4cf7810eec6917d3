#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# The libfabric provider's messages and atomics both ways over two rails between
# two hosts, while packets are lost, on both ways or one, links cut, connections
# reset and the server stopped in turn, every 1.1 seconds for 0.6. FT_FI_SECONDS
# (8) of it. Then message orders while rails are cut, and between hosts of one and two rails, writes of which the target
# is told over rails of unequal rates, and a server that is killed.
set -u
: "${BUILD:?}" "${SRC:?}"
# shellcheck source=fabtests/scripts/rails_lib.sh
. "$SRC/fabtests/scripts/rails_lib.sh"
[ -e "$BUILD/lib/libfabric" ] || { echo 'built without the provider'; exit 77; }
rails_begin || exit
seconds=${FT_FI_SECONDS:-8}
rails_up -c no 400mbit 400mbit || exit 1
rails_fi
# What is sent next is answered by a reset, by whichever rail: it is lost, and
# what is on its way with it.
lose()
{
	rails_refuse 0
	rails_refuse 1
}

# server SIGNAL
server()
{
	# shellcheck disable=SC2046
	kill "-$1" $(ip netns pids "$FT_FI_SERVER")
}

arrived()
{
	echo $(($(rails_bytes b 0 rx) + $(rails_bytes b 1 rx)))
}

"$BUILD/fabtests/ft_fi_traffic" "$seconds" >"$rails_dir/traffic" 2>&1 &
traffic=$!
rails_mark
for round in $(seq 0 $(((seconds * 10 - 4) / 11 - 1))); do
	rail=$((round / 6 % 2)) at=$((5 + round * 11))
	rails_at "$((at / 10)).$((at % 10))"
	case $((round % 6)) in
	0) rails_drop $rail both ;;
	1) rails_link $((1 - rail)) down ;;
	2) lose ;;
	3) rails_drop $rail in ;;
	4) rails_reset 0; rails_reset 1 ;;
	5) server STOP ;;
	esac
	at=$((at + 6))
	rails_at "$((at / 10)).$((at % 10))"
	rails_restore 0
	rails_restore 1
	[ $((round % 6)) -ne 5 ] || server CONT
done
wait $traffic
status=$?
cat "$rails_dir/traffic"

# Messages that are read by the receiver may be all that is on its way: then
# nothing has to be sent again. Of short ones alone something has.
was=$(arrived) n=0
"$BUILD/fabtests/ft_fi_traffic" 2 5000 >"$rails_dir/traffic" 2>&1 &
traffic=$!
while [ $(($(arrived) - was)) -lt 1000000 ] && [ $((n += 1)) -lt 100 ]; do
	sleep 0.1
done
lose
sleep 0.5
rails_restore 0
rails_restore 1
wait $traffic || status=1
cat "$rails_dir/traffic"

# Operations keep their order when slices of the first one are sent again by the
# other rail.
"$BUILD/fabtests/ft_fi_traffic" orders 3 >"$rails_dir/traffic" 2>&1 &
traffic=$!
rails_mark
rails_at 0.6
rails_drop 0 both
rails_at 1.2
rails_restore 0
rails_at 1.6
rails_link 1 down
rails_at 2.2
rails_restore 1
wait $traffic || status=1
cat "$rails_dir/traffic"

# traffic WHAT…: all of it goes well
traffic()
{
	"$BUILD/fabtests/ft_fi_traffic" "$@" >"$rails_dir/traffic" 2>&1 ||
		status=1
	cat "$rails_dir/traffic"
}

# as many rails on both sides there are not
(FT_FI_SERVER_RAILS=${FT_FI_SERVER_RAILS%%,*}; traffic 1; exit $status) || status=1
(FT_FI_CLIENT_RAILS=${FT_FI_CLIENT_RAILS%%,*}; traffic 1; exit $status) || status=1
# the last bytes come by the slow one
rails_rate 1 20mbit
traffic data
rails_restore 1
traffic killed
rails_down
exit $status
