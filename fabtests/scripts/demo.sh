#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# make demo: two processes on this host move 2 GiB in each direction over two tcp
# rails, and verify every byte. BUILD is the build folder.
set -eu

build=${BUILD:-build}
export LD_LIBRARY_PATH="$build/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"

echo 'Two processes, two tcp rails (127.0.0.1 and 127.0.0.2), no server:'
echo '2 GiB written and read back in blocks of mixed sizes.'
echo
exec "$build/bin/te_bench" --mode=demo --protocol=tcp \
	--device_name=127.0.0.1,127.0.0.2 "$@"
