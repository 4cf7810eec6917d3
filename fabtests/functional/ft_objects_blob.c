/* SPDX-License-Identifier: BSD-2-Clause */

/* Tests blobs: segment descriptors that the application carries itself. */

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fabtests/functional/ft_objects.h"
#include "fabtests/functional/fx.h"

#define BLOB_MEM (4 * FX_MIB)
/* offset in a target's memory to which it exports its blob */
#define BLOB_AT (3 * FX_MIB)
#define BLOB_HEAD 24
#define BLOB_MAX 65536

/* An engine in this process, a target, and a copy of the target's blob. */
struct blob_rig {
	transfer_engine_t engine;
	struct fx_buf mem;
	struct fx_peer target;
	unsigned char blob[BLOB_MAX];
	size_t size;
};

static size_t blob_of(struct fx_peer *peer, unsigned char *out)
{
	int size = fx_ask(peer, "export %llu", BLOB_AT);

	if (size <= BLOB_HEAD || size > BLOB_MAX)
		return 0;
	memcpy(out, peer->mem.p + BLOB_AT, (size_t)size);
	return (size_t)size;
}

static bool blob_rig_start(struct blob_rig *rig)
{
	memset(rig, 0, sizeof(*rig));
	rig->mem = fx_buf_map(BLOB_MEM, -1);
	rig->engine = fx_engine("tcp");
	if (!fx_peer_start(&rig->target, BLOB_MEM, NULL) ||
	    fx_ask(&rig->target, "reg 0 %llu 1", FX_MIB) || !rig->engine ||
	    !fx_register(rig->engine, &rig->mem))
		return ft_ok(false, "a target and an engine start");
	rig->size = blob_of(&rig->target, rig->blob);
	return ft_ok(rig->size > 0, "a target exports itself");
}

static void blob_rig_stop(struct blob_rig *rig)
{
	destroyTransferEngine(rig->engine);
	fx_peer_stop(&rig->target);
	fx_buf_unmap(&rig->mem);
}

static int blob_import(transfer_engine_t engine, const void *blob, size_t size)
{
	segment_id_t id = -7777;
	int ret = te_segment_import(engine, blob, size, 0, &id);

	if (ret && id != -7777)
		ft_ok(false, "failed_import_writes_no_output");
	return ret ? ret : id;
}

static bool blob_write_works(struct blob_rig *rig, segment_id_t seg,
			     struct fx_peer *target, uint64_t off,
			     uint64_t sequence)
{
	fx_buf_fill(&rig->mem, 0, 65536, sequence);
	return fx_move(rig->engine, seg, OPCODE_WRITE, rig->mem.p,
		       target->mem.addr + off, 65536, 5000) &&
	       fx_buf_check(&target->mem, off, 65536, sequence);
}

static size_t blob_buffers(struct blob_rig *rig, segment_id_t seg)
{
	struct te_buffer bufs[8];
	size_t n = 8;

	return te_segment_buffers(rig->engine, seg, bufs, sizeof(bufs[0]), &n) ?
	       SIZE_MAX : n;
}

/* --- valid blobs --------------------------------------------------------- */

static void blob_names(struct blob_rig *rig)
{
	segment_id_t seg = blob_import(rig->engine, rig->blob, rig->size);
	struct te_error err;

	ft_ok(seg == 1, "an_import_has_an_id");
	ft_ok(blob_write_works(rig, seg, &rig->target, 0, 1),
	      "write_to_an_imported_segment_arrives");
	ft_ok(openSegment(rig->engine, rig->target.name) == seg,
	      "opened_by_name_it_is_the_same");
	ft_ok(blob_import(rig->engine, rig->blob, rig->size) == seg,
	      "second_import_has_the_same_id");
	ft_ok(!closeSegment(rig->engine, seg) &&
	      !closeSegment(rig->engine, seg) &&
	      blob_write_works(rig, seg, &rig->target, 0, 2) &&
	      !closeSegment(rig->engine, seg) &&
	      !closeSegment(rig->engine, seg) &&
	      !te_last_error(&err, sizeof(err)) &&
	      strstr(err.text, "no such segment"),
	      "each_import_is_one_reference");
	seg = openSegment(rig->engine, rig->target.name);
	ft_ok(seg > 0 && blob_import(rig->engine, rig->blob, rig->size) == seg,
	      "an_import_of_an_open_name_is_the_same");
	closeSegment(rig->engine, seg);
	closeSegment(rig->engine, seg);
}

