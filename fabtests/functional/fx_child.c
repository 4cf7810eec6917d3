/* SPDX-License-Identifier: BSD-2-Clause */

/*
 * The peer: an engine in a process that executes commands. Each line on stdin
 * is a command; the answer is the line "r CODE text". CODE is the result of the
 * function named below, or 0 on success if none is named. Offsets count from
 * the start of the peer's memory.
 *
 *	reg OFF LEN REMOTE [LOCATION]	registerLocalMemory
 *	label OFF LEN FLAGS LABEL	te_register; LABEL "-" means no label
 *	unlabel OFF LEN FLAGS LABEL	te_unregister
 *	labels N LEN		te_register of N adjacent ranges in registered
 *				memory, with the labels t.0, t.1, …
 *	unlabels N LEN		te_unregister of these ranges
 *	protect OFF LEN		mprotect, which makes the range read-only
 *	copy OFF		allocates memory for a copy of the region that
 *				is registered at OFF
 *	unreg OFF		unregisterLocalMemory, then copies the region if
 *				"copy" was called for it
 *	same			CODE is 0 if the region still equals the copy
 *	open NAME		openSegment
 *	install TRANSPORT	installTransport; CODE is 0 on success
 *	close SEG		closeSegment
 *	start SEG OP OFF ADDR LEN BLOCK ROUNDS NAME
 *				starts transfers in a thread; sends a
 *				notification NAME with each round unless NAME is
 *				"-"
 *	bytes			text: bytes that the thread has transferred
 *	wait			waits for the thread; CODE is that of the
 *				submission, text: numbers of tasks by status
 *	notify SEG NAME MSG	genNotifyInEngine
 *	notes N			waits for N notifications; CODE is the number
 *				received, text: "NAME=MSG …"
 *	serve N			waits for N notifications "check". MSG is
 *				"OFF LEN SEQUENCE SENDER"; checks the pattern of
 *				the range and notifies SENDER of the result
 *	rails			text: "TRANSPORT ADDRESS TX RX …"
 *	said			CODE and text of te_last_error
 *	graceful		enableGracefulShutdown
 *	second			creates a second engine and calls
 *				enableGracefulShutdown; text: its name
 *	destroy			destroyTransferEngine
 *	handler			installs a SIGTERM handler that writes 0x77 to
 *				byte 0
 *	fork			forks a child that only waits; text: its pid
 *	ended			waits for that child; CODE is 0 if SIGTERM has
 *				ended it
 *	program			starts a program that outlives the peer; text:
 *				its pid
 *	exit CODE		exit(CODE), even if a transfer is in progress
 *	paths SEG		CODE is the number of paths; text: for each path
 *				"KIND PROVIDER RAIL ADDRESS RAIL ADDRESS"
 *	export OFF		te_segment_export to OFF; CODE is the length
 *	import OFF LEN		te_segment_import from OFF; CODE is the id
 *	count SEG ADDR WIDTH ROUNDS DEPTH THREADS
 *				fx_count_run with results at the start of the
 *				memory; text: "COMPLETED FAILED UNKNOWN OTHER
 *				SUM"
 *	lock SEG ADDR HOLDER ROUNDS
 *				fx_lock_run with scratch at the start of the
 *				memory; CODE is 0 if all rounds succeeded
 *
 * A test may add commands with fx_extend.
 */

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fabtests/functional/fx.h"

/* The fields are constant after the start of the peer, except those that the
 * transfer thread uses while `running` is true. */
static struct {
	transfer_engine_t engine;
	struct fx_buf mem;
	unsigned char *copy;
	uint64_t copy_off, copy_len;
	uint64_t reg_off[64], reg_len[64];
	unsigned int nreg;

	pthread_t thread;
	bool running;
	struct fx_job job;
	unsigned int rounds;
	char note[256];
	int code;
	unsigned int sum[8];
	unsigned int unfenced;
	uint64_t bytes;		/* bytes transferred so far; atomic */
} peer;

static fx_obey_fn child_more;

void fx_extend(fx_obey_fn obey)
{
	child_more = obey;
}

