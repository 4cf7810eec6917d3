#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# timeout: 400
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
	run 0 'help' --help
	run 0 'version' --version
	run 3 'an unknown option' --nonsense
	run 3 'an unknown transport' --protocol=carrier-pigeon
	run 3 'a number out of range' --peers=0 --check
	run 3 'options that exclude each other' --svg --json
	run 3 'a file that cannot be written' --output=/nonexistent/x
	run 3 'a peer that is no address' --check --no_probe --peer=foo
	grep -q 'peer=foo: no IP address' "$tmp/err"
	ok $? 'which is said'
	run 3 'one of two' --check --no_probe --peer=127.0.0.1,10.0.0.300
	run 3 'a process that is not there' --check --no_probe --pid=999999999
	grep -q 'pid=999999999: no such process' "$tmp/err"
	ok $? 'which is said too'
	run 3 'a root that is not there' --check --no_probe --root=/nonexistent
	grep -q 'root=/nonexistent: .*No such file' "$tmp/err"
	ok $? 'with the reason'
	run 3 'a root without /proc' --check --no_probe --root="$tmp"
	"$info" --help >/dev/full 2>/dev/null
	[ $? -eq 3 ]
	ok $? 'a full disk is an error'
}

case_loopback()
{
	ip link set lo up
	run 0 'a report' --protocol=tcp
	grep -q '^  lo .*tcp' "$tmp/out" &&
		grep -q 'MC_SLICE_TIMEOUT *10 *default' "$tmp/out"
	ok $? 'rails, and settings with their source'
	grep -q '^  GPU memory: through pinned host memory' "$tmp/out"
	ok $? 'what way GPU memory goes'
	# The shm provider of libfabric 1.17 offers FI_HMEM.
	! grep -q '^moonrail .* libfabric 1.17,' "$tmp/out" ||
		grep -q '^  shm .* hmem' "$tmp/out"
	ok $? 'who offers to take device memory'
	MC_SLICE_TIMEOUT=33 "$info" --json >"$tmp/out" 2>/dev/null
	holds 'a setting from the environment' \
		'{"name": "MC_SLICE_TIMEOUT", "value": "33", "source": "environment"} in r["settings"]'
	run 0 'an engine without a rail to other processes' --json \
		--protocol=local
	holds 'has no matrix, which is nothing to log' \
		'"priority_matrix" not in r and not r["log"]'
	run 1 'a check of loopback alone warns' --check --json --protocol=tcp
	holds 'each rail is tried and verified' \
		'len(r["probes"]) == 1 and r["probes"][0]["verified"] and r["probes"][0]["bytes_per_second"] > 0 and F("probe", "ok", "lo")'
	holds 'no other rail is a warning' 'F("rail", "warn")'
	MC_SLICE_TIMEOUT=nonsense "$info" --json >"$tmp/out" 2>/dev/null
	[ $? -eq 2 ]
	ok $? 'a malformed setting is bad'
	holds 'and is named' '"MC_SLICE_TIMEOUT" in F("engine", "bad")[0]["what"]'
}

case_empty()
{
	run 2 'no interface is up: bad' --check --json
	holds 'the reason and the cure' \
		'not r["rails"] and "lo up" in F("engine", "bad")[0]["cure"] and r["worst"] == "bad"'
	run 0 'a picture without a rail' --svg
	is_xml 'it is one'
}

case_subnet()
{
	ip link set lo up
	veth a0 10.5.0.1/24
	veth a1 10.5.0.2/24
	loose a0 a1
	run 1 'two rails in one subnet: a warning' --check --json --no_probe
	holds 'one leaves by the other' \
		'len(F("routes", "warn")) == 1 and len(F("routes", "ok")) == 1 and not F("routes", "bad")'
	holds 'both answer ARP' 'len(F("arp_flux", "warn")) == 2'
	echo 1 >/proc/sys/net/ipv4/conf/all/rp_filter
	run 2 'with rp_filter it does not work' --check --json --no_probe
	holds 'which is bad' 'len(F("routes", "bad")) == 1'
	loose a0 a1
	for i in 0 1; do
		echo 1 >"/proc/sys/net/ipv4/conf/a$i/arp_ignore"
		echo 2 >"/proc/sys/net/ipv4/conf/a$i/arp_announce"
		ip rule add from "10.5.0.$((i + 1))" table "10$i" &&
			ip route add 10.5.0.0/24 dev "a$i" table "10$i"
	done
	run 0 'cured as the findings say' --check --json --no_probe
	holds 'both are fine' \
		'len(F("routes", "ok")) == 2 and not F("arp_flux")'
	run 2 'a peer without a route' --check --json --no_probe --peer=10.77.0.1
	holds 'no rail reaches it' 'F("peer", "bad", "10.77.0.1")'
	run 0 'a peer with a route' --check --json --no_probe --peer=10.5.0.9
	holds 'both rails reach it' 'len(F("peer", "ok")) == 2'
}

