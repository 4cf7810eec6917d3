/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Tests the descriptors that this library and Mooncake see of each other in a
 * common store. The functions mooncake_… read a descriptor by the rules of
 * Mooncake's reader: a missing number is 0, a missing text is "", and unknown
 * members are skipped.
 */
#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "meta/meta_int.h"
#include "meta/meta_record.h"
#include "meta/meta_test.h"
#include "meta/tei_meta_desc.h"
#include "meta/tei_meta_server.h"
#include "meta/tei_meta_store.h"

static double mooncake_number(const cJSON *o, const char *key)
{
	const cJSON *v = cJSON_GetObjectItemCaseSensitive(o, key);

	CU_ASSERT(!v || cJSON_IsNumber(v));
	return v ? v->valuedouble : 0;
}

static const char *mooncake_text(const cJSON *o, const char *key)
{
	const cJSON *v = cJSON_GetObjectItemCaseSensitive(o, key);

	CU_ASSERT(!v || cJSON_IsString(v));
	return v && cJSON_IsString(v) ? v->valuestring : "";
}

static const cJSON *mooncake_list(const cJSON *o, const char *key)
{
	const cJSON *v = cJSON_GetObjectItemCaseSensitive(o, key);

	CU_ASSERT_FATAL(cJSON_IsArray(v));
	return v;
}

static void mooncake_takes_device(const cJSON *d)
{
	CU_ASSERT(*mooncake_text(d, "name") != 0);
	CU_ASSERT(*mooncake_text(d, "gid") != 0);
	CU_ASSERT(mooncake_number(d, "lid") >= 0 &&
		  mooncake_number(d, "lid") < 65536);
}

static void mooncake_takes_buffer(const cJSON *b, bool keys, int devices)
{
	CU_ASSERT(*mooncake_text(b, "name") != 0);
	CU_ASSERT(mooncake_number(b, "addr") > 0);
	CU_ASSERT(mooncake_number(b, "length") > 0);
	if (!keys)
		return;
	CU_ASSERT_EQUAL(cJSON_GetArraySize(mooncake_list(b, "rkey")), devices);
	CU_ASSERT_EQUAL(cJSON_GetArraySize(mooncake_list(b, "lkey")), devices);
}

/* Checks that Mooncake's reader accepts the descriptor json, and that it has
 * the given name and number of buffers. */
static void mooncake_takes(const char *json, const char *name, int buffers)
{
	cJSON *doc = cJSON_Parse(json), *o;
	bool rdma = false;
	int devices = 0;

	CU_ASSERT_FATAL(cJSON_IsObject(doc));
	CU_ASSERT_STRING_EQUAL(mooncake_text(doc, "name"), name);
	rdma = !strcmp(mooncake_text(doc, "protocol"), "rdma");
	CU_ASSERT(rdma || !strcmp(mooncake_text(doc, "protocol"), "tcp"));
	CU_ASSERT(cJSON_HasObjectItem(doc, "tcp_data_port"));
	CU_ASSERT_EQUAL(mooncake_number(doc, "tcp_data_port"), 0);
	CU_ASSERT_EQUAL(mooncake_number(doc, "tcp_proto_version"), 2);
	/* the format is YYYY-MM-DD hh:mm:ss.uuuuuu */
	CU_ASSERT_EQUAL(strlen(mooncake_text(doc, "timestamp")), 26);
	CU_ASSERT_EQUAL(mooncake_text(doc, "timestamp")[10], ' ');
	CU_ASSERT_EQUAL(mooncake_text(doc, "timestamp")[19], '.');
	CU_ASSERT_FALSE(cJSON_HasObjectItem(doc, "rdma_server_name"));
	if (rdma) {
		devices = cJSON_GetArraySize(mooncake_list(doc, "devices"));
		cJSON_ArrayForEach(o, mooncake_list(doc, "devices"))
			mooncake_takes_device(o);
		CU_ASSERT(cJSON_IsObject(cJSON_GetObjectItemCaseSensitive(
			doc, "priority_matrix")));
	}
	CU_ASSERT_EQUAL(cJSON_GetArraySize(mooncake_list(doc, "buffers")),
			buffers);
	cJSON_ArrayForEach(o, mooncake_list(doc, "buffers"))
		mooncake_takes_buffer(o, rdma, devices);
	cJSON_Delete(doc);
}

static struct tei_meta_desc *mooncake_our_desc(const char *protocol)
{
	struct tei_meta_rail rail = { .name = "mlx5_0", .provider = "verbs" };
	uint64_t keys[2] = { 7, UINT64_MAX };
	struct tei_meta_desc *d;
	int i;

