/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * te_set_log: passes the log lines of the process to a callback of the program.
 */
#include "api/engine_int.h"

_Static_assert((int)TE_LOG_ERROR == (int)TEI_LOG_ERROR &&
	       (int)TE_LOG_WARN == (int)TEI_LOG_WARN &&
	       (int)TE_LOG_INFO == (int)TEI_LOG_INFO &&
	       (int)TE_LOG_DEBUG == (int)TEI_LOG_DEBUG,
	       "levels of moonrail.h and of util/log.h");

int te_set_log(te_log_fn callback, void *context)
{
	if (!tei_log_set(callback, context))
		return 0;
	return tei_err_fail(NULL, TEI_ERR_INVALID, "engine", NULL,
			    "te_set_log: called from a log callback");
}
