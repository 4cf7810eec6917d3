/* SPDX-License-Identifier: BSD-2-Clause */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fabtests/common/ft_zk.h"
#include "meta/meta_test.h"
#include "meta/tei_meta_desc.h"
#include "meta/tei_meta_store.h"
#include "util/clock.h"
#include "util/settings.h"

#ifdef TEI_HAVE_ZOOKEEPER
#include "meta/meta_zookeeper_test.h"
#endif

/* A store with persistent segment records. The same tests run with each back
 * end that supports such records. */
struct krig {
	struct tei_settings settings;
	struct tei_meta_store *store;
	char dir[64]; /* folder of the records for P2PHANDSHAKE; "" for
		       * ZooKeeper */
};

static bool krig_dir(struct krig *r)
{
	memset(r, 0, sizeof(*r));
	r->settings = *meta_test_settings();
	strcpy(r->dir, "/tmp/kept.XXXXXX");
	CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(r->dir));
	strcpy(r->settings.store.segment_dir, r->dir);
	CU_ASSERT_EQUAL_FATAL(tei_meta_store_open("P2PHANDSHAKE", &r->settings,
						  &r->store, NULL), 0);
	return true;
}

#ifdef TEI_HAVE_ZOOKEEPER
static bool krig_zookeeper(struct krig *r)
{
	struct zrig z;
	char conn[192];

	memset(r, 0, sizeof(*r));
	if (!zrig_init(&z, 1))
		return false;
	r->settings = z.settings;
	pthread_cond_destroy(&z.cond);
	tei_mutex_fini(&z.lock);
	snprintf(conn, sizeof(conn), "zookeeper://%s/kept/%d",
		 zserver()->hosts, rand());
	CU_ASSERT_EQUAL_FATAL(tei_meta_store_open(conn, &r->settings,
						  &r->store, NULL), 0);
	return true;
}
#else
static bool krig_zookeeper(struct krig *r)
{
	(void)r;
	tei_test_skip("built with --disable-zookeeper");
	return false;
}
#endif

static void krig_end(struct krig *r)
{
	char path[96];

	tei_meta_store_close(r->store);
	if (!*r->dir)
		return;
	snprintf(path, sizeof(path), "%s/.lock", r->dir);
	unlink(path);
	CU_ASSERT_EQUAL(rmdir(r->dir), 0); /* succeeds because the folder is
					    * empty */
}

/* A change of a persistent segment record that a test makes: it adds or removes
 * a file. */
struct kchange {
	struct krig *rig;
	uint64_t length; /* length of the file that is added; 0: the file is
			  * removed */
	int refuse;
	uint32_t calls, saw;	   /* number of calls of the callback; number of
				    * files in the record at the last call */
	struct kchange *meanwhile; /* change that the callback makes in its
				    * first call, as if another process made it
				    * meanwhile; or NULL */
};

static int kchange_run(struct krig *r, const char *name, struct kchange *c,
		       struct tei_err *err);

static int kchange_fn(void *arg, const struct tei_meta_desc *now,
		      struct tei_meta_desc **next, struct tei_err *err)
{
	struct kchange *c = arg;
	struct tei_meta_desc *d;
	uint32_t i;

	c->saw = now ? now->file_count : 0;
	if (!c->calls++ && c->meanwhile)
		CU_ASSERT_EQUAL(kchange_run(c->rig, "nvmeof/a", c->meanwhile,
					    err), 0);
	if (c->refuse)
		return c->refuse;
	*next = NULL;
	if (!c->length)
		return 0;
	CU_ASSERT_EQUAL_FATAL(tei_meta_desc_create("nvmeof/a", "nvmeof", 0, &d,
						   err), 0);
	for (i = 0; i < c->saw; i++)
		CU_ASSERT_EQUAL(tei_meta_desc_add_file(d, now->files[i].path,
				now->files[i].length, now->files[i].local,
				now->files[i].local_count, err), 0);
	CU_ASSERT_EQUAL(tei_meta_desc_add_file(d, "/a \"file\"", c->length,
			&(struct tei_meta_file_path){ "host:1", "/b" }, 1,
			err), 0);
	CU_ASSERT_EQUAL(tei_meta_desc_freeze(d, err), 0);
	*next = d;
	return 0;
}

static int kchange_run(struct krig *r, const char *name, struct kchange *c,
		       struct tei_err *err)
{
	c->rig = r;
	return tei_meta_store_change(r->store, name, kchange_fn, c,
				     meta_test_deadline(), err);
}

