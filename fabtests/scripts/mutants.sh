#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# Mutants of the peer protocol and of engines. Each patch in fabtests/mutants/ breaks
# one rule of prov/rail or api, and the simulator must find that. The head of a patch names the rule,
# and the options of the simulator with which the mutant is found. If the head has a
# line "Found: TEXT", the simulator's error must contain the text.
#
#	mutants.sh [--check] [NAME...]
#
# Applies, compiles and links each mutant whose file name contains a NAME (without
# NAMEs: each mutant), and simulates with growing seeds until a check fails. Prints
# one line per mutant. --check only applies and compiles. The environment:
#
#	SRC, BUILD	the folder of the sources, and that of the objects
#	MUTANT_CC	the compiler with its flags
#	MUTANT_LD	the linker with its flags; MUTANT_LIBS: the libraries
#	MUTANT_OBJS	the objects of the simulator, without the library
#	MUTANT_S	longest time until a mutant is found, s (300)
#	MUTANT_JOBS	number of mutants that are simulated at the same time (2)
set -eu

: "${SRC:=.}" "${BUILD:=build}" "${MUTANT_S:=300}" "${MUTANT_JOBS:=2}"
: "${MUTANT_CC:?}" "${MUTANT_LD:?}" "${MUTANT_OBJS:?}" "${MUTANT_LIBS:?}"
check=
[ "${1:-}" != --check ] || { check=--check; shift; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM

# field NAME PATCH prints a field of the patch's head.
field()
{
	sed -n "/^--- /q; s/^$1: *//p" "$2"
}

# apply NAME PATCH makes a copy of the patched file in $tmp/NAME.
apply()
{
	file=$(sed -n 's|^+++ b/\([^[:space:]]*\).*|\1|p' "$2")
	mkdir -p "$tmp/$1/$(dirname "$file")" "$tmp/$1/test"
	cp "$SRC/$file" "$tmp/$1/$file"
	patch -s -f -F0 -p1 -d "$tmp/$1" <"$2"
}

# compile NAME OPTION... compiles the patched file.
compile()
{
	object=$tmp/$1/mutant.o source=$tmp/$1/$file
	shift
	# shellcheck disable=SC2086 # MUTANT_CC is a command line
	$MUTANT_CC "$@" -c -o "$object" "$source"
}

# link NAME links a simulator. The mutant's object precedes the library, so the
# original object of the library is not linked.
link()
{
	ln -sf "$(cd "$BUILD" && pwd)/test/sim" "$tmp/$1/test/sim"
	# shellcheck disable=SC2086 # these are lists
	$MUTANT_LD -o "$tmp/$1/test/simulate" $MUTANT_OBJS "$tmp/$1/mutant.o" \
		"$BUILD/test/libmoonrail-test.a" $MUTANT_LIBS
}

# found NAME OPTIONS TEXT simulates with the seeds from 1 on until a check fails or the
# time is over. The error must contain the text. Prints the result.
found()
{
	seed=0 start=$(date +%s) status=0
	while [ "$status" -eq 0 ]; do
		seed=$((seed + 1))
		left=$((MUTANT_S - ($(date +%s) - start)))
		[ "$left" -gt 0 ] || break
		# shellcheck disable=SC2086 # a list of options
		timeout "$left" "$tmp/$1/test/simulate" --here $2 --seed="$seed" \
			>/dev/null 2>"$tmp/$1/log" || status=$?
	done
	took=$(($(date +%s) - start))
	case $status:$(cat "$tmp/$1/log") in
	3:*"$3"*) ;;
	3:*)
		echo "not ok - $1: the error does not contain: $3"
		cat "$tmp/$1/log"
		return 1;;
	esac
	case $status in
	0 | 124)
		echo "not ok - $1: not found in $took s, $seed seeds"
		return 1;;
	2)
		echo "not ok - $1: bad options: $2"
		return 1;;
	3)
		text=$(sed -n 's/^found: seed [0-9]*, event [0-9]*, //p' "$tmp/$1/log");;
	*)
		text=$(sed -n 's/^simulation: //p' "$tmp/$1/log")
		text="the program ended with status $status: $text";;
	esac
	echo "ok - $1: found after $took s by seed $seed: $text"
}

# mutant NAME PATCH handles one mutant.
mutant()
{
	if ! apply "$1" "$2" >"$tmp/$1.log" 2>&1; then
		echo "not ok - $1: the patch does not apply"
	elif [ -n "$check" ]; then
		if compile "$1" -O0 -fsyntax-only >"$tmp/$1.log" 2>&1; then
			echo "ok - $1: applies and compiles"
			return
		fi
		echo "not ok - $1: the mutant does not compile"
	elif ! { compile "$1" && link "$1"; } >"$tmp/$1.log" 2>&1; then
		echo "not ok - $1: the mutant does not compile"
	else
		found "$1" "$(field Options "$2")" "$(field Found "$2")"
		return
	fi
	sed 's/^/    /' "$tmp/$1.log"
	return 1
}

# The patch of one mutant: this script has started itself.
if [ "${1:-}" = --patch ]; then
	mutant "$(basename "$2" .patch)" "$2"
	exit
fi

# list NAME... prints the patches of the mutants.
list()
{
	for patch in "$SRC"/fabtests/mutants/*.patch; do
		[ $# -gt 0 ] || echo "$patch"
		for name; do
			case $(basename "$patch") in
			*"$name"*) echo "$patch"; break;;
			esac
		done
	done
}

# shellcheck disable=SC2086 # --check or nothing
list "$@" | tr '\n' '\0' |
	xargs -0 -r -n 1 -P "$MUTANT_JOBS" sh "$0" $check --patch |
	tee "$tmp/results" || :
passed=$(grep -c '^ok' "$tmp/results") || :
failed=$(grep -c '^not ok' "$tmp/results") || :
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
