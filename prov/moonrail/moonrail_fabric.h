/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_MOONRAIL_MOONRAIL_FABRIC_H
#define TEI_PROV_MOONRAIL_MOONRAIL_FABRIC_H

/*
 * Fabrics, event queues, and the file descriptors that programs wait for.
 * fi_fabric creates a fabric, fi_eq_open creates an event queue, and fi_close
 * frees both.
 */

#include <pthread.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_collective.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_eq.h>
#include <stdbool.h>
#include <stdint.h>

#include "util/list.h"
#include "util/lock.h"

struct moonrail_fabric {
	struct fid_fabric fid;
	uint32_t refs;			/* number of domains and event queues of
					 * the fabric; atomic. Dropped with
					 * release and read with acquire order,
					 * so that the thread that frees the
					 * fabric sees all earlier changes */
};

/* The wait object of a queue, by which a program waits for entries. Part of the
 * queue and guarded by its lock. */
struct moonrail_wait {
	enum fi_wait_obj kind;		/* constant */
	int fd;				/* eventfd for FI_WAIT_FD, otherwise -1;
					 * constant */
	bool signaled;			/* fd is readable */
};

/* An event queue. Its entries come from fi_eq_write and from address
 * vectors. */
struct moonrail_eq {
	struct fid_eq fid;
	struct moonrail_fabric *fabric;
	uint32_t refs;			/* number of address vectors and
					 * endpoints that use the queue; atomic,
					 * with the memory order of
					 * moonrail_fabric.refs */
	struct tei_mutex lock;
	pthread_cond_t cond;
	struct tei_list events;		/* list of struct eq_event; guarded by
					 * "lock" */
	struct moonrail_wait wait;	/* guarded by "lock" */
};

/* --- moonrail_fabric.c --------------------------------------------------- */
int moonrail_fabric_open(struct fi_fabric_attr *attr, struct fid_fabric **fid,
			 void *context);

/* --- moonrail_eq.c ------------------------------------------------------- */
int moonrail_eq_open(struct fid_fabric *fabric, struct fi_eq_attr *attr,
		     struct fid_eq **eq, void *context);
/* Returns 0 if the queue is empty and its file descriptor will report the next
 * event, otherwise -FI_EAGAIN. */
int moonrail_eq_trywait(struct moonrail_eq *eq);
/* Appends an error event; drops it if memory is short. */
void moonrail_eq_add_error(struct moonrail_eq *eq,
			   const struct fi_eq_err_entry *error);

/* --- moonrail_wait.c ----------------------------------------------------- */
/* Returns 0, -FI_ENOSYS if this kind of wait object is not supported, or
 * -FI_EMFILE. */
int moonrail_wait_open(enum fi_wait_obj kind, struct moonrail_wait *w);
void moonrail_wait_close(struct moonrail_wait *w);
/* Makes the file descriptor readable, because the queue has an entry. */
void moonrail_wait_signal(struct moonrail_wait *w);
/* Makes the file descriptor not readable. Called when the queue is empty and a
 * thread is about to sleep. */
void moonrail_wait_reset(struct moonrail_wait *w);
/* Handles the commands FI_GETWAIT and FI_GETWAITOBJ of fi_control. */
int moonrail_wait_control(const struct moonrail_wait *w, int command,
			  void *arg);

/* --- moonrail_unsupported.c ---------------------------------------------- */
/* Functions for the calls that an object does not support; they return
 * -FI_ENOSYS. */
int moonrail_no_bind(struct fid *fid, struct fid *bfid, uint64_t flags);
int moonrail_no_control(struct fid *fid, int command, void *arg);
int moonrail_no_ops(struct fid *fid, const char *name, uint64_t flags,
		    void **ops, void *context);
extern struct fi_ops_collective moonrail_coll_ops;

#endif /* TEI_PROV_MOONRAIL_MOONRAIL_FABRIC_H */
