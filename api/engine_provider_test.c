/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Tests transports that require a provider, on a host that does not have this
 * provider. The tests make libfabric's tcp provider appear under the required
 * name. For this purpose, this program defines fi_getinfo and fi_fabric, which
 * the linker finds before those of libfabric. It also replaces functions of the
 * fabric and the domain, so that the tcp provider receives its real name in
 * calls.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <stdlib.h>
#include <string.h>

#include "api/api_test.h"
#include "api/engine_int.h"

#define PROVIDER_REAL	"tcp;ofi_rxm"
#define PROVIDER_LEN	4096u
#define EXPORT		__attribute__((visibility("default")))

/* The provider name that this program's fi_getinfo reports in place of
 * tcp;ofi_rxm. If NULL, the name is not changed. This variable changes only
 * while there is no engine. */
static const char *provider_alias;

/*
 * Copies of the function tables of fabrics and domains, in which some functions
 * are replaced. The copy is the first member, because the `ops` pointer of the
 * fabric or domain then also points to this struct. A fabric or domain may use
 * its table until the process ends, so the tables are never freed. They are in
 * the lists provider_fabrics and provider_domains, so that leak checkers do not
 * report them.
 */
struct provider_fabric {
	struct fi_ops_fabric ops;
	struct fi_ops_fabric *real;
	struct provider_fabric *next;
};

struct provider_domain {
	struct fi_ops_domain ops;
	struct fi_ops_domain *real;
	struct provider_domain *next;
};

static pthread_mutex_t provider_lock = PTHREAD_MUTEX_INITIALIZER;
/* list of all copies for fabrics; guarded by provider_lock */
static struct provider_fabric *provider_fabrics;
/* list of all copies for domains; guarded by provider_lock */
static struct provider_domain *provider_domains;

static void *provider_symbol(const char *name)
{
	void *symbol = dlsym(RTLD_NEXT, name);

	if (!symbol)
		abort();
	return symbol;
}

static void provider_rename(char **name, const char *to)
{
	free(*name);
	*name = strdup(to);
	if (!*name)
		abort();
}

static bool provider_is_alias(const struct fi_fabric_attr *attr)
{
	return provider_alias && attr && attr->prov_name &&
	       !strcmp(attr->prov_name, provider_alias);
}

/* Returns a copy of info in which the required name is replaced by the real
 * name of the provider. The caller frees the copy. */
static struct fi_info *provider_plain(const struct fi_info *info)
{
	struct fi_info *plain = fi_dupinfo(info);

	if (!plain)
		abort();
	if (provider_is_alias(plain->fabric_attr))
		provider_rename(&plain->fabric_attr->prov_name, PROVIDER_REAL);
	return plain;
}

static int provider_endpoint(struct fid_domain *domain, struct fi_info *info,
			     struct fid_ep **ep, void *context)
{
	struct provider_domain *d = (void *)domain->ops;
	struct fi_info *plain = provider_plain(info);
	int ret = d->real->endpoint(domain, plain, ep, context);

	fi_freeinfo(plain);
	return ret;
}

static int provider_domain(struct fid_fabric *fabric, struct fi_info *info,
			   struct fid_domain **domain, void *context)
{
	struct provider_fabric *f = (void *)fabric->ops;
	struct provider_domain *d = calloc(1, sizeof(*d));
	struct fi_info *plain = provider_plain(info);
	int ret = d ? f->real->domain(fabric, plain, domain, context) :
		      -FI_ENOMEM;

	fi_freeinfo(plain);
	if (ret) {
		free(d);
		return ret;
	}
	d->real = (*domain)->ops;
	d->ops = *d->real;
	d->ops.endpoint = provider_endpoint;
	(*domain)->ops = &d->ops;
	pthread_mutex_lock(&provider_lock);
	d->next = provider_domains;
	provider_domains = d;
	pthread_mutex_unlock(&provider_lock);
	return 0;
}

EXPORT int fi_fabric(struct fi_fabric_attr *attr, struct fid_fabric **fabric,
		     void *context)
{
	int (*real)(struct fi_fabric_attr *attr, struct fid_fabric **fabric,
		    void *context);
	void *symbol = provider_symbol("fi_fabric");
	struct provider_fabric *f;
	char *name;
	int ret;

	memcpy(&real, &symbol, sizeof(real));
	if (!provider_is_alias(attr))
		return real(attr, fabric, context);
	f = calloc(1, sizeof(*f));
	if (!f)
		return -FI_ENOMEM;
	name = attr->prov_name;
	attr->prov_name = (char *)PROVIDER_REAL;
	ret = real(attr, fabric, context);
	attr->prov_name = name;
	if (ret) {
		free(f);
		return ret;
	}
	f->real = (*fabric)->ops;
	f->ops = *f->real;
	f->ops.domain = provider_domain;
	(*fabric)->ops = &f->ops;
	pthread_mutex_lock(&provider_lock);
	f->next = provider_fabrics;
	provider_fabrics = f;
	pthread_mutex_unlock(&provider_lock);
	return 0;
}

