/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Descriptors of Mooncake processes, which share stores and key names with this
 * library, but not its wire protocols.
 */
#include <string.h>

#include "meta/meta_int.h"
#include "meta/meta_json.h"

/* The members that show which program has written a descriptor. */
struct mooncake_members {
	bool protocol, buffers, ours, files;
};

static bool mooncake_member(struct meta_json *j, struct mooncake_members *m)
{
	char c;

	m->buffers |= !strcmp(j->text, "buffers");
	m->ours |= !strcmp(j->text, "incarnation");
	if (strcmp(j->text, "protocol") != 0)
		return meta_json_skip(j);
	/* a process with several protocols writes an array of protocols */
	c = meta_json_peek(j);
	m->protocol = c == '"' || c == '[';
	if (c != '"')
		return meta_json_skip(j);
	if (!meta_json_string(j))
		return false;
	m->files = !strcmp(j->text, "nvmeof");
	return true;
}

bool meta_desc_of_mooncake(const char *json, size_t len)
{
	struct mooncake_members m = { 0 };
	struct meta_json j;
	bool fine;

	meta_json_init(&j, json, len);
	fine = meta_json_object(&j);
	while (fine && !m.ours && meta_json_member(&j))
		fine = mooncake_member(&j, &m);
	fine = fine && !m.ours && meta_json_done(&j);
	meta_json_fini(&j);
	return fine && m.protocol && m.buffers && !m.files;
}