case_overlap()
{
	ip link set lo up
	veth a0 10.5.0.1/24
	veth a1 10.5.0.2/16
	loose a0 a1
	run 1 'a subnet within that of another rail: a warning' \
		--check --json --no_probe
	holds 'what both have leaves by the narrower' \
		'F("routes", "warn", "a1") and F("routes", "ok", "a0")'
	holds 'both answer ARP there' 'len(F("arp_flux", "warn")) == 2'
	ip addr flush dev a0 && ip addr add 10.5.0.1/32 dev a0
	run 0 'one address is no subnet' --check --json --no_probe
	holds 'of which nothing is told' \
		'not F("routes", None, "a0") and not F("arp_flux")'
}

# nowhere NAME EXPRESSION: checks that a rail without a route to its own subnet
# is reported as bad, with a cure.
nowhere()
{
	run 2 "$1" --check --json --no_probe
	holds "$1: told, with a cure" "$2"' and not any(u["id"] == "routes" for u in r["not_looked_at"]) and all("no route from" in f["what"] and "ip route replace" in f["cure"] for f in F("routes", "bad"))'
}

case_nowhere()
{
	ip link set lo up
	veth a0 10.5.0.1/24
	run 0 'a rail that reaches its subnet' --check --json --no_probe
	holds 'is fine' 'F("routes", "ok", "a0") and not F("routes", None, "lo")'
	for kind in blackhole unreachable prohibit; do
		ip route replace "$kind" 10.5.0.0/24
		ip route del 10.5.0.0/24 dev a0 2>/dev/null
		nowhere "a subnet that is $kind" 'F("routes", "bad", "a0")'
		ip route del "$kind" 10.5.0.0/24
	done
	nowhere 'a subnet without a route' \
		'"10.5.0.0/24 dev a0 src 10.5.0.1" in F("routes", "bad", "a0")[0]["cure"]'
	ip route replace 10.5.0.0/24 dev a0 src 10.5.0.1
	run 0 'cured as the finding says' --check --json --no_probe
	veth a1 10.5.0.2/24
	loose a0 a1
	ip route flush 10.5.0.0/24
	nowhere 'two rails in one subnet without a route' \
		'F("routes", "bad", "a0") and F("routes", "bad", "a1")'
	ip route add unreachable 10.5.0.0/24
	nowhere 'two rails in one that is unreachable' \
		'F("routes", "bad", "a0") and F("routes", "bad", "a1")'
	ip addr flush dev a1
	ip addr add 10.6.0.1/24 dev a1
	ip route add default via 10.6.0.2
	ip route del unreachable 10.5.0.0/24
	run 1 'a subnet that is left to the default route' \
		--check --json --no_probe
	holds 'is a warning' \
		'"leave by a1" in F("routes", "warn", "a0")[0]["what"] and F("routes", "ok", "a1")'
}

# Subnets of two addresses, and an address without a subnet.
case_narrow()
{
	ip link set lo up
	veth a0 10.5.0.1/31
	veth a1
	ip addr add 10.6.0.1 peer 10.7.0.1/24 dev a1
	run 0 'a subnet of two' --check --json --no_probe
	holds 'is looked at; a peer elsewhere makes no subnet' \
		'F("routes", "ok", "a0") and not F("routes", None, "a1") and {"a0", "a1"} <= {x["name"] for x in r["rails"]}'
	ip route del 10.5.0.0/31
	run 2 'one without a route' --check --json --no_probe
	holds 'is bad' 'F("routes", "bad", "a0")'
	ip addr flush dev a0
	ip -6 addr add fd00:5::1/64 dev a0 nodad || {
		echo 'skip - routes of IPv6: there is none'
		return
	}
	export MC_USE_IPV6=1
	run 0 'IPv6' --check --json --no_probe
	holds 'likewise' 'F("routes", "ok", "a0")'
	ip -6 route del fd00:5::/64 dev a0
	run 2 'IPv6 without a route' --check --json --no_probe
	holds 'is bad too' \
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
	ok $? 'a resolv.conf of our own'
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
	ok $? 'a name server'
	start=$(date +%s)
	run 2 'a metadata server whose name nobody knows' --check --json \
		--no_probe --metadata_server=zookeeper://moon.test:2181
	[ $(($(date +%s) - start)) -lt 30 ]
	ok $? 'does not wait for the resolver'
	holds 'is a warning' 'F("metadata", "warn", "moon.test:2181")'
	kill "$holder"
}

