#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# Runs libfabric's installed test programs, and those of moonrail, over one or
# several providers on this host, and prints a table of the results. The options
# have the same letters as those of libfabric's runner; run_fi.sh -h lists them.
# The exit status is 1 if the first provider failed a test that another provider
# passed, or, without another provider, any test.
set -u
LC_ALL=C
export LC_ALL
scripts=$(cd "$(dirname "$0")" && pwd)

usage()
{
	cat <<'TEXT'
run_fi.sh [OPTION…] PROVIDER [PROVIDER…]

  -t SET,…   all (newer where the programs are 2.x's), quick (unit, functional,
             short; the default), unit, functional, short, standard, own
             (BUILD's programs), newer (what libfabric's 2.x programs know
             beyond 1.17's)
  -p DIR     where the programs are, instead of PATH
  -e RE,…    leave out what matches one of these
  -f FILE    leave out what FILE says, instead of scripts/fi/PROVIDER.exclude
  -g ADDR    an address that exists (default 127.0.0.1)
  -s ADDR    the server's (default 127.0.0.1)
  -c ADDR    the client's (default 127.0.0.1)
  -b         addresses are exchanged out of band
  -E VAR=X   environment of the programs
  -C ARGS    more arguments of clients
  -L ARGS    more arguments of servers
  -T N       seconds for one test (default 60)
  -U         with delivery-complete
  -N         without the tests that are to find no provider
  -S         strict: what a provider says it has not is a failure
  -v         output of what failed; -vv: of what was not run too; -vvv: of all
TEXT
}

die()
{
	printf 'run_fi.sh: %s\n' "$1" >&2
	exit 2
}

sets=quick bins='' exclude='' file='' good=127.0.0.1 here=127.0.0.1
there=127.0.0.1 oob='' cargs='' sargs='' limit=60 more='' neg=yes strict=''
verbose=0
while getopts t:p:e:f:g:s:c:bE:C:L:T:UNSvh opt; do
	case $opt in
	t) sets=$OPTARG ;;
	p) bins=$OPTARG/ ;;
	e) exclude=$(printf %s "$OPTARG" | tr , '|') ;;
	f) file=$OPTARG; [ -r "$file" ] || die "$file cannot be read" ;;
	g) good=$OPTARG ;;
	s) here=$OPTARG ;;
	c) there=$OPTARG ;;
	b) oob=yes ;;
	E) case $OPTARG in
		[A-Za-z_]*=*) export "${OPTARG?}" ;;
		*) die "-E $OPTARG: not VAR=VALUE" ;;
		esac ;;
	C) cargs=$OPTARG ;;
	L) sargs=$OPTARG ;;
	T) limit=$OPTARG ;;
	U) more=-U ;;
	N) neg='' ;;
	S) strict=yes ;;
	v) verbose=$((verbose + 1)) ;;
	h) usage; exit 0 ;;
	*) usage >&2; exit 2 ;;
	esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || { usage >&2; exit 2; }
case ,$sets, in
*,all,*) sets=unit,functional,short,standard,own
	# The programs of libfabric 1.17 do not know the options of these tests.
	# fi_rdm_bw_mt is the newest program, so it shows that all of them exist.
	command -v "${bins}fi_rdm_bw_mt" >/dev/null && sets=$sets,newer ;;
*,quick,*) sets=$sets,unit,functional,short ;;
esac

dir=$(mktemp -d) || exit 2
server=''
trap 'rm -rf "$dir"' EXIT
trap 'kill $server 2>/dev/null; exit 130' HUP INT TERM

# patterns FILE: prints the patterns of a file with lines "PATTERN # REASON".
# Fails if a reason is missing.
patterns()
{
	awk -F ' # ' '/^#/ || /^$/ { next }
		NF != 2 { print FILENAME ": no reason: " $0 > "/dev/stderr"
			bad = 1; next }
		{ print $1 }
		END { exit bad }' "$1"
}

# excluded PROVIDER COMMAND: succeeds if the command is excluded.
excluded()
{
	[ -n "$exclude" ] && printf '%s\n' "$2" | grep -Eq -e "$exclude" &&
		return 0
	[ -s "$dir/exclude.$1" ] &&
		printf '%s\n' "$2" | grep -Eq -f "$dir/exclude.$1"
}

# verdict CODE CODE: prints the result for a pair of exit codes. The programs end
# with 61 (ENODATA) or 38 (ENOSYS) if the provider lacks a feature.
verdict()
{
	if [ "$1" -eq 0 ] && [ "$2" -eq 0 ]; then
		echo pass
	elif [ -z "$strict" ] && [ "$1" -eq "$2" ] &&
		{ [ "$1" -eq 61 ] || [ "$1" -eq 38 ]; }; then
		echo notrun
	else
		echo fail
	fi
}

# listening PORT: succeeds if a TCP or UDP socket has the port.
listening()
{
	cat /proc/net/tcp /proc/net/tcp6 /proc/net/udp 2>/dev/null |
		grep -q "$(printf ':%04X 0' "$1")"
}

