/* SPDX-License-Identifier: BSD-2-Clause */
/* The identity and its text: a prefix and seven fields, separated by colons. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "prov/local/local_int.h"

#define ID_PREFIX	"local1:"
#define ID_NUMBERS	6

int tei_local_identity(struct tei_local *ctx, struct tei_local_id *out)
{
	int rc = local_guard(ctx);

	if (rc)
		return rc;
	if (!ctx->shared)
		return TEI_ERR_UNSUPPORTED;
	memset(out, 0, sizeof(*out));
	memcpy(out->boot_id, ctx->host.boot_id, sizeof(out->boot_id));
	out->pid_ns = ctx->host.pid_ns;
	out->pid = ctx->host.pid;
	out->magic_fd = ctx->shared_fd;
	out->start_time = ctx->host.start_time;
	out->magic_addr = (uint64_t)(uintptr_t)ctx->shared;
	out->incarnation = ctx->incarnation;
	return 0;
}

int tei_local_id_format(const struct tei_local_id *id, char *buf, size_t len)
{
	int n = snprintf(buf, len,
			 ID_PREFIX "%.39s:%" PRIx64 ":%x:%x:%" PRIx64
				   ":%" PRIx64 ":%" PRIx64,
			 id->boot_id, id->pid_ns, (unsigned int)id->pid,
			 (unsigned int)id->magic_fd, id->start_time,
			 id->magic_addr, id->incarnation);

	return n < 0 || (size_t)n >= len ? TEI_ERR_INVALID : 0;
}

/*
 * Parses hexadecimal digits up to a colon or the end. Returns the position
 * after them, or NULL.
 */
static const char *id_number(const char *s, uint64_t max, uint64_t *out)
{
	size_t n = strspn(s, "0123456789abcdef");

	if (!n || n > 16 || (s[n] != ':' && s[n] != '\0'))
		return NULL;
	*out = strtoull(s, NULL, 16);
	return *out <= max ? s + n : NULL;
}

static const char *id_boot(const char *s, char out[40])
{
	size_t n;

	if (strncmp(s, ID_PREFIX, strlen(ID_PREFIX)))
		return NULL;
	s += strlen(ID_PREFIX);
	n = strspn(s, "0123456789abcdef-");
	if (!n || n > 39)
		return NULL;
	memcpy(out, s, n);
	return s + n;
}

int tei_local_id_parse(const char *text, struct tei_local_id *out)
{
	static const uint64_t max[ID_NUMBERS] = {
		UINT64_MAX, INT32_MAX, INT32_MAX, UINT64_MAX, UINT64_MAX,
		UINT64_MAX,
	};
	struct tei_local_id id = { .pid = 0 };
	uint64_t v[ID_NUMBERS];
	const char *s;
	int i;

	s = text ? id_boot(text, id.boot_id) : NULL;
	for (i = 0; s && i < ID_NUMBERS; i++)
		s = *s == ':' ? id_number(s + 1, max[i], &v[i]) : NULL;
	if (!s || *s)
		return TEI_ERR_INVALID;
	id.pid_ns = v[0];
	id.pid = (int32_t)v[1];
	id.magic_fd = (int32_t)v[2];
	id.start_time = v[3];
	id.magic_addr = v[4];
	id.incarnation = v[5];
	*out = id;
	return 0;
}
