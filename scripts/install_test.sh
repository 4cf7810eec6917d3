#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# Tests what "make install" installs: a CMake project and a shell use it. Also tests
# that the Debian packages hold all files, and "make help".
set -u
: "${BUILD:?}" "${SRC:?}"
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

# setting NAME: prints a variable of config.mak.
setting()
{
	sed -n "s/^$1 = //p" "$BUILD/../config.mak"
}

install_tree()
{
	make -s -C "$BUILD/.." install DESTDIR="$tmp/dest"
}

# A consumer in C that links with the imported targets.
cmake_project_finds_the_library()
{
	mkdir -p "$tmp/project"
	cat >"$tmp/project/CMakeLists.txt" <<-PROJECT
	cmake_minimum_required(VERSION 3.13)
	project(consumer C)
	find_package(moonrail $(cat "$SRC/VERSION") REQUIRED)
	add_executable(shared main.c)
	target_link_libraries(shared moonrail::moonrail)
	add_executable(static main.c)
	target_link_libraries(static moonrail::moonrail_static)
	PROJECT
	cat >"$tmp/project/main.c" <<-PROGRAM
	#include <moonrail.h>
	#include <stdio.h>
	int main(void)
	{
		return puts(te_version()) < 0;
	}
	PROGRAM
	cmake -S "$tmp/project" -B "$tmp/project/b" \
		-Dmoonrail_DIR="$tmp/dest$(setting libdir)/cmake/moonrail" &&
		cmake --build "$tmp/project/b" &&
		"$tmp/project/b/shared" | grep -Fx "$(cat "$SRC/VERSION")" &&
		"$tmp/project/b/static" | grep -Fx "$(cat "$SRC/VERSION")"
}

# The link lines of Mooncake's interfaces for Go and for Rust, and of static programs
# in C. The names are those of lib/moonrail/mooncake.
mooncake_link_lines_find_the_library()
{
	libdir=$tmp/dest$(setting libdir)
	cc=$(setting CC)
	cat >"$tmp/main.c" <<-PROGRAM
	#include <stdio.h>
	#include <transfer_engine_c.h>
	int main(void)
	{
		transfer_engine_t e =
			createTransferEngine("P2PHANDSHAKE", "127.0.0.1", "", 0, 0);
		char name[64];

		if (!e || getLocalIpAndPort(e, name, sizeof(name)))
			return 1;
		destroyTransferEngine(e);
		return puts(name) < 0;
	}
	PROGRAM
	$cc -o "$tmp/go" "-I$SRC/api" "$tmp/main.c" "-L$libdir/moonrail/mooncake" \
		-ltransfer_engine -lbase -lasio -lmooncake_common -lm &&
		$cc -o "$tmp/rust" "-I$SRC/api" "$tmp/main.c" \
			"-L$libdir/moonrail/mooncake" -Wl,-Bstatic \
			-ltransfer_engine -lbase -lmooncake_common -Wl,-Bdynamic \
			-lasio -lpthread &&
		$cc -o "$tmp/static" "-I$SRC/api" "$tmp/main.c" \
			"$libdir/libtransfer_engine.a" || return 1
	objdump -p "$tmp/go" | grep -q 'NEEDED.*libmoonrail' || return 1
	! objdump -p "$tmp/go" | grep -q 'NEEDED.*libcjson' || return 1
	for program in rust static; do
		! objdump -p "$tmp/$program" | grep -q 'NEEDED.*libmoonrail' ||
			return 1
	done
	for program in go rust static; do
		LD_LIBRARY_PATH=$libdir "$tmp/$program" | grep '^127.0.0.1:' ||
			return 1
	done
}

uninstall_leaves_nothing()
{
	make -s -C "$BUILD/.." uninstall DESTDIR="$tmp/dest" &&
		find "$tmp/dest" ! -type d >"$tmp/left" && cat "$tmp/left" &&
		[ ! -s "$tmp/left" ]
}

