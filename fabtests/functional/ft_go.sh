#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# timeout: 500
#
# Builds the Go package of api/go against the library in BUILD and runs its tests,
# each with a second process, its example, and the program in README.md.
# ONLY=EXPRESSION runs the tests that go test selects with -run.
set -u
: "${BUILD:?}" "${SRC:?}"
# With the default, each endpoint of ofi_rxm has receive buffers of 70 megabytes, which
# take longer to allocate than a test runs.
export FI_OFI_RXM_MSG_RX_SIZE=1024
go=${GO:-go}
# shellcheck source=fabtests/scripts/readme_lib.sh
. "$SRC/fabtests/scripts/readme_lib.sh"

skip()
{
	echo "$1"
	exit 77
}

[ "${SANITIZE:-no}" = no ] ||
	skip 'a Go program cannot load a library with a sanitizer'
"$go" version >/dev/null 2>&1 || skip 'no Go compiler; install golang-go'

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
mkdir -p "$BUILD/go"
export CGO_ENABLED=1 CGO_CFLAGS="-O1 -I$SRC/api"
export CGO_LDFLAGS="-L$BUILD/lib -Wl,-rpath,$BUILD/lib"
export GOCACHE="$BUILD/go/cache" GOPATH="$BUILD/go/path" GOPROXY=off
export GOFLAGS=-buildvcs=false GOTOOLCHAIN=local GO111MODULE=on
package=$SRC/api/go
bad=0

# check CASE COMMAND…: runs COMMAND and prints "ok" or "not ok".
check()
{
	case=$1
	shift
	if "$@" >"$tmp/out" 2>&1; then
		echo "ok - $case"
	else
		cat "$tmp/out"
		echo "not ok - $case"
		bad=1
	fi
}

vet()
{
	cd "$package" && "$go" vet ./... && "$go" test -c -o "$tmp/tests"
}

# functions_are_tested: succeeds if a test calls each public function.
functions_are_tested()
{
	# No test calls the method Is directly, because errors.Is calls it.
	find "$package" -maxdepth 1 -name '*.go' ! -name '*_test.go' -exec cat {} + |
		sed -n 's/^func \(([a-z]* [*A-Za-z]*) \)*\([A-Z][A-Za-z]*\)(.*/\2/p' |
		while read -r name; do
			grep -q "\b$name(" "$package"/*_test.go ||
				[ "$name" = Is ] || echo "no test calls $name"
		done >"$tmp/untested"
	cat "$tmp/untested"
	[ ! -s "$tmp/untested" ]
}

example()
{
	cd "$package" && "$go" build -o "$tmp/example" ./examples/hello &&
		hello_pair "$tmp/example"
}

readme()
{
	ln -s "$SRC" "$tmp/moonrail" && mkdir "$tmp/hello" && cd "$tmp/hello" &&
		readme_code go >hello.go || return 1
	readme_commands go >"$tmp/commands"
	grep -q 'go build' "$tmp/commands" || return 1
	sed "s|^go |'$go' |" "$tmp/commands" >"$tmp/run"
	sh -e "$tmp/run" && hello_pair ./hello
}

check package_builds vet
[ "$bad" -eq 0 ] || exit 1
cd "$tmp" || exit 1
# A test that hangs ends before the limit of this script and prints its stacks.
"$tmp/tests" -test.v -test.timeout 240s -test.run "${ONLY:-.}" >"$tmp/log" 2>&1 ||
	{ bad=1; cat "$tmp/log"; }
# Names such as TestGoMemoryIsRefused are printed as go_memory_is_refused.
sed -n 's/^--- PASS: Test\([A-Za-z]*\).*/ok - \1/p
	s/^--- FAIL: Test\([A-Za-z]*\).*/not ok - \1/p' "$tmp/log" |
	sed 's/\([A-Z]\)/_\L\1/g; s/ - _/ - /'
check public_functions_are_tested functions_are_tested
check example_moves_the_bytes example
check program_in_readme_moves_the_bytes readme
exit "$bad"
