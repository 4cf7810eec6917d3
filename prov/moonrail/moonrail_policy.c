/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Policies, which determine by the size of an operation which rails carry it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "prov/moonrail/moonrail_domain.h"
#include "prov/moonrail/moonrail_int.h"
#include "prov/moonrail/moonrail_peer.h"
#include "prov/moonrail/moonrail_policy.h"
#include "prov/rail/tei_rail.h"
#include "util/log.h"

#define POLICY_PART	4096u	/* smallest stripe, bytes */

/* Returns the value of the environment variable that has the policies, and
 * stores its name in *name. Returns NULL if none is set. */
static const char *policy_text(const char **name)
{
	static const char *const env[] = {
		"FI_MOONRAIL_CONFIG", "FI_OFI_MRAIL_CONFIG",
	};
	const char *text;
	size_t i;

	for (i = 0; i < sizeof(env) / sizeof(env[0]); i++) {
		*name = env[i];
		text = getenv(env[i]);
		if (text && *text)
			return text;
	}
	return NULL;
}

static bool policy_size(const char *text, size_t len, uint64_t *size)
{
	char *end;

	if ((len == 2 && !strncmp(text, "-1", 2)) ||
	    (len == 9 && !strncmp(text, "ULONG_MAX", 9))) {
		*size = UINT64_MAX;
		return true;
	}
	if (*text < '0' || *text > '9')
		return false;
	*size = strtoull(text, &end, 10);
	return end == text + len;
}

static bool policy_kind(const char *text, size_t len,
			enum moonrail_policy_kind *kind)
{
	static const char *const name[] = {
		[MOONRAIL_ADAPTIVE] = "adaptive",
		[MOONRAIL_FIXED] = "fixed",
		[MOONRAIL_ROUND_ROBIN] = "round-robin",
		[MOONRAIL_STRIPING] = "striping",
	};
	size_t i;

	for (i = 0; i < sizeof(name) / sizeof(name[0]); i++) {
		if (strlen(name[i]) != len || strncmp(text, name[i], len))
			continue;
		*kind = (enum moonrail_policy_kind)i;
		return true;
	}
	return false;
}

/* Parses the first len bytes of "text" as one pair "size:policy" and adds it to
 * *p. Returns NULL, or the text of an error. */
static const char *policy_pair(const char *text, size_t len,
			       struct moonrail_policies *p)
{
	const char *colon = memchr(text, ':', len);
	struct moonrail_policy *at = &p->of[p->n];
	size_t n = colon ? (size_t)(colon - text) : 0;

	if (!colon)
		return "no colon between size and policy";
	if (p->n == MOONRAIL_POLICIES)
		return "too many pairs";
	if (!policy_size(text, n, &at->max))
		return "the size is not a number of bytes, -1 or ULONG_MAX";
	if (!policy_kind(colon + 1, len - n - 1, &at->kind))
		return "the policy is none of fixed, round-robin, striping, adaptive";
	if (p->n && at->max <= p->of[p->n - 1].max)
		return "the sizes do not ascend";
	p->n++;
	return NULL;
}

int moonrail_policies(struct moonrail_policies *p)
{
	const char *name, *text = policy_text(&name), *bad;
	size_t len;

	memset(p, 0, sizeof(*p));
	while (text) {
		len = strcspn(text, ",");
		bad = policy_pair(text, len, p);
		if (bad) {
			TEI_ERROR("prov", "%s: \"%.*s\": %s", name,
				  (int)(len < 80 ? len : 80), text, bad);
			return -FI_EINVAL;
		}
		text = text[len] ? text + len + 1 : NULL;
	}
	return 0;
}

enum moonrail_policy_kind moonrail_policy(const struct moonrail_domain *d,
					  uint64_t size)
{
	uint32_t i;

	for (i = 0; i < d->policies.n; i++)
		if (size <= d->policies.of[i].max)
			return d->policies.of[i].kind;
	return MOONRAIL_ADAPTIVE;
}

uint32_t moonrail_policy_rail(struct moonrail_peer *p, uint32_t ep,
			      enum moonrail_policy_kind kind)
{
	uint8_t rails[TEI_RAIL_MAX];
	uint32_t n;

	if (kind == MOONRAIL_ADAPTIVE || !p->rail)
		return 0;
	n = tei_rail_peer_rails(p->rail, rails);
	if (!n)
		return 0;
	return 1u + rails[(kind == MOONRAIL_FIXED ? ep - 1
						  : p->domain->next_rail++) %
			  n];
}

uint32_t moonrail_policy_parts(struct moonrail_peer *p, uint64_t len,
			       uint8_t rails[TEI_RAIL_MAX])
{
	uint64_t most = len / POLICY_PART;
	uint32_t n = p->rail ? tei_rail_peer_rails(p->rail, rails) : 0;

	if (n > MOONRAIL_STRIPES)
		n = MOONRAIL_STRIPES;
	return n > most ? (uint32_t)most : n;
}
