/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_TOOLS_TE_INFO_H
#define TEI_TOOLS_TE_INFO_H

/*
 * Declarations that the source files of te_info share.
 *
 *	te_info.c		main
 *	te_info_options.c	the option table and its parser
 *	te_info_doc.c		the report's JSON document and its findings
 *	te_info_text.c		the report as text
 *	te_info_text_seg.c	the report as text: segment and findings
 *	te_info_file.c		reads /proc and /sys, or a copy of them
 *	te_info_child.c		child processes and their output
 *	te_info_engine.c	child: an engine's rails and settings
 *	te_info_fabric.c	child: libfabric's providers
 *	te_info_rails.c		the rails, their NUMA nodes, the matrix
 *	te_info_probe.c		a transfer over each rail
 *	te_info_probe_child.c	child: the two ends of that transfer
 *	te_info_segment.c	a published segment and its rails
 *	te_info_pair.c		child: one local rail to each rail of a segment
 *	te_info_watch.c		the statistics of a running process, repeatedly
 *	te_info_prometheus.c	the statistics in Prometheus's text format
 *	te_info_net.c		IP interfaces
 *	te_info_ethtool.c	link, driver and offloads of the interfaces
 *	te_info_route.c		routes of the kernel
 *	te_info_verbs.c		RDMA ports
 *	te_info_check*.c	the checks, by subject
 *	te_info_machine.c	sockets, NUMA nodes, NICs and GPUs
 *	te_info_svg.c		layout of the picture
 *	te_info_svg_draw.c	elements of the picture
 *
 * Engines and providers run in child processes, so that a provider that hangs
 * or crashes becomes a line of the report. te_info has one thread; the engines
 * in the children have more.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cjson/cJSON.h>

#include "meta/tei_meta_desc.h"
#include "moonrail.h"

#define INFO_SCHEMA	1	/* value of "schema" in the output of --json */
#define INFO_NAME	64	/* size of a device name with its terminator */
#define INFO_ADDR	64	/* size of an IP address as text with its
				 * terminator */
#define INFO_RAILS	64
#define INFO_PORTS	64	/* most RDMA ports that are examined */
#define INFO_STORE_NS	(5 * TEI_NS_PER_SEC)	/* time limit of an access to a
						 * store */
/* Length of what precedes the address of a rail in a descriptor (protocol and
 * version), bytes. */
#define INFO_ADDR_PREFIX 8

enum info_exit {
	INFO_EXIT_OK = 0,	/* nothing worse than a note was found */
	INFO_EXIT_WARN = 1,
	INFO_EXIT_BAD = 2,
	INFO_EXIT_USAGE = 3,	/* wrong options, or the output cannot be
				 * written */
};

enum info_grade { INFO_OK, INFO_NOTE, INFO_WARN, INFO_BAD };

/* The options of te_info. Constant after parsing. The strings are in argv or
 * are constants. */
struct info_opts {
	bool check, json, prometheus, svg, help, version, no_probe, watch;
	const char *metadata_server;
	const char *segment;	/* name of the segment to examine, or NULL */
	const char *protocol;	/* "auto" or the name of a transport */
	const char *device_name; /* NULL means the value of the environment
				  * variable */
	const char *provider;	 /* NULL means the value of the environment
				  * variable */
	const char *topology;	/* file with hwloc XML; NULL means this
				 * machine */
	const char *root;	/* folder with the /proc and /sys to read; ""
				 * means those of this machine */
	const char *peers;	/* addresses of peers to find routes to, or
				 * NULL */
	const char *output;	/* output file; NULL means stdout */
	uint64_t expected_peers;
	uint64_t pid;		/* process to examine, or 0 */
	double probe_time;	/* duration of a probe, s per rail */
	double interval;	/* seconds between two outputs of --watch */
	uint64_t count;		/* number of outputs of --watch; 0 means no
				 * limit */
	/* used only in child processes */
	const char *child;	/* kind of this child, or NULL */
	const char *rail;	/* name of the rail to use */
	const char *remote;	/* name of the segment that is the target */
};

