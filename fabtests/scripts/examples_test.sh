#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# Runs the programs of api/examples as their users would.
set -u
: "${BUILD:?}" "${SRC:?}"
# With the default, each endpoint of ofi_rxm has receive buffers of 70 megabytes, which
# take longer to allocate than a test runs.
export FI_OFI_RXM_MSG_RX_SIZE=1024
examples=$BUILD/examples
tmp=$(mktemp -d)
waiting='' server=''
bad=0

end_waiting()
{
	exec 3>&-
	[ -z "$waiting" ] || kill "$waiting" 2>/dev/null
	waiting=''
	rm -f "$tmp/in"
}
trap 'end_waiting; [ -z "$server" ] || kill -KILL "$server"; rm -rf "$tmp"' EXIT

# check TITLE COMMAND…: runs COMMAND and prints "ok" or "not ok".
check()
{
	title=$1
	shift
	if "$@" >"$tmp/out" 2>&1; then
		echo "ok - $title"
	else
		cat "$tmp/out"
		echo "not ok - $title"
		bad=1
	fi
	end_waiting
}

# start PROGRAM [ARGUMENT…]: starts a program in the background, with its stdin
# open as descriptor 3. Sets name to its first line of output.
start()
{
	mkfifo "$tmp/in" || return 1
	: >"$tmp/waiting"
	program=$1
	shift
	"$examples/$program" "$@" <"$tmp/in" >"$tmp/waiting" 2>"$tmp/stderr" &
	waiting=$!
	exec 3>"$tmp/in"
	name=''
	while [ -z "$name" ]; do
		kill -0 "$waiting" 2>/dev/null ||
			{ cat "$tmp/stderr"; return 1; }
		name=$(sed -n 1p "$tmp/waiting")
		[ -n "$name" ] || sleep 0.05
	done
}

# finish TEXT: ends the waiting program. Succeeds if it exits with 0 and has
# printed TEXT.
finish()
{
	(echo >&3) 2>/dev/null
	wait "$waiting" || { cat "$tmp/stderr"; return 1; }
	waiting=''
	cat "$tmp/waiting"
	grep -q "$1" "$tmp/waiting"
}

hello()
{
	start target && "$examples/initiator" "$name" &&
		finish 'begins with "hello from an initiator"'
}

no_target()
{
	! "$examples/initiator" 127.0.0.1:1 2>"$tmp/why" &&
		grep '^openSegment: .*[a-z]' "$tmp/why"
}

events()
{
	start target && "$examples/event_loop" "$name" >"$tmp/events" || return 1
	cat "$tmp/events"
	grep -q '^64 of 64 batches completed' "$tmp/events" && finish memory
}

notified()
{
	start notify && "$examples/notify" "$name" &&
		finish '^written: one line, .*"a line that came first"'
}

scattered()
{
	start target && "$examples/scatter_gather" "$name" >"$tmp/column" ||
		return 1
	cat "$tmp/column"
	grep -q '^15 14 13 .* 2 1 0$' "$tmp/column" && finish memory
}

exchanged()
{
	"$examples/own_exchange" >"$tmp/exchanged" || return 1
	cat "$tmp/exchanged"
	grep -q '^the target has "no name was needed"$' "$tmp/exchanged"
}

# Tests target and initiator with a ZooKeeper server. The port is free if the
# target can use the server; otherwise another port is tried. The target registers
# the name "initiator", so the initiators must not register that name.
cluster()
{
	tries=0
	until [ -n "$server" ] && kill -0 "$server" 2>/dev/null &&
	      start target initiator "zookeeper://127.0.0.1:$port/examples"; do
		end_waiting
		tries=$((tries + 1))
		[ "$tries" -lt 60 ] || return 1
		if [ -z "$server" ] || ! kill -0 "$server" 2>/dev/null; then
			port=$((20000 + ($$ * 7 + tries * 131) % 12000))
			sh "$SRC/fabtests/scripts/zk_server.sh" "$tmp/zk" 1 \
				"$port" </dev/null &
			server=$!
		fi
		sleep 0.5
	done
	"$examples/initiator" initiator \
		"zookeeper://127.0.0.1:$port/examples" &&
		finish 'begins with "hello from an initiator"'
}

short()
{
	for file in "$SRC"/api/examples/*.c; do
		lines=$(wc -l <"$file")
		if [ "$lines" -ge 150 ]; then
			echo "$file has $lines lines"
			return 1
		fi
	done
}

# Each example compiles as strict C11; it defines the POSIX macros it needs.
strict()
{
	for file in "$SRC"/api/examples/*.c; do
		# shellcheck disable=SC2086 # a command with its arguments
		${CC:-cc} -std=c11 -pedantic -Wall -Wextra -Werror \
			-I"$SRC/api" -fsyntax-only "$file" || return 1
	done
}

check initiator_writes_to_target hello
check initiator_without_target_names_the_cause no_target
check event_loop_completes_batches events
check notify_receives_the_notification notified
check own_exchange_moves_bytes exchanged
check scatter_gather_moves_pieces scattered
if ! grep -q TEI_HAVE_ZOOKEEPER "$BUILD/../config.h"; then
	echo 'skip - initiator_finds_target_in_zookeeper: built with --disable-zookeeper'
elif command -v java >/dev/null && [ -e /usr/share/java/zookeeper.jar ]; then
	check initiator_finds_target_in_zookeeper cluster
else
	echo 'skip - initiator_finds_target_in_zookeeper: no java or no zookeeper'
fi
check examples_have_less_than_150_lines short
check examples_compile_as_plain_c11 strict
exit "$bad"
