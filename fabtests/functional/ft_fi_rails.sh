#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# Messages and atomics of the libfabric provider in both directions over two
# rails between two hosts, for FT_FI_SECONDS (8) seconds. Every 1.1 s a fault
# lasts for 0.6 s: packets are lost in both directions or one, a link is cut,
# connections are reset, or the server is stopped. Then: message orders while
# rails are cut, hosts with one and with two rails, writes with data over rails of
# different rates, and a server that is killed.
set -u
: "${BUILD:?}" "${SRC:?}"
# shellcheck source=fabtests/scripts/rails_lib.sh
. "$SRC/fabtests/scripts/rails_lib.sh"
[ -e "$BUILD/lib/libfabric" ] || { echo 'built without the provider'; exit 77; }
rails_begin || exit
seconds=${FT_FI_SECONDS:-8}
rails_up -c no 400mbit 400mbit || exit 1
rails_fi
# lose: answers the next packets of all rails with a reset. They are lost, together
# with the bytes under way.
lose()
{
	rails_refuse 0
	rails_refuse 1
}

# server SIGNAL: sends the signal to the server.
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

# If only messages are under way that the receiver reads, nothing has to be sent
# again. Short messages alone ensure that something has.
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

# Operations keep their order when slices of the first one are sent again over the
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

# traffic ARGUMENT…: runs ft_fi_traffic and prints its output.
traffic()
{
	"$BUILD/fabtests/ft_fi_traffic" "$@" >"$rails_dir/traffic" 2>&1 ||
		status=1
	cat "$rails_dir/traffic"
}

# the hosts have different numbers of rails
(FT_FI_SERVER_RAILS=${FT_FI_SERVER_RAILS%%,*}; traffic 1; exit $status) || status=1
(FT_FI_CLIENT_RAILS=${FT_FI_CLIENT_RAILS%%,*}; traffic 1; exit $status) || status=1
# the last bytes arrive over the slow rail
rails_rate 1 20mbit
traffic data
rails_restore 1
traffic killed
rails_down
exit $status
