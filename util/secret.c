/* SPDX-License-Identifier: BSD-2-Clause */
#include "util/secret.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <nettle/hmac.h>
#include <nettle/memops.h>
#include <nettle/sha2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/world.h"

static_assert(TEI_MAC_SIZE == SHA256_DIGEST_SIZE, "one hash throughout");

struct tei_secret {
	struct tei_mac_key root;
};

/* --- keyed hashes -------------------------------------------------------- */

static void secret_number(struct hmac_sha256_ctx *ctx, uint64_t v)
{
	uint8_t b[8];
	int i;

	for (i = 0; i < 8; i++)
		b[i] = (uint8_t)(v >> (56 - 8 * i));
	hmac_sha256_update(ctx, sizeof(b), b);
}

void tei_mac(const struct tei_mac_key *key, const struct tei_mac_part *parts,
	     size_t count, uint8_t out[TEI_MAC_SIZE])
{
	struct hmac_sha256_ctx ctx;
	size_t i;

	hmac_sha256_set_key(&ctx, sizeof(key->bytes), key->bytes);
	secret_number(&ctx, count);
	for (i = 0; i < count; i++) {
		secret_number(&ctx, parts[i].len);
		hmac_sha256_update(&ctx, parts[i].len, parts[i].bytes);
	}
	hmac_sha256_digest(&ctx, TEI_MAC_SIZE, out);
	tei_wipe(&ctx, sizeof(ctx));
}

bool tei_mac_equal(const void *a, const void *b, size_t len)
{
	return memeql_sec(a, b, len) == 1;
}

void tei_digest(const void *bytes, size_t len, uint8_t out[TEI_MAC_SIZE])
{
	struct sha256_ctx ctx;

	sha256_init(&ctx);
	sha256_update(&ctx, len, bytes);
	sha256_digest(&ctx, TEI_MAC_SIZE, out);
}

void tei_wipe(void *p, size_t len)
{
	explicit_bzero(p, len);
}

bool tei_random(void *p, size_t len)
{
	return tei_world->random(p, len);
}

uint64_t tei_jitter(uint64_t ns)
{
	uint16_t r = 0;

	if (!tei_random(&r, sizeof(r)))
		return ns;
	return ns - ns / 4 + ns / 2 * r / UINT16_MAX;
}

/* --- the secret ---------------------------------------------------------- */

int tei_secret_make(const void *bytes, size_t len, struct tei_secret **out)
{
	static const char label[] = "moonrail shared secret 1";
	struct tei_mac_part part = { bytes, len };
	struct tei_mac_key key = { { 0 } };
	struct tei_secret *s;

	if (len < TEI_SECRET_MIN || len > TEI_SECRET_MAX)
		return TEI_ERR_INVALID;
	s = calloc(1, sizeof(*s));
	if (!s)
		return TEI_ERR_MEMORY;
	memcpy(key.bytes, label, sizeof(label));
	tei_mac(&key, &part, 1, s->root.bytes);
	*out = s;
	return 0;
}

void tei_secret_free(struct tei_secret *s)
{
	if (!s)
		return;
	tei_wipe(s, sizeof(*s));
	free(s);
}

void tei_secret_key(const struct tei_secret *s, const char *label,
		    struct tei_mac_key *out)
{
	struct tei_mac_part part = { label, strlen(label) };

	tei_mac(&s->root, &part, 1, out->bytes);
}

/* --- its file ------------------------------------------------------------ */

static int secret_reject(const char *path, const char *why, const char *hint,
			 struct tei_err *err)
{
	return tei_err_fail(err, TEI_ERR_INVALID, "secret", hint,
			    "MOONRAIL_SECRET_FILE %.64s: %s", path, why);
}

static int secret_check(const char *path, int fd, struct tei_err *err)
{
	struct stat st;

	if (fstat(fd, &st))
		return secret_reject(path, strerror(errno), NULL, err);
	if (!S_ISREG(st.st_mode))
		return secret_reject(path, "not a regular file", NULL, err);
	if (st.st_uid != geteuid() && st.st_uid != 0)
		return secret_reject(path, "owned by another user",
				     "chown it to the user of this process",
				     err);
	if (st.st_mode & 077)
		return secret_reject(path, "accessible by group or others",
				     "chmod 600", err);
	return 0;
}

/* Reads the file without its trailing line ends. Returns the number of bytes,
 * or -1 with errno set. */
static ssize_t secret_read(int fd, char *buf, size_t size)
{
	size_t used = 0;
	ssize_t n;

	while (used < size) {
		n = read(fd, buf + used, size - used);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -1;
		if (!n)
			break;
		used += (size_t)n;
	}
	if (used == size)
		return (ssize_t)used; /* the file fills the buffer; the caller
				       * refuses a secret of this length */
	while (used && (buf[used - 1] == '\n' || buf[used - 1] == '\r'))
		used--;
	return (ssize_t)used;
}

static int secret_take(const char *path, int fd, struct tei_secret **out,
		       struct tei_err *err)
{
	char buf[TEI_SECRET_MAX + 3];
	ssize_t len = secret_read(fd, buf, sizeof(buf));
	int rc = 0;

	if (len < 0)
		rc = secret_reject(path, strerror(errno), NULL, err);
	else if (len < TEI_SECRET_MIN)
		rc = secret_reject(path, "shorter than 16 bytes",
				   "create one with: head -c 32 /dev/urandom | base64", err);
	else if (len > TEI_SECRET_MAX)
		rc = secret_reject(path, "longer than 4096 bytes", NULL, err);
	else if (tei_secret_make(buf, (size_t)len, out))
		rc = tei_err_fail(err, TEI_ERR_MEMORY, "secret", NULL,
				  "out of memory");
	tei_wipe(buf, sizeof(buf));
	return rc;
}

int tei_secret_load(const char *path, struct tei_secret **out,
		    struct tei_err *err)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), rc;

	if (fd < 0)
		return secret_reject(path, strerror(errno), NULL, err);
	rc = secret_check(path, fd, err);
	if (!rc)
		rc = secret_take(path, fd, out, err);
	close(fd);
	return rc;
}
