# shellcheck shell=sh
# SPDX-License-Identifier: BSD-2-Clause
#
# Sourced by tests that need several rails. Makes two or more hosts (network
# namespaces) a, b, c, … and rails 0, 1, … between them. On each host, rail N is
# device rN with the address 10.77.N.HOST (10.77.0.1 is rail 0 of host a). tc tbf
# limits each rail to its rate at every end. An optional control link is device
# ctl at 10.77.200.HOST, without a limit. Several runs may be active at the same
# time. Each run removes what killed runs have left. Needs root, iproute2 and
# iptables.
#
#	. "$SRC/fabtests/scripts/rails_lib.sh"
#	rails_begin || exit		# 77 and the reason on standard output
#	rails_up 200mbit 200mbit	# or: rails_up -n 3 -c no 1gbit 3gbit
#	rails_target b t || exit
#	rails_watch b watch 20		# CSV of b's byte counters, every 20 ms
#	rails_bench a i "$rails_segment" --operation=write --duration=3 --verify
#	rails_mark
#	rails_at 1
#	rails_drop 0 both b		# drops packets silently
#	rails_at 2
#	rails_restore 0
#	rails_wait i 20 || echo failed
#	rails_json i gb_per_s
#
# Processes are children of the calling shell, so a call that starts one must not
# be inside $(…). All processes and hosts end with the shell: rails_begin sets
# traps on EXIT, HUP, INT and TERM. If the caller defines a function
# rails_at_end, the EXIT trap calls it first.
# HOST is a letter, RAIL is a number or ctl, and NAME is a name that the caller
# chooses for a process. Without HOST, faults affect host b, and a new rate
# affects all hosts.
#
# rails_begin			checks the requirements, removes leftovers of killed
#				runs and makes $rails_dir; 77 if it is impossible
# rails_up [-n HOSTS] [-c yes|no] RATE…	makes the hosts (default: 2), the control
#				link (-c, default: yes) and a rail per RATE, in the
#				syntax of tc. One bridge per rail joins more than
#				two hosts
# rails_down			ends the processes and removes the hosts; another
#				rails_up may follow
# rails_addr HOST [RAIL]	prints the address; without RAIL the address of the
#				control link, or of rail 0 if there is none
# rails_devices			prints r0,r1,…
#
# rails_run HOST COMMAND…	runs COMMAND in the foreground
# rails_start HOST NAME COMMAND…	runs COMMAND in the background, with output in
#				$rails_dir/NAME.out and errors in NAME.err
# rails_pid NAME		prints the process ID
# rails_line NAME [SECONDS]	waits for its first line (20 s) and prints it
# rails_wait NAME [SECONDS]	waits for its end and returns its status, or 124 if
#				it still runs
# rails_stop NAME [SIGNAL]	sends TERM or SIGNAL, and returns its status
# rails_signal NAME SIGNAL	sends a signal, for example STOP or CONT
# rails_target HOST NAME [OPTION…]	starts te_bench --mode=target on all rails
#				(tcp) and sets $rails_segment to its name
# rails_bench HOST NAME SEGMENT [OPTION…]	starts te_bench --mode=initiator --json
# rails_json NAME FIELD		prints the first FIELD of the last line of output
#
# rails_mark			sets the origin of rails_at and rails_now
# rails_at SECONDS		sleeps until SECONDS after the mark
# rails_now			prints the milliseconds since the mark
# rails_rate RAIL RATE [HOST]	changes a rate, at all ends or at those of HOST
# rails_link RAIL down|up [HOST]	sets a link; with two hosts both ends lose the
#				carrier
# rails_drop RAIL in|out|both [HOST]	drops packets silently
# rails_forget RAIL [HOST]	drops all packets of the open connections, as if a
#				firewall had forgotten them; new connections work
# rails_hold [RAIL [HOST]]	delays packets until rails_restore; without HOST at
#				all ends, without RAIL on all rails
# rails_reset RAIL [HOST]	resets the open connections
# rails_refuse RAIL [HOST]	answers each TCP packet with a reset from now on
# rails_restore [RAIL]		ends all faults of RAIL (default: of all rails) and
#				restores the first rate
#
# rails_fi			sets the environment of the libfabric provider's
#				programs: client on a, server on b, all rails
# rails_case TITLE COMMAND…	runs a case of a test and prints "ok" or "not ok"
#				(with the output), then calls rails_down
# rails_exit			exits, with 1 if a case has failed
#
# rails_bytes HOST RAIL rx|tx	prints the byte counter from /sys/class/net
# rails_watch HOST NAME [MS]	starts NAME, which prints "ms,rx r0,tx r0,rx r1,…"
#				every MS (20) from the mark; end it by rails_stop
# rails_iperf			writes the rate of iperf3 from a to b, over all
#				rails at the same time, to $rails_dir/sum, in Mbit/s
: "${BUILD:?}" "${SRC:?}"

