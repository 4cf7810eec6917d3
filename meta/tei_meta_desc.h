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

/* A libfabric address, as opaque bytes. If len is 0, there is no address. Plain
 * data. */
struct tei_meta_address {
	uint32_t format;		/* address format of libfabric, for
					 * example FI_SOCKADDR_IN */
	uint32_t len;			/* number of valid bytes, 0 to
					 * TEI_META_ADDRESS_MAX */
	uint8_t bytes[TEI_META_ADDRESS_MAX];
};

/* One rail of the peer, which is an element of "devices" in the JSON text.
 * Plain data. */
struct tei_meta_rail {
	char name[64];			/* name of the interface or RDMA
					 * device */
	uint32_t lid;			/* LID of the device, or 0 if it has
					 * none */
	char gid[64];			/* GID of the device, or "" if it has
					 * none */
	char provider[64];		/* name of the libfabric provider */
	uint64_t mr_mode;		/* bits FI_MR_… that the peer's memory
					 * registrations require */
	struct tei_meta_address address;
};

/* Contact address of a peer, which accepts first hellos. Plain data. */
struct tei_meta_first {
	char provider[64]; /* name of the libfabric provider; "" if the peer
			    * publishes no fabric address */
	struct tei_meta_address address;
};

/* A memory key that may be longer than 64 bits. */
struct tei_meta_key {
	const uint8_t *bytes;
	uint32_t len; /* number of bytes; 0: the key of this rail is in
		       * tei_meta_buffer.rkey */
};

/* A range of registered memory. It belongs to its descriptor and must not be
 * changed. */
struct tei_meta_buffer {
	uint64_t addr;			/* address in the peer's address space,
					 * not 0 */
	uint64_t length;		/* length in bytes, not 0; addr + length
					 * does not overflow */
	const char *location;		/* location of the memory: "cpu:0",
					 * "cuda:1", "*", … */
	const char *label;		/* label of the registration that the
					 * buffer belongs to, or NULL */
	const uint64_t *rkey;		/* keys of the buffer, one for each
					 * rail */
	const struct tei_meta_key *raw; /* keys longer than 64 bits, one for
					 * each rail; NULL: there are none */
};

/*
 * A labelled range of registered memory. It may extend over several adjacent
 * buffers. It is either the whole memory of one registration, or the range of a
 * nested registration inside another registration. It belongs to its descriptor
 * and does not change.
 */
struct tei_meta_label {
	uint64_t addr, length;
	const char *text; /* the label, not empty; several ranges may have the
			   * same one */
	bool nested;	  /* true: the range of a nested registration. false:
			   * the whole memory of a registration; such ranges do
			   * not overlap */
};

struct tei_meta_file_path {
	const char *server;
	const char *path;
};

/* A file of a file segment. The bytes of the segment are those of its files,
 * one file after the other. */
struct tei_meta_file {
	const char *path;		/* path of the file; JSON member
					 * "file_path" */
	uint64_t length;		/* length of the file in bytes, not 0 */
	uint64_t offset;		/* offset of the file's first byte in
					 * the segment */
	const struct tei_meta_file_path *local; /* paths of the file on other
						 * hosts; JSON member
						 * "local_path_map" */
	uint32_t local_count;
};

/*
 * A descriptor. tei_meta_desc_create creates one that its creator fills and
 * freezes; tei_meta_desc_decode returns a frozen one. Both have one reference;
 * the last tei_meta_desc_unref frees the descriptor. Before the freeze, a
 * descriptor belongs to one thread. Afterwards it is immutable, and any thread
 * with a reference may read it. The members are for reading only; the functions
 * below change them.
 */
struct tei_meta_desc {
	/* the following members do not change after the freeze */
	const char *name;
	const char *protocol;		/* protocol of the segment: "tcp",
					 * "rdma", "shm", "local" or "nvmeof" */
	uint32_t version;		/* version of the format
					 * (TEI_META_VERSION); 0: the descriptor
					 * was written by other software */
	uint64_t incarnation;		/* incarnation of the process; 0: the
					 * descriptor was written by other
					 * software */
	/* number that orders the descriptors of one process: the newer one has
	 * the higher number; 0: unknown */
	uint64_t serial;
	struct tei_meta_first first;
	char local[TEI_META_LOCAL_MAX]; /* local identity for copies inside a
					 * host; "" if there is none */
	const char *priority_matrix;	/* JSON text of an object, or NULL if
					 * there is no matrix */
	const struct tei_meta_rail *rails;
	const struct tei_meta_buffer *buffers; /* buffers in ascending order of
						* addr; they do not overlap */
	const struct tei_meta_file *files;     /* files of a file segment, whose
						* protocol is "nvmeof" */
	/* labelled ranges in ascending order of addr; of ranges with the same
	 * addr, the longest comes first */
	const struct tei_meta_label *labels;
	uint32_t rail_count;
	uint32_t buffer_count;
	uint32_t file_count;
	uint32_t label_count;
	uint64_t size;			/* sum of the lengths of all buffers or
					 * files, bytes */
};

