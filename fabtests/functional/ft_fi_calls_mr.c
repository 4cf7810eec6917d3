/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory registrations of the provider. */
#include <stdlib.h>

#include "fabtests/functional/ft_fi_calls.h"

/* the value of FI_MR_DMABUF in libfabric 2.x */
#define CALL_DMABUF	(UINT64_C(1) << 40)

void call_registrations(struct fi_rig *r)
{
	bool prov_key = r->info->domain_attr->mr_mode & FI_MR_PROV_KEY;
	struct iovec iov = { .iov_base = r->buf, .iov_len = 8192 };
	struct fi_mr_attr attr = {
		.mr_iov = &iov, .iov_count = 1, .access = FI_REMOTE_READ,
		.requested_key = 302, .context = r,
		/* Without FI_HMEM, the provider must ignore `iface`. Not all
		 * other providers do. */
		.iface = call_moonrail(r) ? FI_HMEM_ZE : FI_HMEM_SYSTEM,
	};
	struct fid_mr *mr[3];
	bool good;
	int i;

	good = !fi_mr_regv(r->domain, &iov, 1, FI_REMOTE_WRITE, 0, 301, 0,
			   &mr[0], NULL) &&
	       !fi_mr_regattr(r->domain, &attr, 0, &mr[1]) &&
	       mr[1]->fid.context == r &&
	       fi_mr_key(mr[0]) != fi_mr_key(mr[1]);
	if (!fi_rig_ok(r, good, "regv_and_regattr_register_memory"))
		return;
	if (prov_key)
		good = !fi_mr_reg(r->domain, r->buf, 64, FI_REMOTE_READ, 0,
				  301, 0, &mr[2], NULL) &&
		       fi_mr_key(mr[2]) != fi_mr_key(mr[0]);
	else
		good = fi_mr_key(mr[0]) == 301 && fi_mr_key(mr[1]) == 302 &&
		       fi_mr_reg(r->domain, r->buf, 64, FI_REMOTE_READ, 0, 301,
				 0, &mr[2], NULL) == -FI_ENOKEY;
	fi_rig_ok(r, good,
		  "key_is_the_requested_one_or_unique");
	for (i = 0; i < 2 + prov_key; i++)
		good = !fi_close(&mr[i]->fid) && good;
	fi_rig_ok(r, good, "registrations_close");
	if (call_moonrail(r))
		fi_rig_ok(r, fi_mr_regattr(r->domain, &attr, CALL_DMABUF,
					   &mr[0]) == -FI_EOPNOTSUPP,
			  "dmabuf_registration_is_refused");
}

/* Sends, writes and reads with registered local memory. All calls get its
 * memory descriptor (fi_mr_desc), which some providers require. */
void call_described(struct fi_rig *r)
{
	uint8_t *back = r->buf + FI_RIG_BUF / 2;
	struct fi_rig_done d;
	struct fid_mr *mr;
	void *desc;
	bool good;

	if (!fi_rig_ok(r, !fi_mr_reg(r->domain, r->buf, FI_RIG_BUF,
				     FI_SEND | FI_RECV | FI_READ | FI_WRITE, 0,
				     401, 0, &mr, NULL),
				     "local_memory_is_registered"))
		return;
	desc = fi_mr_desc(mr);
	if (r->server) {
		while (fi_rig_again(r, fi_recv(r->ep, r->buf, CALL_LARGE, desc,
					       FI_ADDR_UNSPEC, NULL)))
			;
		good = call_done(r, r->rx, &d) && d.e.len == CALL_LARGE &&
		       fi_rig_same(r->buf, CALL_LARGE, 14);
	} else {
		fi_rig_fill(r->buf, CALL_LARGE, 14);
		while (fi_rig_again(r, fi_send(r->ep, r->buf, CALL_LARGE, desc,
					       r->peer, NULL)))
			;
		good = call_sent(r);
		while (fi_rig_again(r, fi_write(r->ep, r->buf, CALL_LARGE, desc,
						r->peer, r->remote + 8192,
						r->key, NULL)))
			;
		good = call_sent(r) && good;
		while (fi_rig_again(r, fi_read(r->ep, back, CALL_LARGE, desc,
					       r->peer, r->remote + 8192,
					       r->key, NULL)))
			;
		good = call_sent(r) && good &&
		       fi_rig_same(back, CALL_LARGE, 14);
	}
	fi_rig_ok(r, good, "transfers_with_descriptor_complete");
	fi_rig_meet(r);
	fi_rig_ok(r, !fi_close(&mr->fid), "local_memory_is_closed");
}

/* number of buffers, more than the provider keeps registered */
#define CALL_BUFFERS	600u
#define CALL_BUFFER	20480u

/* Sends a message from each of many buffers, in ascending and then in
 * descending order of their addresses. The peer receives into as many
 * buffers. */
void call_many_buffers(struct fi_rig *r)
{
	uint8_t *all = malloc((size_t)CALL_BUFFERS * CALL_BUFFER), *at;
	struct fi_rig_done d;
	bool good = all;
	uint32_t i;

	for (i = 0; good && i < 2 * CALL_BUFFERS; i++) {
		at = all + (size_t)CALL_BUFFER *
			(i < CALL_BUFFERS ? i : 2 * CALL_BUFFERS - 1 - i);
		if (!r->server)
			fi_rig_fill(at, CALL_BUFFER, i);
		while (fi_rig_again(r, r->server ?
				fi_recv(r->ep, at, CALL_BUFFER, NULL,
					FI_ADDR_UNSPEC, NULL) :
				fi_send(r->ep, at, CALL_BUFFER, NULL, r->peer,
					NULL)))
			;
		good = call_done(r, r->server ? r->rx : r->tx, &d) &&
		       (!r->server || fi_rig_same(at, CALL_BUFFER, i));
	}
	fi_rig_ok(r, good, "large_messages_from_many_buffers_arrive");
	fi_rig_meet(r);
	free(all);
}