rails_scripts=$SRC/fabtests/scripts
rails_hosts='' rails_n=0 rails_ctl=no rails_dir='' rails_id='' rails_segment=''
rails_bad=0
export LD_LIBRARY_PATH="$BUILD/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"

# rails_born PID: prints the start time of the process. PID and start time
# identify a process uniquely.
rails_born()
{
	sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d ' ' -f 20
}

rails_ns()
{
	echo "$rails_id$1"
}

# --- begin and end ------------------------------------------------------------

rails_cannot()
{
	echo "$*"
	return 77
}

rails_check()
{
	[ "$(id -u)" -eq 0 ] || { rails_cannot 'needs root'; return; }
	for rails_tool in ip tc iptables ss bash; do
		command -v "$rails_tool" >/dev/null ||
			{ rails_cannot "no $rails_tool"; return; }
	done
	rails_try=$(
		ns=moonrail-$$-0-try
		exec 2>&1
		ip netns add "$ns" || exit
		trap 'ip netns del "$ns"' EXIT
		ip -n "$ns" link add r0 type veth peer name r1 &&
			ip -n "$ns" link set r0 up &&
			tc -n "$ns" qdisc add dev r0 root tbf rate 1mbit \
				burst 64kb latency 20ms &&
			ip netns exec "$ns" iptables -w 10 -I INPUT -i r0 -j DROP
	) || rails_cannot "no network namespaces here: $(echo "$rails_try" |
		head -n 1)"
}

# rails_ns_del NAMESPACE: kills its processes and removes it.
rails_ns_del()
{
	rails_pids=$(ip netns pids "$1" 2>/dev/null)
	# shellcheck disable=SC2086
	[ -z "$rails_pids" ] || kill -KILL $rails_pids 2>/dev/null
	ip netns del "$1" 2>/dev/null || :
}

# Removes the namespaces and folders of runs that were killed.
rails_sweep()
{
	ip netns list 2>/dev/null | sed -n 's/^\(moonrail-[^ ]*\).*/\1/p' |
	while IFS=- read -r rails_x rails_pid rails_at rails_host; do
		[ "$rails_at" = "$(rails_born "$rails_pid")" ] ||
			{ [ "$rails_at" = 0 ] && [ -e "/proc/$rails_pid" ]; } ||
			rails_ns_del "$rails_x-$rails_pid-$rails_at-$rails_host"
	done
	for rails_x in "${TMPDIR:-/tmp}"/moonrail-rails-*; do
		rails_pid=${rails_x##*-rails-}
		rails_pid=${rails_pid%-*}
		[ ! -d "$rails_x" ] || [ -e "/proc/$rails_pid" ] ||
			rm -rf "$rails_x"
	done
}

rails_begin()
{
	rails_check || return
	rails_sweep
	rails_id=moonrail-$$-$(rails_born $$)-
	rails_dir=$(mktemp -d "${TMPDIR:-/tmp}/moonrail-rails-$$-XXXXXX") ||
		return
	rails_mark
	trap 'rails_end' EXIT
	trap 'exit 1' HUP INT TERM
}

rails_end()
{
	rails_status=$?
	trap '' HUP INT TERM
	! command -v rails_at_end >/dev/null || rails_at_end
	rails_down
	[ -z "$rails_dir" ] || rm -rf "$rails_dir"
	exit "$rails_status"
}

rails_down()
{
	for rails_x in $(ip netns list 2>/dev/null |
			sed -n "s/^\(${rails_id:-none}[^ ]*\).*/\1/p"); do
		rails_ns_del "$rails_x"
	done
	wait
	rails_hosts='' rails_n=0
}

# --- hosts and rails ----------------------------------------------------------

rails_number()
{
	printf '%d' "'$1" | awk '{ print $1 - 96 }'
}

rails_dev()
{
	case $1 in
	ctl) echo ctl ;;
	*) echo "r$1" ;;
	esac
}

