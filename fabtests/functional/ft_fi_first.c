/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The name of a process, as fi_getname returns it, is valid for the life of the
 * process, although faults change its addresses. The processes a and b have one
 * rail each (fabtests/scripts/rails_lib.sh). The connection between them is cut
 * while both change their addresses, so neither knows the other's new address.
 * The process c knows only the old name of b.
 */
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fabtests/common/ft_clock.h"
#include "fabtests/common/ft_test.h"
#include "fabtests/functional/fi_rig.h"

#define FIRST_WAIT_NS	(FI_RIG_WAIT_MS * UINT64_C(1000000))
#define FIRST_MEM	4096u
#define FIRST_NAME	64u
#define FIRST_KEY	1000u	/* key of the first registration */

enum first_do {
	FIRST_OPEN,		/* opens an endpoint and returns its name */
	FIRST_INSERT,		/* inserts the peer's name into the address
				 * vector */
	FIRST_INSERT_SOCKET,	/* inserts the peer's socket address (address
				 * and port) */
	FIRST_AGAIN,		/* removes the peer's address and inserts it
				 * again */
	FIRST_SEND,		/* sends to the peer and waits until the message
				 * is acknowledged */
	FIRST_RECEIVE,		/* receives a number and returns it */
	FIRST_REGISTER,		/* registers memory with `number` as its key */
	FIRST_CLOSE_MR,
	FIRST_WRITE,		/* writes to the peer's memory with the key
				 * `number` */
};

/* A command to a process, which the process returns with the result. */
struct first_order {
	enum first_do what;
	int err;		/* result: 0, an error number FI_E…, or -1 */
	uint64_t number;
	uint8_t name[FIRST_NAME];
};

/* --- one process ---------------------------------------------------------- */

struct first_host {
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_av *av;
	struct fid_cq *tx, *rx;
	struct fid_ep *ep;
	struct fid_mr *mr;
	fi_addr_t peer;
	uint8_t mem[FIRST_MEM];
};

static bool host_find(struct first_host *h)
{
	struct fi_info *hints = fi_allocinfo();
	int ret;

	hints->caps = FI_MSG | FI_RMA;
	hints->ep_attr->type = FI_EP_RDM;
	hints->fabric_attr->prov_name = strdup("moonrail");
	ret = fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &h->info);
	fi_freeinfo(hints);
	return !ret;
}

static int host_open(struct first_host *h, struct first_order *o)
{
	struct fi_cq_attr cq = { .format = FI_CQ_FORMAT_MSG };
	struct fi_av_attr av = { .type = FI_AV_MAP };
	size_t len = sizeof(o->name);

	return host_find(h) &&
	       !fi_fabric(h->info->fabric_attr, &h->fabric, NULL) &&
	       !fi_domain(h->fabric, h->info, &h->domain, NULL) &&
	       !fi_av_open(h->domain, &av, &h->av, NULL) &&
	       !fi_cq_open(h->domain, &cq, &h->tx, NULL) &&
	       !fi_cq_open(h->domain, &cq, &h->rx, NULL) &&
	       !fi_endpoint(h->domain, h->info, &h->ep, NULL) &&
	       !fi_ep_bind(h->ep, &h->av->fid, 0) &&
	       !fi_ep_bind(h->ep, &h->tx->fid, FI_TRANSMIT) &&
	       !fi_ep_bind(h->ep, &h->rx->fid, FI_RECV) &&
	       !fi_enable(h->ep) &&
	       !fi_getname(&h->ep->fid, o->name, &len) ? 0 : -1;
}

static void host_close(struct first_host *h)
{
	if (!h->ep)
		return;
	if (h->mr)
		fi_close(&h->mr->fid);
	fi_close(&h->ep->fid);
	fi_close(&h->rx->fid);
	fi_close(&h->tx->fid);
	fi_close(&h->av->fid);
	fi_close(&h->domain->fid);
	fi_close(&h->fabric->fid);
	fi_freeinfo(h->info);
}

