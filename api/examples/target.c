/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A target: registers memory, prints the name of its segment and waits.
 * Initiators read and write the memory without any action of this program.
 *
 *	$ target
 *	127.0.0.1:15023
 *
 * With two arguments, the name of the segment and the metadata server, other
 * processes can open the segment by that name:
 *
 *	$ target storage-1 zookeeper://10.0.0.1:2181
 */
#include <stdio.h>
#include <stdlib.h>

#include <moonrail.h>

#define SIZE (16u << 20)

/* Prints the error of the last call of this thread that has failed. */
static int complain(const char *call)
{
	struct te_error err = { 0 };

	te_last_error(&err, sizeof(err));
	fprintf(stderr, "%s: %s%s%s\n", call, err.text,
		err.hint[0] ? "; " : "", err.hint);
	return 1;
}

static int serve(transfer_engine_t engine, const char *name, char *memory)
{
	char address[300];

	/* "*": any NUMA node. 1: peers may access the memory. */
	if (registerLocalMemory(engine, memory, SIZE, "*", 1))
		return complain("registerLocalMemory");
	if (!name && getLocalIpAndPort(engine, address, sizeof(address)))
		return complain("getLocalIpAndPort");
	printf("%s\n", name ? name : address);
	fflush(stdout);
	getchar();
	printf("memory begins with \"%.60s\"\n", memory);
	/* After this call, no peer can access the memory, and the program may
	 * free it. */
	if (unregisterLocalMemory(engine, memory))
		return complain("unregisterLocalMemory");
	return 0;
}

int main(int argc, char **argv)
{
	const char *server = argc > 2 ? argv[2] : "P2PHANDSHAKE";
	const char *name = argc > 2 ? argv[1] : NULL;
	char *memory;
	transfer_engine_t engine;
	int ret = 1;

	if (argc == 2) {
		fprintf(stderr, "usage: target [SEGMENT METADATA_SERVER]\n");
		return 2;
	}
	memory = calloc(1, SIZE);
	if (!memory)
		return 1;
	engine = createTransferEngine(server, name ? name : "127.0.0.1", "",
				      0, 1);
	if (engine)
		ret = serve(engine, name, memory);
	else
		complain("createTransferEngine");
	destroyTransferEngine(engine);
	free(memory);
	return ret;
}
