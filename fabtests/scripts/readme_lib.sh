# SPDX-License-Identifier: BSD-2-Clause
#
# Runs the examples of README.md: scripts source this file. They set tmp to
# a folder.
# shellcheck shell=sh disable=SC2154

# readme_code LANGUAGE: prints the first program of that language in README.md.
readme_code()
{
	sed -n "/^\`\`\`$1\$/,/^\`\`\`\$/p" "$SRC/README.md" | sed '/^```/d'
}

# readme_commands LANGUAGE: prints the commands below that program.
readme_commands()
{
	awk -v start="\`\`\`$1" '
		$0 == start { code = 1 }
		code && $0 == "```" { code = 0; below = 1 }
		below && /^    / { print substr($0, 5); seen = 1; next }
		seen { exit }
	' "$SRC/README.md"
}

# hello_pair PROGRAM: starts PROGRAM without arguments, then with the name that the
# first one prints, and then ends the first one. Prints the outputs. Succeeds if both
# programs do, and the first one has received "hello".
hello_pair()
{
	mkfifo "$tmp/in" || return 1
	: >"$tmp/first"
	"$1" <"$tmp/in" >"$tmp/first" &
	first=$!
	exec 3>"$tmp/in"
	rm -f "$tmp/in"
	until grep -q : "$tmp/first"; do
		kill -0 "$first" || return 1
		sleep 0.05
	done
	"$1" "$(sed -n 1p "$tmp/first")" || {
		kill "$first"
		return 1
	}
	echo >&3
	exec 3>&-
	wait "$first" || return 1
	cat "$tmp/first"
	grep -q '^hello' "$tmp/first"
}
