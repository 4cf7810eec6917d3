/* SPDX-License-Identifier: BSD-2-Clause */
/* GPU memory of another process. The owner of the memory is a second process of
 * this program. */
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "api/api_test.h"
#include "api/engine_int.h"
#include "api/engine_ipc.h"
#include "fabtests/common/cuda_stand_in.h"

#define IPC_SIZE	65536u

extern char **environ;

/* What the owner sends through its socket. */
struct ipc_owner {
	char name[256];
	uint64_t addr;
};

static transfer_engine_t ipc_engine(void)
{
	struct te_engine_options options = {
		.metadata = "P2PHANDSHAKE", .server_name = "127.0.0.1",
	};
	transfer_engine_t e = NULL;

	if (te_engine_create(&options, sizeof(options), &e))
		return NULL;
	return installTransport(e, "local", NULL) ? e : NULL;
}

int engine_ipc_test_owner(int fd)
{
	struct cuda_stand_in driver;
	struct ipc_owner owner;
	transfer_engine_t e;
	void *context;
	char byte;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	e = cuda_stand_in_load(&driver) ? ipc_engine() : NULL;
	if (!e || getLocalIpAndPort(e, owner.name, sizeof(owner.name)))
		return 1;
	owner.addr = cuda_stand_in_memory(&driver, 0, IPC_SIZE, &context);
	if (!owner.addr ||
	    registerLocalMemory(e, (void *)(uintptr_t)owner.addr, IPC_SIZE, "*",
				1) ||
	    write(fd, &owner, sizeof(owner)) != (ssize_t)sizeof(owner))
		return 1;
	/* until the test closes its end */
	return read(fd, &byte, 1) != 0;
}

struct ipc_rig {
	struct cuda_stand_in driver;
	transfer_engine_t engine;
	char *host; /* IPC_SIZE bytes, registered */
	struct ipc_owner owner;
	pid_t pid;
	int fd;
	segment_id_t segment;
};

static void ipc_start_owner(struct ipc_rig *r)
{
	char number[16], option[] = "--ipc-owner", name[] = "api_test";
	char *argv[] = { name, option, number, NULL };
	int sv[2];

	CU_ASSERT_FATAL(!socketpair(AF_UNIX, SOCK_STREAM, 0, sv));
	snprintf(number, sizeof(number), "%d", sv[1]);
	r->fd = sv[0];
	CU_ASSERT_FATAL(!posix_spawn(&r->pid, "/proc/self/exe", NULL, NULL,
				     argv, environ));
	close(sv[1]);
	CU_ASSERT_FATAL(recv(r->fd, &r->owner, sizeof(r->owner), MSG_WAITALL) ==
			(ssize_t)sizeof(r->owner));
}

static struct ipc_rig ipc_open(void)
{
	struct ipc_rig r = { .pid = -1 };

	CU_ASSERT_FATAL(cuda_stand_in_load(&r.driver));
	ipc_start_owner(&r);
	r.engine = ipc_engine();
	r.host = calloc(1, IPC_SIZE);
	CU_ASSERT_FATAL(r.engine && r.host);
	CU_ASSERT_FATAL(!registerLocalMemory(r.engine, r.host, IPC_SIZE, "*",
					     0));
	r.segment = openSegment(r.engine, r.owner.name);
	CU_ASSERT_FATAL(r.segment > 0);
	return r;
}

static void ipc_close(struct ipc_rig *r)
{
	int status = 1;

	destroyTransferEngine(r->engine);
	free(r->host);
	shutdown(r->fd, SHUT_WR);
	waitpid(r->pid, &status, 0);
	CU_ASSERT(WIFEXITED(status) && !WEXITSTATUS(status));
	close(r->fd);
}

/* Finds or creates the mapping of the owner's memory, and stores its address in
 * this process in *at. Returns false and stores the reason in why, an array of
 * TEI_ERR_TEXT bytes, if there is none. */
static bool ipc_find(struct ipc_rig *r, uint64_t *at, char *why)
{
	struct engine *e = engine_from(r->engine);
	struct tei_local_gpu_range range = { .addr = r->owner.addr,
					     .len = IPC_SIZE };
	struct engine_segment *s;
	bool found;

	tei_rwlock_read(&e->segments);
	s = engine_segment_find(e, r->segment);
	CU_ASSERT_FATAL(s && s->local && s->local->ipc);
	found = engine_ipc_find(s->local->ipc, r->segment, 0, &range, at);
	if (!found)
		engine_ipc_why(s->local->ipc, range.addr, range.len, why);
	tei_rwlock_unlock(&e->segments);
	return found;
}

