#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# timeout: 500
#
# Builds the Rust crate of api/rust against the library in BUILD and runs its tests,
# each with a second process, its example, and the program in README.md.
# ONLY=WORD runs the tests whose names contain WORD.
set -u
: "${BUILD:?}" "${SRC:?}"
# With the default, each endpoint of ofi_rxm has receive buffers of 70 megabytes, which
# take longer to allocate than a test runs.
export FI_OFI_RXM_MSG_RX_SIZE=1024
cargo=${CARGO:-cargo}
# shellcheck source=fabtests/scripts/readme_lib.sh
. "$SRC/fabtests/scripts/readme_lib.sh"

skip()
{
	echo "$1"
	exit 77
}

[ "${SANITIZE:-no}" = no ] ||
	skip 'a Rust program cannot load a library with a sanitizer'
for command in "$cargo" "${RUSTC:-rustc}"; do
	"$command" --version >/dev/null 2>&1 ||
		skip "no Rust compiler ($command); install rustc and cargo"
done

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
export LIBMOONRAIL_DIR="$BUILD/lib" LD_LIBRARY_PATH="$BUILD/lib"
export CARGO_NET_OFFLINE=true CARGO_TARGET_DIR="$BUILD/rust" RUST_BACKTRACE=0
export RUST_TEST_THREADS=4
crate=$SRC/api/rust
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

build()
{
	RUSTFLAGS='-D warnings' "$cargo" test --locked --no-run \
		--manifest-path "$crate/Cargo.toml"
}

# functions_are_tested: succeeds if a test calls each public function.
functions_are_tested()
{
	find "$crate/src" -name '*.rs' ! -name ffi.rs -exec cat {} + |
		sed -n 's/^ *pub \(unsafe \)*fn \([a-z_]*\).*/\2/p' |
		while read -r name; do
			grep -qr "\b$name(" "$crate/tests" ||
				echo "no test calls $name"
		done >"$tmp/untested"
	cat "$tmp/untested"
	[ ! -s "$tmp/untested" ]
}

example()
{
	"$cargo" build --locked --manifest-path "$crate/Cargo.toml" --example hello &&
		hello_pair "$BUILD/rust/debug/examples/hello"
}

readme()
{
	ln -s "$SRC" "$tmp/moonrail" && mkdir "$tmp/hello" && cd "$tmp/hello" &&
		readme_code rust >"$tmp/main.rs" || return 1
	readme_commands rust >"$tmp/commands"
	grep -q 'cargo build' "$tmp/commands" || return 1
	sed "s|^cargo |'$cargo' |" "$tmp/commands" >"$tmp/run"
	cp "$tmp/main.rs" main.rs && CARGO_TARGET_DIR=target sh -e "$tmp/run" &&
		hello_pair ./target/debug/hello
}

check crate_builds_without_warnings build
[ "$bad" -eq 0 ] || exit 1
RUSTFLAGS='-D warnings' "$cargo" test --locked --manifest-path "$crate/Cargo.toml" \
	-- "${ONLY:-}" >"$tmp/log" 2>&1 || { bad=1; cat "$tmp/log"; }
sed -n 's/^test \(.*::\)*\([a-z_]*\)\( - should panic\)* \.\.\. ok$/ok - \2/p
	s/^test \(.*::\)*\([a-z_]*\)\( - should panic\)* \.\.\. FAILED$/not ok - \2/p' \
	"$tmp/log" | grep -v -e '- target_process$'
check public_functions_are_tested functions_are_tested
check example_moves_the_bytes example
check program_in_readme_moves_the_bytes readme
exit "$bad"
