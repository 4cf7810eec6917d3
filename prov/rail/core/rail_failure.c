/* SPDX-License-Identifier: BSD-2-Clause */
/* Explains errors of providers, and records the last error of each peer. */

#include <errno.h>
#include <rdma/fi_errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_failure.h"
#include "prov/rail/core/rail_peer_struct.h"
#include "util/clock.h"
#include "util/err.h"
#include "util/hint.h"

const char *rail_failure_hint(int fi_err)
{
	const char *hint;

	if (!fi_err)
		return "";
	if (fi_err == FI_EKEYREJECTED || fi_err == FI_ENOKEY)
		fi_err = FI_EACCES;
	hint = tei_hint(TEI_HINT_DATA, fi_err);
	return hint ? hint : "run with FI_LOG_LEVEL=warn to see the provider's own messages";
}

/*
 * Returns true if the errno describes a lost or refused connection, or a lack
 * of resources. Any other errno that a provider reports may be left from an
 * earlier call.
 */
static bool failure_errno_says(int error)
{
	static const int says[] = {
		ECONNREFUSED, ECONNRESET, ECONNABORTED, ETIMEDOUT, EPIPE,
		EHOSTUNREACH, EHOSTDOWN, ENETUNREACH, ENETDOWN, ENETRESET,
		ENOTCONN, ESHUTDOWN, EADDRNOTAVAIL, EMSGSIZE, EACCES, EPERM,
		ENOMEM, ENOBUFS, EMFILE, ENFILE, EFAULT,
	};

	for (size_t i = 0; i < sizeof(says) / sizeof(says[0]); i++)
		if (says[i] == error)
			return true;
	return false;
}

const char *rail_prov_text(int err, int *prov, const char *text)
{
	int code = abs(*prov);

	if (!text || !*text)
		return "";
	/* if the text is not that of an errno, it comes from the device, as
	 * with verbs */
	if (strcmp(text, fi_strerror(code)))
		return text;
	if (code == err)
		return "";
	if (failure_errno_says(code))
		return text;
	*prov = 0;
	return "";
}

void rail_peer_remember_failure(struct tei_rail_peer *peer,
				const struct rail *rail, int err, int prov,
				const char *text)
{
	struct rail_failure *b = &peer->tasks.last_failure;

	b->rail = rail;
	b->ns = tei_now_ns();
	b->err = err;
	b->prov = prov;
	snprintf(b->text, sizeof(b->text), "%s", text);
}

void rail_peer_last_failure(const struct tei_rail_peer *peer,
			    struct tei_err *err)
{
	const struct rail_failure *b = &peer->tasks.last_failure;

	err->prov_errno = b->prov ? b->prov : b->err;
	snprintf(err->rail, sizeof(err->rail), "%s", b->rail->name);
	snprintf(err->provider, sizeof(err->provider), "%s",
		 b->rail->nic.provider);
	snprintf(err->hint, sizeof(err->hint), "%s", rail_failure_hint(b->err));
}

bool rail_err_ends_conn(int err)
{
	switch (err) {
	case FI_EACCES:
	case FI_EINVAL:
	case FI_EMSGSIZE:
	case FI_ENOKEY:
	case FI_ENOMEM:
	case FI_EPERM:
	case FI_ETRUNC:
	case FI_EKEYREJECTED:
		return false;
	default:
		return true;
	}
}
