#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# timeout: 600
#
# Tests te_info in network namespaces: its findings and its exit status, its
# JSON and SVG with real parsers, and that unusual systems do not crash it.
# run_tests.sh sets BUILD and SRC.
set -u

if [ "${1:-}" = case ]; then
	shift
else
	: "${BUILD:?}" "${SRC:?}"
	# Prefer the system's Python: others take ten times as long to start.
	python=/usr/bin/python3
	[ -x "$python" ] || python=$(command -v python3) || {
		echo 'needs python3 to parse what te_info prints'
		exit 77
	}
	export python
	tmp=$(mktemp -d)
	trap 'rm -rf "$tmp"' EXIT
	trap 'exit 1' HUP INT TERM
	export tmp
	LD_LIBRARY_PATH="$BUILD/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
	export LD_LIBRARY_PATH
	unset MC_LOG_LEVEL MOONRAIL_DEVICES MOONRAIL_PROVIDER MC_TE_FILTERS \
		MC_GID_INDEX FI_AV_REMOVE_CLEANUP \
		FI_OFI_RXM_CM_PROGRESS_INTERVAL
	# The default, 70 MB per endpoint, takes seconds with a sanitizer. The
	# cases about this setting set it themselves.
	[ "${SANITIZE:-no}" = no ] || export FI_OFI_RXM_MSG_RX_SIZE=1024
	[ "${1:-}" = rdma ] || set --
fi
info=$BUILD/bin/te_info
failed=0

ok()
{
	if [ "$1" -eq 0 ]; then
		echo "ok - $2"
	else
		echo "not ok - $2"
		failed=1
	fi
}

# run STATUS NAME OPTION…: runs te_info, which must exit with STATUS, and keeps
# its output.
run()
{
	want=$1 title=$2
	shift 2
	"$info" "$@" >"$tmp/out" 2>"$tmp/err"
	got=$?
	[ "$got" -eq "$want" ] || {
		echo "# te_info $*: status $got, not $want"
		sed 's/^/# /' "$tmp/err" | tail -n 20
		sed 's/^/# /' "$tmp/out" | tail -n 40
	}
	[ "$got" -eq "$want" ]
	ok $? "$title"
}

# holds NAME EXPRESSION: checks that the Python expression is true for the JSON
# document r. F(id, grade[, subject]) returns the findings with that id.
holds()
{
	"$python" -IS - "$tmp/out" "$2" <<-'PYTHON'
	import json, sys
	with open(sys.argv[1], encoding="utf-8") as f:
	    r = json.load(f)
	def F(id, grade=None, subject=None):
	    return [f for f in r["findings"] if f["id"] == id and
	            (grade is None or f["grade"] == grade) and
	            (subject is None or f["subject"] == subject)]
	good = eval(sys.argv[2])
	if not good:
	    print("# not true: " + sys.argv[2])
	    for f in r["findings"]:
	        print("#", f["grade"], f["id"], f["subject"], f["what"])
	    print("#", r["not_looked_at"])
	sys.exit(not good)
	PYTHON
	ok $? "$1"
}

# is_xml NAME: checks that the output is a well-formed SVG picture whose boxes
# lie inside it.
is_xml()
{
	"$python" -IS - "$tmp/out" <<-'PYTHON'
	import sys, xml.etree.ElementTree as e
	root = e.parse(sys.argv[1]).getroot()
	boxes = root.findall(".//{http://www.w3.org/2000/svg}rect")
	w, h = float(root.get("width")), float(root.get("height"))
	out = [b for b in boxes if float(b.get("x")) + float(b.get("width")) > w
	       or float(b.get("y")) + float(b.get("height")) > h]
	sys.exit(not root.tag.endswith("}svg") or len(boxes) < 3 or bool(out))
	PYTHON
	ok $? "$1"
}

# veth NAME [ADDRESS]: creates a veth pair and brings up both ends.
veth()
{
	ip link add "$1" type veth peer name "p$1" &&
		ip link set "$1" up && ip link set "p$1" up
	[ -z "${2:-}" ] || ip addr add "$2" dev "$1"
}

loose()
{
	for c in all default "$@"; do
		echo 0 >"/proc/sys/net/ipv4/conf/$c/rp_filter"
	done
}

# --- cases; for those in namespaces this script starts itself again ---------

case_options()
{
	run 0 help_is_printed --help
	run 0 version_is_printed --version
	run 3 unknown_option_is_refused --nonsense
	run 3 unknown_transport_is_refused --protocol=carrier-pigeon
	run 3 number_out_of_range_is_refused --peers=0 --check
	run 3 exclusive_options_are_refused --svg --json
	run 3 unwritable_output_file_is_refused --output=/nonexistent/x
	run 3 peer_that_is_no_address_is_refused --check --no_probe --peer=foo
	grep -q 'peer=foo: not an IP address' "$tmp/err"
	ok $? refused_peer_is_named
	run 3 list_with_one_invalid_peer_is_refused --check --no_probe --peer=127.0.0.1,10.0.0.300
	run 3 missing_process_is_refused --check --no_probe --pid=999999999
	grep -q 'pid=999999999: no such process' "$tmp/err"
	ok $? missing_process_is_named
	run 3 missing_root_is_refused --check --no_probe --root=/nonexistent
	grep -q 'root=/nonexistent: .*No such file' "$tmp/err"
	ok $? missing_root_is_named_with_the_reason
	run 3 root_without_proc_is_refused --check --no_probe --root="$tmp"
	"$info" --help >/dev/full 2>/dev/null
	[ $? -eq 3 ]
	ok $? full_disk_is_an_error
}

case_loopback()
{
	ip link set lo up
	run 0 report_of_tcp_succeeds --protocol=tcp
	grep -q '^  lo .*tcp' "$tmp/out" &&
		grep -q 'MC_SLICE_TIMEOUT *10 *default' "$tmp/out"
	ok $? report_lists_rails_and_settings_with_source
	grep -q '^  GPU memory: through pinned host memory' "$tmp/out"
	ok $? report_names_the_way_of_gpu_memory
	# The shm provider of libfabric 1.17 offers FI_HMEM.
	! grep -q '^moonrail .* libfabric 1.17,' "$tmp/out" ||
		grep -q '^  shm .* hmem' "$tmp/out"
	ok $? report_names_providers_of_device_memory
	MC_SLICE_TIMEOUT=33 "$info" --json >"$tmp/out" 2>/dev/null
	holds setting_of_environment_is_reported \
		'{"name": "MC_SLICE_TIMEOUT", "value": "33", "source": "environment"} in r["settings"]'
	run 0 report_without_rail_to_other_processes_succeeds --json \
		--protocol=local
	holds engine_without_matrix_logs_nothing \
		'"priority_matrix" not in r and not r["log"]'
	run 1 check_of_loopback_alone_warns --check --json --protocol=tcp
	holds each_rail_is_tested_and_verified \
		'len(r["probes"]) == 1 and r["probes"][0]["verified"] and r["probes"][0]["bytes_per_second"] > 0 and F("probe", "ok", "lo")'
	holds loopback_as_only_rail_is_a_warning 'F("rail", "warn")'
	MC_SLICE_TIMEOUT=nonsense "$info" --json >"$tmp/out" 2>/dev/null
	[ $? -eq 2 ]
	ok $? malformed_setting_is_bad
	holds malformed_setting_is_named '"MC_SLICE_TIMEOUT" in F("engine", "bad")[0]["what"]'
}

case_empty()
{
	run 2 host_without_interface_is_bad --check --json
	holds host_without_interface_has_reason_and_cure \
		'not r["rails"] and "lo up" in F("engine", "bad")[0]["cure"] and r["worst"] == "bad"'
	run 0 picture_without_rail_succeeds --svg
	is_xml picture_without_rail_is_xml
}

