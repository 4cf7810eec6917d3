/* SPDX-License-Identifier: BSD-2-Clause */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fabtests/functional/ft_security.h"
#include "fabtests/functional/fx.h"

/*
 * A target with a shared secret, and clients without the secret, which must be
 * refused. The test builds the frames of the control channel itself. A frame
 * has: "MRcc", version (1 byte), type (1), flags (2), id (4), length (4),
 * payload.
 */
#define SEC_RESPONSE	16
#define SEC_CHALLENGE	144
#define SEC_ERROR	255
#define SEC_DENIED	13

/* Reads from fd once, or until the other side closes the connection if to_end
 * is true. Returns the number of bytes read. */
static size_t sec_read(int fd, uint8_t *buf, size_t size, bool to_end)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	size_t used = 0;
	ssize_t n;

	while (used < size && poll(&p, 1, (int)fx_ms(20000)) == 1) {
		n = recv(fd, buf + used, size - used, 0);
		if (n <= 0)
			break;
		used += (size_t)n;
		if (!to_end)
			break;
	}
	return used;
}

/* Sends the bytes to the control channel of the process `name`. Returns the
 * code of the ERROR frame in the reply, or 0 if the reply is not an error. */
static int sec_told(const char *name, const void *bytes, size_t len)
{
	uint8_t reply[1024];
	uint32_t code = 0;
	int fd = sec_connect(name, "127.0.0.1");

	if (fd < 0 || send(fd, bytes, len, MSG_NOSIGNAL) != (ssize_t)len)
		return 0;
	if (sec_read(fd, reply, sizeof(reply), true) >= SEC_HEAD + 4 &&
	    reply[5] == SEC_ERROR)
		memcpy(&code, reply + SEC_HEAD, sizeof(code));
	close(fd);
	return (int)ntohl(code);
}

/* --- clients without the secret ------------------------------------------ */

static void sec_without(const char *name)
{
	uint8_t frame[SEC_HEAD + 64];
	size_t len = strlen(name);

	sec_frame(frame, 1, SEC_GET_DESC, (uint32_t)len);
	memcpy(frame + SEC_HEAD, name, len);
	ft_ok(sec_told(name, frame, SEC_HEAD + len) == SEC_DENIED,
	      "descriptor_is_denied_without_the_secret");
	sec_frame(frame, 1, SEC_GET_DESC, 4);
	memcpy(frame + SEC_HEAD, "none", 4);
	ft_ok(sec_told(name, frame, SEC_HEAD + 4) == SEC_DENIED,
	      "existence_of_a_segment_is_denied_without_the_secret");
	sec_frame(frame, 1, SEC_PING, 0);
	ft_ok(sec_told(name, frame, SEC_HEAD) == SEC_DENIED,
	      "incarnation_is_denied_without_the_secret");
	sec_frame(frame, 0, SEC_GET_DESC, 0);
	ft_ok(sec_told(name, frame, SEC_HEAD) == -104,
	      "an_older_version_is_refused");
	sec_frame(frame, 1, SEC_AUTH, UINT32_MAX);
	ft_ok(sec_told(name, frame, SEC_HEAD) == -104,
	      "an_oversize_frame_is_refused");
	sec_frame(frame, 1, SEC_RESPONSE, 32);
	ft_ok(sec_told(name, frame, SEC_HEAD + 32) == -104,
	      "a_proof_without_a_challenge_is_refused");
}

/* Sends AUTH with the nonce. Answers the challenge with the recorded proof, or
 * with the challenge itself if `echo` is true. Returns the code of the ERROR
 * frame in the reply, or 0 if there is none. */