rails_addr()
{
	if [ -n "${2:-}" ]; then
		rails_x=$2
	elif [ "$rails_ctl" = yes ]; then
		rails_x=ctl
	else
		rails_x=0
	fi
	[ "$rails_x" != ctl ] || rails_x=200
	echo "10.77.$rails_x.$(rails_number "$1")"
}

rails_devices()
{
	seq -s , 0 $((rails_n - 1)) | sed 's/[0-9]\{1,\}/r&/g'
}

# rails_shape VERB NAMESPACE DEVICE RATE: limits the rate of the device. A burst
# of 256 KiB lets whole TSO packets pass; the queue of 20 ms is as long as that
# of a switch.
rails_shape()
{
	tc -n "$2" qdisc "$1" dev "$3" root tbf rate "$4" burst 256kb \
		latency 20ms
}

rails_host_new()
{
	ip netns add "$(rails_ns "$1")" &&
		ip -n "$(rails_ns "$1")" link set lo up &&
		ip netns exec "$(rails_ns "$1")" sysctl -qw \
			net.ipv4.conf.all.rp_filter=0 \
			net.ipv4.conf.default.rp_filter=0 \
			net.ipv6.conf.default.disable_ipv6=1
}

# rails_plug HOST RAIL: sets the address of the device and brings it up.
rails_plug()
{
	ip -n "$(rails_ns "$1")" addr add "$(rails_addr "$1" "$2")/24" \
		dev "$(rails_dev "$2")" &&
		ip -n "$(rails_ns "$1")" link set "$(rails_dev "$2")" up
}

# rails_wire RAIL: connects the hosts by a veth pair, or by a bridge in a
# namespace of its own if there are more than two.
rails_wire()
{
	rails_d=$(rails_dev "$1")
	if [ "$rails_hosts" = 'a b' ]; then
		ip link add "$rails_d" netns "$(rails_ns a)" type veth \
			peer name "$rails_d" netns "$(rails_ns b)" || return
	else
		ip -n "$(rails_ns switch)" link add "$rails_d" type bridge &&
			ip -n "$(rails_ns switch)" link set "$rails_d" up ||
			return
		for rails_h in $rails_hosts; do
			ip link add "$rails_d" netns "$(rails_ns "$rails_h")" \
				type veth peer name "$rails_d$rails_h" \
				netns "$(rails_ns switch)" &&
				ip -n "$(rails_ns switch)" link set \
					"$rails_d$rails_h" master "$rails_d" up ||
				return
		done
	fi
	for rails_h in $rails_hosts; do
		rails_plug "$rails_h" "$1" || return
	done
}

# rails_ends RAIL [HOST]: prints "NAMESPACE DEVICE" for each device of the rail
# with a rate limit.
rails_ends()
{
	for rails_h in ${2:-$rails_hosts}; do
		echo "$(rails_ns "$rails_h") $(rails_dev "$1")"
		[ "$rails_hosts" = 'a b' ] ||
			echo "$(rails_ns switch) $(rails_dev "$1")$rails_h"
	done
}

# rails_rates VERB RAIL RATE [HOST]: limits all ends of the rail to RATE.
rails_rates()
{
	rails_ends "$2" "${4:-}" | while read -r rails_x rails_d; do
		rails_shape "$1" "$rails_x" "$rails_d" "$3" || exit
	done
}

