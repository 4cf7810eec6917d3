/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_META_TEI_META_DESC_H
#define TEI_META_TEI_META_DESC_H

/*
 * Segment descriptors and their JSON. The rules of tei_meta.h apply.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "meta/tei_meta.h"

/* A libfabric address: opaque bytes; len 0 means none. Plain data. */
struct tei_meta_address {
	uint32_t format;		/* FI_SOCKADDR_IN, … of libfabric */
	uint32_t len;			/* 0 … TEI_META_ADDRESS_MAX */
	uint8_t bytes[TEI_META_ADDRESS_MAX];
};

/* One NIC of the peer ("devices[]"). Plain data. */
struct tei_meta_rail {
	char name[64];			/* name of the interface or RDMA
					 * device */
	uint32_t lid;			/* 0 if the device has no LID */
	char gid[64];			/* "" if the device has no GID */
	char provider[64];		/* libfabric provider */
	uint64_t mr_mode;		/* FI_MR_… bits required by the peer */
	struct tei_meta_address address;
};

/* Contact address of a peer, which accepts first hellos. Plain data. */
struct tei_meta_first {
	char provider[64]; /* "" if no fabric address is
			    * published */
	struct tei_meta_address address;
};

/* A memory key of more than 64 bits. */
struct tei_meta_key {
	const uint8_t *bytes;
	uint32_t len; /* 0: tei_meta_buffer.rkey has the key for this rail */
};

/* A buffer. Its descriptor owns it. It must not be changed. */
struct tei_meta_buffer {
	uint64_t addr;			/* address in the peer, not 0 */
	uint64_t length;		/* bytes, not 0; addr + length does not
					 * overflow */
	const char *location;		/* "cpu:0", "cuda:1", "*", … */
	const char *label;		/* label of the memory that was
					 * registered as a whole, or NULL */
	const uint64_t *rkey;		/* rail_count elements */
	const struct tei_meta_key *raw; /* rail_count elements, or NULL */
};

/*
 * A labelled range. Its bytes lie in adjacent buffers. It is either the whole
 * memory of one registration, which may be several buffers, or the range of a
 * nested registration inside another registration. The descriptor owns
 * it, and it is constant.
 */
struct tei_meta_label {
	uint64_t addr, length;
	const char *text; /* not empty; several ranges may have
			   * the same label */
	bool nested;	  /* the range is a part of a registration; the ranges
			   * of other labels are disjoint */
};

struct tei_meta_file_path {
	const char *server;
	const char *path;
};

/* A file of a file segment. The segment is the concatenation of its files. */
struct tei_meta_file {
	const char *path;		/* member "file_path" */
	uint64_t length;		/* bytes, not 0 */
	uint64_t offset;		/* offset of the file's first byte in
					 * the segment */
	const struct tei_meta_file_path *local; /* member "local_path_map" */
	uint32_t local_count;
};

/*
 * A descriptor. Created by tei_meta_desc_create (then filled, then frozen) or
 * by tei_meta_desc_decode, with one reference; freed with the last
 * tei_meta_desc_unref. Before it is frozen it belongs to one thread. Afterwards
 * it is immutable, and any thread with a reference may read it. Members are
 * public for reading only; change it through the functions below.
 */
struct tei_meta_desc {
	/* the following members do not change after the freeze */
	const char *name;
	const char *protocol;		/* "tcp", "rdma", "shm", "local",
					 * "nvmeof" */
	uint32_t version;		/* TEI_META_VERSION; 0: the descriptor
					 * was written by other software */
	uint64_t incarnation;		/* incarnation of the process; 0: the
					 * descriptor was written by other
					 * software */
	/*
	 * of two descriptors of one process, the newer one has the higher
	 * serial; 0 if unknown
	 */
	uint64_t serial;
	struct tei_meta_first first;
	char local[TEI_META_LOCAL_MAX]; /* local identity for copies inside a
					 * host; "" if there is none */
	const char *priority_matrix;	/* raw JSON object text, or NULL */
	const struct tei_meta_rail *rails;
	const struct tei_meta_buffer *buffers; /* in ascending order of addr;
						* disjoint */
	const struct tei_meta_file *files;     /* used only if protocol is
						* "nvmeof" */
	/*
	 * in ascending order of addr; of those with the same addr, the longest
	 * is first
	 */
	const struct tei_meta_label *labels;
	uint32_t rail_count;
	uint32_t buffer_count;
	uint32_t file_count;
	uint32_t label_count;
	uint64_t size;			/* sum of all lengths, bytes */
};

/*
 * Creates an empty descriptor; name and protocol must not be empty. The add and
 * set functions below are for the creating thread, before the freeze. They
 * refuse invalid values with TEI_ERR_INVALID, or TEI_ERR_TOO_MANY beyond a
 * maximum.
 */
int tei_meta_desc_create(const char *name, const char *protocol,
			 uint64_t incarnation, struct tei_meta_desc **out,
			 struct tei_err *err);
int tei_meta_desc_set_first(struct tei_meta_desc *desc,
			    const struct tei_meta_first *first,
			    struct tei_err *err);
int tei_meta_desc_set_serial(struct tei_meta_desc *desc, uint64_t serial,
			     struct tei_err *err);
int tei_meta_desc_set_local(struct tei_meta_desc *desc, const char *identity,
			    struct tei_err *err);

/* Sets the priority matrix. json must be an object; the text is stored
 * unchanged. NULL removes the matrix. */