case_subnet()
{
	ip link set lo up
	veth a0 10.5.0.1/24
	veth a1 10.5.0.2/24
	loose a0 a1
	run 1 two_rails_in_one_subnet_are_a_warning --check --json --no_probe
	holds rail_that_leaves_by_the_other_is_a_warning \
		'len(F("routes", "warn")) == 1 and len(F("routes", "ok")) == 1 and not F("routes", "bad")'
	holds rails_that_answer_arp_for_each_other_are_a_warning 'len(F("arp_flux", "warn")) == 2'
	echo 1 >/proc/sys/net/ipv4/conf/all/rp_filter
	run 2 two_rails_in_one_subnet_with_rp_filter_are_bad --check --json --no_probe
	holds rail_with_rp_filter_is_a_bad_route 'len(F("routes", "bad")) == 1'
	loose a0 a1
	for i in 0 1; do
		echo 1 >"/proc/sys/net/ipv4/conf/a$i/arp_ignore"
		echo 2 >"/proc/sys/net/ipv4/conf/a$i/arp_announce"
		ip rule add from "10.5.0.$((i + 1))" table "10$i" &&
			ip route add 10.5.0.0/24 dev "a$i" table "10$i"
	done
	run 0 subnet_cured_as_told_has_no_finding --check --json --no_probe
	holds routes_cured_as_told_are_fine \
		'len(F("routes", "ok")) == 2 and not F("arp_flux")'
	run 2 peer_without_route_is_bad --check --json --no_probe --peer=10.77.0.1
	holds peer_without_route_is_reached_by_no_rail 'F("peer", "bad", "10.77.0.1")'
	run 0 peer_with_route_is_fine --check --json --no_probe --peer=10.5.0.9
	holds peer_with_route_is_reached_by_both_rails 'len(F("peer", "ok")) == 2'
}

case_overlap()
{
	ip link set lo up
	veth a0 10.5.0.1/24
	veth a1 10.5.0.2/16
	loose a0 a1
	run 1 subnet_inside_that_of_another_rail_is_a_warning \
		--check --json --no_probe
	holds common_addresses_leave_by_the_narrower_subnet \
		'F("routes", "warn", "a1") and F("routes", "ok", "a0")'
	holds rails_of_nested_subnets_answer_arp_for_each_other 'len(F("arp_flux", "warn")) == 2'
	ip addr flush dev a0 && ip addr add 10.5.0.1/32 dev a0
	run 0 address_without_subnet_is_fine --check --json --no_probe
	holds address_without_subnet_has_no_finding \
		'not F("routes", None, "a0") and not F("arp_flux")'
}

# nowhere NAME EXPRESSION: checks that a rail without a route to its own subnet
# is reported as bad, with a cure.
nowhere()
{
	run 2 "$1" --check --json --no_probe
	holds "$1_has_a_cure" "$2"' and not any(u["id"] == "routes" for u in r["not_looked_at"]) and all("no route from" in f["what"] and "ip route replace" in f["cure"] for f in F("routes", "bad"))'
}

case_nowhere()
{
	ip link set lo up
	veth a0 10.5.0.1/24
	run 0 rail_that_reaches_its_subnet_succeeds --check --json --no_probe
	holds rail_that_reaches_its_subnet_is_fine 'F("routes", "ok", "a0") and not F("routes", None, "lo")'
	for kind in blackhole unreachable prohibit; do
		ip route replace "$kind" 10.5.0.0/24
		ip route del 10.5.0.0/24 dev a0 2>/dev/null
		nowhere "subnet_that_is_${kind}_is_bad" 'F("routes", "bad", "a0")'
		ip route del "$kind" 10.5.0.0/24
	done
	nowhere subnet_without_route_is_bad \
		'"10.5.0.0/24 dev a0 src 10.5.0.1" in F("routes", "bad", "a0")[0]["cure"]'
	ip route replace 10.5.0.0/24 dev a0 src 10.5.0.1
	run 0 route_cured_as_told_is_fine --check --json --no_probe
	veth a1 10.5.0.2/24
	loose a0 a1
	ip route flush 10.5.0.0/24
	nowhere two_rails_in_one_subnet_without_route_are_bad \
		'F("routes", "bad", "a0") and F("routes", "bad", "a1")'
	ip route add unreachable 10.5.0.0/24
	nowhere two_rails_in_one_unreachable_subnet_are_bad \
		'F("routes", "bad", "a0") and F("routes", "bad", "a1")'
	ip addr flush dev a1
	ip addr add 10.6.0.1/24 dev a1
	ip route add default via 10.6.0.2
	ip route del unreachable 10.5.0.0/24
	run 1 subnet_of_default_route_exits_with_warning \
		--check --json --no_probe
	holds subnet_of_default_route_is_a_warning \
		'"leave by a1" in F("routes", "warn", "a0")[0]["what"] and F("routes", "ok", "a1")'
}

# Subnets of two addresses, and an address without a subnet.
case_narrow()
{
	ip link set lo up
	veth a0 10.5.0.1/31
	veth a1
	ip addr add 10.6.0.1 peer 10.7.0.1/24 dev a1
	run 0 subnet_of_two_addresses_succeeds --check --json --no_probe
	holds subnet_of_two_addresses_is_checked_and_peer_elsewhere_is_not \
		'F("routes", "ok", "a0") and not F("routes", None, "a1") and {"a0", "a1"} <= {x["name"] for x in r["rails"]}'
	ip route del 10.5.0.0/31
	run 2 subnet_of_two_without_route_exits_with_fault --check --json --no_probe
	holds subnet_of_two_without_route_is_bad 'F("routes", "bad", "a0")'
	ip addr flush dev a0
	ip -6 addr add fd00:5::1/64 dev a0 nodad || {
		echo 'skip - ipv6_subnets: this host has no IPv6'
		return
	}
	export MC_USE_IPV6=1
	run 0 ipv6_check_succeeds --check --json --no_probe
	holds ipv6_subnet_is_fine 'F("routes", "ok", "a0")'
	ip -6 route del fd00:5::/64 dev a0
	run 2 ipv6_subnet_without_route_exits_with_fault --check --json --no_probe
	holds ipv6_subnet_without_route_is_bad \
		'"fd00:5::/64 dev a0" in F("routes", "bad", "a0")[0]["cure"]'
	unset MC_USE_IPV6
}

# A name server that receives queries and never answers.
case_resolver()
{
	ip link set lo up
	veth a0 10.6.0.1/24
	printf 'nameserver 127.0.0.1\noptions timeout:30 attempts:2\n' \
		>"$tmp/resolv"
	mount --bind "$tmp/resolv" /etc/resolv.conf
	ok $? resolv_conf_is_replaced
	"$python" -IS - >"$tmp/pipe" <<-'PYTHON' &
	import os, socket, time
	s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
	s.bind(("127.0.0.1", 53))
	os.write(1, b"up\n")
	os.close(1)
	time.sleep(600)
	PYTHON
	holder=$!
	[ "$(head -n 1 "$tmp/pipe")" = up ]
	ok $? silent_name_server_is_started
	start=$(date +%s)
	run 2 unresolvable_metadata_server_is_bad --check --json \
		--no_probe --metadata_server=zookeeper://moon.test:2181
	[ $(($(date +%s) - start)) -lt 30 ]
	ok $? unresolvable_metadata_server_does_not_delay_the_check
	holds unresolvable_metadata_server_is_a_warning 'F("metadata", "warn", "moon.test:2181")'
	kill "$holder"
}

case_switches()
{
	ip link set lo up
	veth a0 10.6.0.1/24
	for set in 0 no False OFF nonsense; do
		FI_AV_REMOVE_CLEANUP=$set "$info" --check --json --no_probe \
			--provider='tcp;ofi_rxm' >"$tmp/out" 2>/dev/null
		holds "av_remove_cleanup_${set}_is_off" \
			'"FI_AV_REMOVE_CLEANUP='"$set"'" in F("closing", "note", "tcp;ofi_rxm")[0]["what"]'
	done
	for set in 1 yes True ON; do
		FI_AV_REMOVE_CLEANUP=$set "$info" --check --json --no_probe \
			--provider='tcp;ofi_rxm' >"$tmp/out" 2>/dev/null
		holds "av_remove_cleanup_${set}_is_on" \
			'F("closing", "ok", "tcp;ofi_rxm")'
	done
	for set in '' 10000 2000; do
		FI_OFI_RXM_CM_PROGRESS_INTERVAL=$set "$info" --check --json \
			--no_probe --provider='tcp;ofi_rxm' >"$tmp/out" 2>/dev/null
		holds "accept_delay_of_${set:-10000}_us_is_a_note" \
			"'$((${set:-10000} / 1000)) ms' in"' F("connecting", "note", "tcp;ofi_rxm")[0]["what"]'
	done
	for set in '' 4096; do
		FI_OFI_RXM_MSG_RX_SIZE=$set "$info" --check --json --no_probe \
			--provider='tcp;ofi_rxm' >"$tmp/out" 2>/dev/null
		holds "receive_buffers_of_${set:-default}_are_a_note" \
			'"FI_OFI_RXM_MSG_RX_SIZE=1024" in F("buffers", "note", "tcp;ofi_rxm")[0]["cure"]'
	done
	FI_OFI_RXM_MSG_RX_SIZE=1024 "$info" --check --json --no_probe \
		--provider='tcp;ofi_rxm' >"$tmp/out" 2>/dev/null
	holds receive_buffers_of_1024_are_fine \
		'F("buffers", "ok", "tcp;ofi_rxm")'
	for set in 0 100; do
		FI_OFI_RXM_CM_PROGRESS_INTERVAL=$set "$info" --check --json \
			--no_probe --provider='tcp;ofi_rxm' >"$tmp/out" 2>/dev/null
		holds "accept_delay_of_${set}_us_is_fine" \
			'F("connecting", "ok", "tcp;ofi_rxm")'
	done
}