/* Checks that an import does not query the target's control channel: it
 * succeeds while the target is stopped. */
static void blob_silent(struct blob_rig *rig)
{
	struct fx_peer paused;
	static unsigned char blob[BLOB_MAX];
	size_t size;
	int seg;

	if (!fx_target_start(&paused, BLOB_MEM))
		return;
	size = blob_of(&paused, blob);
	fx_peer_pause(&paused);
	seg = blob_import(rig->engine, blob, size);
	ft_ok(seg > 0 && blob_buffers(rig, seg) == 1,
	      "an_import_queries_no_process");
	fx_peer_resume(&paused);
	ft_ok(blob_write_works(rig, seg, &paused, 0, 3),
	      "imported_target_is_written_after_it_is_resumed");
	closeSegment(rig->engine, seg);
	fx_peer_stop(&paused);
}

static void blob_states(struct blob_rig *rig)
{
	static unsigned char newer[BLOB_MAX];
	int seg = blob_import(rig->engine, rig->blob, rig->size);
	size_t size, buffers;

	ft_ok(blob_buffers(rig, seg) == 1 &&
	      !fx_ask(&rig->target, "reg %llu %llu 1", FX_MIB, FX_MIB),
	      "a_buffer_is_registered_later");
	ft_ok(blob_write_works(rig, seg, &rig->target, FX_MIB, 4),
	      "buffer_that_the_blob_lacks_is_written");
	/* if the target answers late, the engine resolves its address again,
	 * and then knows the new buffer already */
	buffers = blob_buffers(rig, seg);
	ft_ok(buffers == 1 || buffers == 2, "buffers_remain_known");
	size = blob_of(&rig->target, newer);
	ft_ok(size > rig->size &&
		      blob_import(rig->engine, newer, size) == seg &&
		      blob_buffers(rig, seg) == 2,
	      "newer_blob_shows_the_new_buffer");
	ft_ok(blob_import(rig->engine, rig->blob, rig->size) == seg &&
	      blob_buffers(rig, seg) == 2, "an_older_blob_changes_nothing");
	ft_ok(!fx_ask(&rig->target, "unreg %llu", FX_MIB) &&
		      !syncSegmentCache(rig->engine) &&
		      blob_buffers(rig, seg) == 1 &&
		      blob_import(rig->engine, newer, size) == seg &&
		      blob_buffers(rig, seg) == 1,
	      "older_blob_does_not_replace_a_fetched_descriptor");
	for (int i = 0; i < 4; i++)
		closeSegment(rig->engine, seg);
}

static void blob_own(struct blob_rig *rig)
{
	static unsigned char own[BLOB_MAX];
	size_t size = sizeof(own);

	ft_ok(!te_segment_export(rig->engine, 0, own, &size) &&
		      blob_import(rig->engine, own, size) == LOCAL_SEGMENT &&
		      !closeSegment(rig->engine, LOCAL_SEGMENT),
	      "own_blob_is_segment_0");
	ft_ok(!memmem(own, size, "\"rkey\":[1", 9) &&
	      memmem(own, size, "\"rkey\":[0", 9), "a_blob_holds_no_keys");
}

/* --- blobs of dead processes --------------------------------------------- */

static void blob_dead(struct blob_rig *rig)
{
	struct fx_job job = { .engine = rig->engine, .op = OPCODE_WRITE,
			      .local = rig->mem.p, .len = 64 };
	static unsigned char blob[BLOB_MAX];
	struct fx_peer dead;
	size_t size;

	if (!fx_target_start(&dead, BLOB_MEM))
		return;
	size = blob_of(&dead, blob);
	job.remote = dead.mem.addr;
	job.seg = blob_import(rig->engine, blob, size);
	ft_ok(blob_write_works(rig, job.seg, &dead, 0, 5),
	      "a_process_lives");
	fx_peer_stop(&dead);
	ft_ok(!fx_job_start(&job) && fx_job_wait(&job, FX_LONG_MS) &&
		      !job.n[STATUS_COMPLETED],
	      "writes_to_an_ended_process_fail");
	ft_diag("%s", fx_job_text(&job));
	fx_job_free(&job);
	ft_ok(blob_import(rig->engine, blob, size) == -202,
	      "the_blob_of_one_known_to_be_gone_is_202");
	closeSegment(rig->engine, job.seg);
}

