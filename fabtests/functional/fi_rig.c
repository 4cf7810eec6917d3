/* SPDX-License-Identifier: BSD-2-Clause */
#include "fabtests/functional/fi_rig.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fabtests/common/ft_clock.h"
#include "fabtests/common/ft_test.h"

/* exit code of a child: the provider does not exist */
#define RIG_MISSING	3

int fi_rig_mr_mode;
uint64_t fi_rig_order;

void fi_rig_fill(uint8_t *p, size_t len, uint32_t seed)
{
	size_t i;

	for (i = 0; i < len; i++)
		p[i] = fi_rig_byte(seed, i);
}

bool fi_rig_same(const uint8_t *p, size_t len, uint32_t seed)
{
	size_t i;

	for (i = 0; i < len; i++) {
		if (p[i] == fi_rig_byte(seed, i))
			continue;
		ft_diag("byte %zu of %zu is %02x, not %02x", i, len, p[i],
			fi_rig_byte(seed, i));
		return false;
	}
	return true;
}

bool fi_rig_ok(struct fi_rig *rig, bool cond, const char *name)
{
	return ft_ok(cond, "%s, %s: %s", rig->provider,
		     rig->server ? "server" : "client", name);
}

static void rig_die(struct fi_rig *rig, const char *what, long ret)
{
	ft_ok(false, "%s, %s: %s: %s", rig->provider,
	      rig->server ? "server" : "client", what,
	      fi_strerror((int)-ret));
	fflush(stdout);
	_exit(FT_FAIL);
}

static void rig_must(struct fi_rig *rig, const char *what, long ret)
{
	if (ret < 0)
		rig_die(rig, what, ret);
}

static void rig_write(struct fi_rig *rig, const void *p, size_t len)
{
	if (write(rig->sock, p, len) != (ssize_t)len)
		rig_die(rig, "the other process is gone", -FI_EIO);
}

void fi_rig_idle(struct fi_rig *rig)
{
	struct fi_cq_tagged_entry e;

	if (rig->tx)
		fi_cq_read(rig->tx, &e, 0);
	if (rig->rx)
		fi_cq_read(rig->rx, &e, 0);
	usleep(100);
}

static void rig_read(struct fi_rig *rig, void *p, size_t len)
{
	size_t got = 0;
	ssize_t n;

	/* Providers without a progress thread need calls to make progress. */
	while (got < len) {
		n = recv(rig->sock, (char *)p + got, len - got, MSG_DONTWAIT);
		if (n > 0) {
			got += (size_t)n;
			continue;
		}
		if (!n)
			rig_die(rig, "the other process is gone", -FI_EIO);
		fi_rig_idle(rig);
	}
}

void fi_rig_meet(struct fi_rig *rig)
{
	char c = 'm';

	rig_write(rig, &c, 1);
	rig_read(rig, &c, 1);
}

bool fi_rig_next(struct fi_rig *rig, struct fid_cq *cq,
		 struct fi_rig_done *done)
{
	uint64_t end = ft_now_ns() + FI_RIG_WAIT_MS * UINT64_C(1000000);
	struct fi_cq_err_entry err;
	struct fi_cq_tagged_entry other;
	ssize_t n;

	memset(done, 0, sizeof(*done));
	do {
		n = fi_cq_read(cq, &done->e, 1);
		if (n == 1)
			return true;
		if (n == -FI_EAVAIL) {
			memset(&err, 0, sizeof(err));
			if (fi_cq_readerr(cq, &err, 0) != 1)
				return false;
			done->err = err.err;
			done->olen = err.olen;
			done->e.len = err.len;
			done->e.op_context = err.op_context;
			return true;
		}
		fi_cq_read(cq == rig->tx ? rig->rx : rig->tx, &other, 0);
		sched_yield();
	} while (ft_now_ns() < end);
	return false;
}

bool fi_rig_again(struct fi_rig *rig, ssize_t ret)
{
	struct fi_cq_tagged_entry e;

	if (ret == -FI_EAGAIN) {
		fi_cq_read(rig->tx, &e, 0);
		fi_cq_read(rig->rx, &e, 0);
		return true;
	}
	rig_must(rig, "a call", ret);
	return false;
}