case_down()
{
	ip link set lo up
	veth a0 10.6.0.1/24
	veth a1 10.7.0.1/24
	run 0 two_rails_in_two_subnets_are_fine --check --json --no_probe
	ip link set pa1 down
	run 1 interface_without_carrier_exits_with_warning --check --json --no_probe
	holds interface_without_carrier_is_named \
		'F("link", "warn", "a1") and [x["name"] for x in r["rails"] if x["transport"] == "tcp"] == ["a0"]'
	ip link set a1 down
	run 1 interface_that_is_down_exits_with_warning --check --json --no_probe
	holds interface_that_is_down_has_a_cure \
		'"ip link set a1 up" in F("link", "warn", "a1")[0]["cure"]'
	run 2 only_rail_that_is_down_is_bad --check --json --device_name=a1
	holds engine_without_usable_rail_is_bad 'F("engine", "bad")'
	ip link set dev a0 mtu 1000
	run 1 tiny_mtu_exits_with_warning --check --json --no_probe --device_name=a0
	holds tiny_mtu_is_a_warning 'F("mtu", "warn", "a0")'
}

# Only the NIC is left out whose name cannot be written to a descriptor.
case_names()
{
	odd=$(printf 'x\377')
	ip link set lo up
	veth a0 10.6.0.1/24
	ip link add "$odd" type veth peer name px || {
		echo "skip - nic_with_invalid_name: this kernel refuses it"
		return
	}
	ip link set px up
	ip link set "$odd" up
	ip addr add 10.7.0.1/24 dev "$odd"
	run 0 nic_with_invalid_name_leaves_the_others --check --json --no_probe
	holds nics_with_valid_names_are_rails \
		'[x["name"] for x in r["rails"] if x["transport"] == "tcp"] == ["a0"]'
	holds nic_with_invalid_name_is_logged_once \
		'len([l for l in r["log"] if "x\\xff: name is not UTF-8" in l]) == 1'
	run 2 nic_with_invalid_name_as_only_device_is_bad \
		--check --json --no_probe --device_name="$odd"
	holds nic_with_invalid_name_is_logged_with_the_reason \
		'any("x\\xff: name is not UTF-8" in l for l in r["log"]) and not any("no such device" in l for l in r["log"])'
	"$BUILD/bin/te_bench" --mode=loopback --duration=0.1 >"$tmp/out" 2>&1
	ok $? benchmark_next_to_nic_with_invalid_name_runs
	run 0 text_next_to_nic_with_invalid_name_succeeds
	run 0 picture_next_to_nic_with_invalid_name_succeeds --svg
	is_xml picture_next_to_nic_with_invalid_name_is_xml
}

# tap NAME: creates an interface whose link settings can be set. It has carrier
# until the process $holder is killed.
tap()
{
	ip tuntap add dev "$1" mode tap || return 1
	"$python" -IS - "$1" >"$tmp/pipe" <<-'PYTHON' &
	import fcntl, os, struct, sys, time
	f = os.open("/dev/net/tun", os.O_RDWR)
	TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454ca, 2, 0x1000
	fcntl.ioctl(f, TUNSETIFF, struct.pack("16sH22x", sys.argv[1].encode(),
					      IFF_TAP | IFF_NO_PI))
	os.write(1, b"up\n")
	os.close(1)
	time.sleep(600)
	PYTHON
	holder=$!
	[ "$(head -n 1 "$tmp/pipe")" = up ]
}

# supports NAME BIT MBPS: sets the supported link mode and the rate of a tap.
supports()
{
	"$python" -IS - "$@" <<-'PYTHON'
	import array, fcntl, socket, struct, sys
	name, bit, mbps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
	GLINKSETTINGS, SLINKSETTINGS, SIOCETHTOOL = 0x4c, 0x4d, 0x8946
	s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
	def ask(data):
	    a = array.array("B", data)
	    fcntl.ioctl(s, SIOCETHTOOL, struct.pack("16sQ16x", name.encode(),
	                                            a.buffer_info()[0]))
	    return a.tobytes()
	words = -struct.unpack_from("b", ask(struct.pack("<I", GLINKSETTINGS) +
	                                     bytes(44)), 15)[0]
	masks = bytearray(12 * words)
	struct.pack_into("<I", masks, bit // 32 * 4, 1 << bit % 32)
	ask(struct.pack("<IIBBBBBBBb", SLINKSETTINGS, mbps, 1, 0, 0, 0, 0, 0, 0,
	                words).ljust(48, b"\0") + masks)
	PYTHON
}

case_ethtool()
{
	ip link set lo up
	veth a0 10.6.0.1/24
	ethtool -K a0 tso off gso off tx off >"$tmp/ethtool" 2>&1
	ok $? offloads_are_switched_off
	run 0 link_without_offloads_succeeds --check --json --no_probe
	holds missing_offloads_are_named \
		'"tx_checksum, tso, gso" in F("offloads", "note", "a0")[0]["what"]'
	holds rate_of_the_driver_is_reported \
		'[i["speed_bps"] for i in r["interfaces"] if i["name"] == "a0"] == [1e10]'
	ethtool -K a0 tx on rx off >"$tmp/ethtool" 2>&1
	ok $? receive_checksums_are_switched_off
	run 0 veth_without_receive_checksums_is_fine --check --json --no_probe
	holds veth_without_receive_checksums_has_no_finding \
		'not any("rx_checksum" in f["what"] for f in F("offloads"))'
	# files of a system in which a0 is a NIC
	mkdir -p "$tmp/root/proc" "$tmp/root/sys/class/net/a0/device"
	echo 'DRIVER=none' >"$tmp/root/sys/class/net/a0/device/uevent"
	run 1 nic_without_receive_checksums_exits_with_warning --check --json --no_probe \
		--root="$tmp/root"
	holds nic_without_receive_checksums_is_a_warning \
		'any("rx_checksum" in f["what"] and " rx on" in f["cure"] for f in F("offloads", "warn", "a0"))'
	why=$(ls /dev/net/tun 2>&1) || {
		echo "skip - slow_link: $why"
		return
	}
	tap t0
	ok $? tap_with_carrier_is_created
	ip addr add 10.9.0.1/24 dev t0 && ip link set t0 up &&
		ethtool -s t0 speed 100 duplex half
	ok $? rate_and_half_duplex_are_set
	run 2 half_duplex_exits_with_fault --check --json --no_probe
	holds half_duplex_is_bad 'F("duplex", "bad", "t0")'
	holds low_rate_is_reported \
		'"100 Mbit/s" in F("speed", "warn", "t0")[0]["what"]'
	ethtool -s t0 speed 25000 duplex full
	run 0 fast_link_succeeds --check --json --no_probe
	holds fast_link_has_no_finding \
		'not F("duplex", None, "t0") and not F("speed", None, "t0")'
	supports t0 38 25000		# 100000baseCR4
	ok $? driver_reports_100_gbit_as_supported
	run 1 link_below_supported_rate_exits_with_warning \
		--check --json --no_probe
	holds link_below_supported_rate_is_a_warning \
		'"25 Gbit/s, the port supports 100 Gbit/s" in F("speed", "warn", "t0")[0]["what"]'
	supports t0 31 25000		# 25000baseCR
	run 0 link_at_supported_rate_is_fine --check --json --no_probe
	kill "$holder"
}

case_limits()
{
	ip link set lo up
	veth a0 10.6.0.1/24
	prlimit --memlock=65536:65536 "$info" --check --json --no_probe \
		>"$tmp/out" 2>/dev/null
	[ $? -eq 1 ]
	ok $? small_memlock_limit_is_a_warning
	holds small_memlock_limit_is_reported 'F("memlock", "warn") and "64 KiB" in F("memlock")[0]["what"]'
	# This fails if the hard limit is lower.
	prlimit --memlock=unlimited "$info" --check --json --no_probe \
		>"$tmp/out" 2>/dev/null
	[ ! -s "$tmp/out" ] || holds unlimited_memlock_is_fine \
		'F("memlock", "ok")'
	prlimit --nofile=1000:1000 "$info" --check --json --no_probe \
		--peers=1000 >"$tmp/out" 2>/dev/null
	[ $? -eq 2 ]
	ok $? hard_file_limit_below_need_exits_with_fault
	holds hard_file_limit_below_need_is_bad 'F("open_files", "bad")'
	prlimit --nofile=1000: "$info" --check --json --no_probe \
		--peers=1000 >"$tmp/out" 2>/dev/null
	holds soft_file_limit_below_need_is_a_warning 'F("open_files", "warn")'
	sleep 600 &
	prlimit --pid $! --memlock=4096:4096
	run 1 limits_of_another_process_exit_with_warning --check --json --no_probe --pid=$!
	holds memlock_of_another_process_is_a_warning 'F("memlock", "warn", "pid '$!'")'
	kill $!
}

# A process that has loaded two copies of one library.
case_libraries()
{
	ip link set lo up
	veth a0 10.6.0.1/24
	lib=$(ldd "$info" | sed -n 's/.*libfabric\.so[^ ]* => \([^ ]*\).*/\1/p')
	# the second copy named like a library in a Python wheel
	wheel=$tmp/libfabric-1a2b3c4d.so.1
	for copy in "$tmp/libfabric.so.1" "$wheel"; do
		cp -L "$lib" "$copy"
		"$python" -IS -c 'import ctypes, sys
for p in sys.argv[1:]: ctypes.CDLL(p)
print("ready", flush=True)
sys.stdin.read()' "$lib" "$copy" <"$tmp/pipe" >"$tmp/ready" &
		pid=$!
		exec 8>"$tmp/pipe"
		until [ -s "$tmp/ready" ]; do sleep 0.1; done
		run 2 "process_with_${copy##*/}_is_bad" --check --json \
			--no_probe --pid="$pid"
		exec 8>&-
		wait "$pid"
		rm "$tmp/ready"
		holds two_libfabrics_in_one_process_are_bad \
			'F("libraries", "bad") and "'"$copy"'" in F("libraries")[0]["what"]'
	done
	ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}verify_asan_link_order=0 \
		LD_PRELOAD="$wheel" "$info" --check --json --no_probe \
		>"$tmp/out" 2>/dev/null
	holds hashed_libfabric_is_recognised_in_an_engine \
		'any("'"$wheel"'" in f["what"] for f in F("libraries", "ok"))'
	run 0 one_libfabric_in_a_process_succeeds --check --json --no_probe
	holds one_libfabric_in_a_process_is_fine 'F("libraries", "ok")'
	FI_AV_REMOVE_CLEANUP=1 "$info" --check --json --no_probe \
		--provider='tcp;ofi_rxm' >"$tmp/out" 2>/dev/null
	holds connections_can_be_closed_with_the_variable 'F("closing", "ok")'
	env -u IPATH_NO_BACKTRACE -u HFI_NO_BACKTRACE "$info" --check --json \
		--no_probe >"$tmp/out" 2>/dev/null
	# Only Debian's libfabric is linked to libinfinipath.
	if ldd "$info" | grep -q libinfinipath; then
		holds 'libinfinipath_without_variables_is_a_note' \
			'len(F("handlers")) == 1 and "IPATH_NO_BACKTRACE=1" in F("handlers", "note")[0]["cure"]'
		IPATH_NO_BACKTRACE=1 HFI_NO_BACKTRACE=1 "$info" --check --json \
			--no_probe >"$tmp/out" 2>/dev/null
		holds 'libinfinipath_with_variables_is_fine' \
			'F("handlers", "ok") and not F("handlers", "note")'
	else
		holds 'process_without_libinfinipath_has_no_finding' \
			'not F("handlers")'
	fi
}