static size_t persistent_count(struct krig *r)
{
	char **names;
	size_t n, i;

	CU_ASSERT_EQUAL_FATAL(tei_meta_store_list(r->store,
			TEI_META_PERSISTENT, meta_test_deadline(), &names, &n,
			NULL), 0);
	for (i = 0; i < n; i++) {
		CU_ASSERT_STRING_EQUAL(names[i], "nvmeof/a");
		free(names[i]);
	}
	free(names);
	return n;
}

static uint64_t persistent_size(struct krig *r)
{
	struct tei_meta_desc *d;
	uint64_t size;

	if (tei_meta_store_fetch(r->store, "nvmeof/a", meta_test_deadline(),
				 &d, NULL))
		return 0;
	size = d->size;
	CU_ASSERT_STRING_EQUAL(d->files[0].path, "/a \"file\"");
	CU_ASSERT_STRING_EQUAL(d->files[0].local[0].server, "host:1");
	tei_meta_desc_unref(d);
	return size;
}

static void persistent_life(struct krig *r)
{
	struct kchange add = { .length = 4096 }, gone = { .length = 0 };
	struct kchange refuse = { .refuse = TEI_ERR_REJECTED };
	struct tei_err err;

	CU_ASSERT_EQUAL(persistent_count(r), 0);
	CU_ASSERT_EQUAL(persistent_size(r), 0);
	CU_ASSERT_EQUAL(kchange_run(r, "nvmeof/a", &refuse, &err),
			TEI_ERR_REJECTED);
	CU_ASSERT_EQUAL(persistent_count(r), 0);
	CU_ASSERT_EQUAL(kchange_run(r, "nvmeof/a", &gone, &err), 0);
	CU_ASSERT_EQUAL(kchange_run(r, "nvmeof/a", &add, &err), 0);
	CU_ASSERT_EQUAL(persistent_count(r), 1);
	CU_ASSERT_EQUAL(persistent_size(r), 4096);
	CU_ASSERT_EQUAL(kchange_run(r, "nvmeof/a", &add, &err), 0);
	CU_ASSERT_EQUAL(add.saw, 1);
	CU_ASSERT_EQUAL(persistent_size(r), 8192);
	CU_ASSERT_EQUAL(kchange_run(r, "nvmeof/a", &gone, &err), 0);
	CU_ASSERT_EQUAL(gone.saw, 2);
	CU_ASSERT_EQUAL(persistent_count(r), 0);
}

/* Tests that no change is lost if two processes change one record at the same
 * time. */
static void persistent_conflict(struct krig *r)
{
	struct kchange other = { .length = 100 }, gone = { .length = 0 };
	struct kchange mine = { .length = 1, .meanwhile = &other };

	CU_ASSERT_EQUAL(kchange_run(r, "nvmeof/a", &mine, NULL), 0);
	CU_ASSERT_EQUAL(mine.calls, 2);
	CU_ASSERT_EQUAL(mine.saw, 1);
	CU_ASSERT_EQUAL(persistent_size(r), 101);
	mine.calls = 0;
	CU_ASSERT_EQUAL(kchange_run(r, "nvmeof/a", &mine, NULL), 0);
	CU_ASSERT_EQUAL(mine.calls, 2);
	CU_ASSERT_EQUAL(persistent_size(r), 202);
	mine.calls = 0;
	mine.meanwhile = &gone;
	CU_ASSERT_EQUAL(kchange_run(r, "nvmeof/a", &mine, NULL), 0);
	CU_ASSERT_EQUAL(persistent_size(r), 1);
	gone.meanwhile = NULL;
	CU_ASSERT_EQUAL(kchange_run(r, "nvmeof/a", &gone, NULL), 0);
}

static void persistent_bad_names(struct krig *r)
{
	static const char *const bad[] = {
		"", "a", "nvmeof", "nvmeof/", "/nvmeof/a", "nvmeof/a/b",
		"nvmeof/.", "nvmeof/..", "nvmeof/../x", "nvmeof/.lock",
		"host:1", "NVMEOF/a",
	};
	struct kchange add = { .length = 1 };
	char longer[TEI_META_NAME_MAX] = "nvmeof/";
	size_t i;

	memset(longer + 7, 'a', sizeof(longer) - 8);
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		CU_ASSERT_EQUAL(kchange_run(r, bad[i], &add, NULL),
				TEI_ERR_INVALID);
	CU_ASSERT_EQUAL(kchange_run(r, longer, &add, NULL), TEI_ERR_INVALID);
	CU_ASSERT_EQUAL(kchange_run(r, NULL, &add, NULL), TEI_ERR_INVALID);
	CU_ASSERT_EQUAL(add.calls, 0);
	CU_ASSERT_EQUAL(persistent_count(r), 0);
}

