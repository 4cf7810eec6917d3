#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# timeout: 600
#
# Builds the Python packages of api/python against the library in BUILD and runs
# their tests, each with a second process, and then those of the wheels.
# ONLY=EXPRESSION runs those that pytest selects with -k; ONLY=wheel runs those of the
# wheels. SOAK=SECONDS prolongs the test for growth of memory.
set -u
: "${BUILD:?}" "${SRC:?}"
# With the default, each endpoint of ofi_rxm has receive buffers of 70 megabytes, which
# take longer to allocate than a test runs.
export FI_OFI_RXM_MSG_RX_SIZE=1024

skip()
{
	echo "$1"
	exit 77
}

[ "${SANITIZE:-no}" = no ] ||
	skip 'a Python without a sanitizer cannot load a library with one'

# The first Python that can build extensions and has pytest.
for python in "${PYTHON:-python3}" /usr/bin/python3 none; do
	"$python" - <<-PROGRAM 2>/dev/null && break
	import os, pytest, setuptools, sysconfig, wheel
	os.stat(os.path.join(sysconfig.get_paths()["include"], "Python.h"))
	PROGRAM
done
[ "$python" != none ] ||
	skip 'no Python with Python.h, setuptools, wheel and pytest; install python3-dev, python3-setuptools, python3-wheel and python3-pytest'

[ "${ONLY:-}" != wheel ] || exec env "PYTHON=$python" \
	sh "$SRC/fabtests/scripts/python_wheel.sh"

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
export PYTHONDONTWRITEBYTECODE=1
make -s -C "$(dirname "$BUILD")" python "PYTHON=$python" >"$out/log" 2>&1 || {
	cat "$out/log"
	echo 'not ok - packages_build'
	exit 1
}
echo 'ok - packages_build'
export PYTHONPATH="$BUILD/python/lib${PYTHONPATH:+:$PYTHONPATH}"
cd "$out" || exit 1
"$python" -m pytest -q -rA --tb=short -p no:cacheprovider --rootdir "$out" \
	"$SRC/api/python/tests" -k "${ONLY:-test}" >"$out/log" 2>&1
status=$?
sed -n '1,/short test summary info/p' "$out/log"
sed -n 's/^PASSED .*::test_/ok - /p; s/^\(FAILED\|ERROR\) .*::test_/not ok - /p' \
	"$out/log" | sed 's/ - \([^ ]*\) - .*/ - \1/'
[ -n "${ONLY:-}" ] || PYTHON=$python sh "$SRC/fabtests/scripts/python_wheel.sh" ||
	status=1
exit "$status"