/* An IP interface with one of its addresses. */
struct info_net {
	char name[INFO_NAME];
	char address[INFO_ADDR];	/* IP address of the interface, or "" */
	int family;			/* AF_INET, AF_INET6, or 0 if there is
					 * no address */
	unsigned int prefix;		/* prefix length, bits */
	uint8_t bytes[16];		/* IP address in network order */
	unsigned int index; /* the kernel's interface index; 0 if unknown */
	unsigned int flags;		/* flags of the interface, IFF_… */
	unsigned int mtu;		/* MTU of the interface, bytes; 0 if
					 * unknown */
	bool first; /* true for the first element of each interface */
	bool rail;			/* true if a rail uses this address */
};

struct info_rail {
	char name[INFO_NAME];
	char device[INFO_NAME];		/* name of the interface or RDMA
					 * device */
	char provider[INFO_NAME];
	char transport[16];
	char host[INFO_ADDR];		/* IP address of the rail, or "" */
	cJSON *doc;			/* JSON object of the rail in the
					 * report */
};

/*
 * All data of a run. Created and freed by main. doc is the report: an object
 * whose members are in the order in which they were examined.
 */
struct info {
	struct info_opts opts;
	cJSON *doc;
	cJSON *findings;	/* array in doc: the findings */
	cJSON *unseen;		/* array in doc: what could not be examined */
	enum info_grade worst;
	struct info_net *nets;
	size_t n_nets;
	struct info_rail rails[INFO_RAILS];
	size_t n_rails;
};

/* --- te_info_options.c --------------------------------------------------- */
/* Parses the options. Returns 0, or INFO_EXIT_USAGE after a message on
 * stderr. */
int info_parse(int argc, char **argv, struct info_opts *opts);
/* Converts an IP address to its 4 or 16 bytes. Returns its family, or 0 if text
 * is not an IP address. */
int info_address(const char *text, uint8_t bytes[16]);
void info_help(void);

/* --- te_info_doc.c ------------------------------------------------------- */
/* These functions add a member to an object or, if key is NULL, an element to
 * an array. They accept a NULL parent and then return NULL. In a text, bytes
 * that are not UTF-8 are replaced by '?'. */
