/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fabtests/functional/fx.h"

transfer_engine_t fx_engine_at(const char *host, const char *transport)
{
	bool discover = transport && !strcmp(transport, "auto");
	transfer_engine_t engine;

	engine = createTransferEngine("P2PHANDSHAKE", host, host, 0, discover);
	if (!engine) {
		ft_diag("createTransferEngine failed");
		return NULL;
	}
	if (discover || !transport ||
	    installTransport(engine, transport, NULL))
		return engine;
	ft_diag("installTransport %s failed", transport);
	destroyTransferEngine(engine);
	return NULL;
}

transfer_engine_t fx_engine(const char *transport)
{
	return fx_engine_at("127.0.0.1", transport);
}

transfer_engine_t fx_engine_timeout(const char *transport, unsigned int s)
{
	char *patient = strdup(getenv("MC_SLICE_TIMEOUT"));
	char own[16];
	transfer_engine_t engine;

	snprintf(own, sizeof(own), "%u", s);
	setenv("MC_SLICE_TIMEOUT", own, 1);
	engine = fx_engine(transport);
	setenv("MC_SLICE_TIMEOUT", patient, 1);
	free(patient);
	return engine;
}

transfer_engine_t fx_engine_hasty(const char *transport)
{
	return fx_engine_timeout(transport, FX_HASTY_S);
}

bool fx_engine_name(transfer_engine_t engine, char *buf, size_t len)
{
	return !getLocalIpAndPort(engine, buf, len) && *buf;
}

bool fx_register(transfer_engine_t engine, const struct fx_buf *buf)
{
	int ret;

	if (!buf->p)
		return false;
	ret = registerLocalMemory(engine, buf->p, buf->len, "*", 1);
	if (ret)
		ft_diag("registerLocalMemory returned %d", ret);
	return !ret;
}

struct fx_rails fx_rails(transfer_engine_t engine, const char *transport)
{
	struct te_rail_stats stats[64];
	struct fx_rails sum = { 0 };
	size_t n = 64;

	if (te_rail_stats(engine, stats, sizeof(stats[0]), &n))
		return sum;
	for (size_t i = 0; i < n && i < 64; i++) {
		if (strcmp(stats[i].transport, transport))
			continue;
		sum.count++;
		sum.used += stats[i].tx_bytes + stats[i].rx_bytes > 0;
		sum.tx += stats[i].tx_bytes;
		sum.rx += stats[i].rx_bytes;
	}
	return sum;
}
