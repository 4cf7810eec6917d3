#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# Tests the wheels of api/python for the interpreter PYTHON: one that contains the
# library, one for an installed library, and an installation from the sources without
# Python's stable ABI. Each is installed in a virtual environment of its own, without
# a network, and moves bytes between system processes. ft_python.sh runs this script.
set -u
: "${BUILD:?}" "${SRC:?}" "${PYTHON:?}"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
top=$(dirname "$BUILD")
unset PYTHONPATH
status=0

# shellcheck source=fabtests/scripts/readme_lib.sh
. "$SRC/fabtests/scripts/readme_lib.sh"

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

# new_venv NAME OPTION…: makes a virtual environment and the program hello-NAME, which
# runs README.md's program in it.
new_venv()
{
	name=$1
	shift
	"$PYTHON" -m venv "$@" "$tmp/$name" || return 1
	printf '#!/bin/sh\nexec "%s" "%s" "$@"\n' "$tmp/$name/bin/python" \
		"$tmp/hello.py" >"$tmp/hello-$name"
	chmod +x "$tmp/hello-$name"
}

# moves_bytes NAME: runs a pair of processes in the virtual environment. README.md's
# program sends a word; the second program compares 1 MiB in both directions.
moves_bytes()
{
	hello_pair "$tmp/hello-$1" || return 1
	"$tmp/$1/bin/python" - <<-'PROGRAM'
	import hashlib, os, subprocess, sys
	import moonrail
	target = """import hashlib, moonrail
	with moonrail.Engine(name="127.0.0.1") as engine:
	    memory = engine.register(bytearray(1 << 20))
	    input(engine.name + "\\n")
	    print(hashlib.sha256(memory.view()).hexdigest())
	"""
	with moonrail.Engine(name="127.0.0.1") as engine, subprocess.Popen(
	        [sys.executable, "-c", target], text=True, stdin=subprocess.PIPE,
	        stdout=subprocess.PIPE) as process:
	    sent, back = os.urandom(1 << 20), bytearray(1 << 20)
	    peer = engine.open(process.stdout.readline().strip())
	    address = peer.buffers()[0].address
	    peer.write(engine.register(bytearray(sent)), address)
	    peer.read(engine.register(back), address)
	    there = process.communicate("\n")[0].strip()
	assert back == sent and there == hashlib.sha256(sent).hexdigest()
	PROGRAM
}

# library_of NAME: prints the path of the library that a process in the virtual
# environment has loaded.
library_of()
{
	"$tmp/$1/bin/python" -c 'import moonrail, re
print(*set(re.findall(r"/\S*libmoonrail\.so\S*", open("/proc/self/maps").read())))'
}

# pip NAME ARGUMENT…: installs in the virtual environment, without a network.
pip()
{
	name=$1
	shift
	"$tmp/bundled/bin/python" -m pip --python "$tmp/$name/bin/python" install -q \
		--no-index --no-cache-dir --disable-pip-version-check "$@"
}

# Without its site packages (-S), Python has neither setuptools nor wheel.
wheel_names_the_missing_packages()
{
	! make -s -C "$top" wheel "PYTHON=$PYTHON -S" >"$tmp/wheel" 2>&1 &&
		grep -F python3-wheel "$tmp/wheel"
}

wheel_contains_the_library()
{
	make -s -C "$top" wheel "PYTHON=$PYTHON" || return 1
	set -- "$BUILD/python/dist"/moonrail-*.whl
	"$PYTHON" -m zipfile -l "$1" | grep -q '^moonrail/libmoonrail\.so\.[0-9]' &&
		new_venv bundled && pip bundled "$1" && library_of bundled | grep -Fx \
		"$(echo "$tmp"/bundled/lib/python*/site-packages/moonrail/libmoonrail.so.*)" &&
		"$tmp/bundled/bin/python" -m moonrail.info --version && moves_bytes bundled
}

# Builds a wheel from a copy of the sources, for the library of "make install". The
# extension is not optimised, to save time.
wheel_uses_the_installed_library()
{
	make -s -C "$top" install "DESTDIR=$tmp/dest" >/dev/null || return 1
	libdir=$tmp/dest$(sed -n 's/^libdir = //p' "$top/config.mak")
	mkdir "$tmp/source" "$tmp/dist" "$tmp/source/api" &&
		cp "$SRC/VERSION" "$tmp/source/" &&
		cp -r "$SRC/api/python" "$tmp/source/api/" &&
		(cd "$tmp/source/api/python" && MOONRAIL_LIBRARY=system CFLAGS=-O0 \
			PKG_CONFIG_PATH="$libdir/pkgconfig" \
			PKG_CONFIG_SYSROOT_DIR="$tmp/dest" \
			"$PYTHON" setup.py -q bdist_wheel --dist-dir "$tmp/dist") ||
		return 1
	set -- "$tmp/dist"/moonrail-*.whl
	! "$PYTHON" -m zipfile -l "$1" | grep -e libmoonrail -e te_bench &&
		new_venv system --without-pip && pip system "$1" || return 1
	LD_LIBRARY_PATH=$libdir
	export LD_LIBRARY_PATH
	library_of system | grep -F "$libdir/libmoonrail.so." && moves_bytes system
	result=$?
	unset LD_LIBRARY_PATH
	return "$result"
}

# The command of README.md, with a library that exists.
sources_are_installed_without_the_stable_abi()
{
	cp "$SRC"/api/*.h "$tmp/source/api/" &&
		new_venv plain --without-pip --system-site-packages &&
		rm -rf "$tmp/source/api/python/build" || return 1
	MOONRAIL_LIBRARY=$BUILD/lib MOONRAIL_ABI3=0 CFLAGS=-O0 \
		pip plain --no-build-isolation "$tmp/source/api/python" &&
		ls "$tmp"/plain/lib/python*/site-packages/moonrail/_moonrail.cpython-*.so &&
		moves_bytes plain
}

# The stable ABI has what the packages need since Python 3.11.
wheel_is_for_the_stable_abi()
{
	ls "$BUILD/python/dist"/moonrail-*-cp311-abi3-*.whl &&
		ls "$tmp"/bundled/lib/python*/site-packages/moonrail/_moonrail.abi3.so
}

readme_code python >"$tmp/hello.py"
check wheel_names_the_missing_packages wheel_names_the_missing_packages
check wheel_contains_the_library wheel_contains_the_library
"$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' &&
	check wheel_is_for_the_stable_abi wheel_is_for_the_stable_abi
check wheel_uses_the_installed_library wheel_uses_the_installed_library
check sources_are_installed_without_the_stable_abi \
	sources_are_installed_without_the_stable_abi
exit "$status"
