#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# Tests te_meta on a folder of segments: what it creates, removes and refuses.
# BUILD is the build directory; run_tests.sh sets it.
set -u
: "${BUILD:?}"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM
LD_LIBRARY_PATH="$BUILD/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
MOONRAIL_SEGMENT_DIR=$tmp/segments
export LD_LIBRARY_PATH MOONRAIL_SEGMENT_DIR
mkdir "$tmp/segments" "$tmp/folder"
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

# Capabilities that root drops before it runs te_meta.
without=''

# run STATUS NAME ARGUMENT…: runs te_meta, which must exit with STATUS, and
# keeps its output.
run()
{
	want=$1 title=$2
	shift 2
	${without:+setpriv --bounding-set="$without"} \
		"$BUILD/bin/te_meta" "$@" >"$tmp/out" 2>"$tmp/err"
	got=$?
	[ "$got" -eq "$want" ] || {
		echo "# te_meta $*: status $got, not $want"
		sed 's/^/# /' "$tmp/err" "$tmp/out"
	}
	[ "$got" -eq "$want" ]
	ok $? "$title"
}

# says NAME TEXT: checks that standard error or standard output, without its tabs,
# contains TEXT.
says()
{
	cat "$tmp/err" "$tmp/out" | tr -d '\t' | grep -qF -- "$2"
	ok $? "$1"
}

head -c 10000 /dev/zero >"$tmp/a"
head -c 4096 /dev/zero >"$tmp/b c"
head -c 10000 /dev/zero >"$tmp/a2"
head -c 4096 /dev/zero >"$tmp/b2"
: >"$tmp/empty"

run 0 nothing_is_listed list
[ ! -s "$tmp/out" ]; ok $? no_output_for_nothing
run 0 registers register w "$tmp/a" "$tmp/b c"
run 0 lists list
says lists_the_name nvmeof/w
run 0 shows show w
says shows_the_size '"size":14096'
says shows_a_path "\"file_path\":\"$tmp/b c\""
says shows_its_length '"length":4096'
run 1 refuses_a_name_that_is_taken register nvmeof/w "$tmp/a"
says tells_that_it_is_taken 'registered already'
run 0 mounts mount --server=10.0.0.2 w "$tmp/a2" "$tmp/b2"
run 0 mounts_another mount --server host:7 w "$tmp/a" "$tmp/b2"
run 0 mounts_again mount --server=10.0.0.2 w "$tmp/a" "$tmp/b2"
run 0 shows_mounts show w
says has_the_first "\"10.0.0.2\":\"$tmp/a\""
says has_the_second "\"host:7\":\"$tmp/b2\""
run 1 refuses_too_few_paths mount --server=x w "$tmp/a"
run 1 refuses_another_length mount --server=x w "$tmp/b2" "$tmp/a"
says tells_both_lengths 'has 4096 bytes, not 10000'
run 1 refuses_what_is_not_there mount --server=x w "$tmp/a" "$tmp/none"
run 0 unmounts unmount --server=host:7 w
run 1 unmounts_once unmount --server=host:7 w
run 0 shows_what_is_left show w
! grep -q host:7 "$tmp/out"; ok $? the_mount_is_gone
says the_other_mount_stays 10.0.0.2
run 0 registers_and_mounts register --size=10000 --server=s v "$tmp/a"
run 0 shows_it show nvmeof/v
says is_mounted "\"s\":\"$tmp/a\""
run 0 removes remove w
run 1 removes_once remove w
run 1 shows_nothing_removed show w
[ -s "$tmp/a" ]; ok $? the_files_stay
run 0 removes_the_other remove v
run 0 lists_nothing list
[ ! -s "$tmp/out" ]; ok $? all_is_undone

run 1 refuses_an_empty_file register e "$tmp/empty"
run 1 refuses_a_folder register e "$tmp/folder"
run 1 refuses_another_size register --size=9999 e "$tmp/a"
run 1 refuses_a_missing_file register e "$tmp/none"
chmod 0 "$tmp/a2"
[ "$(id -u)" -ne 0 ] || without='-dac_override,-dac_read_search'
run 1 refuses_what_it_cannot_read register e "$tmp/a2"
without=''
run 0 nothing_was_registered list
[ ! -s "$tmp/out" ]; ok $? refused_means_not_there
run 1 mounts_nothing_unknown mount --server=x e "$tmp/a"
run 1 knows_no_processes_without_a_server list --all
says tells_that_none_are_listed 'keeps no list of processes'
run 1 shows_no_unknown_process show ram/127.0.0.1:1
run 3 refuses_all_without_list --all show w
run 3 refuses_to_remove_a_process remove ram/x
run 3 refuses_no_command
run 3 refuses_an_unknown_command frob
run 3 refuses_an_unknown_option --frob list
run 3 refuses_no_name register
run 3 refuses_no_path register e
run 3 refuses_a_server_missing mount e "$tmp/a"
run 3 refuses_a_bad_name show a/b
run 3 refuses_a_dot show ..
run 3 refuses_a_bad_size register --size=0 e "$tmp/a"
run 3 refuses_what_is_of_no_use --server=x list
run 1 refuses_an_unknown_store --metadata_server=gopher://x list
run 0 helps --help
says helps_in_full register
MOONRAIL_SEGMENT_DIR='' run 1 needs_a_folder list
says names_the_variable MOONRAIL_SEGMENT_DIR
exit $failed
