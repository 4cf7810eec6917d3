/* SPDX-License-Identifier: BSD-2-Clause */
/* Examines a published segment: its descriptor in the store, whether its owner
 * is alive, and which of its rails each local rail reaches. */
#include <arpa/inet.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <rdma/fabric.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "meta/tei_meta_client.h"
#include "meta/tei_meta_desc.h"
#include "meta/tei_meta_store.h"
#include "tools/te_info.h"
#include "util/clock.h"
#include "util/settings.h"

#define SEGMENT_PAIR_MS 60000
#define SEGMENT_BUFFERS 1000	/* largest number of buffers that are listed */

/* Returns true for a segment of files, which belongs to no process and has no
 * rails. */
static bool segment_of_files(const struct tei_meta_desc *d)
{
	return !strcmp(d->protocol, "nvmeof");
}

static void segment_address(cJSON *o, const struct tei_meta_address *a)
{
	char ip[INET6_ADDRSTRLEN] = "", hex[2 * TEI_META_ADDRESS_MAX + 1];
	struct sockaddr_in6 in6;
	const uint8_t *bytes = a->bytes + INFO_ADDR_PREFIX;
	struct sockaddr_in in;
	uint32_t i, n;

	n = a->len > INFO_ADDR_PREFIX ? a->len - INFO_ADDR_PREFIX : 0;
	if ((a->format == FI_SOCKADDR_IN || a->format == FI_SOCKADDR) &&
	    n >= sizeof(in)) {
		memcpy(&in, bytes, sizeof(in));
		inet_ntop(AF_INET, &in.sin_addr, ip, sizeof(ip));
		info_text(o, "address", "%s:%u", ip, ntohs(in.sin_port));
	} else if (a->format == FI_SOCKADDR_IN6 && n >= sizeof(in6)) {
		memcpy(&in6, bytes, sizeof(in6));
		inet_ntop(AF_INET6, &in6.sin6_addr, ip, sizeof(ip));
		info_text(o, "address", "[%s]:%u", ip, ntohs(in6.sin6_port));
	} else {
		for (i = 0; i < n; i++)
			snprintf(hex + 2 * i, 3, "%02x", bytes[i]);
		hex[2 * i] = '\0';
		info_text(o, "address", "%s", hex);
	}
}

static void segment_devices(const struct tei_meta_desc *d, cJSON *doc)
{
	cJSON *list = info_array(doc, "devices"), *o;

	for (uint32_t i = 0; i < d->rail_count; i++) {
		o = info_object(list, NULL);
		info_text(o, "name", "%s", d->rails[i].name);
		info_text(o, "provider", "%s", d->rails[i].provider);
		segment_address(o, &d->rails[i].address);
		if (*d->rails[i].gid)
			info_text(o, "gid", "%s", d->rails[i].gid);
	}
}

static void segment_buffers(const struct tei_meta_desc *d, cJSON *doc)
{
	cJSON *list, *o;

	info_num(doc, "buffer_count", d->buffer_count);
	info_num(doc, "buffer_bytes", (double)d->size);
	list = info_array(doc, "buffers");
	for (uint32_t i = 0; i < d->buffer_count && i < SEGMENT_BUFFERS; i++) {
		o = info_object(list, NULL);
		info_text(o, "address", "0x%" PRIx64, d->buffers[i].addr);
		info_num(o, "bytes", (double)d->buffers[i].length);
		info_text(o, "location", "%s", d->buffers[i].location);
		if (d->buffers[i].label)
			info_text(o, "label", "%s", d->buffers[i].label);
		if (!strncmp(d->buffers[i].location, "cuda:", 5))
			info_text(o, "reached_by", tei_meta_desc_has_keys(
				  d, &d->buffers[i]) ? "rails" :
				  "memory that its owner grants");
	}
}

static void segment_files(const struct tei_meta_desc *d, cJSON *doc)
{
	cJSON *list = info_array(doc, "files"), *o, *mounts, *m;
	const struct tei_meta_file *f;

	info_num(doc, "file_count", d->file_count);
	info_num(doc, "file_bytes", (double)d->size);
	for (uint32_t i = 0; i < d->file_count && i < SEGMENT_BUFFERS; i++) {
		f = &d->files[i];
		o = info_object(list, NULL);
		info_text(o, "path", "%s", f->path);
		info_num(o, "bytes", (double)f->length);
		info_num(o, "offset", (double)f->offset);
		mounts = info_array(o, "mounts");
		for (uint32_t j = 0; j < f->local_count; j++) {
			m = info_object(mounts, NULL);
			info_text(m, "server", "%s", f->local[j].server);
			info_text(m, "path", "%s", f->local[j].path);
		}
	}
}