# The files of another machine.
case_root()
{
	ip link set lo up
	veth a0 10.6.0.1/24
	r=$tmp/root
	clock=$r/sys/devices/system/clocksource/clocksource0
	cpu=$r/sys/devices/system/cpu/cpu0/cpufreq
	mkdir -p "$clock" "$cpu" "$r/proc/sys/kernel/yama" "$r/proc/self" \
		"$r/sys/fs/cgroup/a/b" "$r/sys/class/iommu/dmar0" \
		"$r/proc/sys/net/core" "$r/proc/sys/net/ipv4"
	echo hpet >"$clock/current_clocksource"
	echo powersave >"$cpu/scaling_governor"
	echo 3 >"$r/proc/sys/kernel/yama/ptrace_scope"
	echo 1 >"$r/proc/sys/kernel/numa_balancing"
	echo '0::/a/b' >"$r/proc/self/cgroup"
	echo max >"$r/sys/fs/cgroup/a/b/memory.max"
	echo 67108864 >"$r/sys/fs/cgroup/a/memory.max"
	echo 'root=/dev/sda' >"$r/proc/cmdline"
	echo 16 >"$r/proc/sys/net/core/somaxconn"
	echo 4096 >"$r/proc/sys/net/core/rmem_max"
	echo '4096 8192 16384' >"$r/proc/sys/net/ipv4/tcp_rmem"
	# enough for any speed: that of a0 is only known while it has a carrier
	echo '4096 65536 33554432' >"$r/proc/sys/net/ipv4/tcp_wmem"
	echo '32768 32800' >"$r/proc/sys/net/ipv4/ip_local_port_range"
	printf 'HugePages_Total:  12\nHugePages_Free: 4\nHugepagesize: 2048 kB\n' \
		>"$r/proc/meminfo"
	# a NIC that has only a link-local address
	veth a1 169.254.3.1/16
	mkdir -p "$r/sys/class/net/a1/device"
	echo 'DRIVER=none' >"$r/sys/class/net/a1/device/uevent"
	run 1 machine_read_from_files_exits_with_warning --check --json --no_probe --root="$r"
	holds clock_cgroup_and_ptrace_of_files_are_found \
		'F("clock", "warn") and F("cgroup", "warn") and F("ptrace", "warn")'
	holds governor_balancing_and_iommu_of_files_are_found \
		'F("governor", "note") and F("numa_balancing", "note") and F("iommu", "note")'
	holds socket_buffers_backlog_and_ports_of_files_are_found \
		'F("socket_buffers", "warn", "tcp_rmem") and F("socket_buffers", "ok", "tcp_wmem") and F("socket_buffers", "warn", "rmem_max") and F("backlog", "warn") and F("ports", "warn")'
	holds huge_pages_of_files_are_fine 'F("huge_pages", "ok")'
	holds nic_without_address_is_a_note \
		'any("ip addr add" in f["cure"] for f in F("link", "note", "a1")) and not F("link", None, "a0") and not F("link", None, "pa1")'
	mkdir "$r/sys/class/net/a1/upper_a0"
	printf 'HugePages_Total:  12\nHugePages_Free: 0\nHugepagesize: 2048 kB\n' \
		>"$r/proc/meminfo"
	echo tsc >"$clock/current_clocksource"
	echo 'iommu=pt' >"$r/proc/cmdline"
	run 1 partly_cured_machine_exits_with_warning --check --json --no_probe --root="$r"
	holds cured_clock_and_iommu_are_fine 'F("clock", "ok") and F("iommu", "ok")'
	holds huge_pages_without_a_free_one_are_a_note \
		'any("none of the 12" in f["what"] for f in F("huge_pages", "note"))'
	holds nic_below_another_interface_is_fine 'not F("link", None, "a1")'
	head -c 100000 /dev/urandom >"$r/proc/meminfo"
	head -c 10000 /dev/urandom >"$r/proc/self/cgroup"
	head -c 10000 /dev/urandom >"$clock/current_clocksource"
	head -c 100 /dev/urandom >"$r/proc/sys/net/core/somaxconn"
	head -c 1000 /dev/urandom >"$r/proc/sys/net/ipv4/tcp_rmem"
	rm -f "$cpu/scaling_governor"
	mkfifo "$cpu/scaling_governor"
	run 1 files_with_noise_do_not_crash_the_check --check --json --no_probe \
		--root="$r"
	holds report_of_noise_is_complete 'r["worst"] == "warn"'
}

# hidden NAME EXPRESSION: runs te_info on the files in $r and checks EXPRESSION.
hidden()
{
	"$info" --check --json --no_probe --root="$r" >"$tmp/out" 2>/dev/null
	holds "$1" "$2"
}

