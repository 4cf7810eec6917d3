#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# Tests check_abi: it finds each change that breaks programs, and distinguishes
# changes that only add to the ABI. Tests that check_bindings finds calls that a
# binding lacks.
set -u
: "${SRC:?}" "${BUILD:?}" "${SANITIZE:=no}"
CC=${CC:-cc}
export CC
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
status=0

# fresh: copies the headers, the map and the scripts, to be changed by a case.
fresh()
{
	rm -rf "$tmp/src"
	mkdir -p "$tmp/src"
	cp -R "$SRC/api" "$SRC/scripts" "$SRC/NEWS" "$SRC/VERSION" "$tmp/src"
	cp "$tmp/record" "$tmp/src/api/moonrail.abi"
}

result()
{
	if [ "$1" = yes ]; then
		printf 'ok - %s\n' "$2"
	else
		printf 'not ok - %s\n' "$2"
		sed 's/^/# /' "$tmp/out"
		status=1
	fi
}

# change FILE EXPRESSION: changes FILE by sed. Fails if nothing changes.
change()
{
	sed "$2" "$tmp/src/api/$1" >"$tmp/changed"
	cmp -s "$tmp/changed" "$tmp/src/api/$1" &&
		echo "not ok - '$2' changes nothing" && status=1
	cp "$tmp/changed" "$tmp/src/api/$1"
}

# compared CASE EXIT TEXT: compares the record with the changed headers, and expects
# this exit status and output.
compared()
{
	sh "$SRC/scripts/abi_lines" "$tmp/src/api/transfer_engine_c.h" \
		"$tmp/src/api/moonrail.h" >"$tmp/now" 2>"$tmp/out"
	sh "$SRC/scripts/abi_compare" "$tmp/record" "$tmp/now" >"$tmp/out"
	code=$?
	good=no
	[ "$code" -eq "$2" ] && good=yes
	[ "$code" -eq 0 ] || grep -q -- "$3" "$tmp/out" || good=no
	result "$good" "$1"
}

# checked CASE TEXT [PROVIDER]: expects that check_abi fails and prints TEXT.
checked()
{
	good=no
	SRC=$tmp/src PROV_SO=${3:-} VERSION=$(cat "$SRC/VERSION") LIB_SRCS='' \
		sh "$tmp/src/scripts/check_abi" >"$tmp/out" 2>&1 ||
		{ grep -q -- "$2" "$tmp/out" && good=yes; }
	result "$good" "$1"
}

sh "$SRC/scripts/abi_lines" "$SRC/api/transfer_engine_c.h" \
	"$SRC/api/moonrail.h" >"$tmp/record" || exit 1
fresh
compared unchanged_headers_are_the_same 0 ''
change moonrail.h 's/uint32_t reserved;/uint64_t reserved;/'
compared a_wider_field_breaks 2 'broken: field te_error.reserved'
fresh
change moonrail.h 's/uint32_t reserved;//'
compared a_field_that_went_breaks 2 'gone: field te_error.reserved'
fresh
change moonrail.h 's/uint64_t state_changes;.*/& uint64_t more;/'
compared a_field_at_the_end_is_growth 1 'new: size te_rail_stats'
fresh
change moonrail.h 's/uint64_t slices;.*/& uint64_t more;/'
compared a_field_in_the_middle_breaks 2 'broken: field te_rail_stats'
for piece in te_local te_remote; do
	fresh
	change moonrail.h "/^struct $piece {/,/^}/s/uint64_t length;.*/& uint64_t more;/"
	compared "pieces_of_a_request_may_not_grow_$piece" 2 "broken: size $piece"
done
fresh
change transfer_engine_c.h 's/uint64_t transferred_bytes;/& int more;/'
compared a_frozen_struct_may_not_grow 2 'broken: size transfer_status'
fresh
change transfer_engine_c.h 's/uint64_t target_offset;/uint32_t target_offset;/'
compared a_frozen_field_may_not_shrink 2 'broken: field transfer_request'
# retyped HEADER EXPRESSION LINE: changes a type to another one of the same size,
# which the check must find.
retyped()
{
	fresh
	change "$1" "$2"
	compared "another_type_of_that_size_breaks: ${2#*/}" 2 "broken: $3"
}
retyped moonrail.h 's/double rate;/uint64_t rate;/' 'field te_rail_stats.rate'
retyped transfer_engine_c.h 's/double ewma_/uint64_t ewma_/' \
	'field nic_load_stat.ewma_bandwidth_bps'