case_switches()
{
	ip link set lo up
	veth a0 10.6.0.1/24
	for set in 0 no False OFF nonsense; do
		FI_AV_REMOVE_CLEANUP=$set "$info" --check --json --no_probe \
			--provider='tcp;ofi_rxm' >"$tmp/out" 2>/dev/null
		holds "FI_AV_REMOVE_CLEANUP=$set is off" \
			'"FI_AV_REMOVE_CLEANUP='"$set"'" in F("closing", "note", "tcp;ofi_rxm")[0]["what"]'
	done
	for set in 1 yes True ON; do
		FI_AV_REMOVE_CLEANUP=$set "$info" --check --json --no_probe \
			--provider='tcp;ofi_rxm' >"$tmp/out" 2>/dev/null
		holds "FI_AV_REMOVE_CLEANUP=$set is on" \
			'F("closing", "ok", "tcp;ofi_rxm")'
	done
	for set in '' 10000 2000; do
		FI_OFI_RXM_CM_PROGRESS_INTERVAL=$set "$info" --check --json \
			--no_probe --provider='tcp;ofi_rxm' >"$tmp/out" 2>/dev/null
		holds "connections accepted every ${set:-10000} us" \
			"'$((${set:-10000} / 1000)) ms' in"' F("connecting", "note", "tcp;ofi_rxm")[0]["what"]'
	done
	for set in '' 4096; do
		FI_OFI_RXM_MSG_RX_SIZE=$set "$info" --check --json --no_probe \
			--provider='tcp;ofi_rxm' >"$tmp/out" 2>/dev/null
		holds "receive buffers of ${set:-the default number} are many" \
			'"FI_OFI_RXM_MSG_RX_SIZE=1024" in F("buffers", "note", "tcp;ofi_rxm")[0]["cure"]'
	done
	FI_OFI_RXM_MSG_RX_SIZE=1024 "$info" --check --json --no_probe \
		--provider='tcp;ofi_rxm' >"$tmp/out" 2>/dev/null
	holds 'receive buffers of 1024 are few' \
		'F("buffers", "ok", "tcp;ofi_rxm")'
	for set in 0 100; do
		FI_OFI_RXM_CM_PROGRESS_INTERVAL=$set "$info" --check --json \
			--no_probe --provider='tcp;ofi_rxm' >"$tmp/out" 2>/dev/null
		holds "and every $set us" \
			'F("connecting", "ok", "tcp;ofi_rxm")'
	done
}

case_down()
{
	ip link set lo up
	veth a0 10.6.0.1/24
	veth a1 10.7.0.1/24
	run 0 'two rails in two subnets are fine' --check --json --no_probe
	ip link set pa1 down
	run 1 'no carrier' --check --json --no_probe
	holds 'is told of the interface' \
		'F("link", "warn", "a1") and [x["name"] for x in r["rails"] if x["transport"] == "tcp"] == ["a0"]'
	ip link set a1 down
	run 1 'an interface down' --check --json --no_probe
	holds 'and its cure' \
		'"ip link set a1 up" in F("link", "warn", "a1")[0]["cure"]'
	run 2 'the only rail is down' --check --json --device_name=a1
	holds 'the engine says so' 'F("engine", "bad")'
	ip link set dev a0 mtu 1000
	run 1 'a tiny MTU' --check --json --no_probe --device_name=a0
	holds 'is a warning' 'F("mtu", "warn", "a0")'
}