cmake_refuses_a_later_version()
{
	sed 's/find_package(moonrail [0-9.]*/find_package(moonrail 0.999/' \
		"$tmp/project/CMakeLists.txt" >"$tmp/CMakeLists.txt" &&
		mv "$tmp/CMakeLists.txt" "$tmp/project/" || return 1
	! cmake -S "$tmp/project" -B "$tmp/project/c" \
		-Dmoonrail_DIR="$tmp/dest$(setting libdir)/cmake/moonrail"
}

# completions TOOL WORD…: prints what bash offers for the last word.
completions()
{
	bash -c 'complete() { :; }; compopt() { :; }
		. "$0"
		COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
		_moonrail "$1"
		printf "%s\n" "${COMPREPLY[@]}"' \
		"$tmp/dest$(setting datadir)/bash-completion/completions/te_info" "$@"
}

options_of_help_are_completed()
{
	for tool in te_bench te_info te_meta; do
		"$BUILD/bin/$tool" --help | grep -oE '^  --[a-z_]+=?' | tr -d ' ' |
			sort >"$tmp/want"
		completions "$BUILD/bin/$tool" -- | sort >"$tmp/got"
		[ "$(wc -l <"$tmp/want")" -gt 3 ] && diff "$tmp/want" "$tmp/got" ||
			return 1
	done
	completions "$BUILD/bin/te_info" --ver | grep -Fx -e --version
}

# Checks that each value that the completion offers for an option is in the
# help text of that option.
values_of_options_are_in_help()
{
	for tool in te_bench te_info te_meta; do
		"$BUILD/bin/$tool" --help
	done | awk '/^  --/ { printf "\n" } { printf "%s ", $0 }' >"$tmp/help"
	for option in --mode --operation --protocol --pages --file_sync --file_io; do
		completions "$BUILD/bin/te_bench" "$option" = >"$tmp/values"
		[ "$(wc -l <"$tmp/values")" -gt 1 ] || return 1
		grep -e "^  $option=" "$tmp/help" >"$tmp/text" || return 1
		while read -r value; do
			grep -qw "$value" "$tmp/text" || {
				echo "$option=$value isn't in --help"
				return 1
			}
		done <"$tmp/values"
	done
}

commands_of_te_meta_are_completed()
{
	[ "$(completions "$BUILD/bin/te_meta" un)" = unmount ] &&
		completions "$BUILD/bin/te_meta" re | grep -Fx register
}

# Each installed file belongs to exactly one Debian package, and each pattern of
# debian/*.install except those of Python has a file.
debian_packages_hold_every_file()
{
	prefix=$(setting prefix) libdir=$(setting libdir)
	(cd "$tmp/dest" && find . ! -type d) | sed -e 's|^\.||' \
		-e "s|^$libdir/|usr/lib/any/|" -e "s|^$prefix/|usr/|" >"$tmp/files"
	cat "$SRC"/debian/*.install | grep -v python |
		sed 's|^usr/lib/\*/|usr/lib/any/|' >"$tmp/patterns"
	while read -r file; do
		count=0
		while read -r pattern; do
			# shellcheck disable=SC2254 # a pattern
			case $file in $pattern) count=$((count + 1)) ;; esac
		done <"$tmp/patterns"
		[ "$count" -eq 1 ] || {
			echo "$file is in $count packages"
			return 1
		}
	done <"$tmp/files"
	while read -r pattern; do
		held=''
		while read -r file; do
			# shellcheck disable=SC2254
			case $file in $pattern) held=yes; break ;; esac
		done <"$tmp/files"
		[ -n "$held" ] || {
			echo "debian: no file matches $pattern"
			return 1
		}
	done <"$tmp/patterns"
}

# The numbers in debian/changelog and NEWS are that of VERSION.
version_is_the_same_everywhere()
{
	version=$(cat "$SRC/VERSION")
	head -n 1 "$SRC/debian/changelog" | grep -F "moonrail ($version)" &&
		head -n 1 "$SRC/NEWS" | grep -Fx "moonrail $version" &&
		[ -e "$SRC/debian/libmoonrail${version%%.*}.install" ]
}