retyped moonrail.h 's/char text\[160\]/uint32_t text[40]/' 'field te_error.text'
retyped moonrail.h 's/char text\[160\]/char text[2][80]/' 'field te_error.text'
retyped moonrail.h 's/int32_t code;/uint32_t code;/' 'field te_error.code'
retyped moonrail.h 's/int32_t target_id;/uint32_t target_id;/' \
	'field te_request.target_id'
retyped moonrail.h 's/const struct te_local \*local/const struct te_remote *local/' \
	'field te_request.local'
retyped transfer_engine_c.h 's/void \*source;/uint64_t source;/' \
	'field transfer_request.source'
retyped transfer_engine_c.h 's/const char \*location;/uint64_t location;/' \
	'field segment_desc.desc_.rdma.location'
retyped transfer_engine_c.h 's/int32_t segment_id_t;/uint32_t segment_id_t;/' \
	'type segment_id_t'
retyped transfer_engine_c.h 's/uint64_t batch_id_t;/int64_t batch_id_t;/' \
	'type batch_id_t'
retyped transfer_engine_c.h 's/void \*transport_t;/uint64_t transport_t;/' \
	'type transport_t'
fresh
change transfer_engine_c.h 's/int32_t segment_id_t;/int segment_id_t;/'
change moonrail.h 's/int32_t target_id;/segment_id_t target_id;/'
compared another_name_of_a_type_is_the_same 0 ''
fresh
change moonrail.h 's/service rate, bytes per second/double, or uint64_t/'
change moonrail.h 's/char text.160.;/char  text[160];	\/* char text[2], *b *\/ /'
change transfer_engine_c.h 's/ segment_id_t;/ segment_id_t;	\/* a number *\/ /'
compared a_comment_is_nothing 0 ''
fresh
change moonrail.h 's/uint64_t mapped;/uint64_t other[1], mapped;/'
compared a_field_behind_an_array_is_seen 2 'broken: field te_memory.mapped'
fresh
change moonrail.h 's/TE_RAIL_DOWN = 2/TE_RAIL_DOWN = 4/'
compared another_constant_breaks 2 'broken: value TE_RAIL_DOWN'
fresh
change moonrail.h 's/te_version(/te_release(/'
compared a_renamed_call_breaks 2 'gone: call const char \*te_version'
fresh
change moonrail.h 's/int te_last_error(struct te_error \*err, size_t size)/int te_last_error(struct te_error *err, int size)/'
compared other_arguments_break 2 'gone: call int te_last_error'

# bound CASE TEXT: expects that check_bindings fails and prints TEXT.
bound()
{
	good=no
	SRC=$tmp/src sh "$tmp/src/scripts/check_bindings" >"$tmp/out" 2>&1 ||
		{ grep -q -- "$2" "$tmp/out" && good=yes; }
	result "$good" "$1"
}

for binding in C++ Python Rust Go; do
	fresh
	cp -R "$SRC/docs" "$tmp/src"
	change moonrail.map 's/^\(.\)te_version;/&\n\1te_new_call;/'
	bound "new_call_that_a_binding_lacks_is_found_$binding" \
		"$binding does not call .*te_new_call"
done
change moonrail.map '/te_new_call;/d'
cat >>"$tmp/src/docs/BINDINGS.md" <<'END'

## Rust

| `te_version` | a reason |
END
bound left_out_function_that_is_called_is_found 'Rust leaves out .*te_version'
cat >>"$tmp/src/docs/BINDINGS.md" <<'END'

## Go

| `te_zzz` | a reason |
END
bound left_out_function_that_does_not_exist_is_found 'no such function: te_zzz'

if [ "$SANITIZE" = yes ]; then
	echo '# the check as a whole is for builds without sanitizer'
	exit "$status"
fi
fresh
change moonrail.map '/te_version;/d'
checked a_symbol_missing_in_the_map 'te_version'
fresh
change moonrail.map 's/^\(.\)te_version;/&\n\1te_zzz;/'
checked a_symbol_that_is_not_there 'te_zzz'
fresh
change moonrail.h 's/uint32_t reserved;/uint64_t reserved;/'
checked a_broken_struct 'would break'
fresh
change moonrail.h 's/uint64_t state_changes;.*/& uint64_t more;/'
checked a_struct_not_recorded 'make abi-record'
fresh
checked a_provider_that_is_not_there 'imports of .* cannot be read' \
	"$tmp/nothing.so"
exit "$status"