# await PORT: waits for the server at the port, for about a second at most.
await()
{
	n=0
	while ! listening "$1" && [ $n -lt 20 ] && kill -0 "$server" \
		2>/dev/null; do
		sleep 0.05
		n=$((n + 1))
	done
	sleep 0.1
}

# pair PROVIDER COMMAND: runs a program as server and client.
pair()
{
	port=$((20000 + (port - 19999) % 20000))
	# shellcheck disable=SC2086 # words
	timeout "$limit" $bins$2 $more -p "$1" $sargs \
		${oob:+-E} ${oob:--s "$here" -B $port} >"$dir/server" 2>&1 &
	server=$!
	await $port
	# shellcheck disable=SC2086
	timeout "$limit" $bins$2 $more -p "$1" $cargs \
		${oob:+-E} ${oob:--s "$there" -P $port} "$here" \
		>"$dir/client" 2>&1
	c=$?
	if [ $c -ne 0 ]; then
		n=0
		while kill -0 $server 2>/dev/null && [ $n -lt 20 ]; do
			sleep 0.1
			n=$((n + 1))
		done
		kill $server 2>/dev/null
	fi
	wait $server 2>/dev/null
	verdict $? $c
}

# unit PROVIDER COMMAND: runs a program that needs no second process.
unit()
{
	: >"$dir/client"
	# shellcheck disable=SC2086
	timeout "$limit" $bins$2 -p "$1" >"$dir/server" 2>&1
	s=$?
	verdict $s $s
}

# own PROVIDER COMMAND: runs a program of moonrail, which starts both processes
own()
{
	: >"$dir/client"
	timeout "$limit" "${BUILD:-build}/fabtests/$2" "$1" \
		>"$dir/server" 2>&1
	s=$?
	if [ $s -eq 77 ]; then
		echo notrun
	else
		verdict $s $s
	fi
}

# run PROVIDER KIND COMMAND: runs a test of that kind and prints its result.
run()
{
	command=$(printf %s "$3" | sed "s/GOOD/$good/g; s/HERE/$here/g")
	if [ "$2" != neg ] && excluded "$1" "$3"; then
		echo excluded
	elif [ "$2" != own ] && ! command -v "$bins${3%% *}" >/dev/null; then
		echo absent
	elif [ "$2" = neg ]; then
		timeout "$limit" "$bins$command" -p nosuchprovider \
			>"$dir/server" 2>&1
		if [ $? -eq 61 ]; then echo pass; else echo fail; fi
	else
		"$2" "$1" "$command"
	fi
}

# tell PROVIDER RESULT: prints the output of a test if -v requests it.
tell()
{
	case $verbose$2 in
	[1-9]fail|[2-9]notrun|[3-9]pass)
		sed "s/^/    $1, server: /" "$dir/server"
		[ -s "$dir/client" ] && sed "s/^/    $1, client: /" "$dir/client"
		;;
	esac
}

for p; do
	f=${file:-$scripts/fi/$p.exclude}
	: >"$dir/exclude.$p"
	[ ! -r "$f" ] || patterns "$f" >"$dir/exclude.$p" || exit 2
done
first=$1
: >"$dir/results"
port=$((20000 + $$ % 20000))
awk '!/^#/ && NF' "$scripts/fi/tests.list" >"$dir/tests"
while read -r set kind command; do
	case ,$sets, in *",$set,"*) ;; *) continue ;; esac
	[ "$kind$neg" != neg ] || continue
	line=''
	for p; do
		: >"$dir/server"
		: >"$dir/client"
		# No subshell, because the server is a child of this shell.
		run "$p" "$kind" "$command" </dev/null >"$dir/result"
		result=$(tail -n 1 "$dir/result")
		line="$line $(printf %-9s "$result")"
		tell "$p" "$result"
		printf '%s\t%s\t%s\n' "$p" "$result" "$command" \
			>>"$dir/results"
	done
	printf '%s %s\n' "${line# }" "$command"
done <"$dir/tests"

awk -F '\t' -v first="$first" -v n=$# '
	{ count[$1, $2]++; of[$3, $1] = $2
	  if (!($1 in seen)) { seen[$1] = 1; name[++names] = $1 }
	  if (!($3 in had)) { had[$3] = 1; test[++tests] = $3 } }
	END {
		for (i = 1; i <= names; i++)
			printf "# %s: %d pass, %d fail, %d not run, %d excluded, %d absent\n",
				name[i], count[name[i], "pass"],
				count[name[i], "fail"],
				count[name[i], "notrun"],
				count[name[i], "excluded"],
				count[name[i], "absent"]
		for (t = 1; t <= tests; t++) {
			mine = of[test[t], first]; best = ""
			for (i = 2; i <= names; i++)
				if (of[test[t], name[i]] == "pass")
					best = name[i]
			if (mine != "pass" && best != "")
				printf "# %s with %s, passed with %s: %s\n",
					mine, first, best, test[t]
			bad += mine == "fail" && (n == 1 || best != "")
		}
		exit bad > 0
	}' "$dir/results"