static void persistent_all(struct krig *r)
{
	meta_test_hush(true);
	persistent_life(r);
	persistent_conflict(r);
	persistent_bad_names(r);
	meta_test_hush(false);
	krig_end(r);
}

static void test_folder_keeps_segments(void)
{
	struct krig r;

	if (krig_dir(&r))
		persistent_all(&r);
}

static void test_zookeeper_keeps_segments(void)
{
	struct krig r;

	if (krig_zookeeper(&r))
		persistent_all(&r);
}

static void persistent_put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	CU_ASSERT_EQUAL(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
}

static void test_folder_with_bad_files_is_reported(void)
{
	struct kchange add = { .length = 1 };
	struct tei_meta_desc *d;
	struct krig r;
	char path[96];
	bool found = false;

	krig_dir(&r);
	meta_test_hush(true);
	snprintf(path, sizeof(path), "%s/a.json", r.dir);
	persistent_put(path, "{");
	CU_ASSERT_EQUAL(tei_meta_store_fetch(r.store, "nvmeof/a", 0, &d, NULL),
			TEI_ERR_JSON);
	CU_ASSERT_EQUAL(kchange_run(&r, "nvmeof/a", &add, NULL), TEI_ERR_JSON);
	/* the damaged record can be removed */
	CU_ASSERT_EQUAL(tei_meta_store_remove(r.store, "nvmeof/a",
					      meta_test_deadline(), &found,
					      NULL), 0);
	CU_ASSERT(found && access(path, F_OK));
	CU_ASSERT_EQUAL(tei_meta_store_remove(r.store, "nvmeof/a",
					      meta_test_deadline(), &found,
					      NULL), 0);
	CU_ASSERT(!found);
	CU_ASSERT_EQUAL(tei_meta_store_remove(r.store, "nvmeof/a/b",
					      meta_test_deadline(), &found,
					      NULL), TEI_ERR_INVALID);
	persistent_put(path, "");
	CU_ASSERT_EQUAL(tei_meta_store_fetch(r.store, "nvmeof/a", 0, &d, NULL),
			TEI_ERR_JSON);
	unlink(path);
	mkdir(path, 0700);
	CU_ASSERT_EQUAL(tei_meta_store_fetch(r.store, "nvmeof/a", 0, &d, NULL),
			TEI_ERR_METADATA);
	rmdir(path);
	krig_end(&r);
	meta_test_hush(false);
}

static void test_p2p_without_a_folder_keeps_nothing(void)
{
	struct kchange add = { .length = 1 };
	struct tei_meta_store *store;
	struct tei_meta_desc *d;
	struct tei_err err;
	char **names;
	size_t n;

	meta_test_hush(true);
	CU_ASSERT_EQUAL_FATAL(tei_meta_store_open("P2PHANDSHAKE",
			meta_test_settings(), &store, NULL), 0);
	CU_ASSERT_EQUAL(tei_meta_store_list(store, TEI_META_PERSISTENT, 0, &names, &n, &err),
			TEI_ERR_UNSUPPORTED);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.hint, "MOONRAIL_SEGMENT_DIR"));
	CU_ASSERT_EQUAL(tei_meta_store_change(store, "nvmeof/a", kchange_fn,
			&add, 0, NULL), TEI_ERR_UNSUPPORTED);
	CU_ASSERT_EQUAL(tei_meta_store_fetch(store, "nvmeof/a", 0, &d, NULL),
			TEI_ERR_UNSUPPORTED);
	tei_meta_store_close(store);
	meta_test_hush(false);
}

const struct tei_test_case persistent_cases[] = {
	{ "folder_keeps_segments", test_folder_keeps_segments },
	{ "zookeeper_keeps_segments", test_zookeeper_keeps_segments },
	{ "folder_with_bad_files_is_reported",
	  test_folder_with_bad_files_is_reported },
	{ "p2p_without_a_folder_keeps_nothing",
	  test_p2p_without_a_folder_keeps_nothing },
	{ NULL, NULL },
};