static int child_reg(const char *args)
{
	unsigned long long off, len;
	char location[64] = "*";
	int remote, ret;

	if (sscanf(args, "%llu %llu %d %63s", &off, &len, &remote,
		   location) < 3)
		return FX_NO_ANSWER;
	ret = registerLocalMemory(peer.engine, peer.mem.p + off, len, location,
				  remote);
	if (!ret && peer.nreg < 64) {
		peer.reg_off[peer.nreg] = off;
		peer.reg_len[peer.nreg++] = len;
	}
	return ret;
}

/* Registers (if `on` is true) or unregisters a range with te_register or
 * te_unregister. The label "-" means that the range has no label. */
static int child_label(const char *args, bool on)
{
	unsigned long long off, len;
	struct te_registration reg = { .flags = 0 };
	char label[256];
	unsigned int flags;

	if (sscanf(args, "%llu %llu %u %255s", &off, &len, &flags, label) != 4)
		return FX_NO_ANSWER;
	reg.addr = peer.mem.p + off;
	reg.length = len;
	reg.flags = flags;
	reg.label = strcmp(label, "-") ? label : NULL;
	return on ? te_register(peer.engine, &reg, sizeof(reg), 1)
		  : te_unregister(peer.engine, &reg, sizeof(reg), 1);
}

/* Registers (if `on` is true) or unregisters n adjacent ranges of len bytes
 * inside registered memory. Their labels are t.0, t.1, … */
static int child_labels(const char *args, bool on)
{
	struct te_registration *list;
	unsigned int i, n, len;
	char(*label)[16];
	int ret = FX_NO_ANSWER;

	if (sscanf(args, "%u %u", &n, &len) != 2)
		return FX_NO_ANSWER;
	list = calloc(n, sizeof(*list));
	label = calloc(n, sizeof(*label));
	for (i = 0; list && label && i < n; i++) {
		snprintf(label[i], sizeof(*label), "t.%u", i);
		list[i].addr = peer.mem.p + (size_t)i * len;
		list[i].length = len;
		list[i].flags = TE_REG_NESTED;
		list[i].label = label[i];
	}
	if (list && label)
		ret = on ? te_register(peer.engine, list, sizeof(*list), n)
			 : te_unregister(peer.engine, list, sizeof(*list), n);
	free(list);
	free(label);
	return ret;
}

static int child_protect(const char *args)
{
	unsigned long long off, len;

	if (sscanf(args, "%llu %llu", &off, &len) != 2)
		return FX_NO_ANSWER;
	return mprotect(peer.mem.p + off, len, PROT_READ);
}

static uint64_t child_reg_len(uint64_t off)
{
	for (unsigned int i = peer.nreg; i-- > 0;)
		if (peer.reg_off[i] == off)
			return peer.reg_len[i];
	return 0;
}

/* Allocates memory for the copy that child_unreg makes. Touches its pages now,
 * so that no page fault delays that copy. */
static int child_copy(const char *args)
{
	uint64_t off = strtoull(args, NULL, 10), len = child_reg_len(off);
	unsigned char *copy = malloc(len ? len : 1);

	if (!copy)
		return FX_NO_ANSWER;
	memset(copy, 1, len);
	free(peer.copy);
	peer.copy = copy;
	peer.copy_off = off;
	peer.copy_len = len;
	return 0;
}

static int child_unreg(const char *args)
{
	uint64_t off = strtoull(args, NULL, 10);
	int ret = unregisterLocalMemory(peer.engine, peer.mem.p + off);

	if (peer.copy && peer.copy_off == off)
		memcpy(peer.copy, peer.mem.p + off, peer.copy_len);
	return ret;
}

static int child_said(char *text, size_t size)
{
	struct te_error err = { 0 };

	te_last_error(&err, sizeof(err));
	snprintf(text, size, "%s", err.text);
	return err.code;
}

static int child_same(void)
{
	return !peer.copy || memcmp(peer.copy, peer.mem.p + peer.copy_off,
				    peer.copy_len);
}

