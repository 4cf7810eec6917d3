#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# timeout: 60
#
# Tests the runner of make check: the counts that it prints and its exit status.
set -u
: "${SRC:?}"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
status=0

# test_is NAME: makes a test from the shell script on standard input.
test_is()
{
	{ printf '#!/bin/sh\n'; cat; } >"$tmp/$1"
	chmod +x "$tmp/$1"
}

# expect CASE EXIT LASTLINE PATTERNS TEST…: runs the tests and expects this exit
# status and last line.
expect()
{
	case=$1 code=$2 last=$3 patterns=$4
	shift 4
	BUILD=$tmp SANITIZE=${sanitize:-no} \
		sh "$SRC/fabtests/scripts/run_tests.sh" \
		"$patterns" "$@" >"$tmp/out" 2>&1
	got=$?
	if [ "$got" -eq "$code" ] && [ "$(tail -n 1 "$tmp/out")" = "$last" ]; then
		printf 'ok - %s\n' "$case"
	else
		printf 'not ok - %s: exit %s, %s\n' "$case" "$got" \
			"$(tail -n 1 "$tmp/out")"
		status=1
	fi
}

# shows CASE TEXT: expects TEXT in the output of the last expect.
shows()
{
	if grep -qF "$2" "$tmp/out"; then
		printf 'ok - %s\n' "$1"
	else
		printf 'not ok - %s: no "%s"\n' "$1" "$2"
		status=1
	fi
}

# last_shows CASE TEXT: the same for the last six lines of the output.
last_shows()
{
	tail -n 6 "$tmp/out" >"$tmp/end"
	if grep -qF "$2" "$tmp/end"; then
		printf 'ok - %s\n' "$1"
	else
		printf 'not ok - %s: no "%s" at the end\n' "$1" "$2"
		status=1
	fi
}

hides()
{
	if grep -qF "$2" "$tmp/out"; then
		printf 'not ok - %s: "%s"\n' "$1" "$2"
		status=1
	else
		printf 'ok - %s\n' "$1"
	fi
}

test_is good <<'TEST'
TEST
test_is bad <<'TEST'
echo the reason
exit 3
TEST
test_is away <<'TEST'
echo no such device
exit 77
TEST
test_is many <<'TEST'
printf 'ok - one\nok - two\nskip - three: no GPU\nnot ok - four: x\n'
exit 1
TEST
test_is liar <<'TEST'
echo 'not ok - but exit 0'
TEST
test_is noisy <<'TEST'
for i in 1 2 3 4 5; do echo "2026-01-01T00:00:0$i.123456Z moonrail[42] warn rail: attempt $i of 5"; done
echo 'not ok - early: x'
echo 'ERROR: LeakSanitizer: detected memory leaks'
seq 100000 100999
exit 1
TEST
test_is slow.sh <<'TEST'
# timeout: 1
sleep 1000 &
echo $! >"$BUILD/pid"
kill -STOP $!
wait
TEST

expect silence_is_one_pass 0 '1 passed, 0 failed, 0 skipped' '' "$tmp/good"
expect exit_status_fails 1 '1 passed, 1 failed, 0 skipped' '' \
	"$tmp/good" "$tmp/bad"
shows output_of_a_failure_is_printed 'the reason'
expect failures_come_last 1 '1 passed, 1 failed, 0 skipped' '' \
	"$tmp/noisy" "$tmp/good"
last_shows failed_checks_come_last '  noisy: not ok - early: x'
last_shows sanitizers_come_last 'ERROR: LeakSanitizer: detected'
shows the_end_of_the_log_is_printed 100999
hides the_middle_of_the_log_is_not 100500
test_is noisy_and_short <<'TEST'
for i in 1 2 3 4 5; do echo "2026-01-01T00:00:0$i.123456Z moonrail[42] warn rail: attempt $i of 5"; done
exit 1
TEST
expect a_short_log 1 '0 passed, 1 failed, 0 skipped' '' "$tmp/noisy_and_short"
shows lines_alike_are_said_once 'attempt 1 of 5 (5 like it)'
hides lines_alike_are_said_no_more 'attempt 2 of 5'
last_shows the_exit_status_comes_last 'noisy_and_short: exit status 1'
expect skip_is_counted 0 '1 passed, 0 failed, 1 skipped' '' \
	"$tmp/good" "$tmp/away"