static int sec_answer(const char *name, const uint8_t *nonce,
		      const uint8_t *proof, bool echo)
{
	uint8_t frame[SEC_HEAD + 32], got[1024];
	uint32_t code = 0;
	int fd = sec_connect(name, "127.0.0.1");

	sec_frame(frame, 1, SEC_AUTH, 32);
	memcpy(frame + SEC_HEAD, nonce, 32);
	send(fd, frame, sizeof(frame), MSG_NOSIGNAL);
	if (sec_read(fd, got, SEC_HEAD + 32, false) != SEC_HEAD + 32 ||
	    got[5] != SEC_CHALLENGE) {
		close(fd);
		return 0;
	}
	sec_frame(frame, 1, SEC_RESPONSE, 32);
	memcpy(frame + SEC_HEAD, echo ? got + SEC_HEAD : proof, 32);
	send(fd, frame, sizeof(frame), MSG_NOSIGNAL);
	if (sec_read(fd, got, sizeof(got), true) >= SEC_HEAD + 4 &&
	    got[5] == SEC_ERROR)
		memcpy(&code, got + SEC_HEAD, sizeof(code));
	close(fd);
	return (int)ntohl(code);
}

/* A child opens the segment through a relay in this process, which records the
 * child's nonce and proof. Returns true on success. */
static bool sec_record(transfer_engine_t e, const char *name, uint8_t *nonce,
		       uint8_t *proof)
{
	uint8_t up[2 * (SEC_HEAD + 32)] = { 0 }, down[SEC_HEAD + 32];
	char address[64];
	int listener = sec_listen(address, sizeof(address)), in, out;
	pid_t pid;
	bool good;

	if (listener < 0)
		return false;
	(void)e;
	pid = fork();
	if (!pid) {
		transfer_engine_t child = fx_engine("tcp");

		openSegment(child, address);
		_exit(0);
	}
	in = accept(listener, NULL, NULL);
	out = sec_connect(name, "127.0.0.1");
	good = sec_read(in, up, SEC_HEAD + 32, false) == SEC_HEAD + 32 &&
	       send(out, up, SEC_HEAD + 32, MSG_NOSIGNAL) > 0 &&
	       sec_read(out, down, sizeof(down), false) == sizeof(down) &&
	       send(in, down, sizeof(down), MSG_NOSIGNAL) > 0 &&
	       sec_read(in, up + SEC_HEAD + 32, SEC_HEAD + 32, false) ==
			SEC_HEAD + 32;
	memcpy(nonce, up + SEC_HEAD, 32);
	memcpy(proof, up + 2 * SEC_HEAD + 32, 32);
	close(in);
	close(out);
	close(listener);
	waitpid(pid, NULL, 0);
	return good;
}

static void sec_replay(transfer_engine_t e, const char *name)
{
	uint8_t nonce[32], proof[32];

	if (!ft_ok(sec_record(e, name, nonce, proof), "handshake_is_recorded"))
		return;
	ft_ok(sec_answer(name, nonce, proof, false) == SEC_DENIED,
	      "a_recorded_proof_is_refused");
	ft_ok(sec_answer(name, nonce, proof, true) == SEC_DENIED,
	      "a_reflected_challenge_is_refused");
}

/* --- in-band ------------------------------------------------------------- */

#define SEC_MEM		FX_MIB
#define SEC_BLOB_AT	(SEC_MEM / 2)
#define SEC_MOVED	65536
#define SEC_SEQUENCE	7

/*
 * Returns true if an engine can transfer bytes to or from the target. The
 * engine imports the target's exported descriptor, as if another process had
 * given it the blob, and does not use the control channel.
 */
static bool sec_moves(struct fx_peer *target, const void *blob, size_t size,
		      int op)
{
	transfer_engine_t e = fx_engine("tcp");
	struct fx_buf mem = fx_buf_map(SEC_MOVED, -1);
	struct fx_job job = { .engine = e, .op = op, .local = mem.p,
			      .remote = target->mem.addr, .len = SEC_MOVED };
	bool done = false;

	fx_buf_fill(&mem, 0, SEC_MOVED, SEC_SEQUENCE + 1);
	if (ft_ok(fx_register(e, &mem) &&
		  !te_segment_import(e, blob, size, 0, &job.seg) &&
		  !fx_job_start(&job), "an_address_is_enough_to_try")) {
		ft_ok(fx_job_wait(&job, fx_ms(20000)), "a_try_ends_soon");
		done = job.n[STATUS_COMPLETED] == 1;
		fx_job_free(&job);
	}
	ft_ok(fx_buf_check(&mem, 0, SEC_MOVED,
			   done && op == OPCODE_READ ? SEC_SEQUENCE
						     : SEC_SEQUENCE + 1),
	      "memory_is_read_only_by_permitted_processes");
	destroyTransferEngine(e);
	fx_buf_unmap(&mem);
	return done;
}

