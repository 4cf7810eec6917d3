/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * GPU staging: the context, which connects both parts of the module with the
 * modules that they use.
 */
#include "prov/staging/staging_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void staging_err(struct tei_err *err, int code, const char *text)
{
	memset(err, 0, sizeof(*err));
	err->code = code;
	err->when_ns = tei_now_ns();
	snprintf(err->provider, sizeof(err->provider), "cuda");
	snprintf(err->text, sizeof(err->text),
		 "transfer of GPU memory through host memory: %s", text);
}

int tei_staging_open(const struct tei_settings *settings,
		     const struct tei_staging_ops *ops, void *arg,
		     struct tei_err *err, struct tei_staging **out)
{
	struct tei_staging *s = calloc(1, sizeof(*s));

	if (!s)
		return tei_err_fail(err, TEI_ERR_MEMORY, "staging", NULL,
				    "no memory");
	s->settings = settings;
	s->ops = ops;
	s->arg = arg;
	tei_mutex_init(&s->lock);
	*out = s;
	return 0;
}

void tei_staging_set_rails(struct tei_staging *s, struct tei_rail_dp *dp)
{
	__atomic_store_n(&s->dp, dp, __ATOMIC_RELEASE);
}

void tei_staging_set_gpu(struct tei_staging *s, struct tei_gpu *gpu)
{
	__atomic_store_n(&s->gpu, gpu, __ATOMIC_RELEASE);
}

void tei_staging_close(struct tei_staging *s)
{
	if (!s)
		return;
	staging_local_close(s);
	staging_remote_close(s);
}

void tei_staging_free(struct tei_staging *s)
{
	if (!s)
		return;
	staging_local_free(s);
	staging_remote_free(s);
	tei_mutex_fini(&s->lock);
	free(s);
}