cJSON *info_object(cJSON *parent, const char *key);
cJSON *info_array(cJSON *parent, const char *key);
void info_text(cJSON *parent, const char *key, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
void info_num(cJSON *parent, const char *key, double value);
void info_bool(cJSON *parent, const char *key, bool value);
/* Cleans a parsed document of another process: texts and keys become one line
 * of UTF-8, with '?' for invalid bytes and control characters. Numbers that are
 * not finite become 0. */
void info_clean(cJSON *item);
/* info_get returns the text of a member, or "" if there is none. info_get_num
 * returns the number of a member, or 0 if there is none. */
const char *info_get(const cJSON *object, const char *key);
double info_get_num(const cJSON *object, const char *key);
/* Returns the name that the engine gives to a state of a rail. */
const char *info_state_name(uint32_t state);

/* Adds a finding to the report; the functions below add its three texts. They
 * accept NULL, which info_find returns if memory is short. */
cJSON *info_find(struct info *info, enum info_grade grade, const char *id,
		 const char *subject);
void info_what(cJSON *finding, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
void info_why(cJSON *finding, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
void info_cure(cJSON *finding, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* Adds a finding of the grade INFO_OK, which has only one text. */
void info_fine(struct info *info, const char *id, const char *subject,
	       const char *fmt, ...) __attribute__((format(printf, 4, 5)));
/* Reports something that could not be examined, and the reason. */
void info_unseen(struct info *info, const char *id, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
const char *info_grade_name(enum info_grade grade);

/* --- te_info_text.c ------------------------------------------------------ */
/* Prints the report as text to stdout. */
void info_print(const struct info *info);
/* Format a number: "1.5 Gbit/s", "2.1 GB/s", "3 MiB"; rates of 0 give "-". They
 * return buf. */
const char *info_bits_text(double bps, char *buf, size_t len);
const char *info_rate_text(double bytes, char *buf, size_t len);
const char *info_bytes_text(double bytes, char *buf, size_t len);
/* Shows on stderr what te_info --check is doing, if stderr is a terminal. An
 * empty text erases the line. */
void info_progress(const struct info *info, const char *what);
void info_heading(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* --- te_info_text_seg.c -------------------------------------------------- */
void info_print_segment(const struct info *info);
void info_print_probes(const struct info *info);
void info_print_findings(const struct info *info);

/* --- te_info_file.c ------------------------------------------------------ */
/* Reads the start of a file below opts.root, at most len - 1 bytes, without
 * trailing newlines and blanks. Returns false with errno if it cannot be
 * read. */
bool info_read(const struct info *info, char *buf, size_t len, const char *fmt,
	       ...) __attribute__((format(printf, 4, 5)));
/* Reads a whole file, at most 4 MiB. The caller frees the result. Returns NULL
 * with errno on failure. */
char *info_slurp(const struct info *info, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* Reads a decimal number from a file. Returns -1 with errno on failure; EINVAL:
 * the file holds no number. */
long long info_read_num(const struct info *info, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* Reads a number from a file of /proc/sys. Returns INFO_ABSENT if the kernel
 * has no such setting. If the file cannot be read, reports this with the id
 * `id` and returns INFO_UNSEEN. */
#define INFO_ABSENT	(-1)
#define INFO_UNSEEN	(-2)
long long info_sysctl(struct info *info, const char *id, const char *name);
bool info_exists(const struct info *info, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* --- te_info_child.c ----------------------------------------------------- */
/* A function that handles a line "@kind JSON" of a child. It may detach items
 * of value, which the caller frees. */
typedef void (*info_line_fn)(struct info *info, const char *kind,
			     cJSON *value, void *arg);
/*
 * Runs this program as a child of the given kind, and waits until it ends, at
 * most ms milliseconds. extra: up to 8 more arguments with NULL at the end, or
 * NULL. Lines that are not "@kind JSON" are added to log (an array, or NULL).
 * Returns 0, or -1 with the reason in why.
 */
int info_child_run(struct info *info, const char *kind,
		   const char *const *extra, unsigned int ms, info_line_fn fn,
		   void *arg, cJSON *log, char *why, size_t len);
/* Starts a child and reads its first line "@kind JSON". The caller stops it
 * with ft_proc_stop. Returns 0, or -1 with the reason in why. */
struct ft_proc;
int info_child_start(struct info *info, struct ft_proc *proc,
		     const char *kind, const char *const *extra,
		     unsigned int ms, cJSON **value, cJSON *log, char *why,
		     size_t len);
/* In a child: prints the line "@kind JSON" with value as its JSON, and frees
 * value. */
void info_say(const char *kind, cJSON *value);
/* In a child: prints the last error of the engine as "@error". */
void info_say_error(const char *call);
/* In a child: prints err, an error of a part that is linked into this program,
 * as "@error". */
struct tei_err;
void info_say_err(const char *call, const struct tei_err *err);
/* In a child: sets up the environment from the options, before anything
 * else. */
void info_child_setup(const struct info_opts *opts);
/* In a child: opens the store of the metadata server for reading. The caller
 * closes it with tei_meta_store_close. Returns NULL after printing "@error". */
struct tei_meta_store;
struct tei_meta_store *info_child_store(const struct info_opts *opts);
/* In a child: creates an engine according to the options, which publishes
 * nothing. Returns NULL after printing "@error". */
transfer_engine_t info_child_engine(const struct info_opts *opts);
/* In a child: does the work of the kind of child that the options name. Returns
 * the exit status of the child. */
int info_child_main(const struct info_opts *opts);

/* --- children ------------------------------------------------------------ */
int info_engine_child(const struct info_opts *opts);
void info_fabric_say(const struct info_opts *opts);
int info_target_child(const struct info_opts *opts);
int info_initiator_child(const struct info_opts *opts);
int info_pair_child(const struct info_opts *opts);
/* Returns the first buffer of a segment that is not GPU memory, or NULL if
 * there is none. The child of te_info_pair.c reads from this buffer. */
struct tei_meta_desc;
const struct tei_meta_buffer *info_pair_buffer(const struct tei_meta_desc *d);

/* Returns true if a library is libfabric: libfabric.so…, or libfabric-HASH.so…
 * in a Python wheel that bundles its own copy. */
bool info_is_libfabric(const char *path);

/* Returns true if the path's file name is that of libinfinipath. */
bool info_is_infinipath(const char *path);

/* --- parts of the report ------------------------------------------------- */
void info_look_net(struct info *info);
void info_look_rails(struct info *info);
void info_look_verbs(struct info *info);
void info_look_segment(struct info *info);
void info_probe_rails(struct info *info);
/* Adds link, driver, offloads and rings to the object of an interface. */
void info_ethtool(struct info *info, const struct info_net *net, cJSON *doc);

/* Returns the interface and address of a rail, or NULL. */
const struct info_net *info_rail_net(const struct info *info,
				     const struct info_rail *rail);

/* --- te_info_route.c ----------------------------------------------------- */
struct info_route {
	unsigned int index;	/* index of the outgoing interface */
	char name[INFO_NAME];
	bool gateway;		/* true if the route leads through a router */
	char source[INFO_ADDR];	/* source address that the kernel chooses, or
				 * "" */
};
/*
 * Queries the kernel's route to dst: from src (NULL: any source), over
 * interface oif (0: any). Returns 0 or a negative errno, such as -ENETUNREACH.
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
/* Runs all checks and adds their findings to the report. */
void info_check(struct info *info);

/* --- te_info_machine.c --------------------------------------------------- */
struct tei_topo;

struct info_node {
	int index;		/* the kernel's number of the NUMA node */
	int package;		/* index in packages; -1 if unknown */
	double memory;		/* memory of the node, bytes */
	unsigned int cores, threads;
};

struct info_package {
	int index;
	char model[96];
};

#define INFO_NODES	256
#define INFO_PACKAGES	64

/* This machine, or the machine that --topology describes. Filled by
 * info_machine_open. */
struct info_machine {
	struct info_node nodes[INFO_NODES];
	size_t n_nodes;
	struct info_package packages[INFO_PACKAGES];
	size_t n_packages;
	struct tei_topo *topo;		/* the NICs and the priority matrix */
};

/* Reads the topology. The rails of info are among its NICs. Returns 0, or -1
 * with the reason in why. */
int info_machine_open(struct info *info, struct info_machine *m, char *why,
		      size_t len);
void info_machine_close(struct info_machine *m);
/* Adds "machine_topology" to the report. */
void info_machine_doc(struct info *info, const struct info_machine *m);

/* --- te_info_watch.c ----------------------------------------------------- */
/* Runs --watch; prints to stdout. Returns an exit status, after a message on
 * stderr if it failed. */
int info_watch(const struct info_opts *opts);

/* --- te_info_prometheus.c ------------------------------------------------ */
/* Prints one set of statistics to stdout in Prometheus's text format. */
void info_prometheus(const cJSON *doc);

/* --- te_info_svg.c ------------------------------------------------------- */
/* Prints the picture to stdout. Returns an exit status, after a message on
 * stderr if it failed. */
int info_svg(struct info *info);

/* --- te_info_svg_draw.c -------------------------------------------------- */
void svg_head(int width, int height, const char *title);
void svg_tail(void);
/* Prints a box. class is a class of the style sheet; position and size are in
 * pixels. */
void svg_box(const char *class, int x, int y, int w, int h);
/* Prints text, cut to fit width pixels. Characters that XML does not allow are
 * replaced. */
void svg_text(const char *class, int x, int y, int width, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));
/* Prints a curved line between two points. */
void svg_link(const char *class, int x1, int y1, int x2, int y2);

#endif /* TEI_TOOLS_TE_INFO_H */