rails_up()
{
	rails_count=2 rails_ctl=yes rails_n=0
	while :; do
		case ${1:-} in
		-n) rails_count=$2; shift 2 ;;
		-c) rails_ctl=$2; shift 2 ;;
		*) break ;;
		esac
	done
	rails_hosts=$(echo 'a b c d e f g h i j k l m n o p' |
		cut -d ' ' -f "1-$rails_count")
	for rails_h in $rails_hosts; do
		rails_host_new "$rails_h" || return
	done
	[ "$rails_count" -eq 2 ] || ip netns add "$(rails_ns switch)" || return
	[ "$rails_ctl" = no ] || rails_wire ctl || return
	: >"$rails_dir/faults"
	: >"$rails_dir/rates"
	for rails_rate; do
		rails_wire "$rails_n" &&
			rails_rates add "$rails_n" "$rails_rate" || return
		echo "$rails_n $rails_rate" >>"$rails_dir/rates"
		rails_n=$((rails_n + 1))
	done
	rails_carrier && rails_save
}

# Waits until all links have a carrier, which follows a moment after link up.
rails_carrier()
{
	for rails_x in $(seq 200); do
		for rails_h in $rails_hosts; do
			ip -n "$(rails_ns "$rails_h")" -o link show type veth
		done | grep -qv 'state UP' || return 0
		sleep 0.02
	done
	echo 'rails_up: no carrier' >&2
	return 1
}

# Saves the state for another shell; rails.sh reads it.
rails_save()
{
	printf '%s\n' "rails_hosts='$rails_hosts'" "rails_n=$rails_n" \
		"rails_ctl=$rails_ctl" "rails_zero=$rails_zero" \
		"rails_id=$rails_id" "rails_dir=$rails_dir" >"$rails_dir/state"
}

# --- processes ----------------------------------------------------------------

rails_run()
{
	rails_x=$(rails_ns "$1")
	shift
	ip netns exec "$rails_x" "$@"
}

rails_start()
{
	rails_x=$(rails_ns "$1") rails_name=$2
	shift 2
	rm -f "$rails_dir/$rails_name.status"
	: >"$rails_dir/$rails_name.out"
	ip netns exec "$rails_x" "$@" >"$rails_dir/$rails_name.out" \
		2>"$rails_dir/$rails_name.err" </dev/null &
	echo $! >"$rails_dir/$rails_name.pid"
}

rails_pid()
{
	cat "$rails_dir/$1.pid" 2>/dev/null || echo none
}

# rails_alive PID: succeeds if the process exists and is not a zombie.
rails_alive()
{
	rails_x=$(sed 's/.*) //' "/proc/$1/stat" 2>/dev/null)
	case $rails_x in
	''|Z*|X*) return 1 ;;
	esac
}

rails_line()
{
	rails_left=$((${2:-20} * 20))
	until rails_x=$(head -n 1 "$rails_dir/$1.out") && [ -n "$rails_x" ]; do
		rails_left=$((rails_left - 1))
		if [ "$rails_left" -le 0 ] || ! rails_alive "$(rails_pid "$1")"; then
			tail -n 5 "$rails_dir/$1.err" >&2
			return 1
		fi
		sleep 0.05
	done
	head -n 1 "$rails_dir/$1.out"
}

rails_wait()
{
	rails_left=$((${2:-60} * 20))
	while rails_alive "$(rails_pid "$1")"; do
		[ "$rails_left" -gt 0 ] || return 124
		rails_left=$((rails_left - 1))
		sleep 0.05
	done
	rails_x=$(rails_pid "$1")
	[ "$rails_x" != none ] && wait "$rails_x"
}

rails_signal()
{
	kill "-$2" "$(rails_pid "$1")"
}

rails_stop()
{
	rails_signal "$1" "${2:-TERM}" 2>/dev/null
	rails_wait "$1" 20 && return
	rails_status=$?
	if [ "$rails_status" -eq 124 ]; then
		rails_signal "$1" KILL
		wait "$(rails_pid "$1")"
	fi
	return "$rails_status"
}

