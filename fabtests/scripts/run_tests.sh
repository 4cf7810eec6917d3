#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# run_tests.sh PATTERNS TEST[=SECONDS]…
#
# Runs the tests whose names contain one of PATTERNS ("": all tests), JOBS of them
# at the same time (default: one per CPU, at most 4). The tests named in FIRST are
# started first, in the order of FIRST, because they take the longest. The tests
# named in ALONE run afterwards, one after the other, because they measure times or
# shares, or use resources of the whole machine. Before these tests, the command
# BEFORE_ALONE runs, which may wait until the machine is idle. With SANITIZE=yes the
# tests named in PLAIN are skipped. A test is a program or a shell script; a script
# may have a line "# timeout: N" near its top. Exit status 0 is a pass, 77 is a
# skip (the last line of output is the reason), and all others, including a
# timeout, are failures. Each line "ok - NAME", "not ok - NAME" and
# "skip - NAME: REASON" that a test prints counts as one case. A test that prints
# no such line counts as one case.
#
# The result of a test is printed when the test ends. For a failed test, the lines
# that show the failure are printed, then the end of its log. At the end all these
# lines are printed again, so that a truncated log still shows the failures.
#
# BUILD and SRC are exported to the tests; logs go to BUILD/test-logs. The last
# line is "N passed, N failed, N skipped". The exit status is 1 if a case failed,
# or if none passed (with MAY_SKIP=yes: if none passed or was skipped).
set -u

patterns=$1
shift
: "${BUILD:?}" "${SRC:?}"
export BUILD SRC
# libfabric allocates and clears 18 MB of receive buffers for each tcp;ofi_rxm endpoint.
# With huge pages this takes a quarter of the time, because there are fewer page
# faults, and the tests create thousands of endpoints. malloc() of glibc asks for huge
# pages with this setting; an older glibc and a kernel without them ignore it.
: "${GLIBC_TUNABLES=glibc.malloc.hugetlb=1}"
export GLIBC_TUNABLES
# A test may run this script itself, with its own tests.
longest=${FIRST:-} before_alone=${BEFORE_ALONE:-:}
unset FIRST BEFORE_ALONE
jobs=${JOBS:-}
if [ -z "$jobs" ]; then
	jobs=$(nproc 2>/dev/null || echo 1)
	[ "$jobs" -le 4 ] || jobs=4
fi
case $jobs in
0*|*[!0-9]*) echo "JOBS is a number from 1 on, not '$jobs'" >&2; exit 2 ;;
esac
logs=$BUILD/test-logs
mkdir -p "$logs"
skips=$logs/skips
fails=$logs/fails
: >"$skips"
: >"$fails"
passed=0 failed=0 skipped=0
running=''		# " PID=NAME" of each test's shell
free=$jobs

# The shells of the tests write a line to this pipe when their test has ended. The
# pipe is at its end if no shell has it open.
tmp=$(mktemp -d) || exit
trap 'rm -rf "$tmp"' EXIT
mkfifo "$tmp/ended" || exit
exec 3<>"$tmp/ended"
exec 4<"$tmp/ended"
exec 3>&-

# Sanitized programs are slow.
slower=1
sanitized=''
if [ "${SANITIZE:-no}" = yes ]; then
	slower=3
	sanitized="sh $SRC/fabtests/scripts/sanitized.sh"
fi

# Ends the shells of the running tests. Each shell kills its test.
stop_running()
{
	for one in $running; do
		kill -TERM "${one%%=*}" 2>/dev/null
	done
	wait
	exit 1
}
trap 'stop_running' HUP INT TERM

wanted()
{
	[ -n "$patterns" ] || return 0
	for pattern in $patterns; do
		case $1 in
		*"$pattern"*) return 0 ;;
		esac
	done
	return 1
}