static int host_done(struct fid_cq *cq)
{
	uint64_t end = ft_now_ns() + FIRST_WAIT_NS;
	struct fi_cq_err_entry err = { .err = -1 };
	struct fi_cq_msg_entry e;
	ssize_t n;

	do {
		n = fi_cq_read(cq, &e, 1);
		if (n == -FI_EAVAIL)
			fi_cq_readerr(cq, &err, 0);
		else if (n == -FI_EAGAIN)
			usleep(200);
	} while (n == -FI_EAGAIN && ft_now_ns() < end);
	return n == 1 ? 0 : err.err;
}

/* Waits for the completion of an operation and returns its error, or 0. If
 * `ret`, the result of the call, is an error, returns that error. */
static int host_ends(ssize_t ret, struct fid_cq *cq)
{
	return ret ? (int)-ret : host_done(cq);
}

static int host_send(struct first_host *h, uint64_t number)
{
	struct iovec iov = { .iov_base = h->mem, .iov_len = sizeof(number) };
	struct fi_msg m = { .msg_iov = &iov, .iov_count = 1, .addr = h->peer };

	memcpy(h->mem, &number, sizeof(number));
	return host_ends(fi_sendmsg(h->ep, &m,
				       FI_COMPLETION | FI_TRANSMIT_COMPLETE),
			 h->tx);
}

static int host_receive(struct first_host *h, uint64_t *number)
{
	int ret = host_ends(fi_recv(h->ep, h->mem, FIRST_MEM, NULL,
				       FI_ADDR_UNSPEC, NULL), h->rx);

	memcpy(number, h->mem, sizeof(*number));
	return ret;
}

static int host_insert(struct first_host *h, const struct first_order *o)
{
	return fi_av_insert(h->av, o->name, 1, &h->peer, 0, NULL) == 1 ? 0 : -1;
}

static int host_insert_socket(struct first_host *h, const struct first_order *o)
{
	char text[128], node[64], port[16];
	size_t len = sizeof(text);

	return fi_av_straddr(h->av, o->name, text, &len) &&
	       fi_rig_socket(text, node, port) &&
	       fi_av_insertsvc(h->av, node, port, &h->peer, 0, NULL) == 1 ?
		       0 : -1;
}

static int host_do(struct first_host *h, struct first_order *o)
{
	switch (o->what) {
	case FIRST_OPEN:
		return host_open(h, o);
	case FIRST_INSERT:
		return host_insert(h, o);
	case FIRST_INSERT_SOCKET:
		return host_insert_socket(h, o);
	case FIRST_AGAIN:
		return fi_av_remove(h->av, &h->peer, 1, 0) ? -1 :
							     host_insert(h, o);
	case FIRST_SEND:
		return host_send(h, o->number);
	case FIRST_RECEIVE:
		return host_receive(h, &o->number);
	case FIRST_REGISTER:
		return -fi_mr_reg(h->domain, h->mem, FIRST_MEM, FI_REMOTE_WRITE,
				  0, o->number, 0, &h->mr, NULL);
	case FIRST_CLOSE_MR:
		o->err = fi_close(&h->mr->fid);
		h->mr = NULL;
		return o->err;
	case FIRST_WRITE:
		return host_ends(fi_write(h->ep, h->mem, 64, NULL, h->peer,
					     64, o->number, NULL), h->tx);
	}
	return -1;
}

/* --- the test ------------------------------------------------------------ */

struct first {
	char host;
	int sock, log;
	pid_t pid;
	uint64_t key;			/* key of the process's memory */
	uint8_t name[FIRST_NAME];
};

static void host_enter(const struct first *f)
{
	const char *peer = getenv("RAILS_PEER"); /* the name of host b's network
						  * namespace */
	char path[256], addr[32];
	int fd;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	snprintf(path, sizeof(path), "/run/netns/%.*s%c",
		 (int)strlen(peer) - 1, peer, f->host);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || setns(fd, CLONE_NEWNET))
		_exit(FT_FAIL);
	close(fd);
	snprintf(addr, sizeof(addr), "10.77.0.%d", f->host - 'a' + 1);
	setenv("FI_MOONRAIL_ADDR", addr, 1);
	dup2(f->log, STDERR_FILENO);
}

static void host_main(const struct first *f)
{
	static struct first_host h;
	struct first_order o;

	host_enter(f);
	while (recv(f->sock, &o, sizeof(o), 0) == sizeof(o)) {
		o.err = host_do(&h, &o);
		if (send(f->sock, &o, sizeof(o), MSG_NOSIGNAL) != sizeof(o))
			break;
	}
	host_close(&h);
	_exit(FT_PASS);
}

