/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The binary interface for programs that were built for an earlier or later
 * version: checks that the layouts of structs have not changed, and fills
 * outputs of the size that the caller passes.
 */
#include "api/engine_int.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define ABI_SIZE(s, bytes) \
	_Static_assert(sizeof(struct s) == (bytes), "struct " #s " is frozen")
#define ABI_AT(s, field, at) \
	_Static_assert(offsetof(struct s, field) == (at), \
		       "struct " #s " is frozen")

#if UINTPTR_MAX == UINT64_MAX
ABI_SIZE(transfer_request, 40);
ABI_AT(transfer_request, source, 8);
ABI_AT(transfer_request, target_id, 16);
ABI_AT(transfer_request, target_offset, 24);
ABI_AT(transfer_request, length, 32);
ABI_SIZE(transfer_status, 16);
ABI_AT(transfer_status, transferred_bytes, 8);
ABI_SIZE(buffer_entry, 16);
ABI_AT(buffer_entry, length, 8);
ABI_SIZE(notify_msg, 16);
ABI_AT(notify_msg, msg, 8);
ABI_SIZE(nic_load_stat, 80);
ABI_AT(nic_load_stat, inflight_bytes, 64);
ABI_AT(nic_load_stat, ewma_bandwidth_bps, 72);
ABI_SIZE(segment_desc, 48);
ABI_AT(segment_desc, desc_, 8);
ABI_SIZE(te_local, 16);
ABI_AT(te_local, length, 8);
ABI_SIZE(te_remote, 16);
ABI_AT(te_remote, length, 8);
#endif

/* These structs grow only at the end; the offsets of existing fields do not
 * change. */
ABI_AT(te_engine_options, settings, 32);
ABI_AT(te_error, text, 208);
ABI_AT(te_rail_stats, rate, 280);
ABI_AT(te_rail_stats, state_changes, 288);
ABI_AT(te_buffer, location, 16);
ABI_AT(te_buffer, label, 80);
ABI_AT(te_ended, cookie, 24);
ABI_AT(te_task, transferred_bytes, 16);
#if UINTPTR_MAX == UINT64_MAX
ABI_AT(te_request, cookie, 56);
ABI_AT(te_registration, label, 32);
#endif

/* Fields of 32 bits hold the values of the enums. */
_Static_assert(sizeof(enum te_rail_state) == sizeof(uint32_t),
	       "enums are 32 bits wide");

void engine_out(void *out, size_t size, const void *ours, size_t len)
{
	memcpy(out, ours, size < len ? size : len);
	if (size > len)
		memset((char *)out + len, 0, size - len);
}

void engine_error_out(const struct tei_err *in, uint32_t flags,
		      struct te_error *out, size_t size)
{
	struct te_error e;

	memset(&e, 0, sizeof(e));
	if (in && in->unfenced)
		flags |= TE_ERROR_UNFENCED;
	if (in) {
		e.code = in->code;
		e.prov_errno = in->prov_errno;
		e.flags = flags | (in->unknown ? TE_ERROR_UNKNOWN : 0) |
			  (in->stale ? TE_ERROR_STALE : 0);
		snprintf(e.rail, sizeof(e.rail), "%s", in->rail);
		snprintf(e.peer, sizeof(e.peer), "%s", in->peer);
		snprintf(e.provider, sizeof(e.provider), "%s", in->provider);
		snprintf(e.text, sizeof(e.text), "%s", in->text);
		snprintf(e.hint, sizeof(e.hint), "%s",
			 flags & TE_ERROR_UNFENCED && !*in->hint ?
			 "unfenced: operations that were posted may still write to the target" :
			 in->hint);
	}
	engine_out(out, size, &e, sizeof(e));
}