/* --- set-up -------------------------------------------------------------- */

bool fi_rig_emulated(void)
{
	return !getenv("FT_FI_CLIENT") && getenv("FT_FI_CLIENT_RAILS") &&
	       getenv("FT_FI_SERVER_RAILS");
}

bool fi_rig_apart(void)
{
	return (getenv("FT_FI_CLIENT") && getenv("FT_FI_SERVER")) ||
	       fi_rig_emulated();
}

static void rig_enter(struct fi_rig *rig)
{
	const char *ns = getenv(rig->server ? "FT_FI_SERVER" : "FT_FI_CLIENT");
	const char *rails = getenv(rig->server ? "FT_FI_SERVER_RAILS" :
						 "FT_FI_CLIENT_RAILS");
	char path[256];
	int fd;

	if (!fi_rig_apart())
		return;
	if (rails)
		setenv("FI_OFI_MRAIL_ADDR", rails, 1);
	if (!ns)
		return;
	snprintf(path, sizeof(path), "/run/netns/%s", ns);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || setns(fd, CLONE_NEWNET))
		rig_die(rig, path, -FI_EACCES);
	close(fd);
}

/* Returns true if the provider is fi_mrail, which has fewer capabilities than
 * the other providers and requires raw keys. */
static bool rig_mrail(const struct fi_rig *rig)
{
	return strstr(rig->provider, "mrail");
}

static void rig_find(struct fi_rig *rig, uint64_t caps)
{
	bool apart = fi_rig_apart();
	struct fi_info *h = fi_allocinfo();

	h->caps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_MULTI_RECV |
		  caps;
	if (rig_mrail(rig)) {
		h->caps = FI_MSG | FI_TAGGED | FI_RMA;
		h->domain_attr->mr_mode = FI_MR_RAW;
	}
	h->ep_attr->type = FI_EP_RDM;
	h->fabric_attr->prov_name = strdup(rig->provider);
	h->domain_attr->resource_mgmt = FI_RM_ENABLED;
	h->domain_attr->mr_mode |= fi_rig_mr_mode;
	h->tx_attr->msg_order = h->rx_attr->msg_order = fi_rig_order;
	if (fi_getinfo(FI_VERSION(1, 17), apart ? NULL : "127.0.0.1", NULL,
		       apart ? 0 : FI_SOURCE, h, &rig->info))
		_exit(RIG_MISSING);
	if (!strcmp(rig->provider, "moonrail"))
		rig->info->domain_attr->mr_mode |= fi_rig_mr_mode;
	/* fi_mrail refuses the tag format that fi_getinfo has just returned */
	if (rig_mrail(rig))
		rig->info->ep_attr->mem_tag_format = 0;
	fi_freeinfo(h);
}

static void rig_open_remote(struct fi_rig *rig)
{
	static const uint64_t of[2] = { FI_REMOTE_READ, FI_REMOTE_WRITE };
	struct fi_cntr_attr attr = { .events = FI_CNTR_EVENTS_COMP };
	int i;

	for (i = 0; i < 2; i++) {
		rig_must(rig, "fi_cntr_open",
			 fi_cntr_open(rig->domain, &attr, &rig->counter[i],
				      NULL));
		rig_must(rig, "fi_ep_bind",
			 fi_ep_bind(rig->ep, &rig->counter[i]->fid, of[i]));
	}
}

