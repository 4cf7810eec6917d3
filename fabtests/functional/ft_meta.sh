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

run 0 te_meta_lists_no_segment list
[ ! -s "$tmp/out" ]; ok $? empty_list_has_no_output
run 0 te_meta_registers_a_segment register w "$tmp/a" "$tmp/b c"
run 0 te_meta_lists_segments list
says te_meta_lists_the_name nvmeof/w
run 0 te_meta_shows_a_segment show w
says te_meta_shows_the_size '"size":14096'
says te_meta_shows_a_path "\"file_path\":\"$tmp/b c\""
says te_meta_shows_the_length_of_a_path '"length":4096'
run 1 te_meta_refuses_a_name_that_is_taken register nvmeof/w "$tmp/a"
says te_meta_says_that_the_name_is_taken 'registered already'
run 0 te_meta_mounts_on_a_server mount --server=10.0.0.2 w "$tmp/a2" "$tmp/b2"
run 0 te_meta_mounts_on_another_server mount --server host:7 w "$tmp/a" "$tmp/b2"
run 0 te_meta_mounts_again_on_the_server mount --server=10.0.0.2 w "$tmp/a" "$tmp/b2"
run 0 te_meta_shows_mounts show w
says te_meta_shows_the_first_mount "\"10.0.0.2\":\"$tmp/a\""
says te_meta_shows_the_second_mount "\"host:7\":\"$tmp/b2\""
run 1 te_meta_refuses_too_few_paths mount --server=x w "$tmp/a"
run 1 te_meta_refuses_another_length mount --server=x w "$tmp/b2" "$tmp/a"
says te_meta_says_both_lengths 'has 4096 bytes, not 10000'
run 1 te_meta_refuses_an_absent_path mount --server=x w "$tmp/a" "$tmp/none"
run 0 te_meta_unmounts_a_server unmount --server=host:7 w
run 1 te_meta_unmounts_a_server_once unmount --server=host:7 w
run 0 te_meta_shows_the_remaining_mounts show w
! grep -q host:7 "$tmp/out"; ok $? unmounted_server_is_not_shown
says other_mount_is_still_shown 10.0.0.2
run 0 te_meta_registers_and_mounts register --size=10000 --server=s v "$tmp/a"
run 0 te_meta_shows_the_mounted_segment show nvmeof/v
says te_meta_shows_the_mount_of_register "\"s\":\"$tmp/a\""
run 0 te_meta_removes_a_segment remove w
run 1 te_meta_removes_a_segment_once remove w
run 1 te_meta_shows_no_removed_segment show w
[ -s "$tmp/a" ]; ok $? removed_segment_keeps_its_files
run 0 te_meta_removes_the_other remove v
run 0 te_meta_lists_nothing list
[ ! -s "$tmp/out" ]; ok $? list_after_the_last_remove_has_no_output

run 1 te_meta_refuses_an_empty_file register e "$tmp/empty"
run 1 te_meta_refuses_a_folder register e "$tmp/folder"
run 1 te_meta_refuses_another_size register --size=9999 e "$tmp/a"
run 1 te_meta_refuses_a_missing_file register e "$tmp/none"
chmod 0 "$tmp/a2"
[ "$(id -u)" -ne 0 ] || without='-dac_override,-dac_read_search'
run 1 te_meta_refuses_an_unreadable_file register e "$tmp/a2"
without=''
run 0 te_meta_lists_no_refused_segment list
[ ! -s "$tmp/out" ]; ok $? refused_segments_are_not_listed
run 1 te_meta_mounts_no_unknown_segment mount --server=x e "$tmp/a"
run 1 te_meta_knows_no_processes_without_a_server list --all
says te_meta_says_that_no_processes_are_listed 'keeps no list of processes'
run 1 te_meta_shows_no_unknown_process show ram/127.0.0.1:1
run 3 te_meta_refuses_all_without_list --all show w
run 3 te_meta_refuses_to_remove_a_process remove ram/x
run 3 te_meta_refuses_no_command
run 3 te_meta_refuses_an_unknown_command frob
run 3 te_meta_refuses_an_unknown_option --frob list
run 3 te_meta_refuses_no_name register
run 3 te_meta_refuses_no_path register e
run 3 te_meta_refuses_a_missing_server mount e "$tmp/a"
run 3 te_meta_refuses_a_bad_name show a/b
run 3 te_meta_refuses_a_dot_as_name show ..
run 3 te_meta_refuses_a_bad_size register --size=0 e "$tmp/a"
run 3 te_meta_refuses_an_option_of_another_command --server=x list
run 1 te_meta_refuses_an_unknown_store --metadata_server=gopher://x list
run 0 te_meta_prints_help --help
says te_meta_prints_the_full_help register
MOONRAIL_SEGMENT_DIR='' run 1 te_meta_needs_a_folder list
says te_meta_names_the_variable MOONRAIL_SEGMENT_DIR
exit $failed