shows skip_has_its_reason 'away: no such device'
expect each_case_counts 1 '2 passed, 1 failed, 1 skipped' '' "$tmp/many"
shows skipped_case_has_its_reason 'many: three: no GPU'
expect a_failed_case_outweighs_exit_0 1 '0 passed, 1 failed, 0 skipped' '' \
	"$tmp/liar"
expect only_skips_prove_nothing 1 '0 passed, 0 failed, 1 skipped' '' "$tmp/away"
export MAY_SKIP=yes
expect skips_may_be_all 0 '0 passed, 0 failed, 1 skipped' '' "$tmp/away"
unset MAY_SKIP
expect pattern_selects 0 '1 passed, 0 failed, 0 skipped' 'nothing goo' \
	"$tmp/good" "$tmp/bad"
expect none_selected_fails 1 '0 passed, 0 failed, 0 skipped' nothing "$tmp/good"
expect timeout_is_a_failure 1 '0 passed, 1 failed, 0 skipped' '' "$tmp/slow.sh"
shows timeout_is_named 'its limit'
expect own_limit_wins 1 '0 passed, 1 failed, 0 skipped' '' "$tmp/slow.sh=2"
# gone PID: waits until the process is dead. A stopped child may die a moment
# later, because it must first receive its signal.
gone()
{
	tries=50
	while grep -q '^State:[^Z]*$' "/proc/$1/status" 2>/dev/null; do
		tries=$((tries - 1))
		[ "$tries" -gt 0 ] || return 1
		sleep 0.1
	done
}
# pids_gone CASE FILE…: expects that the processes in the files are dead.
pids_gone()
{
	case=$1
	shift
	for file; do
		gone "$(cat "$file")" || {
			printf 'not ok - %s: %s\n' "$case" "${file##*/}"
			status=1
			return
		}
	done
	printf 'ok - %s\n' "$case"
}
pids_gone stopped_children_are_killed "$tmp/pid"
test_is leaver <<'TEST'
sleep 1000 &
echo $! >"$BUILD/pid"
TEST
expect a_test_may_leave_a_child 0 '1 passed, 0 failed, 0 skipped' '' \
	"$tmp/leaver"
pids_gone children_left_are_killed "$tmp/pid"

# there FILE: waits until FILE is not empty.
there()
{
	tries=300
	until [ -s "$1" ]; do
		tries=$((tries - 1))
		[ "$tries" -gt 0 ] || return 1
		sleep 0.1
	done
}
# Tests one and two wait for each other. The third test runs alone.
for i in one two; do
	test_is "$i.sh" <<-TEST
	# timeout: 30
	echo \$\$ >"\$BUILD/$i.pid"
	until [ -s "\$BUILD/one.pid" ] && [ -s "\$BUILD/two.pid" ]; do
		sleep 0.05
	done
	[ ! -e "\$BUILD/lone" ] || exit 1
	touch "\$BUILD/$i.began"
	sleep 0.3
	touch "\$BUILD/$i.ended"
	TEST
done
test_is lone.sh <<'TEST'
touch "$BUILD/lone"
for i in one two; do
	[ ! -e "$BUILD/$i.began" ] || [ -e "$BUILD/$i.ended" ] || exit 1
done
TEST
export JOBS=2 ALONE='some lone more'
expect tests_run_at_a_time 0 '3 passed, 0 failed, 0 skipped' '' \
	"$tmp/lone.sh" "$tmp/one.sh" "$tmp/two.sh"