/* Submits one round of the job as one task with a notification. */
static int child_submit_noted(struct fx_job *job)
{
	struct notify_msg note = { peer.note, peer.note };
	struct transfer_request req = {
		.opcode = job->op, .source = job->local, .target_id = job->seg,
		.target_offset = job->remote, .length = job->len,
	};
	int ret;

	job->tasks = 1;
	job->id = allocateBatchID(job->engine, 1);
	ret = submitTransferWithNotify(job->engine, job->id, &req, 1, note);
	if (ret)
		freeBatchID(job->engine, job->id);
	return ret;
}

static int child_round(void)
{
	struct fx_job job = peer.job;
	int ret;

	ret = peer.note[0] == '-' ? fx_job_start(&job) :
	      child_submit_noted(&job);
	if (ret)
		return ret;
	while (!fx_job_reach(&job, 1 + job.bytes, 1000) ||
	       job.n[STATUS_WAITING])
		__atomic_store_n(&peer.bytes, job.bytes, __ATOMIC_RELAXED);
	/* The job may have ended in the first poll, before the loop body. */
	__atomic_store_n(&peer.bytes, job.bytes, __ATOMIC_RELAXED);
	for (int i = 0; i < 8; i++)
		peer.sum[i] += job.n[i];
	peer.unfenced += job.unfenced;
	freeBatchID(job.engine, job.id);
	return 0;
}

static void *child_mover(void *arg)
{
	(void)arg;
	for (unsigned int i = 0; i < peer.rounds && !peer.code; i++)
		peer.code = child_round();
	return NULL;
}

static int child_start(const char *args)
{
	unsigned long long off, addr, len, block;
	struct fx_job job = { .engine = peer.engine };

	if (peer.running ||
	    sscanf(args, "%d %d %llu %llu %llu %llu %u %255s", &job.seg,
		   &job.op, &off, &addr, &len, &block, &peer.rounds,
		   peer.note) != 8)
		return FX_NO_ANSWER;
	job.local = peer.mem.p + off;
	job.remote = addr;
	job.len = len;
	job.block = block;
	peer.job = job;
	peer.code = 0;
	peer.unfenced = 0;
	memset(peer.sum, 0, sizeof(peer.sum));
	peer.running = !pthread_create(&peer.thread, NULL, child_mover, NULL);
	return peer.running ? 0 : FX_NO_ANSWER;
}

static int child_wait(char *text, size_t len)
{
	struct fx_job job = { 0 };

	if (!peer.running)
		return FX_NO_ANSWER;
	pthread_join(peer.thread, NULL);
	peer.running = false;
	memcpy(job.n, peer.sum, sizeof(job.n));
	job.unfenced = peer.unfenced;
	snprintf(text, len, "%s", fx_job_text(&job));
	return peer.code;
}

static int child_notify(const char *args)
{
	char name[256], msg[4096];
	struct notify_msg note = { name, msg };
	int seg;

	if (sscanf(args, "%d %255s %4095[^\n]", &seg, name, msg) != 3)
		return FX_NO_ANSWER;
	return genNotifyInEngine(peer.engine, (uint64_t)seg, note);
}

/* Calls take(notification, arg) for each received notification, until n have
 * arrived or FX_LONG_MS / 4 has passed. Returns the number that arrived. */
static int child_receive(int n, void (*take)(notify_msg_t *msg, void *arg),
			 void *arg)
{
	struct timespec pause = { .tv_nsec = 1000000 };
	int seen = 0;

	for (unsigned int ms = 0; seen < n && ms < FX_LONG_MS / 4; ms++) {
		int size = 0;
		notify_msg_t *msgs = getNotifsFromEngine(peer.engine, &size);

		for (int i = 0; i < size; i++)
			take(&msgs[i], arg);
		seen += size;
		freeNotifsMsgBuf(msgs, size);
		if (!size)
			nanosleep(&pause, NULL);
	}
	return seen;
}

static void child_note_text(notify_msg_t *msg, void *arg)
{
	char *text = arg;
	size_t used = strlen(text);

	snprintf(text + used, 4096 - used, "%s=%s ", msg->name, msg->msg);
}

