#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# Tests configure: the options that it refuses, the files that it writes, and how
# make runs it again.
set -u
: "${SRC:?}"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
status=0

# check CASE COMMAND…: runs COMMAND and prints "ok" or "not ok".
check()
{
	case=$1
	shift
	if "$@" >"$tmp/out" 2>&1; then
		printf 'ok - %s\n' "$case"
	else
		printf 'not ok - %s\n' "$case"
		cat "$tmp/out"
		status=1
	fi
}

fresh()
{
	rm -rf "$tmp/build"
	mkdir "$tmp/build"
	cd "$tmp/build" || exit 1
}

# refuses WORD OPTION…: succeeds if configure fails with a message that contains
# WORD.
refuses()
{
	word=$1
	shift
	fresh
	if "$SRC/configure" "$@" >"$tmp/said" 2>&1; then
		return 1
	fi
	cat "$tmp/said"
	grep -qe "$word" "$tmp/said" && [ ! -e config.mak ]
}

accepts()
{
	fresh
	"$SRC/configure" --disable-tests "$@"
}

help_lists_every_option()
{
	"$SRC/configure" --help >"$tmp/help"
	sed -n 's/^	\(--[a-z-]*\).*).*/\1/p' "$SRC/configure" |
	while read -r option; do
		grep -qe " $option" "$tmp/help" || {
			echo "$option isn't in --help"
			return 1
		}
	done
}

# configure takes a folder that contains this header for a source tree of NIXL.
nixl_tree_is_recorded()
{
	mkdir -p "$tmp/nixl/src/api/cpp/backend" &&
		: >"$tmp/nixl/src/api/cpp/backend/backend_plugin.h" &&
		accepts "--nixl=$tmp/nixl" &&
		grep -q "^WITH_NIXL = $tmp/nixl\$" config.mak &&
		make -n all 2>/dev/null | grep -q 'libplugin_MOONRAIL'
}

prefix_with_a_space()
{
	accepts "--prefix=/opt/with space" &&
		grep -q '^prefix = /opt/with space$' config.mak
}

arguments_are_replayed()
{
	accepts "--prefix=/opt/it is" --enable-debug || return 1
	rm config.h
	cp config.mak "$tmp/before"
	# shellcheck disable=SC2016
	eval "$(sed -n 's/^CONFIGURE_ARGS = /"$SRC\/configure" /p' config.mak)" &&
		cmp config.mak "$tmp/before" && grep -q TEI_DEBUG config.h
}

nothing_is_left_in_tmp()
{
	fresh
	mkdir "$tmp/tmp"
	TMPDIR=$tmp/tmp "$SRC/configure" --disable-tests &&
		rmdir "$tmp/tmp"
}

compiler_talks_to_the_log_only()
{
	fresh
	"$SRC/configure" --disable-tests --cc='cc --no-such-flag' \
		>"$tmp/said" 2>&1
	grep -q 'no-such-flag.*' config.log &&
		! grep -q 'unrecognized\|unknown argument' "$tmp/said"
}

# If the compiler is missing, the message names the compiler and no library.
absent_compiler_is_the_only_fault()
{
	refuses "no C compiler: the command 'no-such-compiler' was not found" \
		--cc=no-such-compiler && ! grep 'libfabric\|hwloc' "$tmp/said"
}

broken_compiler_is_the_only_fault()
{
	refuses "the C compiler 'false' does not build a C11 program" \
		--cc=false && ! grep 'libfabric\|hwloc' "$tmp/said"
}

results_are_apart_from_their_names()
{
	fresh
	"$SRC/configure" >"$tmp/said" 2>&1
	grep '[^ ]yes$\|[^ ]no$' "$tmp/said" && return 1
	grep -q 'zookeeper.jar *\(yes\|no\)$' "$tmp/said"
}

