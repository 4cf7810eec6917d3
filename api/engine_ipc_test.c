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

/* Maps the owner's memory. Returns its address in this process. */
static uint64_t ipc_map(struct ipc_rig *r)
{
	struct engine *e = engine_from(r->engine);
	struct tei_local_gpu_range range = { .addr = r->owner.addr,
					     .len = IPC_SIZE };
	struct engine_segment *s;
	uint64_t at = 0;

	tei_rwlock_read(&e->segments);
	s = engine_segment_find(e, r->segment);
	CU_ASSERT_FATAL(s && s->local && s->local->ipc);
	CU_ASSERT(engine_ipc_find(s->local->ipc, r->segment, 0, &range, &at));
	tei_rwlock_unlock(&e->segments);
	return at;
}

struct ipc_slow {
	struct tei_gpu_op op;
	bool begun; /* atomic */
};

/* A done callback that takes long. */
static void ipc_slow_done(struct tei_gpu_op *op, int code,
			  const struct tei_err *err)
{
	struct ipc_slow *slow = tei_container_of(op, struct ipc_slow, op);
	struct timespec nap = { .tv_nsec = 200 * (long)TEI_NS_PER_MS };

	(void)err;
	CU_ASSERT_EQUAL(code, 0);
	__atomic_store_n(&slow->begun, true, __ATOMIC_RELEASE);
	nanosleep(&nap, NULL);
}

/* A task may have ended while the callback of its last copy still runs. If the
 * segment is closed in that moment, the memory must be unmapped. */
static void test_close_during_the_end_of_a_copy_unmaps(void)
{
	struct timespec nap = { .tv_nsec = (long)TEI_NS_PER_MS };
	struct ipc_rig r = ipc_open();
	unsigned int before = r.driver.left();
	struct ipc_slow slow = { .op.length = IPC_SIZE };
	int i;

	slow.op.dst = ipc_map(&r);
	slow.op.src = (uintptr_t)r.host;
	slow.op.done = ipc_slow_done;
	CU_ASSERT(r.driver.left() > before);
	CU_ASSERT_FATAL(!tei_gpu_submit(engine_from(r.engine)->gpu, &slow.op));
	for (i = 0; i < 60000 && !__atomic_load_n(&slow.begun,
						  __ATOMIC_ACQUIRE); i++)
		nanosleep(&nap, NULL);
	CU_ASSERT(__atomic_load_n(&slow.begun, __ATOMIC_ACQUIRE));
	closeSegment(r.engine, r.segment);
	CU_ASSERT_EQUAL(r.driver.left(), before);
	ipc_close(&r);
	CU_ASSERT_EQUAL(r.driver.left(), 0);
}

const struct tei_test_case ipc_cases[] = {
	{ "close_during_the_end_of_a_copy_unmaps",
	  test_close_during_the_end_of_a_copy_unmaps },
	{ NULL, NULL },
};