static void segment_doc(const struct tei_meta_desc *d, cJSON *doc)
{
	cJSON *matrix;

	info_text(doc, "protocol", "%s", d->protocol);
	info_num(doc, "descriptor_version", d->version);
	if (segment_of_files(d)) {
		segment_files(d, doc);
		return;
	}
	info_text(doc, "incarnation", "0x%016" PRIx64, d->incarnation);
	if (*d->local)
		info_text(doc, "host_identity", "%s", d->local);
	segment_devices(d, doc);
	segment_buffers(d, doc);
	matrix = d->priority_matrix ? cJSON_Parse(d->priority_matrix) : NULL;
	info_clean(matrix);
	if (matrix && !cJSON_AddItemToObject(doc, "priority_matrix", matrix))
		cJSON_Delete(matrix);
}

/* --- its owner ----------------------------------------------------------- */

/* Reports a fault of the process that owns the segment. cure: advice to the
 * user; "" stands for the advice to start the process again. */
static void segment_owner_bad(struct info *info, const char *name,
			      const char *what, const char *cure)
{
	cJSON *f = info_find(info, INFO_BAD, "segment_owner", name);

	info_what(f, "%s", what);
	info_why(f, "transfers to this segment fail or time out");
	info_cure(f, "%s", *cure ? cure :
		  "start its process again; the entry of a dead process disappears when its session expires");
}

static void segment_owner(struct info *info, struct tei_meta_store *store,
			  const struct tei_meta_desc *d, uint64_t limit_ns,
			  cJSON *doc)
{
	const char *name = info->opts.segment;
	cJSON *o = info_object(doc, "owner");
	char endpoint[TEI_META_ENDPOINT_MAX], text[512];
	uint64_t start, incarnation;
	struct tei_err err;

	if (tei_meta_store_resolve(store, name, tei_now_ns() + limit_ns,
				   endpoint, &err)) {
		snprintf(text, sizeof(text), "the control channel of the segment is not known: %s",
			 err.text);
		segment_owner_bad(info, name, text, err.hint);
		return;
	}
	info_text(o, "control_channel", "%s", endpoint);
	start = tei_now_ns();
	if (tei_meta_ping(endpoint, tei_meta_store_secret(store),
			  start + limit_ns, &incarnation, &err)) {
		info_bool(o, "answers", false);
		info_bool(o, "refuses", err.prov_errno == TEI_META_DENIED);
		snprintf(text, sizeof(text), "the process of the segment %s at %s: %s",
			 err.prov_errno == TEI_META_DENIED ? "refuses access" :
							     "does not answer",
			 endpoint, err.text);
		segment_owner_bad(info, name, text, err.hint);
		return;
	}
	info_bool(o, "answers", true);
	info_num(o, "answer_us", (double)(tei_now_ns() - start) / 1e3);
	info_text(o, "incarnation", "0x%016" PRIx64, incarnation);
	if (d->incarnation && incarnation != d->incarnation)
		segment_owner_bad(info, name, "another process answers at the segment's address: the descriptor belongs to a process that has ended",
				  "");
	else
		info_fine(info, "segment_owner", name, "the process of the segment answers at %s, in %.0f us",
			  endpoint, info_get_num(o, "answer_us"));
}

/* --- its rails ----------------------------------------------------------- */

/* What the child of one local rail has printed: its pairs, or the reason why it
 * has none. */
struct segment_answer {
	cJSON *pairs;
	char error[160];		/* "" if there are pairs */
};

static void segment_pair_line(struct info *info, const char *kind,
			      cJSON *value, void *arg)
{
	struct segment_answer *answer = arg;
	cJSON *copy;

	(void)info;
	if (!strcmp(kind, "error"))
		snprintf(answer->error, sizeof(answer->error), "%s",
			 info_get(value, "text"));
	if (strcmp(kind, "pair"))
		return;
	copy = cJSON_Duplicate(value, 1);
	if (copy && !cJSON_AddItemToArray(answer->pairs, copy))
		cJSON_Delete(copy);
}

static void segment_from(struct info *info, const struct info_rail *r,
			 cJSON *pairs)
{
	cJSON *log = cJSON_GetObjectItemCaseSensitive(info->doc, "log"), *o;
	char rail[96], provider[96], protocol[32], device[96], remote[600];
	const char *extra[] = { rail, provider, protocol, device, remote,
				NULL };
	struct segment_answer answer = { .pairs = pairs };
	int before = cJSON_GetArraySize(pairs);
	char why[160];

	snprintf(rail, sizeof(rail), "--rail=%s", r->name);
	snprintf(provider, sizeof(provider), "--provider=%s", r->provider);
	snprintf(protocol, sizeof(protocol), "--protocol=%s", r->transport);
	snprintf(device, sizeof(device), "--device_name=%s",
		 *r->host ? r->host : r->name);
	snprintf(remote, sizeof(remote), "--remote=%s", info->opts.segment);
	if (!info_child_run(info, "pair", extra, SEGMENT_PAIR_MS,
			    segment_pair_line, &answer, log, why,
			    sizeof(why))) {
		if (cJSON_GetArraySize(pairs) > before && !*answer.error)
			return;
		snprintf(why, sizeof(why), "the child process ended without stating a reason");
	}
	o = info_object(pairs, NULL);
	info_text(o, "local", "%s", r->name);
	info_text(o, "remote", "*");
	info_bool(o, "answers", false);
	info_text(o, "error", "%s", *answer.error ? answer.error : why);
}

