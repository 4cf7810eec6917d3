/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_META_META_AUTH_FILE_H
#define TEI_META_META_AUTH_FILE_H

struct tei_err;

/*
 * Reads "user:password" from the first line of the file that the setting names.
 * *out receives the terminated text, which the caller clears and frees. Warns
 * if other users may read the file.
 */
int meta_auth_file_read(const char *setting, const char *file, char **out,
			struct tei_err *err);

#endif /* TEI_META_META_AUTH_FILE_H */
