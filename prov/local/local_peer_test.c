/* SPDX-License-Identifier: BSD-2-Clause */
/* Tests of peers within this process (two contexts), and of invalid
 * identities. */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "prov/local/local_test.h"
#include "util/clock.h"

struct peer_fixture {
	struct tei_local *here, *there;
	struct tei_local_id id;
	struct tei_local_peer *peer;
	char target[4096], local[4096];
};

static void peer_setup(struct peer_fixture *f)
{
	memset(f, 0, sizeof(*f));
	f->here = test_ctx(1);
	f->there = test_ctx(1);
	CU_ASSERT_FATAL(!tei_local_identity(f->there, &f->id));
	CU_ASSERT_FATAL(tei_local_peer_open(f->here, &f->id, NULL, &f->peer) ==
			TEI_LOCAL_OK);
	CU_ASSERT(!tei_local_region_add(f->there, f->target, 4096, 0));
}

static void peer_teardown(struct peer_fixture *f)
{
	tei_local_peer_close(f->here, f->peer);
	tei_local_fini(f->here);
	tei_local_fini(f->there);
}

static void test_other_context_of_this_process_is_reached(void)
{
	struct peer_fixture f;
	uint64_t at;

	peer_setup(&f);
	at = test_addr(f.target);
	CU_ASSERT(tei_local_peer_is_self(f.peer));
	CU_ASSERT(tei_local_peer_alive(f.peer));
	strcpy(f.local, "hello");
	CU_ASSERT(!test_run_op(f.here, f.peer, TEI_LOCAL_WRITE, f.local, at,
			       4096));
	CU_ASSERT(!strcmp(f.target, "hello"));
	CU_ASSERT(!tei_local_copy(f.here, f.peer, TEI_LOCAL_READ, f.local, at,
				  4096, NULL));
	CU_ASSERT(test_run_op(f.here, NULL, TEI_LOCAL_WRITE, f.local, at, 1) ==
		  TEI_ERR_NOT_REGISTERED);
	CU_ASSERT(test_run_op(f.here, f.peer, TEI_LOCAL_WRITE, f.local, at,
			      4097) == TEI_ERR_NOT_REGISTERED);
	peer_teardown(&f);
}

static void test_own_identity_is_self(void)
{
	struct tei_local *ctx = test_ctx(1);
	struct tei_local_peer *peer = NULL;
	struct tei_local_id id;
	char a[64] = "a", b[64] = "b";

	tei_local_identity(ctx, &id);
	CU_ASSERT_FATAL(tei_local_peer_open(ctx, &id, NULL, &peer) ==
			TEI_LOCAL_OK);
	CU_ASSERT(tei_local_peer_is_self(peer) && tei_local_peer_alive(peer));
	tei_local_region_add(ctx, a, 64, 0);
	CU_ASSERT(!test_run_op(ctx, peer, TEI_LOCAL_WRITE, b, test_addr(a), 64));
	CU_ASSERT(a[0] == 'b');
	CU_ASSERT(!tei_local_copy(ctx, peer, TEI_LOCAL_READ, b, test_addr(a),
				  64, NULL));
	tei_local_peer_close(ctx, peer);
	tei_local_fini(ctx);
}

static void test_closed_context_is_refused(void)
{
	struct peer_fixture f;

	peer_setup(&f);
	tei_local_fini(f.there);
	CU_ASSERT(!tei_local_peer_alive(f.peer));
	CU_ASSERT(!tei_local_peer_ended(f.peer));
	CU_ASSERT(test_run_op(f.here, f.peer, TEI_LOCAL_WRITE, f.local,
			      test_addr(f.target), 1) == TEI_ERR_CONTEXT);
	f.there = NULL;
	peer_teardown(&f);
}

static void test_copy_needs_a_free_slot(void)
{
	struct peer_fixture f;
	uint64_t dead;
	pid_t pid;
	int i;

	peer_setup(&f);
	f.here->stall_ns = 20 * TEI_NS_PER_MS;
	for (i = 0; i < (int)LOCAL_SLOTS; i++)
		atomic_store(&f.there->shared->slots[i].owner, f.here->owner);
	CU_ASSERT(tei_local_copy(f.here, f.peer, TEI_LOCAL_WRITE, f.local,
				 test_addr(f.target), 1, NULL) ==
		  TEI_ERR_TOO_MANY);
	CU_ASSERT(test_run_op(f.here, f.peer, TEI_LOCAL_WRITE, f.local,
			      test_addr(f.target), 1) == TEI_ERR_TOO_MANY);
	/* copy slots must be reclaimed if their owners have ended */
	pid = fork();
	if (!pid)
		_exit(0);
	waitpid(pid, NULL, 0);
	dead = local_owner(pid, f.here->host.start_time);
	for (i = 0; i < (int)LOCAL_SLOTS; i++)
		atomic_store(&f.there->shared->slots[i].owner, dead);
	CU_ASSERT(!test_run_op(f.here, f.peer, TEI_LOCAL_WRITE, f.local,
			       test_addr(f.target), 1));
	for (i = 0; i < (int)LOCAL_SLOTS; i++)
		atomic_store(&f.there->shared->slots[i].owner, dead);
	CU_ASSERT(!tei_local_copy(f.here, f.peer, TEI_LOCAL_WRITE, f.local,
				  test_addr(f.target), 1, NULL));
	peer_teardown(&f);
}