static void blob_never_met(struct blob_rig *rig)
{
	struct fx_job job = { .op = OPCODE_WRITE, .local = rig->mem.p,
			      .len = 64 };
	static unsigned char blob[BLOB_MAX];
	struct fx_peer dead;
	size_t size;

	if (!fx_target_start(&dead, BLOB_MEM))
		return;
	size = blob_of(&dead, blob);
	job.remote = dead.mem.addr;
	fx_peer_kill(&dead);
	fx_peer_drop(&dead);
	job.engine = fx_engine_timeout("tcp", FX_BRISK_S);
	ft_ok(job.engine && fx_register(job.engine, &rig->mem),
	      "a_brisk_engine_starts");
	job.seg = blob_import(job.engine, blob, size);
	ft_ok(job.seg > 0 && !fx_job_start(&job) &&
	      fx_job_wait(&job, FX_LONG_MS) && !job.n[STATUS_COMPLETED],
	      "law3_writes_to_one_never_met_end");
	ft_diag("%s", fx_job_text(&job));
	fx_job_free(&job);
	destroyTransferEngine(job.engine);
}

/* --- outdated blobs ------------------------------------------------------ */

/* An engine that knows a target only by its blob. The blob is outdated, because
 * the target has moved its buffer to another address. */
struct blob_stale {
	transfer_engine_t engine;
	struct fx_buf mem;
	struct fx_peer target;
	segment_id_t seg;
	uint64_t was, is;	/* old and new address of the target's buffer */
};

static int blob_say_as(struct blob_rig *rig, const char *name,
		       transfer_engine_t engine);

/* Imports the target's blob under the target's own name, and connects to it.
 * Without this, if the target answers a look-up slowly, the look-up would reach
 * the process that has the other name. Returns true on success. */
static bool blob_known(struct blob_rig *rig, const struct blob_stale *s)
{
	segment_id_t seg = blob_say_as(rig, s->target.name, s->engine);

	return seg > 0 && fx_move(s->engine, seg, OPCODE_WRITE, s->mem.p,
				  s->target.mem.addr, 64, 0);
}

/* Imports the target's blob under `name`, or under the target's own name if
 * that is NULL. Then the target moves its buffer. Returns true on success. */
static bool blob_stale_start(struct blob_stale *s, const char *transport,
			     const char *name)
{
	static struct blob_rig rig;
	char option[64];

	memset(s, 0, sizeof(*s));
	snprintf(option, sizeof(option), "transport=%s", transport);
	s->mem = fx_buf_map(BLOB_MEM, -1);
	s->engine = fx_engine(transport);
	if (!fx_peer_start(&s->target, BLOB_MEM, option, NULL) ||
	    fx_ask(&s->target, "reg 0 %llu 1", FX_MIB) || !s->engine ||
	    !fx_register(s->engine, &s->mem))
		return ft_ok(false, "a target and an engine start");
	rig.target = s->target;
	rig.size = blob_of(&s->target, rig.blob);
	if (name && !blob_known(&rig, s))
		return ft_ok(false, "a target is known by its name");
	s->seg = blob_say_as(&rig, name ? name : s->target.name, s->engine);
	s->was = s->target.mem.addr;
	s->is = s->was + 2 * FX_MIB;
	return ft_ok(s->seg > 0 &&
		     fx_move(s->engine, s->seg, OPCODE_WRITE, s->mem.p, s->was,
			     64, 0) &&
		     !fx_ask(&s->target, "unreg 0") &&
		     !fx_ask(&s->target, "reg %llu %llu 1", 2 * FX_MIB, FX_MIB),
		     "a target moves its buffer after an import");
}

static void blob_stale_stop(struct blob_stale *s)
{
	destroyTransferEngine(s->engine);
	fx_peer_stop(&s->target);
	fx_buf_unmap(&s->mem);
}

static bool blob_has(const struct blob_stale *s, uint64_t addr)
{
	struct te_buffer b;
	size_t n = 1;

	return !te_segment_buffers(s->engine, s->seg, &b, sizeof(b), &n) &&
	       n == 1 && b.addr == addr;
}

/* Returns true if the request fails and its error record has the flags
 * `flags`. */