static bool first_start(struct first *f, char host)
{
	int s[2];

	memset(f, 0, sizeof(*f));
	f->host = host;
	f->log = memfd_create("log", 0);
	if (f->log < 0 ||
	    socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, s))
		return false;
	f->pid = fork();
	if (!f->pid) {
		close(s[0]);
		f->sock = s[1];
		host_main(f);
	}
	close(s[1]);
	f->sock = s[0];
	return f->pid > 0;
}

static void first_tell(struct first *f)
{
	char line[512];
	FILE *log = fdopen(f->log, "r");

	if (!log)
		return;
	rewind(log);
	while (fgets(line, sizeof(line), log))
		printf("# %c: %s", f->host, line);
}

static bool first_stop(struct first *f)
{
	int status = -1;

	close(f->sock);
	waitpid(f->pid, &status, 0);
	if (ft_result())
		first_tell(f);
	return !status;
}

/* Returns true if the log of the process says that its rx lane has the
 * generation `gen`. */
static bool first_moved(const struct first *f, unsigned int gen)
{
	static char log[1 << 20];
	char what[64];
	ssize_t n = pread(f->log, log, sizeof(log) - 1, 0);

	log[n > 0 ? n : 0] = '\0';
	snprintf(what, sizeof(what), "its generation is now %u", gen);
	return strstr(log, what);
}

static void first_order(struct first *f, enum first_do what,
			const struct first *peer, uint64_t number)
{
	struct first_order o = { .what = what, .number = number };

	if (peer)
		memcpy(o.name, peer->name, sizeof(o.name));
	send(f->sock, &o, sizeof(o), MSG_NOSIGNAL);
}

static int first_end(struct first *f, struct first_order *o)
{
	return recv(f->sock, o, sizeof(*o), 0) == sizeof(*o) ? o->err : -1;
}

static int first(struct first *f, enum first_do what, const struct first *peer,
		 uint64_t number)
{
	struct first_order o;

	first_order(f, what, peer, number);
	return first_end(f, &o);
}

static bool first_begin(struct first *f)
{
	struct first_order o;

	first_order(f, FIRST_OPEN, NULL, 0);
	if (first_end(f, &o))
		return false;
	memcpy(f->name, o.name, sizeof(f->name));
	return true;
}

/* Sends `number` from one process to the other. Returns true if it arrives. */
static bool first_goes(struct first *from, struct first *to, uint64_t number)
{
	struct first_order o;
	int err;

	first_order(to, FIRST_RECEIVE, NULL, 0);
	err = first(from, FIRST_SEND, NULL, number);
	if (first_end(to, &o) || err || o.number != number)
		ft_diag("message from %c to %c: send error %d, receive error "
			"%d, number %llu (expected %llu)",
			from->host, to->host, err, o.err,
			(unsigned long long)o.number,
			(unsigned long long)number);
	return !err && !o.err && o.number == number;
}

/* Registers memory of f with a new key, and writes to it from the process `to`,
 * which then has the key. */
static bool first_lends(struct first *f, struct first *to)
{
	f->key = f->key ? f->key + 1 : FIRST_KEY;
	return !first(f, FIRST_REGISTER, NULL, f->key) &&
	       !first(to, FIRST_WRITE, NULL, f->key);
}

static bool first_do(const char *what)
{
	char line[512];

	snprintf(line, sizeof(line),
		 "sh \"$SRC/fabtests/scripts/rails.sh\" on \"$RAILS_ID\" %s",
		 what);
	return !system(line);
}

struct first_pair {
	const struct first *a, *b;
	unsigned int gen;
};

static bool first_both_moved(void *arg)
{
	const struct first_pair *p = arg;

	return first_moved(p->a, p->gen) && first_moved(p->b, p->gen);
}

/* Cuts the connection. Then both processes close the memory whose key the other
 * one has. The other process cannot answer, so each process closes its rx lane
 * and opens a new one with the generation `gen`. Does not restore the
 * connection. */
