#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# timeout: 300
#
# Compiles the tests of the C++ headers against the library in BUILD and runs them:
# moonrail.hpp as C++17 and as C++20, the headers of Mooncake's classes, and the part
# of the NIXL plug-in that does not need NIXL.
set -u
: "${BUILD:?}" "${SRC:?}"
# With the default, each endpoint of ofi_rxm has receive buffers of 70 megabytes, which
# take longer to allocate than a test runs.
export FI_OFI_RXM_MSG_RX_SIZE=1024
cxx=${CXX:-c++}

[ "${SANITIZE:-no}" = no ] || {
	echo 'this test is compiled without the sanitizer of the library'
	exit 77
}
command -v "$cxx" >/dev/null 2>&1 || {
	echo "no C++ compiler ($cxx)"
	exit 77
}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
bad=0

# run NAME STANDARD SUFFIX OPTION…: compiles NAME_test.cc below api and runs it. SUFFIX
# is added to the names of its cases.
run()
{
	name=$1 std=$2 suffix=$3 base=${1##*/}
	shift 3
	if ! "$cxx" "-std=c++$std" -Wall -Wextra -Werror -O1 "-I$SRC/api" "$@" \
		-o "$tmp/test" "$SRC/api/${name}_test.cc" \
		"-L$BUILD/lib" -lmoonrail "-Wl,-rpath,$BUILD/lib" -pthread; then
		echo "not ok - ${base}_headers_compile_as_cxx$std"
		bad=1
		return
	fi
	echo "ok - ${base}_headers_compile_as_cxx$std"
	"$tmp/test" >"$tmp/out" 2>"$tmp/err" || { bad=1; cat "$tmp/err"; }
	sed "s/^\(ok\|not ok\) - .*/&$suffix/" "$tmp/out"
}

run cxx/moonrail 17 _cxx17 "-I$SRC/api/cxx"
run cxx/moonrail 20 _cxx20 "-I$SRC/api/cxx"
run cxx/mooncake 20 _mooncake "-I$SRC/api/cxx/mooncake"
run nixl/nixl_files 20 _nixl
exit "$bad"
