/* SPDX-License-Identifier: BSD-2-Clause */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "fabtests/common/ft_clock.h"
#include "fabtests/common/ft_proc.h"
#include "meta/tei_meta_store.h"
#include "tools/te_info.h"
#include "util/err.h"
#include "util/settings.h"

#define CHILD_ARGS 24

/* --- the parent's side --------------------------------------------------- */

/* Arguments of a child process. args_free frees their texts. */
struct child_args {
	char *argv[CHILD_ARGS];
	int n;
};

static void args_add(struct child_args *a, const char *name,
		     const char *value)
{
	char *text;

	if (!value || a->n >= CHILD_ARGS - 1)
		return;
	if (asprintf(&text, "%s%s", name, value) < 0)
		return;
	a->argv[a->n++] = text;
}

static void args_make(struct child_args *a, const struct info_opts *opts,
		      const char *kind, const char *const *extra)
{
	char time[32];

	memset(a, 0, sizeof(*a));
	snprintf(time, sizeof(time), "%.3f", opts->probe_time);
	args_add(a, "", "/proc/self/exe");
	args_add(a, "--child=", kind);
	args_add(a, "--metadata_server=", opts->metadata_server);
	args_add(a, "--protocol=", opts->protocol);
	args_add(a, "--device_name=", opts->device_name);
	args_add(a, "--provider=", opts->provider);
	args_add(a, "--probe_time=", time);
	for (; extra && *extra; extra++)
		args_add(a, "", *extra);
}

static void args_free(struct child_args *a)
{
	while (a->n)
		free(a->argv[--a->n]);
}

/* Parses a line "@kind JSON". Returns the JSON value and sets *kind. Returns
 * NULL for any other line. */
static cJSON *child_line(char *line, char **kind)
{
	char *json;

	if (*line != '@')
		return NULL;
	*kind = line + 1;
	json = strchr(line, ' ');
	if (!json)
		return NULL;
	*json++ = '\0';
	return cJSON_Parse(json);
}

/* Adds a log line to log, without its time and process id. Adds nothing if log
 * already contains the line. */
static void child_log(cJSON *log, const char *line)
{
	const char *mark = strstr(line, " moonrail[");
	const char *text = mark ? strstr(mark, "] ") : NULL;
	const cJSON *o;

	text = text ? text + 2 : line;
	if (!log || !*text || cJSON_GetArraySize(log) >= 200)
		return;
	cJSON_ArrayForEach(o, log)
		if (o->valuestring && !strcmp(o->valuestring, text))
			return;
	info_text(log, NULL, "%s", text);
}

/* Writes what an exit status of ft_proc_wait means to why, and returns true.
 * For the statuses 0 and 1 writes nothing and returns false. */
static bool child_ended_badly(int status, char *why, size_t len)
{
	if (status == 0 || status == 1)
		return false;
	if (status > 128 && status < 192)
		snprintf(why, len, "ended by signal %d (%s)", status - 128,
			 strsignal(status - 128));
	else
		snprintf(why, len, "exit status %d", status);
	return true;
}

static unsigned int child_left(uint64_t end_ns)
{
	uint64_t now = ft_now_ns();

	return now >= end_ns ? 0 : (unsigned int)((end_ns - now) / 1000000) + 1;
}

int info_child_run(struct info *info, const char *kind,
		   const char *const *extra, unsigned int ms, info_line_fn fn,
		   void *arg, cJSON *log, char *why, size_t len)
{
	uint64_t end_ns = ft_now_ns() + ms * UINT64_C(1000000);
	struct ft_proc *proc = malloc(sizeof(*proc));
	char *line = malloc(sizeof(proc->line)), *what;
	struct child_args args;
	cJSON *value;
	int ret = -1, status;

	snprintf(why, len, "out of memory, or the process could not be started");
	args_make(&args, &info->opts, kind, extra);
	if (!proc || !line || !args.argv[0] || ft_proc_start(proc, args.argv))
		goto out;
	while (!ft_proc_line(proc, line, sizeof(proc->line),
			     child_left(end_ns))) {
		value = child_line(line, &what);
		if (value)
			fn(info, what, value, arg);
		else
			child_log(log, line);
		cJSON_Delete(value);
	}
	status = ft_proc_wait(proc, child_left(end_ns));
	if (status < 0) {
		ft_proc_kill(proc);
		snprintf(why, len, "the child process did not end within %u s", ms / 1000);
		goto out;
	}
	ft_proc_stop(proc, 1);
	ret = child_ended_badly(status, why, len) ? -1 : 0;
out:
	args_free(&args);
	free(line);
	free(proc);
	return ret;
}