# Only the NIC is left out whose name cannot be written to a descriptor.
case_names()
{
	odd=$(printf 'x\377')
	ip link set lo up
	veth a0 10.6.0.1/24
	ip link add "$odd" type veth peer name px || {
		echo "skip - a NIC by an odd name: this kernel has none"
		return
	}
	ip link set px up
	ip link set "$odd" up
	ip addr add 10.7.0.1/24 dev "$odd"
	run 0 'a NIC by an odd name leaves the others' --check --json --no_probe
	holds 'which are rails' \
		'[x["name"] for x in r["rails"] if x["transport"] == "tcp"] == ["a0"]'
	holds 'and is told of, once' \
		'len([l for l in r["log"] if "x\\xff: name is not UTF-8" in l]) == 1'
	run 2 'nor does it carry when it is the only one asked for' \
		--check --json --no_probe --device_name="$odd"
	holds 'and the log says why' \
		'any("x\\xff: name is not UTF-8" in l for l in r["log"]) and not any("no such device" in l for l in r["log"])'
	"$BUILD/bin/te_bench" --mode=loopback --duration=0.1 >"$tmp/out" 2>&1
	ok $? 'engines of a benchmark are made'
	run 0 'text'
	run 0 'a picture' --svg
	is_xml 'is one'
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
	ok $? 'offloads are switched off'
	run 0 'a link without offloads' --check --json --no_probe
	holds 'they are named' \
		'"tx_checksum, tso, gso" in F("offloads", "note", "a0")[0]["what"]'
	holds 'its rate is as the driver says' \
		'[i["speed_bps"] for i in r["interfaces"] if i["name"] == "a0"] == [1e10]'
	ethtool -K a0 tx on rx off >"$tmp/ethtool" 2>&1
	ok $? 'and checksums of what comes in'
	run 0 'a veth leaves those to its other end' --check --json --no_probe
	holds 'which is not told' \
		'not any("rx_checksum" in f["what"] for f in F("offloads"))'
	# files of a system in which a0 is a NIC
	mkdir -p "$tmp/root/proc" "$tmp/root/sys/class/net/a0/device"
	echo 'DRIVER=none' >"$tmp/root/sys/class/net/a0/device/uevent"
	run 1 'a NIC that does not check them' --check --json --no_probe \
		--root="$tmp/root"
	holds 'is a warning' \
		'any("rx_checksum" in f["what"] and " rx on" in f["cure"] for f in F("offloads", "warn", "a0"))'
	why=$(ls /dev/net/tun 2>&1) || {
		echo "skip - te_info at a slow link: $why"
		return
	}
	tap t0
	ok $? 'an interface with carrier'
	ip addr add 10.9.0.1/24 dev t0 && ip link set t0 up &&
		ethtool -s t0 speed 100 duplex half
	ok $? 'a rate and half duplex are set'
	run 2 'half duplex is bad' --check --json --no_probe
	holds 'it is told' 'F("duplex", "bad", "t0")'
	holds 'so is the rate' \
		'"100 Mbit/s" in F("speed", "warn", "t0")[0]["what"]'
	ethtool -s t0 speed 25000 duplex full
	run 0 'a fast one is fine' --check --json --no_probe
	holds 'nothing is told' \
		'not F("duplex", None, "t0") and not F("speed", None, "t0")'
	supports t0 38 25000		# 100000baseCR4
	ok $? 'its driver says that it supports 100 Gbit/s'
	run 1 'a link that runs at less than its port supports' \
		--check --json --no_probe
	holds 'is a warning' \
		'"25 Gbit/s, the port supports 100 Gbit/s" in F("speed", "warn", "t0")[0]["what"]'
	supports t0 31 25000		# 25000baseCR
	run 0 'one that runs at that is fine' --check --json --no_probe
	kill "$holder"
}

