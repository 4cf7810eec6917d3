/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdio.h>
#include <string.h>

#include "fabtests/common/ft_options.h"
#include "meta/tei_meta_store.h"
#include "tools/te_meta.h"

static const struct option_verb {
	const char *word;
	enum meta_verb verb;
	bool name, paths;		/* whether the command requires a name,
					 * and whether it requires paths */
} option_verbs[] = {
	{ "register", META_REGISTER, true, true },
	{ "mount", META_MOUNT, true, true },
	{ "unmount", META_UNMOUNT, true, false },
	{ "list", META_LIST, false, false },
	{ "show", META_SHOW, true, false },
	{ "remove", META_REMOVE, true, false },
	{ "serve", META_SERVE, false, false },
};

#define OPTION_VERBS	(sizeof(option_verbs) / sizeof(option_verbs[0]))

#define FIELD(f) offsetof(struct meta_opts, f)

static const struct ft_option option_table[] = {
	{ "host", FT_TEXT, FIELD(host), 0, 0, NULL, "ADDRESS",
	  "with serve: address to listen on; 0.0.0.0" },
	{ "max_connections", FT_COUNT, FIELD(max_connections), 1, 1000000, NULL,
	  "N", "with serve: connections at a time; 4096" },
	{ "max_keys", FT_COUNT, FIELD(max_keys), 1, 100000000, NULL, "N",
	  "with serve: keys; 1000000" },
	{ "max_value", FT_SIZE, FIELD(max_value), 1, 1UL << 30, NULL, "BYTES",
	  "with serve: length of one value; 16M" },
	{ "memory", FT_SIZE, FIELD(memory), 1, UINT64_MAX / 2, NULL, "BYTES",
	  "with serve: all keys and values together; 1G" },
	{ "metadata_server", FT_TEXT, FIELD(metadata_server), 0, 0, NULL,
	  "TEXT",
	  "P2PHANDSHAKE (with MOONRAIL_SEGMENT_DIR),\n"
	  "zookeeper://host:port, etcd://host:port,\n"
	  "redis://host:port or http://host:port/metadata;\n"
	  "P2PHANDSHAKE" },
	{ "plain", FT_FLAG, FIELD(plain), 0, 0, NULL, "",
	  "with serve: only Mooncake's protocol" },
	{ "port", FT_COUNT, FIELD(port), 0, 65535, NULL, "N",
	  "with serve: 0 chooses a free port; 8080" },
	{ "server", FT_TEXT, FIELD(server), 0, 0, NULL, "NAME",
	  "with mount and unmount: the engine's server\n"
	  "name; with register: also mounts there" },
	{ "size", FT_SIZE, FIELD(size), 1, UINT64_MAX, NULL, "BYTES",
	  "with register: size that each file must have" },
	{ "all", FT_FLAG, FIELD(all), 0, 0, NULL, "",
	  "with list: also the segments of processes" },
	{ "version", FT_FLAG, FIELD(version), 0, 0, NULL, "",
	  "version of moonrail" },
};

static const struct ft_options option_all = {
	.program = "te_meta",
	.usage = "[--OPTION=VALUE ...] COMMAND [NAME [PATH...]]",
	.about = "Edits the descriptors of file segments in a metadata store,\n"
		 "shows all descriptors, or is such a store itself.\n"
		 "\n"
		 "  register NAME PATH...  creates nvmeof/NAME from files, end "
		 "to end\n"
		 "  mount NAME PATH...     sets the path of each file on "
		 "--server\n"
		 "  unmount NAME           removes the paths on --server\n"
		 "  list                   prints the names of all file segments\n"
		 "  show NAME              prints the descriptor as JSON;\n"
		 "                         ram/NAME: segment of a process\n"
		 "  remove NAME            removes the descriptor; the files stay\n"
		 "  serve                  is a metadata store itself, over HTTP",
	.rows = option_table,
	.n = sizeof(option_table) / sizeof(*option_table),
	.more = true,
	.width = 23,
	.notes = "Exit status: 0 success; 1 failure; 3 wrong options.",
};

void meta_help(void)
{
	ft_options_help(&option_all);
}

static int option_wrong(const char *what, const char *why)
{
	fprintf(stderr, "te_meta: %s: %s; see te_meta --help\n", what, why);
	return META_EXIT_USAGE;
}

static const struct option_verb *option_verb(const char *word)
{
	size_t i;

	for (i = 0; i < OPTION_VERBS; i++)
		if (!strcmp(option_verbs[i].word, word))
			return &option_verbs[i];
	return NULL;
}

bool meta_process_name(const char *name)
{
	size_t len = strlen(TEI_META_PROCESSES);

	return !strncmp(name, TEI_META_PROCESSES, len) && name[len] &&
	       !strchr(name + len, '/');
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
	if (o->server && strlen(o->server) >= TEI_META_NAME_MAX)
		return option_wrong("--server", "too long");
	if (o->server && v->verb > META_UNMOUNT)
		return option_wrong(v->word, "does not take --server");
	if (o->size && v->verb != META_REGISTER)
		return option_wrong(v->word, "does not take --size");
	if (o->all && v->verb != META_LIST)
		return option_wrong(v->word, "does not take --all");
	if (v->verb == META_SHOW && meta_process_name(o->name))
		return 0;
	if (o->name && !tei_meta_persistent_name(o->name))
		return option_wrong(o->name, "not the name of a file segment (NAME or nvmeof/NAME)");
	return 0;
}

/* Stores the name of the segment in the options. If the name contains no slash,
 * puts nvmeof/ before it. */
static void option_name(struct meta_opts *o, const char *word)
{
	static char full[TEI_META_NAME_MAX];

	snprintf(full, sizeof(full), "%s%s",
		 strchr(word, '/') ? "" : TEI_META_PERSISTENT, word);
	o->name = full;
}

/* Reads the words of the command line: COMMAND [NAME [PATH...]]. */
static int option_words(int count, char **words, struct meta_opts *o)
{
	const struct option_verb *verb;

	if (!count)
		return option_wrong("nothing to do", "no command");
	verb = option_verb(words[0]);
	if (!verb)
		return option_wrong(words[0], "no such command");
	o->verb = verb->verb;
	if (count > 1)
		option_name(o, words[1]);
	if (count > 2) {
		o->paths = words + 2;
		o->path_count = (uint32_t)(count - 2);
	}
	return option_check(verb, o);
}

int meta_parse(int argc, char **argv, struct meta_opts *o)
{
	int first;

	memset(o, 0, sizeof(*o));
	o->metadata_server = "P2PHANDSHAKE";
	o->host = "0.0.0.0";
	o->port = 8080;
	o->max_connections = 4096;
	o->max_keys = 1000000;
	o->max_value = 16 << 20;
	o->memory = 1 << 30;
	first = ft_options_read(&option_all, argc, argv, o);
	if (first < 0)
		return META_EXIT_USAGE;
	o->help = !first;
	return o->help || o->version ?
		       0 : option_words(argc - first, argv + first, o);
}
