/* SPDX-License-Identifier: BSD-2-Clause */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fabtests/common/ft_clock.h"
#include "fabtests/common/ft_pattern.h"
#include "fabtests/functional/ft_hostile.h"
#include "fabtests/functional/fx.h"

#define SERVER_TEXT 65536
#define SERVER_MUTANTS 150

/* A control port that sends the same answer to every request. */
struct hostile_server {
	int listener;
	int stop[2];		/* a pipe; the server ends when it becomes
				 * readable */
	char address[64];
	pthread_t thread;
	uint8_t answer[SERVER_TEXT + HOSTILE_HEADER];
	size_t len;
	bool drip;		/* true: sends one byte every 10 ms */
	bool hang;		/* true: keeps the connection open after the
				 * answer */
};

static bool server_stopped(const struct hostile_server *s, int ms)
{
	struct pollfd p = { .fd = s->stop[0], .events = POLLIN };

	return poll(&p, 1, ms) > 0;
}

static void server_answer(struct hostile_server *s, int fd)
{
	uint8_t request[1024];
	struct pollfd p = { .fd = fd, .events = POLLIN };

	if (poll(&p, 1, 5000) != 1 || recv(fd, request, sizeof(request), 0) < 1)
		return;
	memcpy(s->answer + 8, request + 8, s->len >= 12 ? 4 : 0);
	for (size_t i = 0; s->drip && i < s->len; i++) {
		hostile_send(fd, s->answer + i, 1);
		if (server_stopped(s, 10))
			return;
	}
	if (!s->drip)
		hostile_send(fd, s->answer, s->len);
	/* Keep the connection open until the client sends or closes it. */
	while (s->hang && !server_stopped(s, 1))
		if (poll(&p, 1, 0) > 0)
			return;
}

static void *server_main(void *arg)
{
	struct hostile_server *s = arg;
	struct pollfd p[2] = {
		{ .fd = s->stop[0], .events = POLLIN },
		{ .fd = s->listener, .events = POLLIN },
	};

	while (poll(p, 2, -1) > 0 && !p[0].revents) {
		int fd = accept(s->listener, NULL, NULL);

		if (fd < 0)
			continue;
		server_answer(s, fd);
		close(fd);
	}
	return NULL;
}

static bool server_start(struct hostile_server *s)
{
	struct sockaddr_in sa = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	socklen_t len = sizeof(sa);

	s->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (bind(s->listener, (struct sockaddr *)&sa, sizeof(sa)) ||
	    listen(s->listener, 8) ||
	    getsockname(s->listener, (struct sockaddr *)&sa, &len) ||
	    pipe(s->stop))
		return false;
	snprintf(s->address, sizeof(s->address), "127.0.0.1:%u",
		 ntohs(sa.sin_port));
	return !pthread_create(&s->thread, NULL, server_main, s);
}

static void server_end(struct hostile_server *s)
{
	if (write(s->stop[1], "", 1) != 1)
		ft_diag("cannot signal the server to stop");
	pthread_join(s->thread, NULL);
	close(s->listener);
	close(s->stop[0]);
	close(s->stop[1]);
}

static void server_text(struct hostile_server *s, const char *text, size_t len)
{
	hostile_frame(s->answer, HOSTILE_DESC, (uint32_t)len);
	memcpy(s->answer + HOSTILE_HEADER, text, len);
	s->len = HOSTILE_HEADER + len;
}

/* Starts the server and opens its segment. Checks that openSegment fails, and
 * that it does so within 8 s. */
static void server_refused(transfer_engine_t e, struct hostile_server *s,
			   const char *name)
{
	uint64_t from;
	int seg;

	if (!ft_ok(server_start(s), "a_lying_server_starts"))
		return;
	from = ft_now_ns();
	seg = openSegment(e, s->address);
	ft_ok(seg == -1, "open_refuses_%s", name);
	ft_ok(ft_now_ns() - from < fx_ms(8000) * UINT64_C(1000000),
	      "open_is_bounded_with_%s", name);
	server_end(s);
}

static void server_lies(transfer_engine_t e)
{
	static const char files[] =
		"{\"name\":\"127.0.0.1:1\",\"protocol\":\"nvmeof\","
		"\"incarnation\":12345,\"serial\":1,\"buffers\":["
		"{\"file_path\":\"m\",\"length\":64,"
		"\"local_path_map\":{\"127.0.0.1\":\"/dev/null\"}}]}";
	static struct hostile_server s;
	static char deep[SERVER_TEXT];

	memset(&s, 0, sizeof(s));
	server_refused(e, &s, "an_end");
	s.hang = true;
	server_refused(e, &s, "silence");
	hostile_frame(s.answer, HOSTILE_DESC, UINT32_MAX);
	s.len = HOSTILE_HEADER;
	server_refused(e, &s, "a_length_of_4_GiB");
	hostile_frame(s.answer, HOSTILE_DESC, 60000);
	server_refused(e, &s, "a_truncated_answer");
	s.len = 7;
	server_refused(e, &s, "a_truncated_header");
	server_text(&s, "{\"name\": ", 9);
	server_refused(e, &s, "broken_JSON");
	server_text(&s, "{}", 2);
	server_refused(e, &s, "an_empty_descriptor");
	server_text(&s, files, sizeof(files) - 1);
	server_refused(e, &s, "files_of_its_choice");
	memset(deep, '[', sizeof(deep));
	server_text(&s, deep, sizeof(deep));
	server_refused(e, &s, "deep_nesting");
	memset(s.answer, 'G', sizeof(s.answer));
	s.len = sizeof(s.answer);
	server_refused(e, &s, "garbage");
	server_text(&s, deep, 5000);
	s.drip = true;
	server_refused(e, &s, "a_drip");
}

