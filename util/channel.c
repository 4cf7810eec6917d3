/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdlib.h>

#include "util/channel.h"

uint64_t tei_channel_pause(const struct tei_channel_pace *pace, uint32_t tries)
{
	uint64_t pause = pace->first_ns;

	while (tries-- && pause < pace->longest_ns)
		pause *= 2;
	return pause < pace->longest_ns ? pause : pace->longest_ns;
}

void tei_channel_in_start(struct tei_channel_in *in, uint64_t first,
			  uint32_t limit)
{
	in->expected = first;
	in->limit = limit;
	in->nkept = 0;
	in->kept = NULL;
}

void tei_channel_in_free(struct tei_channel_in *in)
{
	free(in->kept);
	in->kept = NULL;
}

bool tei_channel_in_keep(struct tei_channel_in *in, uint64_t number,
			 void *message)
{
	void **place;

	if (!in->kept)
		in->kept = calloc(in->limit, sizeof(*in->kept));
	if (!in->kept)
		return false;
	place = &in->kept[number & (in->limit - 1)];
	if (*place)
		return false;
	*place = message;
	in->nkept++;
	return true;
}

void *tei_channel_in_take(struct tei_channel_in *in)
{
	void **place = &in->kept[in->expected & (in->limit - 1)];
	void *message = *place;

	*place = NULL;
	in->nkept -= message != NULL;
	return message;
}

void *tei_channel_in_drain(struct tei_channel_in *in)
{
	void *message;
	uint32_t i;

	for (i = 0; in->nkept && i < in->limit; i++) {
		message = in->kept[i];
		if (!message)
			continue;
		in->kept[i] = NULL;
		in->nkept--;
		return message;
	}
	return NULL;
}
