/* SPDX-License-Identifier: BSD-2-Clause */
#include "util/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "util/clock.h"
#include "util/log.h"

static _Thread_local struct tei_err err_last;

static const struct {
	int code;
	const char *name;
} err_names[] = {
	{ TEI_OK, "success" },
	{ TEI_ERR_INVALID, "invalid argument" },
	{ TEI_ERR_TOO_MANY, "too many requests" },
	{ TEI_ERR_NOT_REGISTERED, "address not registered" },
	{ TEI_ERR_BUSY, "busy" },
	{ TEI_ERR_NO_DEVICE, "device not found" },
	{ TEI_ERR_OVERLAP, "address overlaps a registered range" },
	{ TEI_ERR_UNSUPPORTED, "unsupported transport" },
	{ TEI_ERR_TIMED_OUT, "the caller's time ran out" },
	{ TEI_ERR_CANCELED, "cancelled by the caller" },
	{ TEI_ERR_DNS, "name resolution failed" },
	{ TEI_ERR_SOCKET, "socket error" },
	{ TEI_ERR_JSON, "malformed JSON" },
	{ TEI_ERR_REJECTED, "handshake rejected" },
	{ TEI_ERR_METADATA, "metadata error" },
	{ TEI_ERR_ENDPOINT, "endpoint error" },
	{ TEI_ERR_CONTEXT, "rail error" },
	{ TEI_ERR_NUMA, "NUMA error" },
	{ TEI_ERR_CLOCK, "clock error" },
	{ TEI_ERR_MEMORY, "out of memory" },
	{ TEI_ERR_NOT_IMPLEMENTED, "not implemented" },
};

int tei_err_transfer_code(int code)
{
	if (code == TEI_ERR_NOT_IMPLEMENTED)
		return 999;
	return code < 0 ? -code : code;
}

const char *tei_err_name(int code)
{
	size_t i;

	for (i = 0; i < sizeof(err_names) / sizeof(err_names[0]); i++)
		if (err_names[i].code == code)
			return err_names[i].name;
	return "unknown error";
}

void tei_err_set_last(const struct tei_err *err)
{
	if (err != &err_last)
		err_last = *err;
}

const struct tei_err *tei_err_last(void)
{
	return &err_last;
}

/* Fills the error record and logs it. repeat limits the repetition of log
 * lines; if it is NULL, every line is logged. */
__attribute__((format(printf, 7, 0)))
static void err_tell(struct tei_log_repeat *repeat, struct tei_err *err,
		     enum tei_log_level level, int code, const char *subsys,
		     const char *hint, const char *fmt, va_list ap)
{
	struct tei_err e;

	memset(&e, 0, sizeof(e));
	e.code = code;
	e.when_ns = tei_now_ns();
	vsnprintf(e.text, sizeof(e.text), fmt, ap);
	if (hint)
		snprintf(e.hint, sizeof(e.hint), "%s", hint);
	tei_log_repeated(repeat, level, subsys, "%s (%s)%s%s", e.text,
			 tei_err_name(code), hint ? "; " : "",
			 hint ? hint : "");
	tei_err_set_last(&e);
	if (err)
		*err = e;
}

int tei_err_fail(struct tei_err *err, int code, const char *subsys,
		 const char *hint, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	err_tell(NULL, err, TEI_LOG_ERROR, code, subsys, hint, fmt, ap);
	va_end(ap);
	return code;
}

int tei_err_fail_repeated(struct tei_log_repeat *repeat, struct tei_err *err,
			  int code, const char *subsys, const char *hint,
			  const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	err_tell(repeat, err, TEI_LOG_ERROR, code, subsys, hint, fmt, ap);
	va_end(ap);
	return code;
}

int tei_err_note(struct tei_err *err, int code, const char *subsys,
		 const char *hint, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	err_tell(NULL, err, TEI_LOG_INFO, code, subsys, hint, fmt, ap);
	va_end(ap);
	return code;
}

int tei_err_prefix(struct tei_err *err, const char *fmt, ...)
{
	char text[2 * TEI_ERR_TEXT];
	size_t used;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, TEI_ERR_TEXT, fmt, ap);
	va_end(ap);
	used = strlen(text);
	snprintf(text + used, sizeof(text) - used, ": %s", err->text);
	memcpy(err->text, text, sizeof(err->text) - 1);
	tei_err_set_last(err);
	return err->code;
}