static void child_note_check(notify_msg_t *msg, void *arg)
{
	unsigned long long off, len, sequence;
	char sender[128], verdict[] = "good", name[] = "verdict";
	struct notify_msg note = { name, verdict };
	int seg;

	(void)arg;
	if (strcmp(msg->name, "check") ||
	    sscanf(msg->msg, "%llu %llu %llu %127s", &off, &len, &sequence,
		   sender) != 4)
		return;
	if (!fx_buf_check(&peer.mem, off, len, sequence))
		memcpy(verdict, "evil", sizeof(verdict));
	seg = openSegment(peer.engine, sender);
	if (seg >= 0)
		genNotifyInEngine(peer.engine, (uint64_t)seg, note);
}

static int child_rails(char *text, size_t len)
{
	struct te_rail_stats stats[64];
	size_t n = 64, used = 0;
	int ret = te_rail_stats(peer.engine, stats, sizeof(stats[0]), &n);

	for (size_t i = 0; !ret && i < n && i < 64 && used < len; i++)
		used += (size_t)snprintf(
			text + used, len - used, "%s %s %llu %llu ",
			stats[i].transport,
			stats[i].address[0] ? stats[i].address : "-",
			(unsigned long long)stats[i].tx_bytes,
			(unsigned long long)stats[i].rx_bytes);
	return ret ? ret : (int)n;
}

static int child_paths(const char *args, char *text, size_t len)
{
	struct te_path p[8];
	size_t n = 8, used = 0;
	int ret = te_segment_paths(peer.engine, atoi(args), NULL, p,
				   sizeof(p[0]), &n);

	for (size_t i = 0; !ret && i < n && i < 8 && used < len; i++)
		used += (size_t)snprintf(text + used, len - used,
					 "%u %s %s %s %s %s ", p[i].kind,
					 p[i].provider, p[i].rail,
					 p[i].address, p[i].remote_rail,
					 p[i].remote_address);
	return ret ? ret : (int)n;
}

static int child_export(const char *args)
{
	uint64_t off = strtoull(args, NULL, 10);
	size_t size = peer.mem.len - off;
	int ret = te_segment_export(peer.engine, 0, peer.mem.p + off, &size);

	return ret ? ret : (int)size;
}

static int child_import(const char *args)
{
	unsigned long long off, len;
	segment_id_t id = -1;
	int ret;

	if (sscanf(args, "%llu %llu", &off, &len) != 2)
		return FX_NO_ANSWER;
	ret = te_segment_import(peer.engine, peer.mem.p + off, len, 0, &id);
	return ret ? ret : id;
}

/* --- ends of the peer ----------------------------------------------------- */

static int child_second(char *text)
{
	transfer_engine_t e = fx_engine("tcp");

	if (!e || !fx_engine_name(e, text, 128))
		return FX_NO_ANSWER;
	return enableGracefulShutdown(e);
}

static void child_mark(int sig)
{
	(void)sig;
	*(volatile unsigned char *)peer.mem.p = 0x77;
}

static int child_handler(void)
{
	struct sigaction act = { .sa_handler = child_mark,
				 .sa_flags = SA_RESTART };

	return sigaction(SIGTERM, &act, NULL);
}

static pid_t child_forked;

static int child_fork(char *text)
{
	child_forked = fork();
	if (!child_forked) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	snprintf(text, 32, "%d", (int)child_forked);
	return child_forked < 0;
}

/* Starts a program that sleeps for a minute and is not killed with the peer.
 * Its process id is the answer's text. */
static int child_program(char *text)
{
	pid_t pid = fork();

	if (!pid) {
		execlp("sleep", "sleep", "60", (char *)NULL);
		_exit(127);
	}
	snprintf(text, 32, "%d", (int)pid);
	return pid < 0;
}

static int child_ended(void)
{
	int status = 0;

	return waitpid(child_forked, &status, 0) != child_forked ||
	       !WIFSIGNALED(status) || WTERMSIG(status) != SIGTERM;
}

static int child_destroy(void)
{
	destroyTransferEngine(peer.engine);
	peer.engine = NULL;
	return 0;
}