# installs OPTION: prints the packages that configure --install-depsOPTION installs
# on a machine that has only the commands below.
installs()
{
	fresh
	mkdir -p "$tmp/bin"
	for tool in sh cat cmp cp cut dirname env grep id mktemp rm sed tail; do
		ln -sf "$(command -v "$tool")" "$tmp/bin"
	done
	printf '#!/bin/sh\nshift 3\necho "$*" >"%s/installed"\n' "$tmp" \
		>"$tmp/bin/apt-get"
	printf '#!/bin/sh\nexec "$@"\n' >"$tmp/bin/sudo"
	chmod +x "$tmp/bin/apt-get" "$tmp/bin/sudo"
	rm -f "$tmp/installed"
	PATH=$tmp/bin "$SRC/configure" "--install-deps$1" >/dev/null 2>&1
	cat "$tmp/installed"
}

install_deps_alone_installs_no_test_tools()
{
	list=" $(installs '') "
	echo "$list"
	for package in build-essential libfabric-dev pkg-config; do
		case $list in *" $package "*) ;; *) return 1 ;; esac
	done
	case $list in
	*jre*|*zookeeper' '*|*mpi*|*cunit*|*python*|*qemu*) return 1 ;;
	esac
}

install_deps_test_adds_the_test_tools()
{
	list=" $(installs "=test") "
	echo "$list"
	for package in libfabric-dev libcunit1-dev default-jre-headless openmpi-bin; do
		case $list in *" $package "*) ;; *) return 1 ;; esac
	done
	case $list in *qemu*) return 1 ;; esac
	case $(installs "=vm") in *openmpi-bin*qemu*) ;; *) return 1 ;; esac
}

# If CUnit is absent, configure reports that no tests are built, and "make check"
# reports the reason.
tests_without_cunit_are_not_built()
{
	fresh
	mkdir "$tmp/build/CUnit"
	echo '#error absent' >"$tmp/build/CUnit/CUnit.h"
	"$SRC/configure" "--cc=cc -I$tmp/build" >"$tmp/said" 2>&1 &&
		grep -q 'No tests are built, because CUnit is missing' "$tmp/said" &&
		grep -q '^WITH_TESTS = no$' config.mak || return 1
	! make with-tests >"$tmp/said" 2>&1 &&
		grep -q 'install-deps=test' "$tmp/said"
}

# Removing pages keeps a folder that contains another file.
removed_pages_leave_no_empty_folders()
{
	mkdir -p "$tmp/man/man3"
	: >"$tmp/man/man3/other.3"
	sh "$SRC/scripts/man_page" install "$tmp/man" "$SRC"/man/*.[137] &&
		sh "$SRC/scripts/man_page" remove "$tmp/man" "$SRC"/man/*.[137] &&
		[ "$(cd "$tmp/man" && echo * */*)" = 'man3 man3/other.3' ]
}

check help_lists_every_option help_lists_every_option
check unknown_option_is_refused refuses "unknown option '--enable-warp'" \
	--enable-warp
check unknown_word_is_refused refuses 'unknown option' CC
check asan_with_tsan_is_refused refuses exclude --enable-asan --enable-tsan
check relative_prefix_is_refused refuses absolute --prefix=here
check quote_in_prefix_is_refused refuses 'must not contain' "--prefix=/it's"
check absent_libfabric_is_refused refuses 'no include/rdma' --libfabric=/nowhere
check absent_compiler_is_the_only_fault absent_compiler_is_the_only_fault
check broken_compiler_is_the_only_fault broken_compiler_is_the_only_fault
check results_are_apart_from_their_names results_are_apart_from_their_names
check install_deps_alone_installs_no_test_tools \
	install_deps_alone_installs_no_test_tools
check install_deps_test_adds_the_test_tools \
	install_deps_test_adds_the_test_tools
check tests_without_cunit_are_not_built tests_without_cunit_are_not_built
check absent_nixl_is_refused refuses 'no source tree of NIXL' --nixl=/nowhere
check nixl_tree_is_recorded nixl_tree_is_recorded
check prefix_with_a_space prefix_with_a_space
check arguments_are_replayed arguments_are_replayed
check removed_pages_leave_no_empty_folders removed_pages_leave_no_empty_folders
check nothing_is_left_in_tmp nothing_is_left_in_tmp
check compiler_talks_to_the_log_only compiler_talks_to_the_log_only
exit "$status"