	CU_ASSERT_EQUAL_FATAL(tei_meta_desc_create("node1", protocol, 9, &d,
						   NULL), 0);
	CU_ASSERT_EQUAL(tei_meta_desc_set_matrix(
		d, "{\"*\":[[\"mlx5_0\",\"mlx5_1\"],[]]}", NULL), 0);
	for (i = 0; i < 2; i++) {
		rail.name[5] = (char)('0' + i);
		CU_ASSERT_EQUAL(tei_meta_desc_add_rail(d, &rail, NULL), 0);
	}
	CU_ASSERT_EQUAL(tei_meta_desc_add_buffer(d, NULL, 4096, 1, keys, NULL,
						 NULL), 0);
	CU_ASSERT_EQUAL(tei_meta_desc_add_buffer(d, "cpu:0", 8192, 4096, keys,
						 NULL, NULL), 0);
	CU_ASSERT_EQUAL(tei_meta_desc_freeze(d, NULL), 0);
	return d;
}

static void test_descriptor_is_complete_for_mooncake(void)
{
	static const char *const protocols[] = { "tcp", "rdma" };
	struct tei_meta_desc *d;
	char *json;
	size_t len, i;

	for (i = 0; i < 2; i++) {
		d = mooncake_our_desc(protocols[i]);
		CU_ASSERT_EQUAL_FATAL(tei_meta_desc_encode(d, &json, &len,
							   NULL), 0);
		mooncake_takes(json, "node1", 2);
		CU_ASSERT_FALSE(meta_desc_of_mooncake(json, len));
		free(json);
		CU_ASSERT_EQUAL_FATAL(meta_head_encode(d, "h:1", false, &json,
						       &len, NULL), 0);
		mooncake_takes(json, "node1", 0);
		CU_ASSERT_FALSE(meta_desc_of_mooncake(json, len));
		free(json);
		tei_meta_desc_unref(d);
	}
}

static void test_placeholders_are_not_read_back(void)
{
	struct tei_meta_desc *a = mooncake_our_desc("rdma"), *b;
	char *json;
	size_t len;

	CU_ASSERT_EQUAL_FATAL(tei_meta_desc_encode(a, &json, &len, NULL), 0);
	CU_ASSERT_EQUAL_FATAL(tei_meta_desc_decode(json, len, &b, NULL), 0);
	CU_ASSERT_STRING_EQUAL(b->rails[0].gid, "");
	CU_ASSERT_EQUAL(b->buffers[0].rkey[1], UINT64_MAX);
	CU_ASSERT(tei_meta_desc_equal(a, b));
	free(json);
	tei_meta_desc_unref(a);
	tei_meta_desc_unref(b);
}

static void test_record_of_a_process_is_complete_for_mooncake(void)
{
	char *text = meta_rpc_encode("10.0.0.1", 15428, 9);
	cJSON *doc = cJSON_Parse(text);

	CU_ASSERT_STRING_EQUAL(mooncake_text(doc, "ip_or_host_name"),
			       "10.0.0.1");
	CU_ASSERT_EQUAL(mooncake_number(doc, "rpc_port"), 15428);
	cJSON_Delete(doc);
	free(text);
}

static void test_record_of_a_mooncake_process_is_read(void)
{
	static const char text[] =
		"{\"ip_or_host_name\":\"10.0.0.1\",\"rpc_port\":15428}\n";
	char endpoint[TEI_META_ENDPOINT_MAX];
	uint64_t inc = 1;

	CU_ASSERT(meta_rpc_decode(text, strlen(text), endpoint, &inc));
	CU_ASSERT_STRING_EQUAL(endpoint, "10.0.0.1:15428");
	CU_ASSERT_EQUAL(inc, 0);
}

#define MOONCAKE_TAIL                                 \
	"\"name\":\"m\",\"tcp_data_port\":16001,"     \
	"\"tcp_proto_version\":2,"                    \
	"\"timestamp\":\"2026-03-04 05:06:07.000008\"}\n"