# Memory limits of control groups, versions 1 and 2, from files.
case_cgroup()
{
	ip link set lo up
	r=$tmp/root v1=$r/sys/fs/cgroup/memory
	unseen='"cgroup" in {u["id"] for u in r["not_looked_at"]} and not F("cgroup")'
	mkdir -p "$r/proc/self" "$v1/a/b"
	printf '4:cpu,cpuacct:/c\n3:blkio,memory:/a/b\n0::/\n' \
		>"$r/proc/self/cgroup"
	hidden unreadable_cgroup_is_not_checked "$unseen"
	echo 9223372036854771712 >"$v1/memory.limit_in_bytes"
	cp "$v1/memory.limit_in_bytes" "$v1/a/b/memory.limit_in_bytes"
	hidden cgroup_1_without_limit_is_fine 'F("cgroup", "ok")'
	echo 268435456 >"$v1/a/memory.limit_in_bytes"
	hidden limit_of_cgroup_1_is_reported_with_its_file \
		'F("cgroup", "warn")[0]["what"] == "control group /a is limited to 256 MiB" and "memory.limit_in_bytes" in F("cgroup", "warn")[0]["cure"]'
	echo 134217728 >"$v1/memory.limit_in_bytes"
	printf '3:memory:/gone/b\n' >"$r/proc/self/cgroup"
	hidden limit_of_the_root_in_a_container_is_reported \
		'"group / is limited to 128 MiB" in F("cgroup", "warn")[0]["what"]'
	printf '3:cpu:/a\n2:memory2:/a\n1:name=memory:/a\n0::/\n' \
		>"$r/proc/self/cgroup"
	hidden controllers_without_memory_are_not_checked "$unseen"
	echo 'cpu io memory pids' >"$r/sys/fs/cgroup/cgroup.controllers"
	hidden root_of_cgroup_2_has_no_limit 'F("cgroup", "ok")'
	echo 134217728 >"$r/sys/fs/cgroup/memory.max"
	hidden limit_of_a_container_is_reported \
		'"memory.max" in F("cgroup", "warn")[0]["cure"]'
	echo nonsense >"$r/sys/fs/cgroup/memory.max"
	hidden limit_that_is_no_number_is_not_checked "$unseen"
	rm -r "$r/sys"
	hidden missing_limit_is_not_checked "$unseen"
}

# Settings of /proc/sys that are missing or cannot be read.
case_unread()
{
	ip link set lo up
	r=$tmp/root
	unseen='"ptrace" in {u["id"] for u in r["not_looked_at"]} and not F("ptrace")'
	mkdir -p "$r/proc/self"
	hidden ptrace_without_proc_sys_is_not_checked "$unseen"
	holds network_limits_without_proc_sys_are_not_checked \
		'{"backlog", "numa_balancing", "socket_buffers"} <= {u["id"] for u in r["not_looked_at"]}'
	mkdir -p "$r/proc/sys/kernel"
	echo Linux >"$r/proc/sys/kernel/ostype"
	hidden kernel_without_yama_is_fine 'F("ptrace", "ok")'
	mkdir -p "$r/proc/sys/kernel/yama/ptrace_scope"
	hidden unreadable_ptrace_switch_is_not_checked "$unseen"
	rmdir "$r/proc/sys/kernel/yama/ptrace_scope"
	echo 0 >"$r/proc/sys/kernel/yama/ptrace_scope"
	hidden ptrace_switch_that_is_off_is_fine 'F("ptrace", "ok")'
	echo 1 >"$r/proc/sys/kernel/yama/ptrace_scope"
	hidden ptrace_switch_that_is_on_is_a_note 'F("ptrace", "note")'
}

case_sys()
{
	ip link set lo up
	veth a0 10.6.0.1/24
	mount -t tmpfs none /sys || {
		echo 'skip - empty_sys: no permission to mount'
		return
	}
	run 0 empty_sys_succeeds --check --json
	holds what_empty_sys_hides_is_listed \
		'{"clock", "interfaces", "cgroup"} <= {u["id"] for u in r["not_looked_at"]} and r["probes"][0]["verified"]'
	run 0 picture_of_empty_sys_succeeds --svg
	is_xml picture_of_empty_sys_is_xml
}

case_many()
{
	ip link set lo up
	i=0
	while [ "$i" -lt 150 ]; do
		echo "link add v$i type veth peer name w$i"
		echo "addr add 10.$((100 + i % 100)).$((i / 100)).1/24 dev v$i"
		echo "link set v$i up"
		echo "link set w$i up"
		i=$((i + 1))
	done | ip -batch - || {
		echo 'skip - hundreds_of_interfaces: no permission to create them'
		return
	}
	ip link add "$(printf 'x<&"\377')" type veth peer name "y'&;z"
	run 0 hundreds_of_interfaces_succeed --json --device_name=v0,v1,v2
	holds hundreds_of_interfaces_are_listed \
		'len(r["interfaces"]) >= 301 and len([x for x in r["rails"] if x["transport"] == "tcp"]) == 3'
	holds unusual_interface_names_are_listed \
		'{"x<&\"?", "y'"'"'&;z"} <= {n["name"] for n in r["interfaces"]}'
	run 0 hundreds_of_interfaces_are_printed_as_text --device_name=v0
	run 0 picture_of_hundreds_of_interfaces_succeeds --svg --device_name=v0,v1
	is_xml picture_of_hundreds_of_interfaces_is_xml
}

# door SEGMENT N: forwards N connections from port 17100 to SEGMENT, and closes
# the port.
door()
{
	"$python" -IS - "$1" "$2" >"$tmp/pipe" <<-'PYTHON' &
	import os, select, socket, sys
	host, port = sys.argv[1].rsplit(":", 1)
	s = socket.create_server(("127.0.0.1", 17100))
	os.write(1, b"open\n")
	os.close(1)
	for n in range(int(sys.argv[2]), 0, -1):
	    a = s.accept()[0]
	    n > 1 or s.close()
	    b = socket.create_connection((host, int(port)))
	    other, data = {a: b, b: a}, True
	    while data:
	        for c in select.select([a, b], [], [])[0]:
	            data = c.recv(65536)
	            if not data: break
	            other[c].sendall(data)
	    a.close()
	    b.close()
	PYTHON
	[ "$(head -n 1 "$tmp/pipe")" = open ]
}

case_segment()
{
	ip link set lo up
	veth a0 10.6.0.1/24
	veth a1 10.7.0.1/24
	"$BUILD/bin/te_bench" --mode=target --protocol=tcp \
		--local_server_name=127.0.0.1 --buffer_size=1M \
		>"$tmp/target" 2>"$tmp/target.err" &
	pid=$!
	until [ -s "$tmp/target" ] || ! kill -0 "$pid" 2>/dev/null; do
		sleep 0.1
	done
	name=$(head -n 1 "$tmp/target")
	run 0 published_segment_succeeds --segment="$name" --json
	holds unset_setting_has_source_default \
		'[(s["value"], s["source"]) for s in r["settings"] if s["name"] == "MC_LOG_LEVEL"] == [("warn", "default")]'
	holds descriptor_of_segment_is_reported \
		'len(r["segment"]["devices"]) == 2 and r["segment"]["buffers"][0]["bytes"] == 1 << 20'
	holds owner_of_segment_answers \
		'r["segment"]["owner"]["answers"] and r["segment"]["owner"]["incarnation"] == r["segment"]["incarnation"]'
	holds each_pair_of_rails_answers \
		'len(r["segment"]["pairs"]) == 4 and all(p["answers"] and p["latency_us"] > 0 for p in r["segment"]["pairs"])'
	door "$name" 2
	run 2 process_that_ends_during_the_test_is_bad \
		--segment=127.0.0.1:17100 --json
	holds rails_that_could_not_be_tested_have_reasons \
		'[(p["remote"], p["answers"]) for p in r["segment"]["pairs"]] == [("*", False)] * 2 and all("17100" in p["error"] for p in r["segment"]["pairs"])'
	holds findings_of_untested_rails_have_reasons \
		'len(F("segment_rail", "warn")) == 2 and all("17100" in f["what"] for f in F("segment_rail", "warn"))'
	ip link set pa1 down
	ip addr del 10.7.0.1/24 dev a1
	run 1 segment_with_a_lost_rail_exits_with_warning --segment="$name" --json
	holds lost_rail_of_segment_is_a_warning \
		'F("segment_rail", "warn", "a1") and F("segment_rail", "ok", "a0")'
	kill -9 "$pid"
	wait "$pid" 2>/dev/null
	run 2 segment_of_ended_process_exits_with_fault --segment="$name" --json
	holds segment_of_ended_process_is_bad 'F("segment", "bad")'
	run 2 unknown_segment_is_bad --segment=nonsense
}