# rails_te HOST NAME OPTION…: starts te_bench on all rails.
rails_te()
{
	rails_host=$1 rails_name=$2
	shift 2
	rails_start "$rails_host" "$rails_name" "$BUILD/bin/te_bench" \
		--protocol=tcp --device_name="$(rails_devices)" \
		--local_server_name="$(rails_addr "$rails_host")" "$@"
}

rails_target()
{
	rails_te "$@" --mode=target && rails_segment=$(rails_line "$2")
}

rails_bench()
{
	rails_host=$1 rails_name=$2 rails_segment=$3
	shift 3
	rails_te "$rails_host" "$rails_name" --mode=initiator --json \
		--segment_id="$rails_segment" "$@"
}

rails_json()
{
	tail -n 1 "$rails_dir/$1.out" | tr ',{}' '[\n*]' |
		sed -n "s/^\"$2\":\"\{0,1\}\([^\"]*\).*/\1/p" | head -n 1
}

# --- the libfabric provider's programs -----------------------------------------

rails_fi_addrs()
{
	for rails_i in $(seq 0 $((rails_n - 1))); do
		printf 'fi_sockaddr_in://%s:0,' "$(rails_addr "$1" "$rails_i")"
	done | sed 's/,$//'
}

rails_fi()
{
	FT_FI_CLIENT=$(rails_ns a) FT_FI_SERVER=$(rails_ns b)
	FT_FI_CLIENT_RAILS=$(rails_fi_addrs a)
	FT_FI_SERVER_RAILS=$(rails_fi_addrs b)
	export FT_FI_CLIENT FT_FI_SERVER FT_FI_CLIENT_RAILS FT_FI_SERVER_RAILS
}

# --- cases --------------------------------------------------------------------

