/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdio.h>
#include <string.h>

#include "fabtests/common/ft_num.h"
#include "tools/te_meta.h"

static const struct option_verb {
	const char *word;
	enum meta_verb verb;
	bool name, paths;		/* required */
	const char *help;
} option_verbs[] = {
	{ "register", META_REGISTER, true, true,
	  "register NAME PATH...  creates nvmeof/NAME from files, end to end" },
	{ "mount", META_MOUNT, true, true,
	  "mount NAME PATH...     sets the path of each file on --server" },
	{ "unmount", META_UNMOUNT, true, false,
	  "unmount NAME           removes the paths on --server" },
	{ "list", META_LIST, false, false,
	  "list                   prints the names of all file segments" },
	{ "show", META_SHOW, true, false,
	  "show NAME              prints the descriptor as JSON" },
	{ "remove", META_REMOVE, true, false,
	  "remove NAME            removes the descriptor; the files stay" },
};

#define OPTION_VERBS	(sizeof(option_verbs) / sizeof(option_verbs[0]))

void meta_help(void)
{
	size_t i;

	puts("usage: te_meta [--OPTION=VALUE ...] COMMAND [NAME [PATH...]]\n"
	     "\n"
	     "Edits the descriptors of file segments in a metadata store.\n");
	for (i = 0; i < OPTION_VERBS; i++)
		printf("  %s\n", option_verbs[i].help);
	puts("\n"
	     "  --metadata_server=TEXT  P2PHANDSHAKE (with MOONRAIL_SEGMENT_DIR) or\n"
	     "                          zookeeper://host:port; P2PHANDSHAKE\n"
	     "  --server=NAME           with mount and unmount: the engine's server\n"
	     "                          name; with register: also mounts there\n"
	     "  --size=BYTES            with register: size that each file must have\n"
	     "  --help, --version\n"
	     "\n"
	     "Exit status: 0 success; 1 failure; 3 wrong options.");
}

static int option_wrong(const char *what, const char *why)
{
	fprintf(stderr, "te_meta: %s: %s; see te_meta --help\n", what, why);
	return META_EXIT_USAGE;
}

/* Returns the value of --name=value or of --name value, or NULL if arg is
 * another option. */
static const char *option_value(const char *arg, const char *name, char **argv,
				int *i)
{
	const char *p = arg + 2;

	for (; *name && (*p == *name || (*p == '-' && *name == '_')); name++)
		p++;
	if (*name)
		return NULL;
	if (*p == '=')
		return p + 1;
	if (*p)
		return NULL;
	return argv[*i + 1] ? argv[++*i] : "";
}

static int option_take(char **argv, int *i, struct meta_opts *o)
{
	const char *arg = argv[*i], *v;

	if (!strcmp(arg, "--help") || !strcmp(arg, "-h")) {
		o->help = true;
	} else if (!strcmp(arg, "--version")) {
		o->version = true;
	} else if (arg[1] != '-') {
		return option_wrong(arg, "no such option");
	} else if ((v = option_value(arg, "metadata_server", argv, i))) {
		o->metadata_server = v;
	} else if ((v = option_value(arg, "server", argv, i))) {
		o->server = v;
		if (!*v || strlen(v) >= TEI_META_NAME_MAX)
			return option_wrong("--server", "empty or too long");
	} else if ((v = option_value(arg, "size", argv, i))) {
		if (ft_parse_size(v, &o->size) || !o->size)
			return option_wrong("--size", "must be a size such as 4096 or 1G");
	} else {
		return option_wrong(arg, "no such option");
	}
	return 0;
}

static const struct option_verb *option_verb(const char *word)
{
	size_t i;

	for (i = 0; i < OPTION_VERBS; i++)
		if (!strcmp(option_verbs[i].word, word))
			return &option_verbs[i];
	return NULL;
}

static int option_check(const struct option_verb *v, const struct meta_opts *o)
{
	if (!v->name && o->name)
		return option_wrong(v->word, "takes no name");
	if (v->name && !o->name)
		return option_wrong(v->word, "needs a segment's name");
	if (v->paths != (o->path_count > 0))
		return option_wrong(v->word, v->paths ? "needs paths" :
							"takes no paths");
	if ((v->verb == META_MOUNT || v->verb == META_UNMOUNT) && !o->server)
		return option_wrong(v->word, "needs --server");
	if (o->server && v->verb > META_UNMOUNT)
		return option_wrong(v->word, "does not take --server");
	if (o->size && v->verb != META_REGISTER)
		return option_wrong(v->word, "does not take --size");
	if (o->name && !tei_meta_persistent_name(o->name))
		return option_wrong(o->name, "not the name of a file segment (NAME or nvmeof/NAME)");
	return 0;
}

/* Takes the name of the segment. Puts nvmeof/ before a name without a slash. */
static void option_name(struct meta_opts *o, const char *word)
{
	static char full[TEI_META_NAME_MAX];

	snprintf(full, sizeof(full), "%s%s",
		 strchr(word, '/') ? "" : TEI_META_PERSISTENT, word);
	o->name = full;
}

int meta_parse(int argc, char **argv, struct meta_opts *o)
{
	const struct option_verb *verb = NULL;
	int i, ret;

	memset(o, 0, sizeof(*o));
	o->metadata_server = "P2PHANDSHAKE";
	o->paths = argv;		/* paths are moved to its start */
	for (i = 1; i < argc; i++) {
		if (argv[i][0] == '-' && argv[i][1]) {
			ret = option_take(argv, &i, o);
			if (ret)
				return ret;
		} else if (!verb) {
			verb = option_verb(argv[i]);
			if (!verb)
				return option_wrong(argv[i], "no such command");
			o->verb = verb->verb;
		} else if (!o->name) {
			option_name(o, argv[i]);
		} else {
			o->paths[o->path_count++] = argv[i];
		}
	}
	if (o->help || o->version)
		return 0;
	return verb ? option_check(verb, o) :
		      option_wrong("nothing to do", "no command");
}
