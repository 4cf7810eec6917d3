/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "meta/meta_auth_file.h"
#include "util/err.h"
#include "util/log.h"

static void auth_check_mode(const char *setting, const char *file, int fd)
{
	struct stat st;

	if (!fstat(fd, &st) && (st.st_mode & (S_IRWXG | S_IRWXO)))
		TEI_WARN("meta", "%s=%s: other users may read it (mode %03o)",
			 setting, file, (unsigned int)st.st_mode & 0777);
}

int meta_auth_file_read(const char *setting, const char *file, char **out,
			struct tei_err *err)
{
	FILE *f = fopen(file, "re");
	char line[1024];
	const char *colon;

	if (!f)
		return tei_err_fail(err, TEI_ERR_INVALID, "meta", NULL,
				    "%s=%.64s: %s", setting, file,
				    strerror(errno));
	auth_check_mode(setting, file, fileno(f));
	setvbuf(f, NULL, _IONBF, 0); /* no buffer, because a copy of the secret
				      * would stay in its memory */
	if (!fgets(line, sizeof(line), f))
		line[0] = 0;
	fclose(f);
	line[strcspn(line, "\r\n")] = 0;
	colon = strchr(line, ':');
	if (colon && colon > line && colon[1])
		*out = strdup(line);
	else
		*out = NULL;
	explicit_bzero(line, sizeof(line));
	if (*out)
		return 0;
	return tei_err_fail(err, TEI_ERR_INVALID, "meta",
			    "the first line of the file must be user:password",
			    "%s=%.64s: the file has no user:password", setting, file);
}