# The symbols file of the Debian package has each version of api/moonrail.map, and
# no other.
debian_symbols_have_every_version()
{
	sed -n 's/^\(MOONRAIL_[0-9.]*\) {$/\1/p' "$SRC/api/moonrail.map" |
		sort >"$tmp/versions"
	[ -s "$tmp/versions" ] || return 1
	sed -n 's/^ (symver)\([^ ]*\) .*/\1/p' "$SRC/debian/libmoonrail0.symbols" |
		sort | diff "$tmp/versions" -
}

# The image of the Dockerfile contains the libraries that the installed files need.
dockerfile_names_the_libraries()
{
	for file in "$tmp/dest$(setting libdir)/$(readlink "$BUILD/lib/libmoonrail.so.0")" \
		"$tmp/dest$(setting bindir)"/*; do
		objdump -p "$file"
	done | sed -n 's/^ *NEEDED *//p' | sort -u |
		grep -vx -e 'libmoonrail.*' -e 'libc.so.6' -e 'libm.so.6' \
			-e 'ld-linux.*' >"$tmp/needed"
	grep -q '^libfabric' "$tmp/needed" || return 1
	while read -r library; do
		path=$(ldconfig -p | sed -n "s|^\t$library (.*=> ||p" | head -n 1)
		package=$(dpkg -S "$(realpath "$path")" | sed 's/:.*//')
		grep -qE "^	$package( |\$)" "$SRC/Dockerfile" || {
			echo "$library needs the package $package"
			return 1
		}
	done <"$tmp/needed"
}

# Compares "make help" with the targets that the Makefile declares.
help_lists_every_target()
{
	make -s -C "$BUILD/.." help | sed -n 's/^\([a-z-]*\)  .*/\1/p' |
		sort >"$tmp/listed"
	sed -n 's/^\.PHONY: //p' "$SRC/Makefile" | tr ' ' '\n' |
		grep -vx -e FORCE -e with-tests -e help | sort -u >"$tmp/declared"
	diff "$tmp/declared" "$tmp/listed"
}

check help_lists_every_target help_lists_every_target
check install_tree install_tree
check debian_packages_hold_every_file debian_packages_hold_every_file
check debian_symbols_have_every_version debian_symbols_have_every_version
check version_is_the_same_everywhere version_is_the_same_everywhere
check options_of_help_are_completed options_of_help_are_completed
check values_of_options_are_in_help values_of_options_are_in_help
check commands_of_te_meta_are_completed commands_of_te_meta_are_completed
if ! command -v dpkg >/dev/null ||
	! grep -q '^FABRIC_LIBS = -lfabric$' "$BUILD/../config.mak"; then
	echo 'skip - dockerfile_names_the_libraries: not with the libraries of Debian'
elif [ "${SANITIZE:-no}" != no ]; then
	echo 'skip - dockerfile_names_the_libraries: the library has a sanitizer'
else
	check dockerfile_names_the_libraries dockerfile_names_the_libraries
fi
if ! command -v cmake >/dev/null; then
	echo 'skip - cmake_project_finds_the_library: no cmake'
elif [ "${SANITIZE:-no}" != no ]; then
	echo 'skip - cmake_project_finds_the_library: the library has a sanitizer'
else
	check cmake_project_finds_the_library cmake_project_finds_the_library
	check cmake_refuses_a_later_version cmake_refuses_a_later_version
fi
if [ "${SANITIZE:-no}" != no ]; then
	echo 'skip - mooncake_link_lines_find_the_library: the library has a sanitizer'
else
	check mooncake_link_lines_find_the_library mooncake_link_lines_find_the_library
fi
check uninstall_leaves_nothing uninstall_leaves_nothing
exit "$status"
