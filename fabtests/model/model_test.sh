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

# The acceptor of fence events is written by hand from fence.pml, so it must be
# reviewed if the model changes.
acceptor_sum()
{
	"$cc" -E -P -x c "$models/fence.pml" | tr -d ' \t\n' | cksum |
		cut -d ' ' -f 1
}

# Prints the parts of the model that events of the acceptor name and that the
# model does not have.
acceptor_unknown()
{
	sed -n 's/.*X([A-Z_]*, "\([A-Za-z_]*\)").*/\1/p' \
		"$SRC/fabtests/sim/sim_fence.h" |
	while read -r part; do
		grep -qw -- "$part" "$models/fence.pml" || echo "$part"
	done
}

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

sum=$(acceptor_sum) unknown=$(acceptor_unknown)
: >out
if grep -q "SIM_FENCE_MODEL_SUM	$sum\$" "$SRC/fabtests/sim/sim_fence.h" &&
   [ -z "$unknown" ]; then
	report ok acceptor_of_fence_events_fits_model
else
	echo "fence.pml has the checksum $sum; unknown to it: ${unknown:-nothing}" >out
	echo 'review sim_fence.c, then set SIM_FENCE_MODEL_SUM' >>out
	report 'not ok' acceptor_of_fence_events_fits_model
fi

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