/* Returns true if a local rail reaches the rail of that device. Otherwise sets
 * *error to the reason. */
static bool segment_reached(const cJSON *pairs, const char *device,
			    const char **error)
{
	const cJSON *p;

	*error = "there is no local rail to try";
	cJSON_ArrayForEach(p, pairs) {
		if (strcmp(info_get(p, "remote"), device) &&
		    strcmp(info_get(p, "remote"), "*"))
			continue;
		if (cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(p,
								  "answers")))
			return true;
		*error = info_get(p, "error");
	}
	return false;
}

static void segment_judge(struct info *info, const cJSON *doc,
			  const cJSON *pairs)
{
	const cJSON *devices = cJSON_GetObjectItemCaseSensitive(doc,
								"devices"), *d;
	const char *error;
	int good = 0, n = 0;
	cJSON *f;

	cJSON_ArrayForEach(d, devices) {
		n++;
		if (segment_reached(pairs, info_get(d, "name"), &error)) {
			good++;
			info_fine(info, "segment_rail", info_get(d, "name"),
				  "%s answers", info_get(d, "address"));
			continue;
		}
		f = info_find(info, INFO_WARN, "segment_rail",
			      info_get(d, "name"));
		info_what(f, "no local rail received an answer from %s: %s",
			  info_get(d, "address"), error);
		info_why(f, "this rail of the segment carries no data to or from this host");
		info_cure(f, "te_info --check --peer=ADDRESS checks the route; a firewall must let the ports pass");
	}
	if (good || !n)
		return;
	f = info_find(info, INFO_BAD, "segment_rail", info->opts.segment);
	info_what(f, n == 1 ? "the only rail of the segment does not answer" :
			      "none of the segment's %d rails answers", n);
	info_why(f, "nothing can be transferred to or from it");
	info_cure(f, "see the warnings about segment_rail");
}

static void segment_rails(struct info *info, const struct tei_meta_desc *d,
			  cJSON *doc)
{
	cJSON *pairs = info_array(doc, "pairs");
	size_t i;

	if (!d->buffer_count) {
		info_unseen(info, "segment_rail", "%s has published no buffer to read from",
			    info->opts.segment);
		return;
	}
	if (!info_pair_buffer(d)) {
		info_unseen(info, "segment_rail", "%s has published GPU memory only, which this test cannot read",
			    info->opts.segment);
		return;
	}
	for (i = 0; i < info->n_rails; i++)
		if (strcmp(info->rails[i].transport, "local"))
			segment_from(info, &info->rails[i], pairs);
	segment_judge(info, doc, pairs);
}

static void segment_missing(struct info *info, const struct tei_err *err)
{
	cJSON *f = info_find(info, INFO_BAD, "segment", info->opts.segment);

	info_what(f, "the descriptor of the segment cannot be read: %s", err->text);
	info_why(f, "openSegment fails in the same way");
	info_cure(f, "%s", *err->hint ? err->hint :
		  "check the name and --metadata_server; with P2PHANDSHAKE the name is host:port of a running process");
}

/* Examines a segment that a process has published. */
static void segment_live(struct info *info, struct tei_meta_store *store,
			 const struct tei_meta_desc *d, uint64_t limit_ns,
			 cJSON *doc)
{
	segment_owner(info, store, d, limit_ns, doc);
	segment_rails(info, d, doc);
}

void info_look_segment(struct info *info)
{
	cJSON *doc = info_object(info->doc, "segment");
	struct tei_meta_store *store;
	static struct tei_settings settings;
	struct tei_meta_desc *desc;
	struct tei_err err;
	uint64_t limit_ns;
	int ret;

	info_text(doc, "name", "%s", info->opts.segment);
	ret = tei_settings_load(&settings, &err);
	if (!ret)
		ret = tei_meta_store_open(info->opts.metadata_server,
					  &settings, &store, &err);
	if (ret) {
		segment_missing(info, &err);
		return;
	}
	limit_ns = settings.control.connect_timeout_s * TEI_NS_PER_SEC;
	ret = tei_meta_store_fetch(store, info->opts.segment,
				   tei_now_ns() + limit_ns, &desc, &err);
	if (ret) {
		segment_missing(info, &err);
	} else {
		segment_doc(desc, doc);
		if (segment_of_files(desc))
			info_fine(info, "segment", info->opts.segment,
				  "files, which belong to no process");
		else
			segment_live(info, store, desc, limit_ns, doc);
		tei_meta_desc_unref(desc);
	}
	tei_meta_store_close(store);
}