# small_buffers NAME: in a build with a sanitizer, reduces libfabric's receive
# buffers for the test NAME, because the malloc() of a sanitizer cannot request
# huge pages. Messages of more than 4 KiB then take libfabric's protocol for large
# messages, which the tests without a sanitizer do not use. The tests of the provider are excluded, because tcp;ofi_rxm of libfabric
# 1.17 itself, with which they compare, fails some cases with smaller buffers.
small_buffers()
{
	case ${SANITIZE:-no}:$1 in
	no:*|*:ft_fi_*) ;;
	*)	: "${FI_OFI_RXM_BUFFER_SIZE=4096}"
		export FI_OFI_RXM_BUFFER_SIZE ;;
	esac
}

limit_of()
{
	limit=${2:-}
	case $1 in
	*.sh) [ -n "$limit" ] || limit=$(sed -n \
		'1,20s/^# timeout: \([0-9]\{1,\}\).*/\1/p' "$1") ;;
	esac
	echo $((${limit:-300} * slower))
}

# run_one NAME FILE SECONDS: runs a test in a shell of its own, which writes "NAME
# STATUS BEGUN SECONDS" to the pipe at the end. timeout(1) makes a process group
# for the test; processes that remain in the group afterwards are killed.
run_one()
{
	name=$1 seconds=$3 begun=$(date +%s) group='' stopped=''
	small_buffers "$name"
	case $2 in
	*.sh) set -- sh "$2" ;;
	*) set -- "$2" ;;
	esac
	trap 'stopped=yes' HUP INT TERM
	# shellcheck disable=SC2086
	timeout -k 5 "$seconds" $sanitized "$@" </dev/null \
		>"$logs/$name.log" 2>&1 3>&- &
	group=$!
	trap 'stop_one; exit 1' HUP INT TERM
	[ -z "$stopped" ] || { stop_one; exit 1; }
	wait "$group"
	status=$?
	kill -s KILL -- "-$group" 2>/dev/null
	echo "$name $status $begun $seconds" >&3
}

# Kills the test, also if timeout(1) has not made the process group yet.
stop_one()
{
	kill -s KILL -- "-$group" 2>/dev/null || kill -KILL "$group" 2>/dev/null
}

count()
{
	grep -c "$1" "$2" || :
}

# tally NAME STATUS SECONDS LOG: counts the cases of a test.
tally()
{
	ok=$(count '^ok - ' "$4")
	bad=$(count '^not ok - ' "$4")
	left=$(count '^skip - ' "$4")
	sed -n 's/^skip - //p' "$4" | sed "s|^|$1: |" >>"$skips"
	why=''
	case $2 in
	0)	[ $((ok + bad + left)) -gt 0 ] || ok=1 ;;
	77)	if [ "$left" -eq 0 ]; then
			left=1
			printf '%s: %s\n' "$1" "$(tail -n 1 "$4")" >>"$skips"
		fi ;;
	124|137) bad=$((bad + 1)) why="ended after $3 s, its limit" ;;
	*)	[ "$bad" -gt 0 ] || { bad=1; why="exit status $2"; } ;;
	esac
	passed=$((passed + ok))
	failed=$((failed + bad))
	skipped=$((skipped + left))
}

# reasons LOG: prints why a test failed: how it ended, and its lines of failed
# checks, sanitizers and assertions.
reasons()
{
	[ -z "$why" ] || printf '%s\n' "$why"
	grep -aE -e '^not ok - ' -e '(Address|Leak|Thread)Sanitizer' \
		-e 'runtime error:' -e '[Aa]ssert' "$1" | head -n 40 || :
}