shows test_that_runs_alone_runs 'PASS  lone '
rm -f "$tmp"/*.pid "$tmp"/*.began "$tmp"/*.ended "$tmp/lone"
expect a_failure_beside_others 1 '3 passed, 2 failed, 0 skipped' '' \
	"$tmp/bad" "$tmp/noisy" "$tmp/good" "$tmp/one.sh" "$tmp/two.sh"
last_shows each_failure_comes_last 'bad: exit status 3'
last_shows each_failure_is_kept 'noisy: not ok - early: x'

# BEFORE_ALONE runs after the other tests and before those that run alone.
test_is early <<'TEST'
[ ! -e "$BUILD/idle" ] && [ -z "${BEFORE_ALONE:-}" ]
TEST
test_is lone.sh <<'TEST'
[ -e "$BUILD/idle" ]
TEST
test_is before <<'TEST'
touch "$BUILD/idle"
TEST
export BEFORE_ALONE="$tmp/before"
expect before_alone_runs_between_the_tests 0 '2 passed, 0 failed, 0 skipped' '' \
	"$tmp/lone.sh" "$tmp/early"
export BEFORE_ALONE="$tmp/bad"
expect failed_before_alone_is_a_failure 1 '1 passed, 1 failed, 0 skipped' '' \
	"$tmp/lone.sh"
last_shows failed_before_alone_is_named 'BEFORE_ALONE: exit status 3'
unset ALONE BEFORE_ALONE
export JOBS=1
rm -f "$tmp"/*.pid
expect one_job_is_one_at_a_time 1 '0 passed, 1 failed, 0 skipped' '' \
	"$tmp/one.sh=2"

# The tests of FIRST run in its order, and then the others. A test of FIRST that runs
# alone runs last.
for i in one two three four; do
	test_is "$i" <<-TEST
	echo $i >>"\$BUILD/order"
	TEST
done
export FIRST='four three absent two' ALONE=four
expect first_tests_run_once 0 '4 passed, 0 failed, 0 skipped' '' \
	"$tmp/one" "$tmp/two" "$tmp/three" "$tmp/four"
printf '%s\n' three two one four | cmp -s - "$tmp/order" || {
	echo 'not ok - first_tests_run_in_order'
	status=1
}
unset FIRST ALONE
export PLAIN='good'
expect plain_tests_run_without_sanitizers 0 '1 passed, 0 failed, 0 skipped' '' \
	"$tmp/good"
sanitize=yes
expect plain_tests_are_skipped_with_sanitizers 1 \
	'0 passed, 0 failed, 1 skipped' '' "$tmp/good"
shows the_reason_is_printed 'good: it finds nothing more'
unset PLAIN sanitize
export JOBS=none
expect jobs_is_a_number 2 "JOBS is a number from 1 on, not 'none'" '' \
	"$tmp/good"

# If a signal ends the runner, the tests and their children end too.
for i in left right; do
	test_is "$i" <<-TEST
	sleep 1000 &
	echo \$! >"\$BUILD/$i.child"
	echo \$\$ >"\$BUILD/$i.pid"
	wait
	TEST
done
# A shell cannot trap a signal that is ignored from the start: HUP under nohup.
signals='HUP TERM'
case $(sed -n 's/^SigIgn:.*\(.\)$/\1/p' /proc/self/status) in
[13579bdf]) signals=TERM
	echo 'skip - all_end_with_it_by_HUP: it is ignored here' ;;
esac
for signal in $signals; do
	rm -f "$tmp"/*.pid "$tmp"/*.child
	BUILD=$tmp SANITIZE=no JOBS=2 sh "$SRC/fabtests/scripts/run_tests.sh" \
		'' "$tmp/left" "$tmp/right" >"$tmp/out" 2>&1 &
	runner=$!
	if there "$tmp/left.pid" && there "$tmp/right.pid"; then
		kill -"$signal" "$runner"
		wait "$runner"
		pids_gone "tests_end_with_the_runner_by_$signal" \
			"$tmp/left.pid" "$tmp/left.child" \
			"$tmp/right.pid" "$tmp/right.child"
	else
		printf 'not ok - tests_end_with_the_runner_by_%s\n' "$signal"
		kill -TERM "$runner"
		status=1
	fi
done

# The shell of a test may be killed, for example by the kernel if memory is short.
test_is orphan <<'TEST'
read -r _ _ _ parent _ <"/proc/$PPID/stat"
kill -KILL "$parent"
TEST
JOBS=2
expect a_test_without_an_end_fails 1 '1 passed, 1 failed, 0 skipped' '' \
	"$tmp/orphan" "$tmp/good"
last_shows test_without_an_end_is_named 'orphan: exit status unknown'
exit "$status"