case_files()
{
	ip link set lo up
	veth a0 10.6.0.1/24
	mkdir "$tmp/segments"
	export MOONRAIL_SEGMENT_DIR="$tmp/segments"
	head -c 10000 /dev/zero >"$tmp/f"
	head -c 4096 /dev/zero >"$tmp/g"
	"$BUILD/bin/te_meta" --server=here register weights "$tmp/f" "$tmp/g"
	ok $? file_segment_is_registered
	run 0 file_segment_succeeds --segment=nvmeof/weights --json
	holds files_of_file_segment_are_listed \
		'[(f["bytes"], f["offset"], f["mounts"][0]["server"]) for f in r["segment"]["files"]] == [(10000, 0, "here"), (4096, 10000, "here")] and r["segment"]["file_bytes"] == 14096'
	holds file_segment_has_no_owner_and_no_rails \
		'F("segment", "ok") and not F("segment_owner") and not F("segment_rail") and "owner" not in r["segment"]'
	run 0 file_segment_is_printed_as_text --segment=nvmeof/weights
	grep -q "9.8 KiB *$tmp/f\$" "$tmp/out"
	ok $? text_of_file_segment_lists_files
	run 2 unregistered_file_segment_is_bad --segment=nvmeof/none
}

# turns NAME EXPRESSION: checks that the Python expression is true for the list
# r of JSON documents, one per line.
turns()
{
	"$python" -IS - "$tmp/out" "$2" <<-'PYTHON'
	import json, sys
	with open(sys.argv[1], encoding="utf-8") as f:
	    r = [json.loads(line) for line in f]
	good = eval(sys.argv[2])
	if not good:
	    print("# not true: " + sys.argv[2])
	    print("#", r)
	sys.exit(not good)
	PYTHON
	ok $? "$1"
}

# exposition PEER FILE: checks that FILE obeys the rules of the Prometheus text
# format, and that both rails have written bytes to PEER.
exposition()
{
	"$python" -IS - "$@" <<'PYTHON'
import re, sys
seen, kind, last = set(), {}, None
values = {}
for line in open(sys.argv[2]):
    words = line.split()
    if line.startswith('# TYPE'):
        assert words[2] not in kind and words[3] in ('counter', 'gauge'), line
        assert words[2].endswith('_total') == (words[3] == 'counter'), line
        kind[words[2]] = words[3]
        last = words[2]
    elif not line.startswith('# HELP'):
        m = re.fullmatch(r'(\w+)\{((?:\w+="(?:[^"\\\n]|\\[\\"n])*",?)+)\} (\S+)\n', line)
        assert m and m[1] == last and (m[1], m[2]) not in seen, line
        seen.add((m[1], m[2]))
        values.setdefault(m[1], []).append((m[2], float(m[3])))
written = values['moonrail_rail_written_bytes_total']
assert all(v > 0 for k, v in written) and len(written) == 2, written
(labels, value), = values['moonrail_peer_written_bytes_total']
assert 'peer="%s"' % sys.argv[1] in labels and value > 0, labels
up = [k for k, v in values['moonrail_rail_state'] if v == 1]
assert len(up) == 2 and all('state="up"' in k for k in up), up
PYTHON
}

case_watch()
{
	ip link set lo up
	veth a0 10.6.0.1/24
	veth a1 10.7.0.1/24
	"$BUILD/bin/te_bench" --mode=target --protocol=tcp \
		--local_server_name=127.0.0.1 --buffer_size=4M \
		>"$tmp/pipe" 2>"$tmp/target.err" &
	target=$!
	name=$(head -n 1 "$tmp/pipe")
	MC_MIN_RPC_PORT=17000 MC_MAX_RPC_PORT=17000 "$BUILD/bin/te_bench" \
		--protocol=tcp --local_server_name=127.0.0.1 --duration=600 \
		--operation=write --block_size=64K --batch_size=16 \
		--buffer_size=4M --segment_id="$name" >"$tmp/bench" 2>&1 &
	bench=$!
	tries=0
	until "$info" --watch --segment=127.0.0.1:17000 --count=1 --json \
		2>/dev/null | grep -q '"completed":[1-9]'; do
		tries=$((tries + 1))
		if ! kill -0 "$bench" 2>/dev/null || [ "$tries" -gt 300 ]; then
			sed 's/^/# /' "$tmp/bench"
			break
		fi
		sleep 0.1
	done
	run 0 running_process_is_watched --watch --json --count=3 \
		--interval=1 --segment=127.0.0.1:17000
	turns each_output_has_rails_and_peer \
		'len(r) == 3 and all(sorted(x["name"] for x in t["rails"]) == ["a0", "a1"] and t["peers"][0]["name"] == "'"$name"'" for t in r)'
	turns bytes_grow_from_output_to_output \
		'all(a["peers"][0]["tx_bytes"] < b["peers"][0]["tx_bytes"] for a, b in zip(r, r[1:]))'
	turns rates_grow_from_output_to_output \
		'all(sum(x["tx_bytes_per_s"] for x in t["rails"]) > 0 and t["peers"][0]["tx_bytes_per_s"] > 0 for t in r[1:])'
	turns peer_has_a_path_for_each_rail \
		'all(sorted((p["rail"], p["remote_rail"]) for p in t["peers"][0]["paths"]) == [("a0", "a0"), ("a1", "a1")] and all(p["kind"] == "fabric" and p["remote_address"] for p in t["peers"][0]["paths"]) for t in r)'
	turns changes_of_state_are_counted \
		'all(x["state_changes"] == 0 for t in r for x in t["rails"])'
	run 0 watch_prints_text --watch --count=1 --segment=127.0.0.1:17000
	grep -q '^a1 .* up ' "$tmp/out"
	ok $? text_has_a_line_for_each_rail
	awk '$1 == "rail" { for (i = 1; $i != "slices"; i++) if (i > NF) exit 1
			    past = NF - i }
	     $1 == "a0" { slices = $(NF - past) }
	     END { exit !(slices > 0) }' "$tmp/out"
	ok $? lines_of_rails_have_slices
	grep -Eq "^$name .* (a0>a0 a1>a1|a1>a1 a0>a0)\$" "$tmp/out"
	ok $? text_has_a_line_for_each_peer_with_its_path
	run 0 prometheus_output_succeeds --watch --prometheus --count=1 \
		--segment=127.0.0.1:17000
	exposition "$name" "$tmp/out"
	ok $? samples_belong_to_metrics_that_are_declared_once
	tries=0
	until "$info" --watch --segment="$name" --count=1 --json \
		2>/dev/null | grep -q '"served":\[{.*"tx_bytes":[1-9]'; do
		tries=$((tries + 1))
		[ "$tries" -gt 300 ] && break
		sleep 0.1
	done
	run 0 'watch_of_a_target_ends_with_success' --watch --json --count=3 \
		--interval=2 --segment="$name"
	turns 'watch_of_a_target_names_the_initiator' \
		'len(r) == 3 and all([s["name"] for s in t["served"]] == ["127.0.0.1:17000"] and s["incarnation"] != t["incarnation"] for t in r for s in t["served"])'
	turns 'bytes_that_the_target_serves_grow' \
		'r[0]["served"][0]["tx_bytes"] < r[-1]["served"][0]["tx_bytes"] and all(t["served"][0]["rx_bytes"] == 0 for t in r)'
	turns 'rates_that_the_target_serves_are_shown' \
		'any(t["served"][0]["tx_bytes_per_s"] > 0 for t in r[1:]) and all(t["served"][0]["rx_bytes_per_s"] == 0 for t in r)'
	turns 'target_itself_has_moved_nothing' \
		'all(not t["peers"] and all(x["tx_bytes"] == 0 for x in t["rails"]) for t in r)'
	run 0 'watch_of_a_target_as_text' --watch --count=1 --segment="$name"
	grep -Eq '^127.0.0.1:17000 +0.0 +0.0 +[0-9]+ +0$' "$tmp/out"
	ok $? 'text_has_a_line_for_the_initiator'
	run 0 'watch_of_a_target_for_prometheus' --watch --prometheus --count=1 \
		--segment="$name"
	grep -Eq '^moonrail_served_written_bytes_total\{.*peer="127.0.0.1:17000".*\} [1-9]' \
		"$tmp/out"
	ok $? 'prometheus_has_the_bytes_that_the_target_serves'
	kill -9 "$bench"
	wait "$bench" 2>/dev/null
	run 2 watch_of_ended_process_is_bad --watch --segment=127.0.0.1:17000
	kill "$target"
	run 3 watch_without_segment_is_refused --watch
	run 3 count_without_watch_is_refused --count=2
	run 3 prometheus_without_watch_is_refused --prometheus
}