static void rig_open(struct fi_rig *rig)
{
	struct fi_cq_attr cq = {
		.format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_FD,
	};
	struct fi_cntr_attr cntr = {
		.events = FI_CNTR_EVENTS_COMP, .wait_obj = FI_WAIT_UNSPEC,
	};
	struct fi_av_attr av = {
		.type = rig_mrail(rig) ? FI_AV_TABLE : FI_AV_MAP,
	};

	rig_must(rig, "fi_fabric", fi_fabric(rig->info->fabric_attr,
					     &rig->fabric, NULL));
	rig_must(rig, "fi_domain", fi_domain(rig->fabric, rig->info,
					     &rig->domain, NULL));
	rig_must(rig, "fi_av_open", fi_av_open(rig->domain, &av, &rig->av,
					       NULL));
	rig_must(rig, "fi_cq_open", fi_cq_open(rig->domain, &cq, &rig->tx,
					       NULL));
	rig_must(rig, "fi_cq_open", fi_cq_open(rig->domain, &cq, &rig->rx,
					       NULL));
	rig_must(rig, "fi_cntr_open", fi_cntr_open(rig->domain, &cntr,
						   &rig->sent, NULL));
	rig_must(rig, "fi_cntr_open", fi_cntr_open(rig->domain, &cntr,
						   &rig->got, NULL));
	rig_must(rig, "fi_endpoint", fi_endpoint(rig->domain, rig->info,
						 &rig->ep, NULL));
	rig_must(rig, "fi_ep_bind", fi_ep_bind(rig->ep, &rig->av->fid, 0));
	rig_must(rig, "fi_ep_bind", fi_ep_bind(rig->ep, &rig->tx->fid,
					       FI_TRANSMIT));
	rig_must(rig, "fi_ep_bind", fi_ep_bind(rig->ep, &rig->rx->fid,
					       FI_RECV));
	rig_must(rig, "fi_ep_bind", fi_ep_bind(rig->ep, &rig->sent->fid,
					       FI_SEND));
	rig_must(rig, "fi_ep_bind", fi_ep_bind(rig->ep, &rig->got->fid,
					       FI_RECV));
	if (rig->info->caps & FI_RMA_EVENT)
		rig_open_remote(rig);
	rig_must(rig, "fi_enable", fi_enable(rig->ep));
}

static void rig_exchange(struct fi_rig *rig)
{
	char name[512];
	size_t len = sizeof(name);

	memset(name, 0, sizeof(name));
	rig_must(rig, "fi_getname", fi_getname(&rig->ep->fid, name, &len));
	if (fi_av_insert(rig->av, name, 1, &rig->self, 0, NULL) != 1)
		rig_die(rig, "fi_av_insert of the own address", -FI_EINVAL);
	rig_write(rig, name, sizeof(name));
	rig_read(rig, name, sizeof(name));
	if (fi_av_insert(rig->av, name, 1, &rig->peer, 0, NULL) != 1)
		rig_die(rig, "fi_av_insert", -FI_EINVAL);
}

/* The address and key of rig->mem, which the other process needs. */
struct rig_memory {
	uint64_t base, key;
	uint8_t raw[256];
	size_t size;
};

static void rig_register(struct fi_rig *rig)
{
	struct rig_memory m = { .size = sizeof(m.raw) };

	rig->buf = aligned_alloc(4096, FI_RIG_BUF);
	rig->mem = aligned_alloc(4096, FI_RIG_BUF);
	memset(rig->buf, 0, FI_RIG_BUF);
	memset(rig->mem, 0, FI_RIG_BUF);
	rig_must(rig, "fi_mr_reg",
		 fi_mr_reg(rig->domain, rig->mem, FI_RIG_BUF,
			   FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 77, 0, &rig->mr,
			   NULL));
	m.base = rig->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR ?
			 (uintptr_t)rig->mem : 0;
	if (rig_mrail(rig))
		rig_must(rig, "fi_mr_raw_attr",
			 fi_mr_raw_attr(rig->mr, &m.base, m.raw, &m.size, 0));
	else
		m.key = fi_mr_key(rig->mr);
	rig_write(rig, &m, sizeof(m));
	rig_read(rig, &m, sizeof(m));
	if (rig_mrail(rig))
		rig_must(rig, "fi_mr_map_raw",
			 fi_mr_map_raw(rig->domain, m.base, m.raw, m.size,
				       &m.key, 0));
	rig->remote = m.base;
	rig->key = m.key;
}