static bool blob_refused(const struct blob_stale *s, int op, uint64_t addr,
			 uint32_t flags)
{
	struct fx_job job = { .engine = s->engine, .seg = s->seg, .op = op,
			      .local = s->mem.p, .remote = addr, .len = 4096 };
	struct te_error err = { 0 };
	bool good = !fx_job_start(&job) && fx_job_wait(&job, FX_LONG_MS) &&
		    job.n[STATUS_FAILED] == 1 &&
		    !te_task_error(job.engine, job.id, 0, &err, sizeof(err)) &&
		    err.code == -3 && err.flags == flags && err.peer[0] &&
		    !(flags & TE_ERROR_STALE) ==
			    !strstr(err.hint, "import a newer blob");

	if (!good)
		ft_diag("tasks: %s; error %d, flags %u, peer '%s': %s; %s",
			fx_job_text(&job), err.code, err.flags, err.peer,
			err.text, err.hint);
	fx_job_free(&job);
	return good;
}

static bool blob_learns(const struct blob_stale *s)
{
	uint64_t end = ft_now_ns() + fx_ms(10000) * 1000000ULL;

	while (!blob_has(s, s->is)) {
		if (ft_now_ns() > end)
			return false;
		usleep(1000);
	}
	return true;
}

static void blob_moved(const char *transport)
{
	struct blob_stale s;

	ft_diag("transport: %s", transport);
	if (!blob_stale_start(&s, transport, NULL))
		return;
	fx_buf_poison(&s.target.mem, 0, FX_MIB);
	ft_ok(blob_has(&s, s.was) &&
		      blob_refused(&s, OPCODE_WRITE, s.was, TE_ERROR_STALE) &&
		      fx_buf_poisoned(&s.target.mem, 0, FX_MIB),
	      "buffer_that_only_the_blob_has_is_refused_as_stale");
	ft_ok(blob_learns(&s),
	      "stale_refusal_makes_the_descriptor_be_read_again");
	fx_buf_fill(&s.mem, 0, 4096, 7);
	ft_ok(fx_move(s.engine, s.seg, OPCODE_WRITE, s.mem.p, s.is, 4096, 0) &&
		      fx_buf_check(&s.target.mem, 2 * FX_MIB, 4096, 7),
	      "moved_buffer_is_written");
	ft_ok(blob_refused(&s, OPCODE_READ, s.was, 0) &&
		      blob_refused(&s, OPCODE_WRITE, s.is + FX_MIB - 64, 0),
	      "address_in_no_descriptor_is_not_stale");
	blob_stale_stop(&s);
}

/* Imports the target's blob under another name. If `other` is NULL, the address
 * in that name has no process; otherwise it is the address of `other`, which
 * has a newer descriptor. The engine must keep the imported descriptor. */
static void blob_astray(struct fx_peer *other, const char *name,
			const char *title)
{
	struct blob_stale s;
	uint64_t end;
	bool good = true;

	if (!blob_stale_start(&s, "tcp", name))
		return;
	if (other)
		ft_ok(!fx_ask(other, "reg %llu 4096 1", 2 * FX_MIB) &&
		      !fx_ask(other, "unreg %llu", 2 * FX_MIB),
		      "another process publishes something");
	end = ft_now_ns() + fx_ms(200) * 1000000ULL;
	do
		good = good && blob_refused(&s, OPCODE_READ, s.was,
					    TE_ERROR_STALE) &&
		       blob_has(&s, s.was);
	while (good && ft_now_ns() < end);
	ft_ok(good && fx_move(s.engine, s.seg, OPCODE_READ, s.mem.p, s.is, 4096,
			      0), "%s", title);
	blob_stale_stop(&s);
}

/* Closes the connections that wait at the listening socket, and returns their
 * number. */
static int blob_askers(int listener)
{
	int fd, n = 0;

	while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
		close(fd);
		n++;
	}
	return n;
}

/*
 * The name of the target leads to a control channel that accepts connections
 * and never answers. Only one thread at a time may query it. There may be a
 * second connection, from a look-up of the target's rails, if they answer
 * slowly.
 */
