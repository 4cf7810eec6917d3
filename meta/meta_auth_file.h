/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_META_META_AUTH_FILE_H
#define TEI_META_META_AUTH_FILE_H

struct tei_err;

/*
 * Reads "user:password" from the first line of file. "setting" is the name of
 * the setting that contains the file's name, for error texts. Sets *out to the
 * terminated text, which the caller overwrites and frees. Logs a warning if
 * other users may read the file.
 */
int meta_auth_file_read(const char *setting, const char *file, char **out,
			struct tei_err *err);

#endif /* TEI_META_META_AUTH_FILE_H */