# log_end LOG: prints the end of a log. Consecutive lines of the library that
# differ only in numbers are printed once, with their count.
log_end()
{
	tail -n 2000 "$1" | awk '
	function say() {
		if (n > 1)
			printf "%s (%d like it)\n", line, n
		else if (n)
			print line
	}
	{
		key = $0
		gsub(/0x[0-9a-f]+|[0-9]+/, "#", key)
		if (n && key == last && $2 ~ /^moonrail\[/) {
			n++
			next
		}
		say()
		line = $0
		last = key
		n = 1
	}
	END { say() }' | tail -n 200
}

# report NAME START LOG: prints the result of a test.
report()
{
	took=$(($(date +%s) - $2))
	if [ "$bad" -gt 0 ]; then
		printf 'FAIL  %-24s %s s  %s\n' "$1" "$took" "$why"
		reasons "$3" | sed "s|^|$1: |" | tee -a "$fails" |
			sed 's/^/      /'
		printf -- '----- the end of %s\n' "$3"
		log_end "$3"
		printf -- '-----\n'
	elif [ "$ok" -gt 0 ]; then
		printf 'PASS  %-24s %s s  %s cases\n' "$1" "$took" "$ok"
	else
		printf 'SKIP  %-24s %s s\n' "$1" "$took"
	fi
}

# start NAME FILE SECONDS: waits for a free job and starts the test.
start()
{
	[ "$free" -gt 0 ] || await
	stopped=''
	trap 'stopped=yes' HUP INT TERM
	exec 3>"$tmp/ended"
	(exec 4<&-; run_one "$@") &
	running="$running $!=$1"
	trap 'stop_running' HUP INT TERM
	[ -z "$stopped" ] || stop_running
	free=$((free - 1))
	exec 3>&-
}

# await: waits until a test has ended, and reports it. If a shell ended without
# a line in the pipe, it was killed.
await()
{
	if read -r name status begun seconds <&4; then
		log=$logs/$name.log
		tally "$name" "$status" "$seconds" "$log"
		report "$name" "$begun" "$log"
		forget "$name"
		return
	fi
	for one in $running; do
		name=${one#*=}
		tally "$name" unknown 0 "$logs/$name.log"
		report "$name" "$(date +%s)" "$logs/$name.log"
		forget "$name"
	done
}

forget()
{
	left=''
	for one in $running; do
		[ "${one#*=}" = "$1" ] || left="$left $one"
	done
	running=$left
	free=$((free + 1))
}

alone()
{
	case " ${ALONE:-} " in
	*" $1 "*) return 0 ;;
	esac
	return 1
}

# plain NAME: succeeds if the test must be skipped because the library was
# built with a sanitizer.
plain()
{
	[ "${SANITIZE:-no}" = yes ] || return 1
	case " ${PLAIN:-} " in
	*" $1 "*) return 0 ;;
	esac
	return 1
}

# skip_plain NAME: counts a skipped test.
skip_plain()
{
	printf 'SKIP  %-24s 0 s\n' "$1"
	printf '%s: it finds nothing more in a library with sanitizers\n' \
		"$1" >>"$skips"
	skipped=$((skipped + 1))
}

# kind NAME: sets kind to "alone", to NAME if FIRST has it, or to "rest".
kind()
{
	kind=rest
	case " $longest " in
	*" $1 "*) kind=$1 ;;
	esac
	! alone "$1" || kind=alone
}

# start_those KIND TEST…: starts the tests of this kind.
start_those()
{
	those=$1
	shift
	for test; do
		file=${test%=*}
		own=''
		[ "$file" = "$test" ] || own=${test##*=}
		name=${file##*/}
		name=${name%.sh}
		wanted "$name" || continue
		kind "$name"
		[ "$kind" = "$those" ] || continue
		! plain "$name" || { skip_plain "$name"; continue; }
		start "$name" "$file" "$(limit_of "$file" "$own")"
	done
}

await_all()
{
	while [ -n "$running" ]; do
		await
	done
}

for first in $longest; do
	start_those "$first" "$@"
done
start_those rest "$@"
await_all
free=1
sh -c "$before_alone" </dev/null || {
	echo "BEFORE_ALONE: exit status $?" >>"$fails"
	failed=$((failed + 1))
}
start_those alone "$@"
await_all

if [ -s "$skips" ]; then
	printf '\nSkipped:\n'
	sed 's/^/  /' "$skips"
fi
if [ -s "$fails" ]; then
	printf '\nFailed:\n'
	sed 's/^/  /' "$fails"
fi
printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
[ "${MAY_SKIP:-no}" = no ] || passed=$((passed + skipped))
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