static void blob_mute(void)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct sockaddr_in sa = { .sin_family = AF_INET };
	socklen_t len = sizeof(sa);
	struct pollfd asked = { .fd = fd, .events = POLLIN };
	struct blob_stale s;
	uint64_t from, took;
	char name[32];
	bool good = true;
	int askers;

	sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (!ft_ok(!bind(fd, (struct sockaddr *)&sa, len) && !listen(fd, 16) &&
		   !getsockname(fd, (struct sockaddr *)&sa, &len),
		   "a port that is never answered"))
		return;
	snprintf(name, sizeof(name), "127.0.0.1:%u", ntohs(sa.sin_port));
	if (!blob_stale_start(&s, "tcp", name))
		return;
	blob_askers(fd);
	/* Run for 0.5 s, or until the first query arrives if that takes
	 * longer. */
	from = ft_now_ns();
	do {
		good = good && blob_refused(&s, OPCODE_READ, s.was,
					    TE_ERROR_STALE);
		took = ft_now_ns() - from;
	} while (good && (took < FT_NS_PER_SEC / 2 ||
			  (!poll(&asked, 1, 0) &&
			   took < fx_ms(10000) * UINT64_C(1000000))));
	askers = blob_askers(fd);
	close(fd);
	ft_ok(good && askers > 0 && askers <= 2,
	      "who_never_answers_is_asked_by_one: %d", askers);
	blob_stale_stop(&s);
}

/* --- invalid blobs ------------------------------------------------------- */

static void blob_arguments(struct blob_rig *rig)
{
	static unsigned char out[BLOB_MAX];
	segment_id_t id = 5;
	size_t need = 0, size = 10;

	ft_ok(!te_segment_export(rig->engine, 0, NULL, &need) && need > 24,
	      "the_size_can_be_asked");
	memset(out, 0x5a, sizeof(out));
	ft_ok(te_segment_export(rig->engine, 0, out, &size) == -1 &&
		      size == need && out[0] == 0x5a,
	      "export_with_too_little_room_is_1_and_returns_the_size");
	size = need;
	ft_ok(!te_segment_export(rig->engine, 0, out, &size) && size == need &&
	      out[need] == 0x5a, "the_exact_room_is_enough");
	ft_ok(te_segment_export(rig->engine, 1, out, &size) == -1 &&
	      te_segment_export(rig->engine, 0, NULL, &size) == -1 &&
	      te_segment_export(rig->engine, 0, out, NULL) == -1 &&
	      te_segment_export(NULL, 0, out, &size) == -1,
	      "bad_arguments_of_an_export");
	ft_ok(te_segment_import(rig->engine, rig->blob, rig->size, 1, &id) ==
	      -1 &&
	      te_segment_import(rig->engine, NULL, rig->size, 0, &id) == -1 &&
	      te_segment_import(rig->engine, rig->blob, rig->size, 0, NULL) ==
	      -1 &&
	      te_segment_import(rig->engine, rig->blob, SIZE_MAX, 0, &id) ==
	      -1 &&
	      te_segment_import(NULL, rig->blob, rig->size, 0, &id) == -1 &&
	      id == 5, "bad_arguments_of_an_import");
	ft_ok(blob_import(rig->engine, rig->blob, 0) == -104 &&
		      blob_import(rig->engine, "moonrail", 8) == -104,
	      "blob_that_is_too_short_is_104");
}

/* Writes the checksum to the blob as te_segment_export does: the CRC-32C of the
 * whole blob, in which the bytes of the checksum are zero. */
static void blob_seal(unsigned char *p, size_t size)
{
	uint32_t crc = ~0u;

	memset(p + 20, 0, 4);
	for (size_t i = 0; i < size; i++) {
		crc ^= p[i];
		for (int k = 0; k < 8; k++)
			crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
	}
	crc = ~crc;
	for (int i = 0; i < 4; i++)
		p[20 + i] = (unsigned char)(crc >> (24 - 8 * i));
}

/* Redirects stderr to /dev/null, because thousands of refused blobs are logged.
 * Returns the old stderr for blob_speak. */
static int blob_hush(void)
{
	int saved = dup(STDERR_FILENO), null = open("/dev/null", O_WRONLY);

	dup2(null, STDERR_FILENO);
	close(null);
	return saved;
}

static void blob_speak(int saved)
{
	dup2(saved, STDERR_FILENO);
	close(saved);
}

