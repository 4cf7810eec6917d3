/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_TOOLS_TE_INFO_H
#define TEI_TOOLS_TE_INFO_H

/*
 * te_info: what its source files share.
 *
 *	te_info.c		main
 *	te_info_options.c	the option table and its parser
 *	te_info_doc.c		the report's JSON document and its findings
 *	te_info_text.c		the report as text
 *	te_info_text_seg.c	its segment and findings
 *	te_info_file.c		/proc and /sys, or a copy of them
 *	te_info_child.c		child processes and what they print
 *	te_info_engine.c	child: an engine's rails and settings
 *	te_info_fabric.c	child: libfabric's providers
 *	te_info_rails.c		the rails, their places, the matrix
 *	te_info_probe.c		a transfer over each rail
 *	te_info_probe_child.c	child: the two ends of that transfer
 *	te_info_segment.c	a published segment, and its rails
 *	te_info_pair.c		child: one local rail to all of a segment's
 *	te_info_watch.c		a running process's numbers, again and again
 *	te_info_prometheus.c	and those as Prometheus's text
 *	te_info_net.c		IP interfaces
 *	te_info_ethtool.c	what ethtool knows of them
 *	te_info_route.c		the kernel's choice of route
 *	te_info_verbs.c		RDMA ports
 *	te_info_check*.c	what would hurt, by subject
 *	te_info_machine.c	sockets, nodes, NICs and GPUs
 *	te_info_svg.c		the picture's places and boxes
 *	te_info_svg_draw.c	its elements
 *
 * Whatever runs an engine or a provider does so in a child process: a provider
 * that hangs or crashes becomes a line of the report. One thread, but for
 * those of the engines in children.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cjson/cJSON.h>

#include "moonrail.h"

#define INFO_SCHEMA	1	/* "schema" of --json */
#define INFO_NAME	64	/* device names, with their end */
#define INFO_ADDR	64	/* an IP address as text */
#define INFO_RAILS	64
#define INFO_PORTS	64	/* RDMA ports looked at */
#define INFO_STORE_NS	(5 * TEI_NS_PER_SEC)	/* a look into the store */
/* Bytes of protocol and version in front of an address in a descriptor. */
#define INFO_ADDR_PREFIX 8

enum info_exit {
	INFO_EXIT_OK = 0,	/* notes included */
	INFO_EXIT_WARN = 1,
	INFO_EXIT_BAD = 2,
	INFO_EXIT_USAGE = 3,	/* wrong options, or output not writable */
};

enum info_grade { INFO_OK, INFO_NOTE, INFO_WARN, INFO_BAD };

/* Fixed once parsed. Texts point into argv or are static. */
struct info_opts {
	bool check, json, prometheus, svg, help, version, no_probe, watch;
	const char *metadata_server;
	const char *segment;	/* NULL: none */
	const char *protocol;	/* "auto" or a transport */
	const char *device_name; /* NULL: as the environment says */
	const char *provider;	/* NULL: likewise */
	const char *topology;	/* hwloc XML, or NULL: this machine */
	const char *root;	/* /proc and /sys are below it; "" */
	const char *peers;	/* addresses to find routes to, or NULL */
	const char *output;	/* a file, or NULL: stdout */
	uint64_t expected_peers;
	uint64_t pid;		/* a process to look at; 0: none */
	double probe_time;	/* seconds per rail */
	double interval;	/* seconds between two turns of --watch */
	uint64_t count;		/* turns; 0: until it is interrupted */
	/* children only */
	const char *child;	/* what kind, or NULL */
	const char *rail;	/* its rail's name */
	const char *remote;	/* a target's segment */
};

/* An IP interface with one of its addresses per element. */
struct info_net {
	char name[INFO_NAME];
	char address[INFO_ADDR];	/* "" without one */
	int family;			/* AF_INET, AF_INET6, 0 */
	unsigned int prefix;		/* bits */
	uint8_t bytes[16];		/* of the address */
	unsigned int index;		/* the kernel's, 0 unknown */
	unsigned int flags;		/* IFF_… */
	unsigned int mtu;		/* bytes, 0 unknown */
	bool first;			/* first element of its interface */
	bool rail;			/* a rail uses this address */
};

struct info_rail {
	char name[INFO_NAME];
	char device[INFO_NAME];		/* interface or RDMA device */
	char provider[INFO_NAME];
	char transport[16];
	char host[INFO_ADDR];		/* its IP address, or "" */
	cJSON *doc;			/* its object in the report */
};

/*
 * Everything known. Made and freed by main. doc is the report: root object,
 * whose members appear in the order in which they are looked at.
 */
struct info {
	struct info_opts opts;
	cJSON *doc;
	cJSON *findings;	/* array in doc */
	cJSON *unseen;		/* array in doc */
	enum info_grade worst;
	struct info_net *nets;
	size_t n_nets;
	struct info_rail rails[INFO_RAILS];
	size_t n_rails;
};

