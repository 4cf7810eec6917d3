#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# timeout: 200
#
# Compiles the test of the C++ header api/cxx/moonrail.hpp for C++17 and C++20
# against the library in BUILD, and runs it.
set -u
: "${BUILD:?}" "${SRC:?}"
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
for std in 17 20; do
	if ! "$cxx" "-std=c++$std" -Wall -Wextra -Werror -O1 "-I$SRC/api" \
		"-I$SRC/api/cxx" -o "$tmp/test" "$SRC/api/cxx/moonrail_test.cc" \
		"-L$BUILD/lib" -lmoonrail "-Wl,-rpath,$BUILD/lib" -pthread; then
		echo "not ok - header_compiles_as_cxx$std"
		bad=1
		continue
	fi
	echo "ok - header_compiles_as_cxx$std"
	"$tmp/test" >"$tmp/out" 2>"$tmp/err" || { bad=1; cat "$tmp/err"; }
	sed "s/^\(ok\|not ok\) - .*/&_cxx$std/" "$tmp/out"
done
exit "$bad"