int tei_meta_desc_set_matrix(struct tei_meta_desc *desc, const char *json,
			     struct tei_err *err);

/* All rails must be added before the first buffer. */
int tei_meta_desc_add_rail(struct tei_meta_desc *desc,
			   const struct tei_meta_rail *rail,
			   struct tei_err *err);

/*
 * Adds a buffer. Buffers may be added in any order. rkey has one key per rail.
 * raw is NULL, or has one key per rail, with len 0 where rkey suffices. If
 * location is NULL, it is "*".
 */
int tei_meta_desc_add_buffer(struct tei_meta_desc *desc, const char *location,
			     uint64_t addr, uint64_t length,
			     const uint64_t *rkey,
			     const struct tei_meta_key *raw,
			     struct tei_err *err);

/*
 * Adds a labelled range, in any order. Refuses a text that is empty, longer
 * than TEI_META_LABEL_MAX - 1 bytes or not valid UTF-8, or contains a control
 * character.
 */
int tei_meta_desc_add_label(struct tei_meta_desc *desc,
			    const struct tei_meta_label *label,
			    struct tei_err *err);

/* Adds a file; protocol "nvmeof" only. Files are added in their order. */
int tei_meta_desc_add_file(struct tei_meta_desc *desc, const char *path,
			   uint64_t length,
			   const struct tei_meta_file_path *local,
			   uint32_t local_count, struct tei_err *err);

/*
 * Sorts the buffers and labels, checks the whole descriptor and freezes it.
 * Returns TEI_ERR_OVERLAP for overlapping buffers, TEI_ERR_INVALID for a label
 * outside the buffers. After an error the caller still owns
 * the descriptor, which is not frozen.
 */
int tei_meta_desc_freeze(struct tei_meta_desc *desc, struct tei_err *err);

/*
 * Freezes a descriptor that its creator has filled, and passes it to *out. ret
 * is the result of the calls that have filled it. If ret is an error, or the
 * freeze fails, frees the descriptor and returns the error.
 */
int tei_meta_desc_finish(struct tei_meta_desc *desc, int ret,
			 struct tei_meta_desc **out, struct tei_err *err);

struct tei_meta_desc *tei_meta_desc_ref(struct tei_meta_desc *desc);

/* Drops a reference to a frozen descriptor and frees it with the last one. A
 * descriptor that is not frozen yet is freed at once. NULL is ignored. */
void tei_meta_desc_unref(struct tei_meta_desc *desc);

/*
 * Makes a copy of desc without buffers, files and serial. The copy is not
 * frozen.
 */
int tei_meta_desc_copy_head(const struct tei_meta_desc *desc,
			    struct tei_meta_desc **out, struct tei_err *err);

/*
 * Returns true if both have the same content except for the serial. Both are
 * frozen.
 */
bool tei_meta_desc_equal(const struct tei_meta_desc *a,
			 const struct tei_meta_desc *b);

/*
 * Returns true if both belong to one process and a is known to be older than b.
 */
bool tei_meta_desc_older(const struct tei_meta_desc *a,
			 const struct tei_meta_desc *b);

/*
 * Returns the buffer that holds all of [addr, addr + len), or NULL. len may be
 * 0. Logarithmic time, no lock: suitable for data threads.
 */
const struct tei_meta_buffer *
tei_meta_desc_find(const struct tei_meta_desc *desc, uint64_t addr,
		   uint64_t len);

/*
 * Returns true if adjacent buffers together hold all of [addr, addr + len). A
 * region is split into several buffers if a device limits their size.
 */
bool tei_meta_desc_covers(const struct tei_meta_desc *desc, uint64_t addr,
			  uint64_t len);

/*
 * Finds the ranges with that label. Returns their number, and sets *at to an
 * array of them in the order of desc->labels. The array belongs to the
 * descriptor. Takes logarithmic time and no lock.
 */
uint32_t tei_meta_desc_find_label(const struct tei_meta_desc *desc,
				  const char *text,
				  const struct tei_meta_label *const **at);

/* Returns true if the peer has at least one rail and the buffer has a key for
 * each rail. GPU memory without keys can only be reached through remote bounce
 * slots of its owner. */
bool tei_meta_desc_has_keys(const struct tei_meta_desc *desc,
			    const struct tei_meta_buffer *buffer);

/*
 * Writes the JSON text of a frozen descriptor, terminated; *len excludes the
 * terminator. The caller frees it with free(). 64-bit numbers are plain integer
 * literals. Returns TEI_ERR_TOO_MANY beyond TEI_META_TEXT_MAX.
 */
int tei_meta_desc_encode(const struct tei_meta_desc *desc, char **json,
			 size_t *len, struct tei_err *err);

/*
 * Parses and checks text from any source. *out is a frozen descriptor with one
 * reference. Returns TEI_ERR_JSON if the text is not JSON, a field has the
 * wrong type or is repeated, the nesting is deeper than 32 or the text is
 * longer than TEI_META_TEXT_MAX. Returns TEI_ERR_REJECTED for well-formed text
 * with an empty name, a zero address or length, a key count that differs from
 * the device count, ranges that overlap or wrap around, labels outside the
 * buffers, or more elements than the maximum. Integers are exact in all 64
 * bits, also as decimal strings. Unknown fields are skipped.
 */
int tei_meta_desc_decode(const char *json, size_t len,
			 struct tei_meta_desc **out, struct tei_err *err);

/* Returns a random incarnation, never 0. */
uint64_t tei_meta_incarnation(void);

#endif /* TEI_META_TEI_META_DESC_H */