int info_child_start(struct info *info, struct ft_proc *proc,
		     const char *kind, const char *const *extra,
		     unsigned int ms, cJSON **value, cJSON *log, char *why,
		     size_t len)
{
	uint64_t end_ns = ft_now_ns() + ms * UINT64_C(1000000);
	char *line = malloc(sizeof(proc->line)), *what;
	struct child_args args;
	int ret = -1;

	snprintf(why, len, "out of memory, or the process could not be started");
	*value = NULL;
	args_make(&args, &info->opts, kind, extra);
	if (!line || !args.argv[0] || ft_proc_start(proc, args.argv))
		goto out;
	snprintf(why, len, "no answer within %u s", ms / 1000);
	while (!ft_proc_line(proc, line, sizeof(proc->line),
			     child_left(end_ns))) {
		*value = child_line(line, &what);
		if (!*value) {
			child_log(log, line);
			continue;
		}
		ret = strcmp(what, "error") ? 0 : -1;
		if (ret)
			snprintf(why, len, "%s", info_get(*value, "text"));
		break;
	}
	if (ret)
		ft_proc_kill(proc);
	if (ret && *value) {
		cJSON_Delete(*value);
		*value = NULL;
	}
out:
	args_free(&args);
	free(line);
	return ret;
}

/* --- the child's side ---------------------------------------------------- */

void info_say(const char *kind, cJSON *value)
{
	char *text = value ? cJSON_PrintUnformatted(value) : NULL;

	if (text && strlen(text) < 60000)
		printf("@%s %s\n", kind, text);
	else
		printf("%s: too long to be printed\n", kind);
	fflush(stdout);
	cJSON_free(text);
	cJSON_Delete(value);
}

void info_say_error(const char *call)
{
	struct te_error err;
	cJSON *e = cJSON_CreateObject();

	if (te_last_error(&err, sizeof(err)))
		memset(&err, 0, sizeof(err));
	info_text(e, "call", "%s", call);
	info_num(e, "code", err.code);
	info_text(e, "text", "%s", *err.text ? err.text : "no reason given");
	info_text(e, "hint", "%s", err.hint);
	info_text(e, "provider", "%s", err.provider);
	info_text(e, "rail", "%s", err.rail);
	info_say("error", e);
}

void info_say_err(const char *call, const struct tei_err *err)
{
	cJSON *e = cJSON_CreateObject();

	info_text(e, "call", "%s", call);
	info_num(e, "code", err->code);
	info_text(e, "text", "%s", *err->text ? err->text : "no reason given");
	info_text(e, "hint", "%s", err->hint);
	info_say("error", e);
}

void info_child_setup(const struct info_opts *opts)
{
	/* log lines go to stdout, so that the parent reads them too */
	dup2(STDOUT_FILENO, STDERR_FILENO);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (opts->device_name)
		setenv("MOONRAIL_DEVICES", opts->device_name, 1);
	if (opts->provider)
		setenv("MOONRAIL_PROVIDER", opts->provider, 1);
}

struct tei_meta_store *info_child_store(const struct info_opts *opts)
{
	static struct tei_settings settings;
	struct tei_meta_store *store;
	struct tei_err err;

	if (!tei_settings_load(&settings, &err) &&
	    !tei_meta_store_open(opts->metadata_server, &settings, &store,
				 &err))
		return store;
	info_say_err("metadata", &err);
	return NULL;
}

transfer_engine_t info_child_engine(const struct info_opts *opts)
{
	bool automatic = !strcmp(opts->protocol, "auto");
	transfer_engine_t engine;

	engine = createTransferEngine("P2PHANDSHAKE", "127.0.0.1", "", 0,
				      automatic);
	if (!engine) {
		info_say_error("createTransferEngine");
		return NULL;
	}
	if (automatic || installTransport(engine, opts->protocol, NULL))
		return engine;
	info_say_error("installTransport");
	destroyTransferEngine(engine);
	return NULL;
}

static const struct {
	const char *kind;
	int (*fn)(const struct info_opts *opts);
} child_table[] = {
	{ "engine", info_engine_child },
	{ "initiator", info_initiator_child },
	{ "pair", info_pair_child },
	{ "target", info_target_child },
};

int info_child_main(const struct info_opts *opts)
{
	for (size_t i = 0; i < sizeof(child_table) / sizeof(*child_table); i++)
		if (!strcmp(child_table[i].kind, opts->child)) {
			info_child_setup(opts);
			return child_table[i].fn(opts);
		}
	fprintf(stderr, "te_info: no such child\n");
	return INFO_EXIT_USAGE;
}
