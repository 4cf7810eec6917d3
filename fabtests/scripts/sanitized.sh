#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# sanitized.sh COMMAND…: runs a program that was built with a sanitizer, as the
# tests do: with the suppressions for other libraries, and without address space
# randomisation, which may map something where the sanitizer's shadow must be.
: "${SRC:?}"
supp=$SRC/fabtests/scripts
export ASAN_OPTIONS="${ASAN_OPTIONS:-detect_leaks=1}"
export LSAN_OPTIONS="${LSAN_OPTIONS:-suppressions=$supp/lsan.supp:print_suppressions=0}"
export TSAN_OPTIONS="${TSAN_OPTIONS:-suppressions=$supp/tsan.supp:halt_on_error=0:exitcode=66}"
export UBSAN_OPTIONS="${UBSAN_OPTIONS:-print_stacktrace=1}"
# hwloc unloads its plugins, so that their leaks have no symbols to suppress
export HWLOC_PLUGINS_PATH="${HWLOC_PLUGINS_PATH:-/nonexistent}"
if setarch "$(uname -m)" -R true 2>/dev/null; then
	exec setarch "$(uname -m)" -R "$@"
fi
exec "$@"