# liar: starts a process at port 17200 that answers with malicious values.
liar()
{
	"$python" -IS - >"$tmp/pipe" <<-'PYTHON' &
	import os, socket, struct
	stats = (b'{"name":"x\xff\x1b[31mRED\x1b]0;pwn\x07\x7f\xc2\x9b2J",'
	         b'"incarnation":"0x1\\u009b","version":"9\\r","time_ns":1e9,'
	         b'"\x1b[1m\xfe\n":{"\\u001bc":[["\x08"]]},"rails":[{"name":'
	         b'"a\\u001b[2J\xff\\"b","transport":"tcp","provider":"p\\nq",'
	         b'"tx_bytes":1e400,"rate":-1e999,"window":1e308,"state":"up"}],'
	         b'"peers":[{"name":"q\\nmoonrail_fake 1","state":"up",'
	         b'"incarnation":"0x2\\"}","tx_bytes":-1e400,"paths":[{"kind":'
	         b'"fabric","rail":"\xff","remote_rail":"b\n"},{"kind":"x",'
	         b'"provider":"\x1b[5m"}]}],"served":[{"name":"s\\n\x1b[2J",'
	         b'"incarnation":"0x3","tx_bytes":1e308,"rx_bytes":"9",'
	         b'"time_ns":-1e999}]}')
	desc = (b'{"name":"127.0.0.1:17200","server_name":"127.0.0.1:17200",'
	        b'"protocol":"tcp","version":1,"incarnation":1,"devices":[{'
	        b'"name":"a","lid":0,"gid":"","provider":"tcp;ofi_rxm",'
	        b'"mr_mode":0,"addr_format":2,"address":'
	        b'"0000000b0000000102009a737f0000010000000000000000"}],'
	        b'"priority_matrix":{"cpu:0\\u009b\\n":[["\\u007f"],[]]},'
	        b'"buffers":[]}')
	pong = struct.pack(">Q", 1)
	def read(c, n):
	    data = b""
	    while len(data) < n:
	        more = c.recv(n - len(data))
	        if not more:
	            return b""
	        data += more
	    return data
	s = socket.create_server(("127.0.0.1", 17200))
	os.write(1, b"open\n")
	os.close(1)
	while True:
	    c = s.accept()[0]
	    while True:
	        head = read(c, 16)
	        if not head:
	            break
	        kind, id, size = struct.unpack(">5xB2xII", head)
	        read(c, size)
	        body = {1: pong, 2: desc, 3: stats}[kind]
	        c.sendall(b"MRcc" + struct.pack(">BBHII", 1, 128 + kind, 0, id,
	                                        len(body)) + body)
	    c.close()
	PYTHON
	pid=$!
	[ "$(head -n 1 "$tmp/pipe")" = open ]
}

# plain NAME: checks that the output is UTF-8 without control characters other
# than newlines.
plain()
{
	"$python" -IS - "$tmp/out" <<-'PYTHON'
	import sys
	text = open(sys.argv[1], "rb").read()
	bad = [c for c in text.decode() if ord(c) in range(127, 160) or
	       ord(c) < 32 and c != "\n"]
	if bad or not text:
	    print("#", text)
	sys.exit(bool(bad) or not text)
	PYTHON
	ok $? "$1"
}

case_liar()
{
	ip link set lo up
	liar
	ok $? process_with_hostile_statistics_is_started
	set -- --watch --segment=127.0.0.1:17200 --count=2 --interval=0.1
	run 0 hostile_statistics_are_watched "$@"
	plain text_of_hostile_statistics_has_no_escapes
	[ "$(wc -l <"$tmp/out")" -eq 16 ]
	ok $? text_of_hostile_statistics_has_no_added_lines
	run 0 hostile_statistics_are_printed_as_json "$@" --json
	plain json_of_hostile_statistics_has_no_escapes
	turns json_of_hostile_statistics_parses_without_nan \
		'len(r) == 2 and all(t["rails"][0]["tx_bytes"] == 0 and t["rails"][0]["rate"] == 0 and t["peers"][0]["tx_bytes"] == 0 and t["rails"][0]["window"] == 1e308 for t in r)'
	run 0 hostile_statistics_are_printed_for_prometheus "$@" --prometheus
	plain prometheus_of_hostile_statistics_has_no_escapes
	! grep -Ev '^# |^moonrail_[a-z_]+\{.*\} -?[0-9.e+]+$' "$tmp/out"
	ok $? prometheus_of_hostile_statistics_has_samples_only
	run 0 segment_with_hostile_descriptor_succeeds --segment=127.0.0.1:17200 --json
	holds matrix_of_hostile_descriptor_has_no_escapes \
		'r["segment"]["priority_matrix"] == {"cpu:0???": [["?"], []]}'
	kill "$pid"
}

# listens KIND: starts a server at port 2181 that never answers (sleep) or
# answers with data of another protocol (noise).
listens()
{
	"$python" -IS - "$1" >"$tmp/pipe" <<-'PYTHON' &
	import os, socket, sys, time
	s = socket.create_server(("127.0.0.1", 2181))
	os.write(1, b"open\n")
	os.close(1)
	while sys.argv[1] == "noise":
	    c = s.accept()[0]
	    c.recv(100)
	    c.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 9)
	    c.close()
	time.sleep(600)
	PYTHON
	pid=$!
	[ "$(head -n 1 "$tmp/pipe")" = open ]
}

case_zookeeper()
{
	built_with ZOOKEEPER absent_zookeeper_servers || return 0
	ip link set lo up
	veth a0 10.6.0.1/24
	# No process listens in this namespace.
	run 2 absent_zookeeper_servers_exit_with_fault --check --json --no_probe \
		--metadata_server=zookeeper://127.0.0.1:2181,127.0.0.1:2182/c
	holds absent_zookeeper_servers_are_named \
		'len(F("metadata", "warn")) == 2 and [s["answers"] for s in r["metadata_servers"]] == [False, False]'
	holds engine_with_absent_servers_is_bad 'F("metadata", "bad")'
	holds rails_with_absent_servers_are_reported \
		'[x["name"] for x in r["rails"] if x["transport"] == "tcp"] == ["a0"]'
	listens sleep
	run 2 silent_zookeeper_server_exits_with_fault \
		--check --json --no_probe \
		--metadata_server=zookeeper://127.0.0.1:2181
	kill "$pid"
	holds silent_zookeeper_server_is_bad \
		'"no session: no answer" in F("metadata", "warn", "127.0.0.1:2181")[0]["what"] and not r["metadata_servers"][0]["answers"]'
	listens noise
	run 2 server_with_another_protocol_exits_with_fault --check --json --no_probe \
		--metadata_server=zookeeper://127.0.0.1:2181
	kill "$pid"
	holds server_with_another_protocol_is_bad \
		'"no session: " in F("metadata", "warn", "127.0.0.1:2181")[0]["what"]'
	run 2 unknown_back_end_is_bad --check --json --no_probe \
		--metadata_server=carrier-pigeon://x
}

# secret_owner SERVER: queries a live process that has a secret, without it.
secret_owner()
{
	echo 'a secret that is long enough' >"$tmp/secret"
	chmod 600 "$tmp/secret"
	MOONRAIL_SECRET_FILE=$tmp/secret "$BUILD/bin/te_bench" --mode=target \
		--protocol=tcp --local_server_name=keeper --buffer_size=1M \
		--metadata_server="$1" >"$tmp/keeper" 2>"$tmp/keeper.err" &
	keeper=$!
	until [ -s "$tmp/keeper" ] || ! kill -0 "$keeper" 2>/dev/null; do
		sleep 0.1
	done
	run 2 segment_with_secret_exits_with_fault --segment=keeper --json \
		--metadata_server="$1"
	holds cure_of_segment_with_secret_is_the_secret \
		'all("MOONRAIL_SECRET_FILE" in f["cure"] for f in r["findings"] if f["grade"] == "bad")'
	kill -9 "$keeper"
	wait "$keeper" 2>/dev/null
}

# folders_open SERVER: the nodes were created without credentials, so that
# everyone may change them.
folders_open()
{
	echo 'moon:secret' >"$tmp/auth"
	chmod 600 "$tmp/auth"
	export MOONRAIL_ZK_AUTH_FILE="$tmp/auth"
	run 2 folders_that_others_may_change_exit_with_fault --check --json --no_probe \
		--metadata_server="$1"
	holds folders_that_others_may_change_are_named_with_cure \
		'any("may change /mooncake" in f["what"] and "setAcl -R /mooncake" in f["cure"] for f in F("metadata", "bad"))'
	run 2 missing_segment_in_open_folders_exits_with_fault --json --segment=nobody \
		--metadata_server="$1"
	holds missing_segment_in_open_folders_names_the_folders \
		'"setAcl -R /mooncake" in F("segment", "bad", "nobody")[0]["cure"]'
	unset MOONRAIL_ZK_AUTH_FILE
}