/* Maps the owner's memory. Returns its address in this process. */
static uint64_t ipc_map(struct ipc_rig *r)
{
	char why[TEI_ERR_TEXT];
	uint64_t at = 0;

	CU_ASSERT(ipc_find(r, &at, why));
	return at;
}

/* Does what the engine does after an error of the driver. */
static void ipc_break(struct ipc_rig *r)
{
	struct engine *e = engine_from(r->engine);
	struct engine_segment *s;

	tei_rwlock_read(&e->segments);
	s = engine_segment_find(e, r->segment);
	CU_ASSERT_FATAL(s && s->local && s->local->ipc);
	engine_ipc_broken(s->local->ipc);
	tei_rwlock_unlock(&e->segments);
}

struct ipc_slow {
	struct tei_gpu_op op;
	bool begun;		/* atomic */
	bool end;		/* atomic: if false, the done callback returns
				 * only when this becomes true */
};

static void ipc_nap(long ms)
{
	struct timespec nap = { .tv_nsec = ms * (long)TEI_NS_PER_MS };

	nanosleep(&nap, NULL);
}

/* A done callback that takes long. */
static void ipc_slow_done(struct tei_gpu_op *op, int code,
			  const struct tei_err *err)
{
	struct ipc_slow *slow = tei_container_of(op, struct ipc_slow, op);

	(void)err;
	CU_ASSERT_EQUAL(code, 0);
	__atomic_store_n(&slow->begun, true, __ATOMIC_RELEASE);
	do
		ipc_nap(200);
	while (!__atomic_load_n(&slow->end, __ATOMIC_ACQUIRE));
}

/* Copies to the owner's memory, and returns while the done callback runs. */
static void ipc_copy_slowly(struct ipc_rig *r, struct ipc_slow *slow)
{
	int i;

	slow->op.length = IPC_SIZE;
	slow->op.dst = ipc_map(r);
	slow->op.src = (uintptr_t)r->host;
	slow->op.done = ipc_slow_done;
	CU_ASSERT_FATAL(!tei_gpu_submit(engine_from(r->engine)->gpu,
					&slow->op));
	for (i = 0; i < 60000 && !__atomic_load_n(&slow->begun,
						  __ATOMIC_ACQUIRE); i++)
		ipc_nap(1);
	CU_ASSERT(__atomic_load_n(&slow->begun, __ATOMIC_ACQUIRE));
}

/* A task may have ended while the callback of its last copy still runs. If the
 * segment is closed in that moment, the memory must be unmapped. */
static void test_close_during_the_end_of_a_copy_unmaps(void)
{
	struct ipc_rig r = ipc_open();
	unsigned int before = r.driver.left();
	struct ipc_slow slow = { .end = true };

	ipc_copy_slowly(&r, &slow);
	CU_ASSERT(r.driver.left() > before);
	closeSegment(r.engine, r.segment);
	CU_ASSERT_EQUAL(r.driver.left(), before);
	ipc_close(&r);
	CU_ASSERT_EQUAL(r.driver.left(), 0);
}

/* After an error of the driver, a request that follows at once maps the memory
 * again, even if the callback of a copy still runs. */
static void test_request_after_an_error_waits_for_the_end_of_a_copy(void)
{
	struct ipc_slow slow = { .end = true };
	struct ipc_rig r = ipc_open();

	ipc_copy_slowly(&r, &slow);
	ipc_break(&r);
	CU_ASSERT(ipc_map(&r));
	ipc_close(&r);
}

static void test_mapping_that_stays_in_use_is_reported(void)
{
	struct ipc_slow slow = { .end = false };
	struct ipc_rig r = ipc_open();
	char why[TEI_ERR_TEXT] = "";
	uint64_t at;

	ipc_copy_slowly(&r, &slow);
	ipc_break(&r);
	CU_ASSERT_FALSE(ipc_find(&r, &at, why));
	CU_ASSERT_STRING_EQUAL(why, "a copy still uses an earlier mapping of it");
	__atomic_store_n(&slow.end, true, __ATOMIC_RELEASE);
	CU_ASSERT(ipc_map(&r));
	ipc_close(&r);
}

const struct tei_test_case ipc_cases[] = {
	{ "close_during_the_end_of_a_copy_unmaps",
	  test_close_during_the_end_of_a_copy_unmaps },
	{ "request_after_an_error_waits_for_the_end_of_a_copy",
	  test_request_after_an_error_waits_for_the_end_of_a_copy },
	{ "mapping_that_stays_in_use_is_reported",
	  test_mapping_that_stays_in_use_is_reported },
	{ NULL, NULL },
};