static void blob_flips(struct blob_rig *rig)
{
	static unsigned char copy[BLOB_MAX];
	size_t wrong = 0, cut = 0;
	int saved = blob_hush();

	for (size_t bit = 0; bit < rig->size * 8; bit++) {
		memcpy(copy, rig->blob, rig->size);
		copy[bit / 8] ^= (unsigned char)(1u << bit % 8);
		wrong += blob_import(rig->engine, copy, rig->size) != -104;
	}
	/* The copy has exactly the size of the blob, so that a sanitizer finds
	 * reads beyond its end. */
	for (size_t size = 0; size < rig->size; size++) {
		unsigned char *exact = malloc(size ? size : 1);

		memcpy(exact, rig->blob, size);
		cut += blob_import(rig->engine, exact, size) != -104;
		free(exact);
	}
	memcpy(copy, rig->blob, rig->size);
	cut += blob_import(rig->engine, copy, rig->size + 1) != -104;
	blob_speak(saved);
	ft_ok(!wrong, "every_flipped_bit_is_104");
	ft_ok(!cut, "every_other_length_is_104");
}

static void blob_lengths(struct blob_rig *rig)
{
	static unsigned char copy[BLOB_MAX];
	static const unsigned char lengths[][4] = {
		{ 255, 255, 255, 255 }, { 127, 255, 255, 255 },
		{ 128, 0, 0, 0 }, { 255, 255, 255, 232 }, { 4, 0, 0, 0 },
		{ 0, 0, 0, 0 },
	};
	bool good = true;

	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		memcpy(copy, rig->blob, rig->size);
		memcpy(copy + 12, lengths[i], 4);
		blob_seal(copy, rig->size);
		good = blob_import(rig->engine, copy, rig->size) == -104 && good;
	}
	memcpy(copy, rig->blob, BLOB_HEAD);
	memset(copy + 12, 0, 4);
	blob_seal(copy, BLOB_HEAD);
	ft_ok(good && blob_import(rig->engine, copy, BLOB_HEAD) == -104,
	      "lengths_that_lie_are_104");
	memcpy(copy, rig->blob, rig->size);
	copy[9] = 2;
	blob_seal(copy, rig->size);
	ft_ok(blob_import(rig->engine, copy, rig->size) == -104,
	      "a_later_layout_is_104");
	memcpy(copy, rig->blob, rig->size);
	blob_seal(copy, rig->size);
	ft_ok(!memcmp(copy, rig->blob, rig->size), "the_checksum_is_crc32c");
}

/* Makes a blob of the len bytes of `json` with a correct checksum and imports
 * it. Returns the segment id or the error code. */
static int blob_say_text(struct blob_rig *rig, const char *json, size_t len,
			 transfer_engine_t engine)
{
	static unsigned char copy[BLOB_MAX];

	memcpy(copy, rig->blob, BLOB_HEAD);
	memcpy(copy + BLOB_HEAD, json, len);
	copy[12] = copy[13] = 0;
	copy[14] = (unsigned char)(len >> 8);
	copy[15] = (unsigned char)len;
	blob_seal(copy, BLOB_HEAD + len);
	return blob_import(engine, copy, BLOB_HEAD + len);
}

/* Imports a text that an attacker could choose, with a correct checksum. */
static int blob_say(struct blob_rig *rig, const char *json)
{
	return blob_say_text(rig, json, strlen(json), rig->engine);
}

/* Imports the target's descriptor with the target's name replaced by `name`.
 * Returns the segment id or the error code. */
static int blob_say_as(struct blob_rig *rig, const char *name,
		       transfer_engine_t engine)
{
	char *json = (char *)rig->blob + BLOB_HEAD, *end, *at;
	size_t len = rig->size - BLOB_HEAD, old = strlen(rig->target.name);
	size_t used = 0, part, now = strlen(name);
	static char text[BLOB_MAX];

	for (end = json + len; json < end; json = at + old) {
		at = memmem(json, (size_t)(end - json), rig->target.name, old);
		part = (size_t)((at ? at : end) - json);
		if (used + part + now > sizeof(text) - BLOB_HEAD)
			return -1;
		memcpy(text + used, json, part);
		used += part;
		if (!at)
			break;
		memcpy(text + used, name, now);
		used += now;
	}
	return blob_say_text(rig, text, used, engine);
}