static int child_count(const char *args, char *text)
{
	struct fx_count k = { .engine = peer.engine,
			      .results = (void *)peer.mem.p };
	struct fx_counted got;
	unsigned long long addr;

	if (sscanf(args, "%d %llu %u %u %u %u", &k.seg, &addr, &k.width,
		   &k.rounds, &k.depth, &k.threads) != 6)
		return FX_NO_ANSWER;
	k.addr = addr;
	fx_count_run(&k, &got);
	snprintf(text, 128, "%u %u %u %u %llu", got.completed, got.failed,
		 got.unknown, got.other, (unsigned long long)got.sum);
	return 0;
}

static int child_lock(const char *args)
{
	struct fx_lock l = { .engine = peer.engine,
			     .scratch = (void *)peer.mem.p };
	unsigned long long addr, who;

	if (sscanf(args, "%d %llu %llu %u", &l.seg, &addr, &who, &l.rounds) !=
	    4)
		return FX_NO_ANSWER;
	l.addr = addr;
	l.who = who;
	return fx_lock_run(&l) ? 0 : 1;
}

static int child_obey(const char *verb, const char *args, char *text)
{
	if (!strcmp(verb, "reg"))
		return child_reg(args);
	if (!strcmp(verb, "label") || !strcmp(verb, "unlabel"))
		return child_label(args, *verb == 'l');
	if (!strcmp(verb, "labels") || !strcmp(verb, "unlabels"))
		return child_labels(args, *verb == 'l');
	if (!strcmp(verb, "protect"))
		return child_protect(args);
	if (!strcmp(verb, "unreg"))
		return child_unreg(args);
	if (!strcmp(verb, "copy"))
		return child_copy(args);
	if (!strcmp(verb, "same"))
		return child_same();
	if (!strcmp(verb, "open"))
		return openSegment(peer.engine, args);
	if (!strcmp(verb, "install"))
		return installTransport(peer.engine, args, NULL) ? 0 : 1;
	if (!strcmp(verb, "close"))
		return closeSegment(peer.engine, atoi(args));
	if (!strcmp(verb, "start"))
		return child_start(args);
	if (!strcmp(verb, "bytes"))
		return snprintf(text, 32, "%llu", (unsigned long long)
				__atomic_load_n(&peer.bytes,
						__ATOMIC_RELAXED)) < 0;
	if (!strcmp(verb, "wait"))
		return child_wait(text, 4096);
	if (!strcmp(verb, "notify"))
		return child_notify(args);
	if (!strcmp(verb, "notes"))
		return child_receive(atoi(args), child_note_text, text);
	if (!strcmp(verb, "serve"))
		return child_receive(atoi(args), child_note_check, text);
	if (!strcmp(verb, "paths"))
		return child_paths(args, text, 4096);
	if (!strcmp(verb, "export"))
		return child_export(args);
	if (!strcmp(verb, "import"))
		return child_import(args);
	if (!strcmp(verb, "said"))
		return child_said(text, 4096);
	if (!strcmp(verb, "graceful"))
		return enableGracefulShutdown(peer.engine);
	if (!strcmp(verb, "second"))
		return child_second(text);
	if (!strcmp(verb, "destroy"))
		return child_destroy();
	if (!strcmp(verb, "handler"))
		return child_handler();
	if (!strcmp(verb, "fork"))
		return child_fork(text);
	if (!strcmp(verb, "ended"))
		return child_ended();
	if (!strcmp(verb, "program"))
		return child_program(text);
	if (!strcmp(verb, "exit"))
		exit(atoi(args));
	if (!strcmp(verb, "count"))
		return child_count(args, text);
	if (!strcmp(verb, "lock"))
		return child_lock(args);
	if (!strcmp(verb, "rails"))
		return child_rails(text, 4096);
	if (child_more)
		return child_more(peer.engine, &peer.mem, verb, args, text);
	return FX_NO_ANSWER;
}

/*
 * Reads the next line from stdin, without the newline. Returns false at the end
 * of the input. Waits in poll(2), because ThreadSanitizer delays signals while
 * a thread waits in read or in stdio.
 */
static bool child_line(char *line, size_t len)
{
	struct pollfd in = { .fd = STDIN_FILENO, .events = POLLIN };
	size_t used = 0;
	ssize_t n;

	do {
		n = poll(&in, 1, -1);
		if (n == 1)
			n = read(STDIN_FILENO, line + used, 1);
		if (n == 1 && line[used] == '\n')
			break;
		used += n == 1;
	} while (used + 1 < len && (n == 1 || (n < 0 && errno == EINTR)));
	line[used] = '\0';
	return used > 0;
}