/* --- a correct descriptor, altered --------------------------------------- */

static size_t server_true_text(const char *address, char *text, size_t size)
{
	uint8_t head[HOSTILE_HEADER];
	uint32_t len = 0;
	size_t have = 0;
	int fd = hostile_connect(address);

	hostile_frame(head, HOSTILE_GET_DESC, (uint32_t)strlen(address));
	hostile_send(fd, head, sizeof(head));
	hostile_send(fd, address, strlen(address));
	if (recv(fd, head, sizeof(head), MSG_WAITALL) == sizeof(head) &&
	    head[5] == HOSTILE_DESC)
		memcpy(&len, head + 12, sizeof(len));
	len = ntohl(len);
	if (len && len <= size)
		have = (size_t)recv(fd, text, len, MSG_WAITALL);
	close(fd);
	return have == len ? have : 0;
}

/* Copies the descriptor to `out` with one to three bytes replaced by characters
 * that have a meaning in JSON, or cut at a random byte. Returns the new
 * length. */
static size_t server_mutate(const char *text, size_t len, char *out,
			    uint64_t *random)
{
	static const char odd[] = "0123456789-+.eE\"\\{}[],:x\0\n\xff";
	unsigned int n = 1 + (unsigned int)(ft_random(random) % 4);

	memcpy(out, text, len);
	if (n == 4)
		return ft_random(random) % len;
	while (n--)
		out[ft_random(random) % len] =
			odd[ft_random(random) % (sizeof(odd) - 1)];
	return len;
}

/* Opens the segment with the altered descriptor, which may fail. If it
 * succeeds, submits a write. Returns false if the write does not end in
 * time. */
static bool server_try(transfer_engine_t e, struct fx_buf *mem,
		       const char *address, uint64_t remote, unsigned int *opened)
{
	struct fx_job job = { .engine = e, .op = OPCODE_WRITE, .local = mem->p,
			      .remote = remote, .len = 64 };
	segment_id_t seg = openSegment(e, address);
	bool good = true;

	if (seg < 0)
		return true;
	++*opened;
	job.seg = seg;
	if (!fx_job_start(&job)) {
		good = fx_job_wait(&job, FX_HASTY_S * 1000 + fx_ms(8000));
		fx_job_wait(&job, FX_LONG_MS);
		fx_job_free(&job);
	}
	closeSegment(e, seg);
	return good;
}

static void server_mutants(transfer_engine_t e, struct fx_buf *mem)
{
	static struct hostile_server s;
	static char text[SERVER_TEXT], mutant[SERVER_TEXT];
	struct fx_peer target;
	uint64_t random = fx_seed();
	uint64_t end = ft_now_ns() + UINT64_C(20000000000);
	unsigned int opened = 0, i;
	bool good = true;
	size_t len, size;

	if (!ft_ok(fx_target_start(&target, FX_MIB), "a_target_starts"))
		return;
	len = server_true_text(target.name, text, sizeof(text));
	if (!ft_ok(len > 0, "honest_descriptor_is_read"))
		return;
	for (i = 0; good && i < SERVER_MUTANTS && ft_now_ns() < end; i++) {
		memset(&s, 0, sizeof(s));
		size = server_mutate(text, len, mutant, &random);
		server_text(&s, mutant, size);
		good = server_start(&s) &&
		       server_try(e, mem, s.address, target.mem.addr, &opened);
		server_end(&s);
	}
	ft_diag("%u altered descriptors were published, %u of them opened", i,
		opened);
	ft_ok(good, "altered_descriptors_do_no_harm");
	ft_ok(fx_move_until(e, openSegment(e, target.name), OPCODE_WRITE,
			    mem->p, target.mem.addr, FX_MIB, 0, fx_ms(20000)) &&
		      !memcmp(mem->p, target.mem.p, FX_MIB),
	      "transfer_to_an_honest_target_completes");
	ft_ok(fx_peer_stop(&target), "target_ends_well");
}

void hostile_servers(void)
{
	transfer_engine_t e = fx_engine_hasty("tcp");
	struct fx_buf mem = fx_buf_map(FX_MIB, -1);

	if (!ft_ok(e && fx_register(e, &mem), "engine_starts"))
		return;
	fx_buf_fill(&mem, 0, FX_MIB, 1);
	server_lies(e);
	server_mutants(e, &mem);
	destroyTransferEngine(e);
	fx_buf_unmap(&mem);
}
