#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# timeout: 900
#
# Checks every reachable state of the models fence.pml and names.pml with spin.
# Then checks each model with one rule broken, for all its mutants: spin must
# find an error in each. Needs about 600 MB of memory.
set -u
: "${SRC:?}"
cc=${CC:-cc}
models=$SRC/fabtests/model

command -v spin >/dev/null 2>&1 || {
	echo 'no model checker; install spin'
	exit 77
}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cd "$tmp" || exit 1
bad=0

report()	# RESULT CASE
{
	echo "$1 - $2"
	[ "$1" = ok ] || { bad=1; cat "$tmp/out"; }
}

# search MODEL MUTANT OPTIMISATION: makes spin check all reachable states, and stores
# its output in the file out.
search()
{
	rm -f pan*
	spin -DMUTANT="$2" -a "$models/$1.pml" >out 2>&1 &&
		"$cc" "$3" -w -DSAFETY -DMEMLIM=2000 -o pan pan.c >>out 2>&1 &&
		./pan -m100000 >>out 2>&1
}

# complete: succeeds if the search whose output is in $out has covered all
# states.
complete()
{
	! grep -q 'too small\|not completed\|reached -DMEMLIM' out
}

for model in fence names; do
	search "$model" 0 -O1
	if grep -q 'errors: 0' out && complete; then
		echo "# $model: $(sed -n 's/^ *\([0-9]*\) states, stored.*/\1/p' out) states"
		report ok "model_${model}_holds_in_all_states"
	else
		report 'not ok' "model_${model}_holds_in_all_states"
	fi
	mutants=$(sed -n 's/.*MUTANT [!=]= \([1-9][0-9]*\).*/\1/p' \
		"$models/$model.pml" | sort -nu)
	[ "$mutants" ] || report 'not ok' "model_${model}_has_mutants"
	for mutant in $mutants; do
		# The search takes less time than the compiler's optimisation would.
		search "$model" "$mutant" -O0
		if grep -q 'errors: 1' out && grep -q 'assertion violated' out; then
			report ok "model_${model}_mutant_${mutant}_is_found"
		else
			report 'not ok' "model_${model}_mutant_${mutant}_is_found"
		fi
	done
done
exit $bad