static bool first_cut(struct first *a, struct first *b, unsigned int gen)
{
	struct first_pair p = { .a = a, .b = b, .gen = gen };
	struct first_order o;

	if (!first_lends(a, b) || !first_lends(b, a) ||
	    !first_do("drop 0 both"))
		return false;
	first_order(a, FIRST_CLOSE_MR, NULL, 0);
	first_order(b, FIRST_CLOSE_MR, NULL, 0);
	return !first_end(a, &o) && !first_end(b, &o) &&
	       ft_wait_until(first_both_moved, &p, FI_RIG_WAIT_MS);
}

/* Sends a message in each direction. Returns true if both arrive. */
static bool first_get_on(struct first *a, struct first *b, uint64_t number)
{
	return first_goes(a, b, number) && first_goes(b, a, number + 1);
}

/* Removes and inserts the peer and sends, until a send succeeds. Sends time out
 * until the library has reached the peer again. */
static bool first_again(struct first *from, struct first *to, uint64_t number)
{
	uint64_t end = ft_now_ns() + FIRST_WAIT_NS;
	struct first_order o;
	int err;

	first_order(to, FIRST_RECEIVE, NULL, 0);
	do {
		err = first(from, FIRST_AGAIN, to, 0);
		if (!err)
			err = first(from, FIRST_SEND, NULL, number);
	} while (err == FI_ETIMEDOUT && ft_now_ns() < end);
	return !first_end(to, &o) && !err && o.number == number;
}

static void first_lost(struct first *a, struct first *b, struct first *c)
{
	if (!ft_ok(first_cut(a, b, 2),
		   "two_processes_cut_off_from_each_other_move"))
		return;
	ft_ok(first_do("restore 0") && first_begin(c) &&
		      !first(c, FIRST_INSERT, b, 0) && first_goes(c, b, 3),
	      "third_process_reaches_moved_one_by_its_old_name");
	ft_ok(!first(c, FIRST_INSERT_SOCKET, a, 0) && first_goes(c, a, 4),
	      "third_process_reaches_moved_one_by_address_and_port");
	ft_ok(first_get_on(a, b, 5), "moved_processes_find_each_other");
	if (!ft_ok(first_cut(a, b, 3),
		   "two_processes_cut_off_again_move_again"))
		return;
	ft_ok(first(a, FIRST_SEND, NULL, 90) == FI_ETIMEDOUT &&
		      first(b, FIRST_SEND, NULL, 91) == FI_ETIMEDOUT,
	      "sends_between_processes_cut_off_time_out");
	ft_ok(first_do("restore 0") && first_again(a, b, 7) &&
		      first_again(b, a, 8),
	      "processes_inserted_again_find_each_other");
	ft_ok(first_lends(a, b) && first_lends(b, a),
	      "processes_inserted_again_write_to_each_other");
}

static int first_inside(void)
{
	const char *src = getenv("SRC");
	char path[512], self[512];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (!src || n < 0)
		return ft_skip("SRC is not set");
	self[n] = '\0';
	snprintf(path, sizeof(path), "%s/fabtests/scripts/rails.sh", src);
	execlp("sh", "sh", path, "up", "-n", "3", "-c", "no", "400mbit", "--",
	       self, (char *)NULL);
	return FT_FAIL;
}

int main(void)
{
	struct first a, b, c;

	if (!fi_rig_path_for_test())
		return ft_skip("built without the provider");
	if (!getenv("RAILS_ID"))
		return first_inside();
	/* longer than the time for which the first cut lasts */
	setenv("MC_SLICE_TIMEOUT", "8", 1);
	setenv("MC_LOG_LEVEL", "info", 1);
	if (!ft_ok(first_start(&a, 'a') && first_start(&b, 'b') &&
			   first_start(&c, 'c'), "three_processes_start"))
		return ft_result();
	if (ft_ok(first_begin(&a) && first_begin(&b) &&
			  !first(&a, FIRST_INSERT, &b, 0) &&
			  !first(&b, FIRST_INSERT, &a, 0) &&
			  first_get_on(&a, &b, 1), "two_processes_meet"))
		first_lost(&a, &b, &c);
	ft_ok(first_stop(&c), "third_process_ends_well");
	ft_ok(first_stop(&b), "second_process_ends_well");
	ft_ok(first_stop(&a), "first_process_ends_well");
	return ft_result();
}
