/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Recognizes descriptors of Mooncake processes. They may be in the same store
 * under keys of the same form, but this library cannot transfer to these
 * processes, because the wire protocols differ.
 */
#include <string.h>

#include "meta/meta_int.h"
#include "meta/meta_json.h"

/* Members of a descriptor that show which program has written it; true:
 * found. */
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