static void rig_close(struct fi_rig *rig)
{
	struct fid *fids[] = {
		&rig->mr->fid, &rig->ep->fid, &rig->sent->fid, &rig->got->fid,
		&rig->rx->fid, &rig->tx->fid, &rig->av->fid,
		rig->counter[0] ? &rig->counter[0]->fid : NULL,
		rig->counter[1] ? &rig->counter[1]->fid : NULL,
		&rig->domain->fid, &rig->fabric->fid,
	};
	size_t i;
	int ret = 0;

	if (!rig->hasty)
		fi_rig_meet(rig);
	rig->tx = rig->rx = NULL;
	for (i = 0; i < sizeof(fids) / sizeof(fids[0]) && !ret; i++)
		ret = fids[i] ? fi_close(fids[i]) : 0;
	fi_rig_ok(rig, !ret, "everything closes");
	fi_freeinfo(rig->info);
	free(rig->buf);
	free(rig->mem);
}

/* Returns the time limit in seconds for a process that runs fn. It is lower
 * than the time limit of the whole test. */
static unsigned int rig_limit_s(void)
{
	unsigned int most = 280, s = fi_rig_emulated() ? most : 110 * ft_load();

	return s < most ? s : most;
}

static void rig_child(const char *provider, uint64_t caps, fi_rig_fn fn,
		      int sock, bool server)
{
	struct fi_rig rig = {
		.provider = provider, .server = server, .sock = sock,
	};

	ft_forked();
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	alarm(rig_limit_s());
	rig_enter(&rig);
	rig_find(&rig, caps);
	rig_open(&rig);
	rig_exchange(&rig);
	rig_register(&rig);
	fn(&rig);
	rig_close(&rig);
	close(sock);
	exit(ft_result());
}

bool fi_rig_run(const char *provider, uint64_t caps, fi_rig_fn fn,
		bool *missing)
{
	int pair[2], i, status, good = 0;
	pid_t pid[2];

	*missing = false;
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
		return false;
	fflush(stdout);
	for (i = 0; i < 2; i++) {
		pid[i] = fork();
		if (pid[i])
			continue;
		close(pair[!i]);
		rig_child(provider, caps, fn, pair[i], i);
	}
	close(pair[0]);
	close(pair[1]);
	for (i = 0; i < 2; i++) {
		if (waitpid(pid[i], &status, 0) != pid[i])
			continue;
		good += WIFEXITED(status) && !WEXITSTATUS(status);
		*missing |= WIFEXITED(status) &&
			    WEXITSTATUS(status) == RIG_MISSING;
	}
	return good == 2;
}

bool fi_rig_socket(const char *text, char host[64], char port[16])
{
	char end;

	if (!text)
		return false;
	return sscanf(text, "fi_sockaddr_in://%63[0-9.]:%15[0-9]%c", host, port,
		      &end) == 2 ||
	       sscanf(text, "fi_sockaddr_in6://[%63[0-9a-f:.]]:%15[0-9]%c", host,
		      port, &end) == 2;
}

bool fi_rig_path(void)
{
	const char *build = getenv("BUILD");
	char path[4096];

	snprintf(path, sizeof(path), "%s/lib/libfabric",
		 build ? build : "build");
	setenv("FI_PROVIDER_PATH", path, 1);
	return !access(path, R_OK);
}

bool fi_rig_path_for_test(void)
{
	/* With the default, each endpoint allocates 70 MB of receive buffers,
	 * which takes 50 ms, or seconds with a sanitizer. */
	setenv("FI_OFI_RXM_MSG_RX_SIZE", "1024", 0);
	return fi_rig_path();
}

int fi_rig_main(const char *only, fi_rig_run_fn run, const char *what)
{
	static const char *const below[] = { "tcp", "tcp;ofi_rxm" };
	bool missing = true, good;
	size_t i;

	if (only) {
		good = run(only, &missing);
		if (missing)
			return ft_skip("no such provider");
		ft_ok(good, "%s: %s", only, what);
		return ft_result();
	}
	good = run("moonrail", &missing);
	ft_ok(good && !missing, "moonrail: %s", what);
	missing = true;
	for (i = 0; i < 2 && missing; i++) {
		good = run(below[i], &missing);
		if (!missing)
			ft_ok(good, "%s: %s", below[i], what);
	}
	if (missing)
		ft_diag("libfabric has neither tcp nor tcp;ofi_rxm: moonrail "
			"is not compared with them");
	return ft_result();
}