static void blob_texts(struct blob_rig *rig)
{
	static const char *const bad[] = {
		"", "{", "[]", "{}", "null", "{\"name\":\"\"}",
		"{\"name\":\"a\",\"protocol\":\"tcp\",\"buffers\":[{\"name\":"
		"\"*\",\"addr\":18446744073709551615,\"length\":4294967296,"
		"\"rkey\":[]}],\"devices\":[],\"incarnation\":1}",
		"{\"name\":\"a\",\"protocol\":\"tcp\",\"buffers\":[{\"name\":"
		"\"*\",\"addr\":0,\"length\":1,\"rkey\":[]}],\"devices\":[],"
		"\"incarnation\":1}",
		("{\"name\":\"a\",\"protocol\":\"tcp\",\"incarnation\":1,"
		 "\"serial\":99999999999999999999}"),
	};
	bool good = true;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		int ret = blob_say(rig, bad[i]);

		if (ret != -104) {
			ft_diag("%s: %d", bad[i], ret);
			good = false;
		}
	}
	ft_ok(good, "texts_that_make_no_sense_are_104");
	ft_ok(blob_say(rig, "{\"name\":\"a\",\"protocol\":\"tcp\"}") == -202,
	      "blob_without_an_incarnation_is_202");
}

/* Checks that a blob with file paths is refused: its author must not choose
 * which files this process opens. */
static void blob_files(struct blob_rig *rig)
{
	static const char *const names[] = { "10.0.0.9:15000", "nvmeof/mine" };
	transfer_engine_t engine = fx_engine("nvmeof");
	struct te_error err = { 0 };
	bool good = engine != NULL;
	char text[512];
	int len, ret;

	for (size_t i = 0; i < 2; i++) {
		len = snprintf(text, sizeof(text),
			       "{\"name\":\"%s\",\"protocol\":\"nvmeof\","
			       "\"incarnation\":12345,\"serial\":1,"
			       "\"buffers\":[{\"file_path\":\"m\",\"length\":64,"
			       "\"local_path_map\":{\"127.0.0.1\":"
			       "\"/dev/null\"}}]}", names[i]);
		ret = blob_say_text(rig, text, (size_t)len, engine);
		te_last_error(&err, sizeof(err));
		good = good && ret == -104 && strstr(err.text, "lists files");
		if (ret != -104)
			ft_diag("%s: %d", names[i], ret);
	}
	ft_ok(good, "blob_that_names_files_is_104");
	destroyTransferEngine(engine);
}

/* Imports blobs in which random bytes of the text are changed, with a correct
 * checksum. Each must be refused, or be accepted and closed without harm. */
static void blob_hostile(struct blob_rig *rig)
{
	static const char alphabet[] = "0123456789\"{}[]:,-ax\\ue.";
	static unsigned char copy[BLOB_MAX];
	unsigned int taken = 0, open = 0;
	int saved, id;

	srandom((unsigned int)fx_seed());
	saved = blob_hush();
	for (int i = 0; i < 20000; i++) {
		memcpy(copy, rig->blob, rig->size);
		for (long n = 1 + random() % 3; n > 0; n--)
			copy[BLOB_HEAD + (size_t)random() %
			     (rig->size - BLOB_HEAD)] = (unsigned char)
				alphabet[(size_t)random() %
					 (sizeof(alphabet) - 1)];
		blob_seal(copy, rig->size);
		id = blob_import(rig->engine, copy, rig->size);
		taken += id >= 0;
		open += id > 0 && closeSegment(rig->engine, id);
	}
	blob_speak(saved);
	ft_diag("%u of 20000 altered blobs were accepted", taken);
	ft_ok(!open, "hostile_texts_do_no_harm");
	id = blob_import(rig->engine, rig->blob, rig->size);
	ft_ok(id > 0 && blob_write_works(rig, id, &rig->target, 0, 6),
	      "good_blob_after_hostile_ones_is_accepted");
	closeSegment(rig->engine, id);
}

void objects_blob(void)
{
	static struct blob_rig rig;

	if (!blob_rig_start(&rig))
		return;
	blob_names(&rig);
	blob_silent(&rig);
	blob_states(&rig);
	blob_own(&rig);
	blob_dead(&rig);
	blob_never_met(&rig);
	blob_moved("tcp");
	blob_moved("auto");
	blob_astray(NULL, "127.0.0.1:1",
		    "descriptor_of_an_unreachable_process_stays_unchanged");
	blob_astray(&rig.target, rig.target.name,
		    "another_process_at_that_address_is_not_accepted");
	blob_mute();
	rig.size = blob_of(&rig.target, rig.blob);
	blob_arguments(&rig);
	blob_flips(&rig);
	blob_lengths(&rig);
	blob_texts(&rig);
	blob_files(&rig);
	blob_hostile(&rig);
	blob_rig_stop(&rig);
}