/*
 * Creates an empty descriptor; name and protocol must not be empty. Only the
 * thread that has created the descriptor may call the functions
 * tei_meta_desc_set_… and tei_meta_desc_add_…, and only before the freeze. They
 * return TEI_ERR_INVALID for an invalid value, and TEI_ERR_TOO_MANY if the
 * descriptor has the greatest number of elements already.
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

/* Sets the priority matrix. json is the text of a JSON object, which is stored
 * unchanged. If json is NULL, the matrix is removed. */
int tei_meta_desc_set_matrix(struct tei_meta_desc *desc, const char *json,
			     struct tei_err *err);

/* Adds a rail. All rails must be added before the first buffer. */
int tei_meta_desc_add_rail(struct tei_meta_desc *desc,
			   const struct tei_meta_rail *rail,
			   struct tei_err *err);

/*
 * Adds a buffer. Buffers may be added in any order. rkey has one key per rail.
 * raw may be NULL; otherwise it also has one key per rail, and the len of that
 * key is 0 if rkey contains the key of the rail. If location is NULL, the
 * buffer's location becomes "*".
 */
int tei_meta_desc_add_buffer(struct tei_meta_desc *desc, const char *location,
			     uint64_t addr, uint64_t length,
			     const uint64_t *rkey,
			     const struct tei_meta_key *raw,
			     struct tei_err *err);

/*
 * Adds a labelled range. Ranges may be added in any order. Refuses a text that
 * is empty, longer than TEI_META_LABEL_MAX - 1 bytes or not valid UTF-8, or
 * contains a control character.
 */
int tei_meta_desc_add_label(struct tei_meta_desc *desc,
			    const struct tei_meta_label *label,
			    struct tei_err *err);

/* Adds a file to a descriptor whose protocol is "nvmeof". The files must be
 * added in the order of their bytes in the segment. */
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

/* Copies desc without its buffers, labels, files and serial. The copy is not
 * frozen. */
int tei_meta_desc_copy_head(const struct tei_meta_desc *desc,
			    struct tei_meta_desc **out, struct tei_err *err);

/* Returns true if a and b have the same content; their serials may differ. Both
 * must be frozen. */
bool tei_meta_desc_equal(const struct tei_meta_desc *a,
			 const struct tei_meta_desc *b);

/* Returns true if a and b belong to one process and a is older than b. Returns
 * false if the order is not known. */
bool tei_meta_desc_older(const struct tei_meta_desc *a,
			 const struct tei_meta_desc *b);

/*
 * Returns the buffer that contains all of [addr, addr + len), or NULL. len may
 * be 0. Takes logarithmic time and no lock, so threads that post may call it.
 */
const struct tei_meta_buffer *
tei_meta_desc_find(const struct tei_meta_desc *desc, uint64_t addr,
		   uint64_t len);

/*
 * Returns true if one buffer, or several adjacent ones together, contain all of
 * [addr, addr + len). If a device limits the size of a registration, a
 * registered region consists of several buffers.
 */
bool tei_meta_desc_covers(const struct tei_meta_desc *desc, uint64_t addr,
			  uint64_t len);

/*
 * Finds the ranges that have the label "text". Returns their number, and sets
 * *at to an array of them in the order of desc->labels. The array belongs to
 * the descriptor. Takes logarithmic time and no lock.
 */
uint32_t tei_meta_desc_find_label(const struct tei_meta_desc *desc,
				  const char *text,
				  const struct tei_meta_label *const **at);

/*
 * Returns true if the peer has at least one rail and the buffer has a key for
 * each rail. A buffer without keys is GPU memory that can be reached only
 * through remote bounce slots of its owner.
 */
bool tei_meta_desc_has_keys(const struct tei_meta_desc *desc,
			    const struct tei_meta_buffer *buffer);

/*
 * Creates the terminated JSON text of a frozen descriptor; *len does not count
 * the terminator. The caller frees *json with free(). 64-bit numbers are
 * written as integer literals. Returns TEI_ERR_TOO_MANY if the text is longer
 * than TEI_META_TEXT_MAX.
 */
int tei_meta_desc_encode(const struct tei_meta_desc *desc, char **json,
			 size_t *len, struct tei_err *err);

/*
 * Parses and checks text from any source. *out is a frozen descriptor with one
 * reference. Returns TEI_ERR_JSON if the text is not JSON, a field has the
 * wrong type or is repeated, the nesting is deeper than 32 or the text is
 * longer than TEI_META_TEXT_MAX. Returns TEI_ERR_REJECTED for well-formed text
 * with an empty name, a zero address or length, a buffer whose number of keys
 * is not the number of rails, ranges that overlap or wrap around, labels
 * outside the buffers, or more elements than the maximum. Integers may be
 * literals or decimal strings; all 64 bits are exact. Unknown fields are
 * skipped.
 */
int tei_meta_desc_decode(const char *json, size_t len,
			 struct tei_meta_desc **out, struct tei_err *err);

/* Returns a random incarnation, never 0. */
uint64_t tei_meta_incarnation(void);

#endif /* TEI_META_TEI_META_DESC_H */