/* one example of each form of descriptor that Mooncake writes */
static const char *const mooncake_descs[] = {
	"{\"buffers\":[{\"addr\":140000000000000,\"length\":4096,"
	"\"lkey\":[11],\"name\":\"cpu:0\",\"rkey\":[12]}],"
	"\"devices\":[{\"gid\":\"fe:80\",\"lid\":1,\"name\":\"mlx5_2\"}],"
	"\"priority_matrix\":{\"cpu:0\":[[\"mlx5_2\"],[]]},"
	"\"protocol\":\"rdma\"," MOONCAKE_TAIL,
	"{\"buffers\":[{\"addr\":4096,\"length\":1,\"name\":\"*\"}],"
	"\"protocol\":\"tcp\"," MOONCAKE_TAIL,
	"{\"buffers\":[],\"protocol\":\"tcp\"," MOONCAKE_TAIL,
	"{\"buffers\":[{\"addr\":4096,\"length\":1,\"name\":\"cuda:0\","
	"\"device_id\":0}],\"protocol\":\"nccl\"," MOONCAKE_TAIL,
	"{\"buffers\":[{\"addr\":4096,\"length\":1,\"name\":\"cuda:0\","
	"\"shm_name\":\"6e6f\"}],\"protocol\":\"nvlink\"," MOONCAKE_TAIL,
	"{\"buffers\":[{\"offset\":0,\"length\":1,\"name\":\"cpu:0\"}],"
	"\"cxl_base_addr\":0,\"cxl_name\":\"dax0.0\",\"protocol\":\"cxl\","
	MOONCAKE_TAIL,
	"{\"buffers\":[{\"addr\":4096,\"length\":1,\"name\":\"cpu:0\","
	"\"tseg\":[\"a\"]}],\"devices\":[{\"eid\":\"1\",\"name\":\"u0\"}],"
	"\"priority_matrix\":{},\"protocol\":\"ub\"," MOONCAKE_TAIL,
	"{\"buffers\":[{\"addr\":4096,\"length\":1,\"name\":\"npu:0\"}],"
	"\"devices\":[],\"protocol\":\"ascend\",\"rank_info\":"
	"{\"rankId\":3,\"hostIp\":\"10.0.0.1\",\"endpoints\":[]},"
	MOONCAKE_TAIL,
	"{\"buffers\":[{\"addr\":4096,\"length\":1,\"name\":\"cpu:0\","
	"\"protocol\":\"tcp\"}],\"protocol\":[\"tcp\",\"hip\"],"
	MOONCAKE_TAIL,
};

#define MOONCAKE_DESCS (sizeof(mooncake_descs) / sizeof(mooncake_descs[0]))

static void test_segment_of_a_mooncake_process_is_refused(void)
{
	struct tei_meta_server *server = meta_test_server("127.0.0.1", 5, 0, 0);
	struct tei_meta_store *store;
	struct tei_meta_desc *desc;
	const char *name;
	struct tei_err err;
	char *json;
	size_t i, len;

	if (!server)
		return;
	name = tei_meta_server_name(server);
	CU_ASSERT_EQUAL_FATAL(tei_meta_store_open("P2PHANDSHAKE",
						  meta_test_settings(), &store,
						  NULL), 0);
	for (i = 0; i < MOONCAKE_DESCS; i++) {
		tei_meta_server_publish(server, name, mooncake_descs[i],
					strlen(mooncake_descs[i]), NULL);
		CU_ASSERT_EQUAL(tei_meta_store_fetch(store, name,
						     meta_test_deadline(),
						     &desc, &err),
				TEI_ERR_REJECTED);
		CU_ASSERT_PTR_NOT_NULL(strstr(err.text,
			"this segment belongs to a Mooncake process; "
			"moonrail's wire protocol differs"));
		CU_ASSERT_EQUAL_FATAL(tei_meta_store_text(store, name,
					meta_test_deadline(), &json, &len,
					&err), 0);
		CU_ASSERT_STRING_EQUAL(json, mooncake_descs[i]);
		free(json);
	}
	tei_meta_store_close(store);
	tei_meta_server_stop(server);
}

static void test_other_texts_are_not_taken_for_mooncake(void)
{
	static const char *const others[] = {
		"", "[]", "{}", "{\"protocol\":\"tcp\"}", "{\"buffers\":[]}",
		"{\"protocol\":\"nvmeof\",\"buffers\":[]}",
		"{\"protocol\":7,\"buffers\":[]}",
		"{\"protocol\":\"tcp\",\"buffers\":[]} x",
		"{\"protocol\":\"tcp\",\"buffers\":[",
		"{\"protocol\":\"tcp\",\"buffers\":[],\"incarnation\":1}",
	};
	size_t i;

	for (i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		CU_ASSERT_FALSE(meta_desc_of_mooncake(others[i],
						      strlen(others[i])));
}

const struct tei_test_case mooncake_cases[] = {
	{ "descriptor_is_complete_for_mooncake",
	  test_descriptor_is_complete_for_mooncake },
	{ "placeholders_are_not_read_back",
	  test_placeholders_are_not_read_back },
	{ "record_of_a_process_is_complete_for_mooncake",
	  test_record_of_a_process_is_complete_for_mooncake },
	{ "record_of_a_mooncake_process_is_read",
	  test_record_of_a_mooncake_process_is_read },
	{ "segment_of_a_mooncake_process_is_refused",
	  test_segment_of_a_mooncake_process_is_refused },
	{ "other_texts_are_not_taken_for_mooncake",
	  test_other_texts_are_not_taken_for_mooncake },
	{ NULL, NULL },
};