static void sec_in_band(struct fx_peer *target, const char *right,
			const char *wrong)
{
	static unsigned char blob[SEC_MEM - SEC_BLOB_AT];
	int size = fx_ask(target, "export %llu", SEC_BLOB_AT);

	if (!ft_ok(size > 0 && (size_t)size <= sizeof(blob),
		   "a_target_exports_its_addresses"))
		return;
	memcpy(blob, target->mem.p + SEC_BLOB_AT, (size_t)size);
	fx_buf_fill(&target->mem, 0, SEC_MEM, SEC_SEQUENCE);
	unsetenv("MOONRAIL_SECRET_FILE");
	ft_ok(!sec_moves(target, blob, (size_t)size, OPCODE_READ),
	      "read_without_the_secret_fails");
	ft_ok(!sec_moves(target, blob, (size_t)size, OPCODE_WRITE),
	      "write_without_the_secret_fails");
	setenv("MOONRAIL_SECRET_FILE", wrong, 1);
	ft_ok(!sec_moves(target, blob, (size_t)size, OPCODE_WRITE),
	      "write_with_another_secret_fails");
	setenv("MOONRAIL_SECRET_FILE", right, 1);
	ft_ok(fx_buf_check(&target->mem, 0, SEC_MEM, SEC_SEQUENCE),
	      "unauthenticated_process_leaves_no_trace");
	ft_ok(sec_moves(target, blob, (size_t)size, OPCODE_READ),
	      "read_with_the_secret_completes");
}

int main(int argc, char **argv)
{
	char dir[] = "/tmp/ft_security.XXXXXX", right[64], wrong[64];
	struct fx_peer target;
	transfer_engine_t e;

	fx_init(argc, argv);
	if (!ft_ok(mkdtemp(dir) != NULL, "folder_for_the_secrets_is_made"))
		return ft_result();
	snprintf(right, sizeof(right), "%s/right", dir);
	snprintf(wrong, sizeof(wrong), "%s/wrong", dir);
	sec_file(right, "a secret of enough bytes");
	sec_file(wrong, "another one, as long as that");
	setenv("MOONRAIL_SECRET_FILE", right, 1);
	if (!ft_ok(fx_target_start(&target, FX_MIB), "a_target_with_a_secret"))
		return ft_result();
	unsetenv("MOONRAIL_SECRET_FILE");
	e = fx_engine("tcp");
	ft_ok(openSegment(e, target.name) == -1, "an_engine_without_it_opens_nothing");
	destroyTransferEngine(e);
	setenv("MOONRAIL_SECRET_FILE", wrong, 1);
	e = fx_engine("tcp");
	ft_ok(openSegment(e, target.name) == -1, "an_engine_with_another_opens_nothing");
	destroyTransferEngine(e);
	sec_in_band(&target, right, wrong);
	chmod(wrong, 0644);
	setenv("MOONRAIL_SECRET_FILE", wrong, 1);
	ft_ok(!fx_engine("tcp"), "a_file_that_others_may_read_starts_nothing");
	setenv("MOONRAIL_SECRET_FILE", right, 1);
	sec_without(target.name);
	e = fx_engine("tcp");
	ft_ok(openSegment(e, target.name) > 0, "an_engine_with_it_opens_it");
	sec_replay(e, target.name);
	destroyTransferEngine(e);
	ft_ok(fx_peer_stop(&target), "target_ends_well");
	unsetenv("MOONRAIL_SECRET_FILE");
	sec_limits();
	unlink(right);
	unlink(wrong);
	rmdir(dir);
	return ft_result();
}