EXPORT int fi_getinfo(uint32_t version, const char *node, const char *service,
		      uint64_t flags, const struct fi_info *hints,
		      struct fi_info **info)
{
	int (*real)(uint32_t version, const char *node, const char *service,
		    uint64_t flags, const struct fi_info *hints,
		    struct fi_info **info);
	void *symbol = provider_symbol("fi_getinfo");
	struct fi_info *plain, *i;
	int ret;

	memcpy(&real, &symbol, sizeof(real));
	if (!hints || !provider_is_alias(hints->fabric_attr))
		return real(version, node, service, flags, hints, info);
	plain = provider_plain(hints);
	ret = real(version, node, service, flags, plain, info);
	fi_freeinfo(plain);
	for (i = ret ? NULL : *info; i; i = i->next)
		provider_rename(&i->fabric_attr->prov_name, provider_alias);
	return ret;
}

static transfer_engine_t provider_engine(const char *address)
{
	char devices[64];
	const char *settings[] = { devices };
	const struct te_engine_options o = {
		.metadata = "P2PHANDSHAKE", .server_name = address,
		.settings = settings, .settings_count = 1,
	};
	transfer_engine_t e = NULL;

	snprintf(devices, sizeof(devices), "MOONRAIL_DEVICES=%s", address);
	CU_ASSERT_EQUAL_FATAL(te_engine_create(&o, sizeof(o), &e), 0);
	return e;
}

/* Returns true if all rails belong to transport rdma and use the provider with
 * that name. */
static bool provider_only(transfer_engine_t e, const char *name)
{
	struct te_rail_stats rails[8];
	size_t n = 8, i;
	bool good;

	CU_ASSERT_EQUAL(te_rail_stats(e, rails, sizeof(*rails), &n), 0);
	good = n > 0;
	for (i = 0; i < n && i < 8; i++)
		good &= !strcmp(rails[i].transport, "rdma") &&
			!strcmp(rails[i].provider, name);
	return good;
}

static int provider_write(transfer_engine_t e, transfer_engine_t target)
{
	static char from[PROVIDER_LEN], to[PROVIDER_LEN];
	transfer_request_t req = { .opcode = OPCODE_WRITE, .source = from,
				   .target_offset = (uintptr_t)to,
				   .length = PROVIDER_LEN };
	transfer_status_t status = { .status = STATUS_WAITING };
	char name[256];
	batch_id_t id;

	memset(from, 0x5a, sizeof(from));
	memset(to, 0, sizeof(to));
	CU_ASSERT_EQUAL(registerLocalMemory(e, from, sizeof(from), "*", 0), 0);
	CU_ASSERT_EQUAL(registerLocalMemory(target, to, sizeof(to), "*", 1), 0);
	CU_ASSERT_FATAL(!getLocalIpAndPort(target, name, sizeof(name)));
	req.target_id = openSegment(e, name);
	id = allocateBatchID(e, 1);
	CU_ASSERT_EQUAL(submitTransfer(e, id, &req, 1), 0);
	CU_ASSERT_EQUAL(te_wait_batch(e, id, -1, &status), 0);
	CU_ASSERT_EQUAL(freeBatchID(e, id), 0);
	CU_ASSERT_EQUAL(memcmp(from, to, sizeof(from)), 0);
	return status.status;
}

/* Checks that the transport with that name uses only the provider that it
 * requires, even if other providers are available. */
static void provider_run(const char *name)
{
	transfer_engine_t a, b;
	transport_t t;

	provider_alias = name;
	a = provider_engine("127.0.0.1");
	b = provider_engine("127.0.0.2");
	t = installTransport(a, name, NULL);
	CU_ASSERT_PTR_NOT_NULL_FATAL(t);
	CU_ASSERT_PTR_NOT_NULL_FATAL(installTransport(b, name, NULL));
	CU_ASSERT(provider_only(a, name));
	CU_ASSERT_PTR_EQUAL(installTransport(a, name, NULL), t);
	CU_ASSERT_PTR_EQUAL(installTransport(a, "rdma", NULL), t);
	CU_ASSERT_EQUAL(provider_write(a, b), STATUS_COMPLETED);
	CU_ASSERT_EQUAL(uninstallTransport(a, name), 0);
	CU_ASSERT(!provider_only(a, name));
	destroyTransferEngine(a);
	destroyTransferEngine(b);
	provider_alias = NULL;
}

static void test_transport_efa_is_rdma_with_provider_efa(void)
{
	provider_run("efa");
}

static void test_transport_cxi_is_rdma_with_provider_cxi(void)
{
	provider_run("cxi");
}

const struct tei_test_case provider_cases[] = {
	{ "transport_efa_is_rdma_with_provider_efa",
	  test_transport_efa_is_rdma_with_provider_efa },
	{ "transport_cxi_is_rdma_with_provider_cxi",
	  test_transport_cxi_is_rdma_with_provider_cxi },
	{ NULL, NULL },
};