/* --- te_info_options.c --------------------------------------------------- */
/* 0, or INFO_EXIT_USAGE with a line on stderr that says what is wrong. */
int info_parse(int argc, char **argv, struct info_opts *opts);
/* The family of an IP address and its 4 or 16 bytes, or 0: it is none. */
int info_address(const char *text, uint8_t bytes[16]);
void info_help(void);

/* --- te_info_doc.c ------------------------------------------------------- */
/* Members of an object, or, with key NULL, elements of an array. A NULL
 * parent is accepted and gives NULL. Text that isn't UTF-8 gets '?'s. */
cJSON *info_object(cJSON *parent, const char *key);
cJSON *info_array(cJSON *parent, const char *key);
void info_text(cJSON *parent, const char *key, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
void info_num(cJSON *parent, const char *key, double value);
void info_bool(cJSON *parent, const char *key, bool value);
/* What others wrote, just parsed: text and keys become UTF-8 of one line, with
 * '?' for what is none and for controls; numbers too large to be told, 0. */
void info_clean(cJSON *item);
/* "" and 0 where there is none. */
const char *info_get(const cJSON *object, const char *key);
double info_get_num(const cJSON *object, const char *key);
/* What the engine calls the state of a rail. */
const char *info_state_name(uint32_t state);

/* A finding; the three texts are added to it. Never NULL in effect: the
 * calls below accept NULL. */
cJSON *info_find(struct info *info, enum info_grade grade, const char *id,
		 const char *subject);
void info_what(cJSON *finding, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
void info_why(cJSON *finding, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
void info_cure(cJSON *finding, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* Something fine: one line. */
void info_fine(struct info *info, const char *id, const char *subject,
	       const char *fmt, ...) __attribute__((format(printf, 4, 5)));
/* What could not be looked at, and why. */
void info_unseen(struct info *info, const char *id, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
const char *info_grade_name(enum info_grade grade);

/* --- te_info_text.c ------------------------------------------------------ */
/* Prints what doc has to stdout. */
void info_print(const struct info *info);
/* "1.5 Gbit/s", "2.1 GB/s", "12 us", "-" for 0; return buf. */
const char *info_bits_text(double bps, char *buf, size_t len);
const char *info_rate_text(double bytes, char *buf, size_t len);
const char *info_bytes_text(double bytes, char *buf, size_t len);
/* Shows what te_info --check is doing, on a terminal. "": erases that. */
void info_progress(const struct info *info, const char *what);
void info_heading(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* --- te_info_text_seg.c -------------------------------------------------- */
void info_print_segment(const struct info *info);
void info_print_probes(const struct info *info);
void info_print_findings(const struct info *info);

/* --- te_info_file.c ------------------------------------------------------ */
/* Start of a file below opts.root, one line or the whole of it, trailing
 * newline removed. false, with errno, if there is nothing to read. */
bool info_read(const struct info *info, char *buf, size_t len, const char *fmt,
	       ...) __attribute__((format(printf, 4, 5)));
/* The whole of it, at most some MiB; the caller frees it. NULL with errno. */
char *info_slurp(const struct info *info, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* A decimal number in a file, or -1 with errno, EINVAL if it holds none. */
long long info_read_num(const struct info *info, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* A number in a file of /proc/sys; INFO_ABSENT if this kernel has none of that
 * name; INFO_UNSEEN if it can't be read, which is then listed under id. */
#define INFO_ABSENT	(-1)
#define INFO_UNSEEN	(-2)
long long info_sysctl(struct info *info, const char *id, const char *name);
bool info_exists(const struct info *info, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* --- te_info_child.c ----------------------------------------------------- */
/* A line "@kind JSON" of a child; value is the callee's to detach or leave. */
typedef void (*info_line_fn)(struct info *info, const char *kind,
			     cJSON *value, void *arg);
/*
 * Runs this program as child `kind` until its end, at most ms milliseconds.
 * extra: up to 8 further arguments, NULL at the end, or NULL. Other lines of
 * its output go to log (an array, or NULL). 0; or -1 with why it ended badly
 * in why.
 */
int info_child_run(struct info *info, const char *kind,
		   const char *const *extra, unsigned int ms, info_line_fn fn,
		   void *arg, cJSON *log, char *why, size_t len);
/* Started, and its first line "@kind JSON" read; for info_child_end. */
struct ft_proc;
int info_child_start(struct info *info, struct ft_proc *proc,
		     const char *kind, const char *const *extra,
		     unsigned int ms, cJSON **value, cJSON *log, char *why,
		     size_t len);
/* In a child: prints a line; frees value. */
void info_say(const char *kind, cJSON *value);
/* In a child: the engine's last error as "@error". */
void info_say_error(const char *call);
/* As that, of what is linked into this program. */
struct tei_err;
void info_say_err(const char *call, const struct tei_err *err);
/* In a child, first thing: the environment as the options have it. */
void info_child_setup(const struct info_opts *opts);
/* In a child: the metadata server's store, for reading, for
 * tei_meta_store_close; or NULL with "@error" said. */
struct tei_meta_store;
struct tei_meta_store *info_child_store(const struct info_opts *opts);
/* In a child: an engine as the options say, which publishes nowhere, or NULL
 * with "@error" said. */
transfer_engine_t info_child_engine(const struct info_opts *opts);
/* What a child of that kind does; its exit status. */
int info_child_main(const struct info_opts *opts);

/* --- children ------------------------------------------------------------ */
int info_engine_child(const struct info_opts *opts);
void info_fabric_say(const struct info_opts *opts);
int info_target_child(const struct info_opts *opts);
int info_initiator_child(const struct info_opts *opts);
int info_pair_child(const struct info_opts *opts);
/* What it reads of; NULL where there is nothing that a rail can read. */
struct tei_meta_desc;
const struct tei_meta_buffer *info_pair_buffer(const struct tei_meta_desc *d);

/* Whether a library is libfabric: libfabric.so…, or libfabric-HASH.so… as a
 * Python wheel has it that bundles its own. */
bool info_is_libfabric(const char *path);

/* Returns true if the path's file name is that of libinfinipath. */
bool info_is_infinipath(const char *path);

/* --- what is looked at --------------------------------------------------- */
void info_look_net(struct info *info);
void info_look_rails(struct info *info);
void info_look_verbs(struct info *info);
void info_look_segment(struct info *info);
void info_probe_rails(struct info *info);
/* Adds link, driver, offloads, rings to an interface's object. */
void info_ethtool(struct info *info, const struct info_net *net, cJSON *doc);

/* The rail's interface and address, or NULL. */
const struct info_net *info_rail_net(const struct info *info,
				     const struct info_rail *rail);

/* --- te_info_route.c ----------------------------------------------------- */
struct info_route {
	unsigned int index;	/* interface that packets leave by */
	char name[INFO_NAME];
	bool gateway;		/* by way of a router */
	char source[INFO_ADDR];	/* the kernel's choice, or "" */
};
/*
 * Where a packet to dst leaves: from src (NULL: any), over interface oif (0:
 * any). 0 or a negative errno, -ENETUNREACH among them.
 */
int info_route_get(int family, const void *dst, const void *src,
		   unsigned int oif, struct info_route *route);

/* --- checks -------------------------------------------------------------- */
void info_check_limits(struct info *info);
void info_check_host(struct info *info);
void info_check_net(struct info *info);
void info_check_routes(struct info *info);
void info_check_fabric(struct info *info);
void info_check_metadata(struct info *info);
/* All of them. */
void info_check(struct info *info);

/* --- te_info_machine.c --------------------------------------------------- */
struct tei_topo;

struct info_node {
	int index;		/* the kernel's number */
	int package;		/* element of packages, -1 unknown */
	double memory;		/* bytes */
	unsigned int cores, threads;
};

struct info_package {
	int index;
	char model[96];
};

#define INFO_NODES	256
#define INFO_PACKAGES	64

/* A machine, this one or another. Made by info_machine_open. */
struct info_machine {
	struct info_node nodes[INFO_NODES];
	size_t n_nodes;
	struct info_package packages[INFO_PACKAGES];
	size_t n_packages;
	struct tei_topo *topo;		/* NICs and the matrix */
};

/* Rails of info are among the NICs. 0, or -1 with why. */
int info_machine_open(struct info *info, struct info_machine *m, char *why,
		      size_t len);
void info_machine_close(struct info_machine *m);
/* Adds "machine" to the report. */
void info_machine_doc(struct info *info, const struct info_machine *m);

/* --- te_info_watch.c ----------------------------------------------------- */
/* The turns of --watch, to stdout. An exit status, with a line on stderr. */
int info_watch(const struct info_opts *opts);

/* --- te_info_prometheus.c ------------------------------------------------ */
/* One turn's report, to stdout. */
void info_prometheus(const cJSON *doc);

/* --- te_info_svg.c ------------------------------------------------------- */
/* Writes the picture to stdout. An exit status, with a line on stderr. */
int info_svg(struct info *info);

/* --- te_info_svg_draw.c -------------------------------------------------- */
void svg_head(int width, int height, const char *title);
void svg_tail(void);
/* class is one of the style sheet's. */
void svg_box(const char *class, int x, int y, int w, int h);
/* Text with what XML can't take replaced, cut to fit width pixels. */
void svg_text(const char *class, int x, int y, int width, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));
/* A curve between two points. */
void svg_link(const char *class, int x1, int y1, int x2, int y2);

#endif /* TEI_TOOLS_TE_INFO_H */