rails_case()
{
	rails_title=$1
	shift
	if "$@" >"$rails_dir/log" 2>&1; then
		echo "ok - $rails_title"
	else
		cat "$rails_dir/log"
		tail -n 20 "$rails_dir"/*.err
		echo "not ok - $rails_title"
		rails_bad=1
	fi
	rails_down
}

rails_exit()
{
	exit "$rails_bad"
}

# --- time ---------------------------------------------------------------------

rails_clock()
{
	echo $(($(date +%s%N) / 1000000))
}

rails_mark()
{
	rails_zero=$(rails_clock)
	[ ! -e "$rails_dir/state" ] || rails_save
}

rails_now()
{
	echo $(($(rails_clock) - rails_zero))
}

rails_at()
{
	rails_x=$(rails_now)
	sleep "$(echo "$1 $rails_x" |
		awk '{ t = $1 - $2 / 1000; print (t > 0 ? t : 0) }')"
}

# --- faults -------------------------------------------------------------------

rails_rate()
{
	rails_rates change "$@"
}

rails_link()
{
	ip -n "$(rails_ns "${3:-b}")" link set "$(rails_dev "$1")" "$2"
}

# rails_rule RAIL HOST RULE…: adds an iptables rule and records it for
# rails_restore.
rails_rule()
{
	rails_x=$(rails_ns "$2")
	echo "$1 $rails_x $(shift 2; echo "$*")" >>"$rails_dir/faults"
	shift 2
	ip netns exec "$rails_x" iptables -w 10 -I "$@"
}

rails_drop()
{
	case $2 in
	in|out|both) ;;
	*) echo "rails_drop: $2 is not in, out or both" >&2; return 2 ;;
	esac
	if [ "$2" != out ]; then
		rails_rule "$1" "${3:-b}" INPUT -i "$(rails_dev "$1")" -j DROP ||
			return
	fi
	[ "$2" = in ] ||
		rails_rule "$1" "${3:-b}" OUTPUT -o "$(rails_dev "$1")" -j DROP
}

rails_forget()
{
	rails_run "${2:-b}" ss -H -t -n state established \
		src "$(rails_addr "${2:-b}" "$1")" >"$rails_dir/forget" || return
	while read -r _ _ rails_own rails_other; do
		rails_own=${rails_own##*:} rails_other=${rails_other##*:}
		rails_rule "$1" "${2:-b}" INPUT -i "$(rails_dev "$1")" -p tcp \
			--dport "$rails_own" --sport "$rails_other" -j DROP &&
			rails_rule "$1" "${2:-b}" OUTPUT -o "$(rails_dev "$1")" \
				-p tcp --sport "$rails_own" \
				--dport "$rails_other" -j DROP || return
	done <"$rails_dir/forget"
}

# A packet may still pass after this call.
rails_hold()
{
	for rails_one in ${1:-$(seq 0 $((rails_n - 1)))}; do
		rails_ends "$rails_one" "${2:-}"
	done | while read -r rails_x rails_d; do
		tc -n "$rails_x" qdisc change dev "$rails_d" root tbf \
			rate 8bit burst 2kb limit 64mb || exit
	done
}

rails_reset()
{
	rails_run "${2:-b}" ss -K -H -t src "$(rails_addr "${2:-b}" "$1")" \
		>"$rails_dir/reset" 2>&1
	# If the kernel does not support ss -K, answer all packets with a reset
	# for a moment.
	if rails_run "${2:-b}" ss -H -t state established \
			src "$(rails_addr "${2:-b}" "$1")" | grep -q .; then
		rails_refuse "$1" "${2:-b}"
		sleep 0.05
		rails_rules_off "$1"
	fi
}

rails_refuse()
{
	rails_rule "$1" "${2:-b}" INPUT -i "$(rails_dev "$1")" -p tcp \
		-j REJECT --reject-with tcp-reset
}

rails_rules_off()
{
	while read -r rails_r rails_x rails_rule; do
		if [ "$rails_r" != "$1" ]; then
			echo "$rails_r $rails_x $rails_rule"
			continue
		fi
		# shellcheck disable=SC2086
		ip netns exec "$rails_x" iptables -w 10 -D $rails_rule
	done <"$rails_dir/faults" >"$rails_dir/faults.new"
	mv "$rails_dir/faults.new" "$rails_dir/faults"
}

rails_restore()
{
	for rails_one in ${1:-$(seq 0 $((rails_n - 1)))}; do
		for rails_h in $rails_hosts; do
			rails_link "$rails_one" up "$rails_h"
		done
		rails_rules_off "$rails_one"
		[ "$rails_one" = ctl ] ||
			rails_rates change "$rails_one" "$(sed -n \
				"s/^$rails_one //p" "$rails_dir/rates")"
	done
}

# --- counters -----------------------------------------------------------------

rails_bytes()
{
	rails_run "$1" cat "/sys/class/net/$(rails_dev "$2")/statistics/$3_bytes"
}

rails_watch()
{
	rails_start "$1" "$2" bash "$rails_scripts/rails_watch.sh" "$rails_n" \
		"${3:-20}" "$rails_zero"
}

# --- rates ---------------------------------------------------------------------

rails_iperf()
{
	# An earlier case with more rails may have left files.
	rm -f "$rails_dir"/client?.out
	for rails_rail in $(seq 0 $((rails_n - 1))); do
		rails_start b "server$rails_rail" iperf3 -s -1 --forceflush -B "$(rails_addr b "$rails_rail")"
		rails_line "server$rails_rail" >/dev/null || return
	done
	sleep 0.2
	for rails_rail in $(seq 0 $((rails_n - 1))); do
		rails_start a "client$rails_rail" iperf3 -f k -t 2 -O 0.5 -c \
			"$(rails_addr b "$rails_rail")"
	done
	for rails_rail in $(seq 0 $((rails_n - 1))); do
		rails_wait "client$rails_rail" 20 || { cat "$rails_dir/client$rails_rail.out"; return 1; }
		rails_wait "server$rails_rail" 20
	done
	cat "$rails_dir"/client?.out |
		awk '/receiver/ { sum += $(NF - 2) } END { print sum / 1000 }' \
		>"$rails_dir/sum"
}