# zk_nodes: prints the number of nodes that the server reports.
zk_nodes()
{
	"$python" -IS -c 'import socket
s = socket.create_connection(("127.0.0.1", 2181), 5)
s.send(b"srvr")
t = b""
while b := s.recv(4096): t += b
print(t.split(b"Node count: ")[1].split()[0].decode())'
}

case_zookeeper_here()
{
	ip link set lo up
	veth a0 10.6.0.1/24
	sh "$SRC/fabtests/scripts/zk_server.sh" "$tmp/zk" 1 2181 \
		>"$tmp/zk.log" 2>&1 &
	pid=$!
	tries=0
	until "$python" -IS -c 'import socket
s = socket.create_connection(("127.0.0.1", 2181), 1)
s.send(b"srvr"); assert b"Mode" in s.recv(4096)' 2>/dev/null; do
		tries=$((tries + 1))
		if ! kill -0 "$pid" 2>/dev/null || [ "$tries" -gt 300 ]; then
			echo "skip - zookeeper_server: $(tail -n 1 "$tmp/zk.log")"
			return
		fi
		sleep 0.2
	done
	nodes=$(zk_nodes)
	run 1 one_answering_server_of_two_exits_with_warning --check --json --no_probe \
		--metadata_server=zookeeper://127.0.0.1:2181,127.0.0.1:2182
	holds silent_server_of_two_is_a_warning \
		'F("metadata", "ok", "127.0.0.1:2181") and F("metadata", "warn", "127.0.0.1:2182") and not F("metadata", "bad")'
	run 2 missing_segment_in_zookeeper_exits_with_fault --segment=nobody --json \
		--metadata_server=zookeeper://127.0.0.1:2181
	holds missing_segment_in_zookeeper_is_bad 'F("segment", "bad", "nobody")'
	[ -n "$nodes" ] && [ "$(zk_nodes)" = "$nodes" ]
	ok $? look_up_leaves_no_node_behind
	secret_owner zookeeper://127.0.0.1:2181
	folders_open zookeeper://127.0.0.1:2181
	kill "$pid"
}

# gpu_target KIND: starts a target with GPU memory of a substitute driver, and,
# if KIND is mixed, with host memory above it. Prints its name to $tmp/pipe.
gpu_target()
{
	LD_LIBRARY_PATH=$BUILD/test:$LD_LIBRARY_PATH \
		"$python" -IS - "$1" >"$tmp/pipe" 2>"$tmp/target.err" <<-'PYTHON' &
	import ctypes as c, os, sys, time
	assert not c.CDLL("libcuda.so.1").cuInit(0)
	t = c.CDLL("libmoonrail.so.0")
	t.createTransferEngine.restype = c.c_void_p
	e = c.c_void_p(t.createTransferEngine(b"P2PHANDSHAKE", b"127.0.0.1", b"", 0, 1))
	host = c.create_string_buffer(1 << 20)
	assert sys.argv[1] != "mixed" or not t.registerLocalMemory(
	    e, host, c.c_size_t(1 << 20), b"*", 1)
	m = c.create_string_buffer(4096)
	assert not t.te_alloc(e, c.c_size_t(1 << 20), b"cuda:0", 0, m, c.c_size_t(16))
	name = c.create_string_buffer(128)
	assert not t.getLocalIpAndPort(e, name, c.c_size_t(128))
	os.write(1, name.value + b"\n")
	os.close(1)
	time.sleep(600)
	PYTHON
	pid=$!
	name=$(head -n 1 "$tmp/pipe")
}

case_gpu()
{
	ip link set lo up
	veth a0 10.6.0.1/24
	[ -e "$BUILD/test/libcuda.so.1" ] || {
		echo 'skip - segment_with_gpu_memory: no stand-in driver'
		return
	}
	[ "${SANITIZE:-no}" = no ] || {
		echo 'skip - segment_with_gpu_memory: Python cannot load a library with sanitizers'
		return
	}
	for kind in alone mixed; do
		gpu_target "$kind"
		[ -n "$name" ] || {
			sed 's/^/# /' "$tmp/target.err"
			ok 1 "target_with_gpu_memory_${kind}_starts"
			return
		}
		run 0 "segment_with_gpu_memory_${kind}_is_fine" --segment="$name" --json
		kill -9 "$pid"
		wait "$pid" 2>/dev/null
		holds gpu_buffer_is_the_first_of_the_segment \
			'r["segment"]["buffers"][0]["location"] == "cuda:0" and r["segment"]["buffers"][0]["reached_by"].startswith("memory")'
		[ "$kind" = mixed ] || holds gpu_memory_is_read_by_no_rail \
			'not r["segment"]["pairs"] and any("GPU memory only" in u["reason"] for u in r["not_looked_at"])'
	done
	holds host_memory_next_to_gpu_memory_is_read \
		'len(r["segment"]["buffers"]) == 2 and F("segment_rail", "ok", "a0") and all(p["answers"] for p in r["segment"]["pairs"])'
}

# built_with WORD TITLE: prints a skip unless config.h defines TEI_HAVE_WORD.
built_with()
{
	grep -q "TEI_HAVE_$1 " "$BUILD/../config.h" && return
	echo "skip - $2: built with --disable-$(echo "$1" | tr '[:upper:]' '[:lower:]')"
	return 1
}

case_topology()
{
	built_with HWLOC pictures_of_topologies || return 0
	for xml in "$SRC"/topo/testdata/*.xml; do
		run 0 "picture_of_${xml##*/}_succeeds" --svg --topology="$xml"
		is_xml picture_of_topology_is_xml
	done
	head -c 3000 "$SRC/topo/testdata/gpu8-nic8.xml" >"$tmp/cut.xml"
	run 3 truncated_topology_is_refused --svg --topology="$tmp/cut.xml"
	run 3 missing_topology_is_refused --svg --topology="$tmp/none.xml"
	head -c 3000 /dev/urandom >"$tmp/noise.xml"
	run 3 topology_of_noise_is_refused --svg --topology="$tmp/noise.xml"
}

# becomes NAME EXPRESSION: like holds, but waits until the kernel has applied
# the change.
becomes()
{
	before=$failed tries=0
	while
		failed=$before
		"$info" --check --json --no_probe >"$tmp/out" 2>/dev/null
		holds "$1" "$2" >"$tmp/held"
		grep -q '^not ok' "$tmp/held" && [ "$tries" -lt 5 ]
	do
		tries=$((tries + 1))
		sleep 1
	done
	cat "$tmp/held"
}

# For a virtual machine with rails 0 and 1 of run_in_vm.sh.
case_rdma()
{
	export MC_GID_INDEX=99		# no GID has this index; 0 is link-local
	becomes port_with_ip_gid_is_fine \
		'F("rdma_port", "ok", "rxe0") and F("gid", "ok", "rxe0")'
	export MC_GID_INDEX=0
	ip addr flush dev ve1 scope global
	becomes port_with_link_local_gids_only_is_a_warning \
		'F("gid", "warn", "rxe1") and F("gid", "ok", "rxe0")'
	ip link set ve0 down
	becomes port_that_is_down_is_a_warning 'F("rdma_port", "warn", "rxe0")'
}

# ----------------------------------------------------------------------------

if [ "${1:-}" = rdma ]; then
	case_rdma
	exit "$failed"
elif [ $# -gt 0 ]; then
	"case_$1"
	exit "$failed"
fi

# in_namespaces CASE: runs CASE in new namespaces, with its own folder, fifo
# and log.
in_namespaces()
{
	mkdir "$tmp/$1" && mkfifo "$tmp/$1/pipe" || exit 1
	tmp=$tmp/$1 unshare -nm --propagation private sh "$0" case "$1" \
		>"$tmp/$1.log" 2>&1 9>&- || echo "$1" >>"$tmp/failed"
}

# together CASE…: runs the cases concurrently, because each waits half of the time. At
# most four cases run at a time. With more, te_info could reach its time limits on a
# busy machine. The pipe has one line for each case that may start.
together()
{
	for c; do
		read -r _ <&9
		{ in_namespaces "$c"; echo >&9; } &
	done
	wait
	for c; do
		cat "$tmp/$c.log"
	done
}

case_options
case_topology
if why=$(unshare -nm true 2>&1); then
	mkfifo "$tmp/places" && exec 9<>"$tmp/places" || exit
	printf '\n\n\n\n' >&9
	together loopback subnet overlap nowhere narrow down names ethtool
	together resolver switches
	together empty limits libraries many root cgroup unread gpu files
	together segment sys watch liar zookeeper zookeeper_here
else
	echo "skip - te_info_in_namespaces: no network namespaces: $why"
fi
[ ! -s "$tmp/failed" ] || failed=1
exit "$failed"
