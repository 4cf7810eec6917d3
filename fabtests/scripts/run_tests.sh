#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# run_tests.sh PATTERNS TEST[=SECONDS]…
#
# Runs the tests, those whose name holds one of PATTERNS ("": all), JOBS of them
# at a time (if that is empty one for each CPU, but no more than 4), and then
# those named in ALONE one after the other: they look at time, at shares, or at
# what all of the machine has. A test is a program, or a shell script that may
# say "# timeout: N" near its top. Exit 0 is a pass, 77 a skip (its last line is
# the reason), anything else, a timeout included, a failure. Each "ok - NAME",
# "not ok - NAME" and "skip - NAME: REASON" line that a test prints counts as
# one; a test that prints none counts as one itself.
#
# A test is spoken of when it ends. Of a failed test the lines that say so are
# printed, then the end of its log, and all such lines again when all is over: a
# log that was cut off somewhere still shows what failed.
#
# BUILD (logs go to BUILD/test-logs) and SRC are handed on to the tests. The
# last line is "N passed, N failed, N skipped"; exit 1 if any failed or none
# passed (MAY_SKIP=yes: none was even skipped).
set -u

patterns=$1
shift
: "${BUILD:?}" "${SRC:?}"
export BUILD SRC
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

# What ends says so here; without any who could it is at its end.
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

# Each shell kills its test.
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

limit_of()
{
	limit=${2:-}
	case $1 in
	*.sh) [ -n "$limit" ] || limit=$(sed -n \
		'1,20s/^# timeout: \([0-9]\{1,\}\).*/\1/p' "$1") ;;
	esac
	echo $((${limit:-300} * slower))
}

# run_one NAME FILE SECONDS: in a shell of its own, which says "NAME STATUS
# BEGUN SECONDS" at the end. timeout(1) makes a process group of the test; what
# is left of it afterwards is killed.
run_one()
{
	name=$1 seconds=$3 begun=$(date +%s) group='' stopped=''
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

# timeout(1) may not have made the group yet.
stop_one()
{
	kill -s KILL -- "-$group" 2>/dev/null || kill -KILL "$group" 2>/dev/null
}

count()
{
	grep -c "$1" "$2" || :
}

# tally NAME STATUS SECONDS LOG
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

# What a failed test says of it: its checks, sanitizers, assertions, and how it
# ended.
reasons()
{
	[ -z "$why" ] || printf '%s\n' "$why"
	grep -aE -e '^not ok - ' -e '(Address|Leak|Thread)Sanitizer' \
		-e 'runtime error:' -e '[Aa]ssert' "$1" | head -n 40 || :
}

# The end of a log. Lines of the library that differ in numbers only are said
# once, with how often.
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

# report NAME START LOG
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

# start NAME FILE SECONDS: when there is a place for it.
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

# await: until a test has ended. A shell that ended without a word was killed.
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

# run_those yes|no TEST…: those that run alone, or the others.
run_those()
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
		it=no
		! alone "$name" || it=yes
		[ "$it" = "$those" ] || continue
		start "$name" "$file" "$(limit_of "$file" "$own")"
	done
	while [ -n "$running" ]; do
		await
	done
}

run_those no "$@"
free=1
run_those yes "$@"

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