case_limits()
{
	ip link set lo up
	veth a0 10.6.0.1/24
	prlimit --memlock=65536:65536 "$info" --check --json --no_probe \
		>"$tmp/out" 2>/dev/null
	[ $? -eq 1 ]
	ok $? 'a small memlock limit warns'
	holds 'memlock' 'F("memlock", "warn") and "64 KiB" in F("memlock")[0]["what"]'
	# This fails if the hard limit is lower.
	prlimit --memlock=unlimited "$info" --check --json --no_probe \
		>"$tmp/out" 2>/dev/null
	[ ! -s "$tmp/out" ] || holds 'no memlock limit is fine' \
		'F("memlock", "ok")'
	prlimit --nofile=1000:1000 "$info" --check --json --no_probe \
		--peers=1000 >"$tmp/out" 2>/dev/null
	[ $? -eq 2 ]
	ok $? 'a hard limit on files below what is needed is bad'
	holds 'open files' 'F("open_files", "bad")'
	prlimit --nofile=1000: "$info" --check --json --no_probe \
		--peers=1000 >"$tmp/out" 2>/dev/null
	holds 'a soft limit only warns' 'F("open_files", "warn")'
	sleep 600 &
	prlimit --pid $! --memlock=4096:4096
	run 1 'the limits of another process' --check --json --no_probe --pid=$!
	holds 'its memlock' 'F("memlock", "warn", "pid '$!'")'
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
		run 2 "a process with ${copy##*/} too" --check --json \
			--no_probe --pid="$pid"
		exec 8>&-
		wait "$pid"
		rm "$tmp/ready"
		holds 'two libfabrics in one process are bad' \
			'F("libraries", "bad") and "'"$copy"'" in F("libraries")[0]["what"]'
	done
	ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}verify_asan_link_order=0 \
		LD_PRELOAD="$wheel" "$info" --check --json --no_probe \
		>"$tmp/out" 2>/dev/null
	holds 'that name is known in an engine of its own' \
		'any("'"$wheel"'" in f["what"] for f in F("libraries", "ok"))'
	run 0 'one is not' --check --json --no_probe
	holds 'it is named' 'F("libraries", "ok")'
	FI_AV_REMOVE_CLEANUP=1 "$info" --check --json --no_probe \
		--provider='tcp;ofi_rxm' >"$tmp/out" 2>/dev/null
	holds 'connections can be closed with the switch' 'F("closing", "ok")'
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
	run 1 'another machine by its files' --check --json --no_probe --root="$r"
	holds 'clock, cgroup, ptrace' \
		'F("clock", "warn") and F("cgroup", "warn") and F("ptrace", "warn")'
	holds 'governor, balancing, IOMMU' \
		'F("governor", "note") and F("numa_balancing", "note") and F("iommu", "note")'
	holds 'socket buffers, backlog, ports' \
		'F("socket_buffers", "warn", "tcp_rmem") and F("socket_buffers", "ok", "tcp_wmem") and F("socket_buffers", "warn", "rmem_max") and F("backlog", "warn") and F("ports", "warn")'
	holds 'huge pages' 'F("huge_pages", "ok")'
	holds 'a NIC without an address is a note' \
		'any("ip addr add" in f["cure"] for f in F("link", "note", "a1")) and not F("link", None, "a0") and not F("link", None, "pa1")'
	mkdir "$r/sys/class/net/a1/upper_a0"
	printf 'HugePages_Total:  12\nHugePages_Free: 0\nHugepagesize: 2048 kB\n' \
		>"$r/proc/meminfo"
	echo tsc >"$clock/current_clocksource"
	echo 'iommu=pt' >"$r/proc/cmdline"
	run 1 'the same, cured in part' --check --json --no_probe --root="$r"
	holds 'is fine there' 'F("clock", "ok") and F("iommu", "ok")'
	holds 'huge pages of which none is free are a note' \
		'any("none of the 12" in f["what"] for f in F("huge_pages", "note"))'
	holds 'a NIC below another interface is fine' 'not F("link", None, "a1")'
	head -c 100000 /dev/urandom >"$r/proc/meminfo"
	head -c 10000 /dev/urandom >"$r/proc/self/cgroup"
	head -c 10000 /dev/urandom >"$clock/current_clocksource"
	head -c 100 /dev/urandom >"$r/proc/sys/net/core/somaxconn"
	head -c 1000 /dev/urandom >"$r/proc/sys/net/ipv4/tcp_rmem"
	rm -f "$cpu/scaling_governor"
	mkfifo "$cpu/scaling_governor"
	run 1 'files full of noise do not crash it' --check --json --no_probe \
		--root="$r"
	holds 'and the report is whole' 'r["worst"] == "warn"'
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
	hidden 'a group of which nothing can be read is not looked at' "$unseen"
	echo 9223372036854771712 >"$v1/memory.limit_in_bytes"
	cp "$v1/memory.limit_in_bytes" "$v1/a/b/memory.limit_in_bytes"
	hidden 'version 1 without a limit is fine' 'F("cgroup", "ok")'
	echo 268435456 >"$v1/a/memory.limit_in_bytes"
	hidden 'its limit is told, with its file' \
		'F("cgroup", "warn")[0]["what"] == "control group /a is limited to 256 MiB" and "memory.limit_in_bytes" in F("cgroup", "warn")[0]["cure"]'
	echo 134217728 >"$v1/memory.limit_in_bytes"
	printf '3:memory:/gone/b\n' >"$r/proc/self/cgroup"
	hidden 'that of the root as a container sees it too' \
		'"group / is limited to 128 MiB" in F("cgroup", "warn")[0]["what"]'
	printf '3:cpu:/a\n2:memory2:/a\n1:name=memory:/a\n0::/\n' \
		>"$r/proc/self/cgroup"
	hidden 'other controllers do not limit memory' "$unseen"
	echo 'cpu io memory pids' >"$r/sys/fs/cgroup/cgroup.controllers"
	hidden 'the root of version 2 has no limit' 'F("cgroup", "ok")'
	echo 134217728 >"$r/sys/fs/cgroup/memory.max"
	hidden 'that of a container has' \
		'"memory.max" in F("cgroup", "warn")[0]["cure"]'
	echo nonsense >"$r/sys/fs/cgroup/memory.max"
	hidden 'what is no number is not looked at' "$unseen"
	rm -r "$r/sys"
	hidden 'nor what is not there' "$unseen"
}