static enum tei_local_reason peer_try(struct peer_fixture *f,
				      const struct tei_local_id *id)
{
	struct tei_local_peer *peer = NULL;
	struct tei_err err = { .code = 0 };
	enum tei_local_reason r = tei_local_peer_open(f->here, id, &err, &peer);

	CU_ASSERT((r == TEI_LOCAL_OK) == (peer != NULL));
	CU_ASSERT(r == TEI_LOCAL_OK || (err.code && err.text[0]));
	tei_local_peer_close(f->here, peer);
	return r;
}

static void test_bad_identities_are_refused(void)
{
	struct tei_local_id id;
	struct peer_fixture f;

	peer_setup(&f);
	CU_ASSERT(peer_try(&f, &f.id) == TEI_LOCAL_OK);
	CU_ASSERT(tei_local_peer_open(f.here, NULL, NULL, &f.peer) ==
		  TEI_LOCAL_BAD_ID);
	memset(&id, 0, sizeof(id));
	CU_ASSERT(peer_try(&f, &id) == TEI_LOCAL_BAD_ID);
	memset(&id, 255, sizeof(id));
	CU_ASSERT(peer_try(&f, &id) == TEI_LOCAL_BAD_ID);
	id = f.id;
	id.boot_id[0] ^= 1;
	CU_ASSERT(peer_try(&f, &id) == TEI_LOCAL_OTHER_HOST);
	id = f.id;
	id.pid_ns++;
	CU_ASSERT(peer_try(&f, &id) == TEI_LOCAL_OTHER_PIDNS);
	id = f.id;
	id.start_time++;
	CU_ASSERT(peer_try(&f, &id) == TEI_LOCAL_RESTARTED);
	id = f.id;
	id.incarnation++;
	CU_ASSERT(peer_try(&f, &id) == TEI_LOCAL_RESTARTED);
	peer_teardown(&f);
}

/*
 * Identities that name descriptors of other files must be refused: opening such
 * files without a check could block, fault or have side effects.
 */
static void test_descriptors_of_other_files_are_refused(void)
{
	static const unsigned int seals[] = { 0, F_SEAL_GROW, F_SEAL_SHRINK };
	struct peer_fixture f;
	struct tei_local_id id;
	int fds[2], fd;
	size_t i;

	peer_setup(&f);
	id = f.id;
	CU_ASSERT(!pipe(fds));
	id.magic_fd = fds[0];
	CU_ASSERT(peer_try(&f, &id) == TEI_LOCAL_BAD_MAGIC);
	close(fds[0]);
	close(fds[1]);
	CU_ASSERT(peer_try(&f, &id) == TEI_LOCAL_BAD_MAGIC);
	id.magic_fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	CU_ASSERT(peer_try(&f, &id) == TEI_LOCAL_BAD_MAGIC);
	close(id.magic_fd);
	for (i = 0; i < 3; i++) {
		fd = memfd_create("x", MFD_ALLOW_SEALING | MFD_CLOEXEC);
		CU_ASSERT(!ftruncate(fd, sizeof(struct local_shared_table)));
		CU_ASSERT(!seals[i] || !fcntl(fd, F_ADD_SEALS, seals[i]));
		id.magic_fd = fd;
		CU_ASSERT(peer_try(&f, &id) == TEI_LOCAL_BAD_MAGIC);
		close(fd);
	}
	/* both files are sealed; the first has the right size but is empty, the
	 * second is too short */
	for (i = 0; i < 2; i++) {
		fd = memfd_create("x", MFD_ALLOW_SEALING | MFD_CLOEXEC);
		CU_ASSERT(!ftruncate(fd,
				     (off_t)(sizeof(struct local_shared_table) -
					     i * LOCAL_SECTION)));
		CU_ASSERT(!fcntl(fd, F_ADD_SEALS,
				 F_SEAL_GROW | F_SEAL_SHRINK));
		id.magic_fd = fd;
		CU_ASSERT(peer_try(&f, &id) == TEI_LOCAL_BAD_MAGIC);
		close(fd);
	}
	peer_teardown(&f);
}

static void test_refused_identity_leaves_no_descriptor_open(void)
{
	struct peer_fixture f;
	struct tei_local_id id;
	int before, after, i;

	before = dup(0);
	close(before);
	peer_setup(&f);
	id = f.id;
	id.incarnation++;
	for (i = 0; i < 10; i++)
		peer_try(&f, &id);
	peer_teardown(&f);
	after = dup(0);
	close(after);
	CU_ASSERT(before == after);
}

const struct tei_test_case local_peer_cases[] = {
	{ "other_context_of_this_process_is_reached",
	  test_other_context_of_this_process_is_reached },
	{ "own_identity_is_self", test_own_identity_is_self },
	{ "closed_context_is_refused", test_closed_context_is_refused },
	{ "copy_needs_a_free_slot", test_copy_needs_a_free_slot },
	{ "bad_identities_are_refused", test_bad_identities_are_refused },
	{ "descriptors_of_other_files_are_refused",
	  test_descriptors_of_other_files_are_refused },
	{ "refused_identity_leaves_no_descriptor_open",
	  test_refused_identity_leaves_no_descriptor_open },
	{ NULL, NULL },
};