static int child_loop(void)
{
	static char line[8192], text[4096];
	char *args;

	while (child_line(line, sizeof(line))) {
		args = strchr(line, ' ');
		if (args)
			*args++ = '\0';
		text[0] = '\0';
		printf("r %d ", child_obey(line, args ? args : "", text));
		printf("%s\n", text);
		fflush(stdout);
	}
	return 0;
}

void fx_netns(const char *name)
{
	char path[256];
	int fd;

	snprintf(path, sizeof(path), "/run/netns/%s", name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || setns(fd, CLONE_NEWNET))
		perror(path);
	if (fd >= 0)
		close(fd);
}

/* Applies one command line option of the peer. Must be called before any thread
 * is started, because options change the environment and the namespace. */
static void child_option(const char *arg, const char **transport,
			 const char **host)
{
	size_t name = strcspn(arg, "=");
	unsigned long long len;
	char env[128];
	int fd;

	if (!strncmp(arg, "transport=", 10)) {
		*transport = arg + 10;
	} else if (!strncmp(arg, "host=", 5)) {
		*host = arg + 5;
	} else if (!strncmp(arg, "netns=", 6)) {
		fx_netns(arg + 6);
	} else if (sscanf(arg, "mem=%d:%llu", &fd, &len) == 2) {
		peer.mem = fx_buf_map(len, fd);
		close(fd);
	} else if (sscanf(arg, "log=%d", &fd) == 1) {
		dup2(fd, STDERR_FILENO);
	} else if (arg[name] && name < sizeof(env)) {
		snprintf(env, name + 1, "%s", arg);
		setenv(env, arg + name + 1, 1);
	}
}

static int child_main(int argc, char **argv)
{
	const char *transport = "tcp", *host = "127.0.0.1", *meta, *own;
	char name[128];
	int ret;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (int i = 2; i < argc; i++)
		child_option(argv[i], &transport, &host);
	meta = getenv("FX_META");
	own = getenv("FX_NAME");
	peer.engine = createTransferEngine(meta ? meta : "P2PHANDSHAKE",
					   own ? own : host, host, 0,
					   !strcmp(transport, "auto"));
	if (!peer.mem.p || !peer.engine)
		return 1;
	if (strcmp(transport, "auto") && strcmp(transport, "none") &&
	    !installTransport(peer.engine, transport, NULL))
		return 1;
	if (!fx_engine_name(peer.engine, name, sizeof(name)))
		return 1;
	printf("ready %s %llx\n", name, (unsigned long long)peer.mem.addr);
	fflush(stdout);
	ret = child_loop();
	if (peer.running)
		pthread_join(peer.thread, NULL);
	destroyTransferEngine(peer.engine);
	free(peer.copy);
	fx_buf_unmap(&peer.mem);
	return ret;
}

void fx_init(int argc, char **argv)
{
	unsigned int load = ft_load();
	char text[16], timeout[16], fence[16];

	setvbuf(stdout, NULL, _IOLBF, 0);
	/* Peers extend their time limits by the same factor. */
	snprintf(text, sizeof(text), "%u", load);
	setenv("FT_LOAD", text, 0);
	snprintf(timeout, sizeof(timeout), "%d", FX_PATIENT_S);
	setenv("MC_SLICE_TIMEOUT", timeout, 0);
	/* A target that runs must be able to answer a fence in time; the
	 * default is 500 ms. */
	snprintf(fence, sizeof(fence), "%u", 500 * (load < 4 ? load : 4));
	setenv("MOONRAIL_FENCE_MS", fence, 0);
	setenv("MOONRAIL_DEVICES", "127.0.0.1,127.0.0.2", 0);
	/* With the default, each endpoint allocates 70 MB of receive buffers,
	 * which takes 50 ms, or seconds with a sanitizer. */
	setenv("FI_OFI_RXM_MSG_RX_SIZE", "1024", 0);
	if (argc > 1 && !strcmp(argv[1], "--peer"))
		exit(child_main(argc, argv));
}