# Settings of /proc/sys that are missing or cannot be read.
case_unread()
{
	ip link set lo up
	r=$tmp/root
	unseen='"ptrace" in {u["id"] for u in r["not_looked_at"]} and not F("ptrace")'
	mkdir -p "$r/proc/self"
	hidden 'without /proc/sys nothing is known of ptrace' "$unseen"
	holds 'nor of the rest' \
		'{"backlog", "numa_balancing", "socket_buffers"} <= {u["id"] for u in r["not_looked_at"]}'
	mkdir -p "$r/proc/sys/kernel"
	echo Linux >"$r/proc/sys/kernel/ostype"
	hidden 'a kernel without Yama is fine' 'F("ptrace", "ok")'
	mkdir -p "$r/proc/sys/kernel/yama/ptrace_scope"
	hidden 'a switch that cannot be read' "$unseen"
	rmdir "$r/proc/sys/kernel/yama/ptrace_scope"
	echo 0 >"$r/proc/sys/kernel/yama/ptrace_scope"
	hidden 'one that is off is fine' 'F("ptrace", "ok")'
	echo 1 >"$r/proc/sys/kernel/yama/ptrace_scope"
	hidden 'one that is on is a note' 'F("ptrace", "note")'
}

case_sys()
{
	ip link set lo up
	veth a0 10.6.0.1/24
	mount -t tmpfs none /sys || {
		echo 'skip - an empty /sys: no right to mount'
		return
	}
	run 0 'an empty /sys' --check --json
	holds 'what could not be looked at is listed' \
		'{"clock", "interfaces", "cgroup"} <= {u["id"] for u in r["not_looked_at"]} and r["probes"][0]["verified"]'
	run 0 'its picture' --svg
	is_xml 'is one'
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
		echo 'skip - hundreds of interfaces: no right to make them'
		return
	}
	ip link add "$(printf 'x<&"\377')" type veth peer name "y'&;z"
	run 0 'hundreds of interfaces' --json --device_name=v0,v1,v2
	holds 'all are listed' \
		'len(r["interfaces"]) >= 301 and len([x for x in r["rails"] if x["transport"] == "tcp"]) == 3'
	holds 'strange names too' \
		'{"x<&\"?", "y'"'"'&;z"} <= {n["name"] for n in r["interfaces"]}'
	run 0 'as text' --device_name=v0
	run 0 'as a picture' --svg --device_name=v0,v1
	is_xml 'which is one'
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
	run 0 'a published segment' --segment="$name" --json
	holds 'a setting that nobody made is a default' \
		'[(s["value"], s["source"]) for s in r["settings"] if s["name"] == "MC_LOG_LEVEL"] == [("warn", "default")]'
	holds 'its descriptor' \
		'len(r["segment"]["devices"]) == 2 and r["segment"]["buffers"][0]["bytes"] == 1 << 20'
	holds 'its owner answers' \
		'r["segment"]["owner"]["answers"] and r["segment"]["owner"]["incarnation"] == r["segment"]["incarnation"]'
	holds 'each pair of rails answers' \
		'len(r["segment"]["pairs"]) == 4 and all(p["answers"] and p["latency_us"] > 0 for p in r["segment"]["pairs"])'
	door "$name" 2
	run 2 'a process that is gone during the look' \
		--segment=127.0.0.1:17100 --json
	holds 'each rail tells that it could not be tried, and why' \
		'[(p["remote"], p["answers"]) for p in r["segment"]["pairs"]] == [("*", False)] * 2 and all("17100" in p["error"] for p in r["segment"]["pairs"])'
	holds 'and so do the findings' \
		'len(F("segment_rail", "warn")) == 2 and all("17100" in f["what"] for f in F("segment_rail", "warn"))'
	ip link set pa1 down
	ip addr del 10.7.0.1/24 dev a1
	run 1 'one of its rails is gone' --segment="$name" --json
	holds 'which is told' \
		'F("segment_rail", "warn", "a1") and F("segment_rail", "ok", "a0")'
	kill -9 "$pid"
	wait "$pid" 2>/dev/null
	run 2 'its process is gone' --segment="$name" --json
	holds 'which is bad' 'F("segment", "bad")'
	run 2 'a name that never was' --segment=nonsense
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
	ok $? 'files are registered'
	run 0 'a segment of files is fine' --segment=nvmeof/weights --json
	holds 'they are listed' \
		'[(f["bytes"], f["offset"], f["mounts"][0]["server"]) for f in r["segment"]["files"]] == [(10000, 0, "here"), (4096, 10000, "here")] and r["segment"]["file_bytes"] == 14096'
	holds 'nobody owns it, and it has no rails' \
		'F("segment", "ok") and not F("segment_owner") and not F("segment_rail") and "owner" not in r["segment"]'
	run 0 'as text' --segment=nvmeof/weights
	grep -q "9.8 KiB *$tmp/f\$" "$tmp/out"
	ok $? 'likewise'
	run 2 'one that was never registered' --segment=nvmeof/none
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
	run 0 'a running process is watched' --watch --json --count=3 \
		--interval=1 --segment=127.0.0.1:17000
	turns 'each turn has its rails and its peer' \
		'len(r) == 3 and all(sorted(x["name"] for x in t["rails"]) == ["a0", "a1"] and t["peers"][0]["name"] == "'"$name"'" for t in r)'
	turns 'bytes grow from turn to turn' \
		'all(a["peers"][0]["tx_bytes"] < b["peers"][0]["tx_bytes"] for a, b in zip(r, r[1:]))'
	turns 'and so are the rates' \
		'all(sum(x["tx_bytes_per_s"] for x in t["rails"]) > 0 and t["peers"][0]["tx_bytes_per_s"] > 0 for t in r[1:])'
	turns 'a peer has a path for each rail' \
		'all(sorted((p["rail"], p["remote_rail"]) for p in t["peers"][0]["paths"]) == [("a0", "a0"), ("a1", "a1")] and all(p["kind"] == "fabric" and p["remote_address"] for p in t["peers"][0]["paths"]) for t in r)'
	turns 'changes of state are counted' \
		'all(x["state_changes"] == 0 for t in r for x in t["rails"])'
	run 0 'as text' --watch --count=1 --segment=127.0.0.1:17000
	grep -q '^a1 .* up ' "$tmp/out"
	ok $? 'a line for each rail'
	awk '$1 == "rail" { for (i = 1; $i != "slices"; i++) if (i > NF) exit 1
			    past = NF - i }
	     $1 == "a0" { slices = $(NF - past) }
	     END { exit !(slices > 0) }' "$tmp/out"
	ok $? 'with its slices'
	grep -Eq "^$name .* (a0>a0 a1>a1|a1>a1 a0>a0)\$" "$tmp/out"
	ok $? 'a line for each peer, with its path'
	run 0 "as Prometheus's text" --watch --prometheus --count=1 \
		--segment=127.0.0.1:17000
	exposition "$name" "$tmp/out"
	ok $? 'every sample is of a metric that is named once, and of one kind'
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
	run 2 'a process that has gone' --watch --segment=127.0.0.1:17000
	kill "$target"
	run 3 'nobody to watch' --watch
	run 3 'turns of nothing' --count=2
	run 3 'figures of nothing' --prometheus
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
	ok $? 'a process that tells of itself what it likes'
	set -- --watch --segment=127.0.0.1:17200 --count=2 --interval=0.1
	run 0 'is watched' "$@"
	plain 'its text has no escapes'
	[ "$(wc -l <"$tmp/out")" -eq 16 ]
	ok $? 'nor lines of its own'
	run 0 'as JSON' "$@" --json
	plain 'likewise'
	turns 'which parses, and has no number that is none' \
		'len(r) == 2 and all(t["rails"][0]["tx_bytes"] == 0 and t["rails"][0]["rate"] == 0 and t["peers"][0]["tx_bytes"] == 0 and t["rails"][0]["window"] == 1e308 for t in r)'
	run 0 "as Prometheus's text" "$@" --prometheus
	plain 'likewise'
	! grep -Ev '^# |^moonrail_[a-z_]+\{.*\} -?[0-9.e+]+$' "$tmp/out"
	ok $? 'has samples alone, with numbers'
	run 0 'its segment' --segment=127.0.0.1:17200 --json
	holds 'has a matrix without escapes' \
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
	built_with ZOOKEEPER 'absent ZooKeeper servers' || return 0
	ip link set lo up
	veth a0 10.6.0.1/24
	# No process listens in this namespace.
	run 2 'ZooKeeper servers that are away' --check --json --no_probe \
		--metadata_server=zookeeper://127.0.0.1:2181,127.0.0.1:2182/c
	holds 'each is named' \
		'len(F("metadata", "warn")) == 2 and [s["answers"] for s in r["metadata_servers"]] == [False, False]'
	holds 'an engine cannot use them' 'F("metadata", "bad")'
	holds 'the rails are there all the same' \
		'[x["name"] for x in r["rails"] if x["transport"] == "tcp"] == ["a0"]'
	listens sleep
	run 2 'a ZooKeeper server that takes connections and never answers' \
		--check --json --no_probe \
		--metadata_server=zookeeper://127.0.0.1:2181
	kill "$pid"
	holds 'is none' \
		'"no session: no answer" in F("metadata", "warn", "127.0.0.1:2181")[0]["what"] and not r["metadata_servers"][0]["answers"]'
	listens noise
	run 2 'one that answers with something else' --check --json --no_probe \
		--metadata_server=zookeeper://127.0.0.1:2181
	kill "$pid"
	holds 'is none either' \
		'"no session: " in F("metadata", "warn", "127.0.0.1:2181")[0]["what"]'
	run 2 'a back end that is unknown' --check --json --no_probe \
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
	run 2 'a segment whose process has a secret' --segment=keeper --json \
		--metadata_server="$1"
	holds 'the secret is the cure, not a new start' \
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
	run 2 'folders that others may change' --check --json --no_probe \
		--metadata_server="$1"
	holds 'are named, with the cure' \
		'any("may change /mooncake" in f["what"] and "setAcl -R /mooncake" in f["cure"] for f in F("metadata", "bad"))'
	run 2 'a segment that is not in them' --json --segment=nobody \
		--metadata_server="$1"
	holds 'names them as well' \
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
			echo "skip - a ZooKeeper server: $(tail -n 1 "$tmp/zk.log")"
			return
		fi
		sleep 0.2
	done
	nodes=$(zk_nodes)
	run 1 'one ZooKeeper server of two answers' --check --json --no_probe \
		--metadata_server=zookeeper://127.0.0.1:2181,127.0.0.1:2182
	holds 'which is a warning' \
		'F("metadata", "ok", "127.0.0.1:2181") and F("metadata", "warn", "127.0.0.1:2182") and not F("metadata", "bad")'
	run 2 'a segment that is not there' --segment=nobody --json \
		--metadata_server=zookeeper://127.0.0.1:2181
	holds 'is told' 'F("segment", "bad", "nobody")'
	[ -n "$nodes" ] && [ "$(zk_nodes)" = "$nodes" ]
	ok $? 'a look leaves no node behind'
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
		echo 'skip - a segment of GPU memory: no driver that stands in'
		return
	}
	[ "${SANITIZE:-no}" = no ] || {
		echo 'skip - a segment of GPU memory: python can not load a library with sanitizers'
		return
	}
	for kind in alone mixed; do
		gpu_target "$kind"
		[ -n "$name" ] || {
			sed 's/^/# /' "$tmp/target.err"
			ok 1 "a target with GPU memory, $kind"
			return
		}
		run 0 "GPU memory, $kind, is fine" --segment="$name" --json
		kill -9 "$pid"
		wait "$pid" 2>/dev/null
		holds 'it is the first' \
			'r["segment"]["buffers"][0]["location"] == "cuda:0" and r["segment"]["buffers"][0]["reached_by"].startswith("memory")'
		[ "$kind" = mixed ] || holds 'no rail reads it' \
			'not r["segment"]["pairs"] and any("GPU memory only" in u["reason"] for u in r["not_looked_at"])'
	done
	holds 'host memory beside it is read' \
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
	built_with HWLOC 'pictures of topologies' || return 0
	for xml in "$SRC"/topo/testdata/*.xml; do
		run 0 "a picture of ${xml##*/}" --svg --topology="$xml"
		is_xml 'is one'
	done
	head -c 3000 "$SRC/topo/testdata/gpu8-nic8.xml" >"$tmp/cut.xml"
	run 3 'a topology cut short' --svg --topology="$tmp/cut.xml"
	run 3 'a topology that is not there' --svg --topology="$tmp/none.xml"
	head -c 3000 /dev/urandom >"$tmp/noise.xml"
	run 3 'noise' --svg --topology="$tmp/noise.xml"
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
	becomes 'a port with a GID that is an IP address is fine' \
		'F("rdma_port", "ok", "rxe0") and F("gid", "ok", "rxe0")'
	export MC_GID_INDEX=0
	ip addr flush dev ve1 scope global
	becomes 'a port with link-local GIDs only is a warning' \
		'F("gid", "warn", "rxe1") and F("gid", "ok", "rxe0")'
	ip link set ve0 down
	becomes 'a port that is down is another' 'F("rdma_port", "warn", "rxe0")'
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
		>"$tmp/$1.log" 2>&1 || echo "$1" >>"$tmp/failed"
}

# together CASE…: runs the cases concurrently, because they mostly wait.
together()
{
	for c; do
		in_namespaces "$c" &
	done
	wait
	for c; do
		cat "$tmp/$c.log"
	done
}

case_options
case_topology
if why=$(unshare -nm true 2>&1); then
	together loopback subnet overlap nowhere narrow down names ethtool
	together resolver switches
	together empty limits libraries many root cgroup unread gpu files
	together segment sys watch liar zookeeper zookeeper_here
else
	echo "skip - te_info among interfaces: no network namespaces: $why"
fi
[ ! -s "$tmp/failed" ] || failed=1
exit "$failed"
