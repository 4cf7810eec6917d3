# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=bash
#
# Completion of te_bench, te_info and te_meta. Options, and the commands of te_meta,
# are read from the tool's --help when they are completed.

# Prints the words that an option accepts.
_moonrail_values()
{
	case $1 in
	--mode) echo initiator target loopback raw demo self memcpy idle segments register prepared create ;;
	--operation) echo read write ;;
	--protocol) echo auto tcp rdma shm local ;;
	--pages) echo small transparent huge any ;;
	--file_sync) echo data dsync none ;;
	--file_io) echo uring threads auto ;;
	esac
}

_moonrail()
{
	local tool=$1 cur=${COMP_WORDS[COMP_CWORD]} option='' help values
	# bash splits --option=value at the equals sign.
	if [ "$cur" = '=' ]; then
		option=${COMP_WORDS[COMP_CWORD - 1]} cur=''
	elif [ "${COMP_WORDS[COMP_CWORD - 1]}" = '=' ]; then
		option=${COMP_WORDS[COMP_CWORD - 2]}
	fi
	COMPREPLY=()
	help=$("$tool" --help 2>/dev/null) || return 0
	if [ -n "$option" ]; then
		values=$(_moonrail_values "$option")
		if [ -n "$values" ]; then
			mapfile -t COMPREPLY < <(compgen -W "$values" -- "$cur")
		elif grep -qE "^  $option=(FILE|DIR|PATH)" <<<"$help"; then
			mapfile -t COMPREPLY < <(compgen -f -- "$cur")
			compopt -o filenames 2>/dev/null
		fi
	elif [[ $cur == -* ]]; then
		values=$(sed -n 's/^  \(--[a-z_]*=\{0,1\}\).*/\1/p' <<<"$help")
		mapfile -t COMPREPLY < <(compgen -W "$values" -- "$cur")
		[[ ${COMPREPLY[*]} != *= ]] || compopt -o nospace 2>/dev/null
	else
		values=$(sed -n 's/^  \([a-z][a-z]*\) .*  .*/\1/p' <<<"$help")
		mapfile -t COMPREPLY < <(compgen -W "$values" -- "$cur"; compgen -f -- "$cur")
		compopt -o filenames 2>/dev/null
	fi
	return 0
}

complete -F _moonrail te_bench te_info te_meta
