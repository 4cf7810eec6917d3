/* SPDX-License-Identifier: BSD-2-Clause */

/* Scatter/gather requests and atomics of te_submit, with two or three
 * processes. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fabtests/functional/ft_submit.h"

bool submit_rig_start(struct submit_rig *rig, const char *way,
		      const char *transport, const char *devices)
{
	uint64_t part = SUBMIT_MEM / SUBMIT_REGIONS;
	bool good;

	memset(rig, 0, sizeof(*rig));
	rig->way = way;
	rig->random = fx_seed();
	if (devices)
		setenv("MOONRAIL_DEVICES", devices, 1);
	else
		unsetenv("MOONRAIL_DEVICES");
	snprintf(rig->transport, sizeof(rig->transport), "transport=%s",
		 transport);
	rig->mem = fx_buf_map(SUBMIT_MEM, -1);
	good = rig->mem.p &&
	       fx_peer_start(&rig->target, SUBMIT_MEM, rig->transport, NULL);
	if (good)
		rig->engine = fx_engine(transport);
	for (uint64_t i = 0; good && i < SUBMIT_REGIONS; i++)
		good = rig->engine &&
		       !registerLocalMemory(rig->engine, rig->mem.p + i * part,
					    part, "*", 1) &&
		       !fx_ask(&rig->target, "reg %llu %llu 1",
			       (unsigned long long)(i * part),
			       (unsigned long long)part);
	if (good)
		rig->seg = openSegment(rig->engine, rig->target.name);
	return ft_ok(good && rig->seg > 0, "two_processes_%s", way);
}

void submit_rig_stop(struct submit_rig *rig)
{
	ft_ok(fx_buf_guards(&rig->mem) && fx_buf_guards(&rig->target.mem),
	      "guard_zones_are_unchanged_%s", rig->way);
	destroyTransferEngine(rig->engine);
	fx_peer_stop(&rig->target);
	fx_buf_unmap(&rig->mem);
}

static void submit_over_shm(void)
{
	struct submit_rig rig;

	if (!submit_rig_start(&rig, "shm", "shm", NULL))
		return;
	submit_pieces(&rig);
	submit_atomics(&rig);
	submit_contended(&rig);
	submit_rig_stop(&rig);
}

/* Runs tests with a shared secret: the messages with the atomics are signed
 * then. */
static void submit_with_secret(void)
{
	char path[] = "/tmp/ft_submit.XXXXXX";
	static const char text[] = "a secret of enough bytes";
	struct submit_rig rig;
	int fd = mkstemp(path);
	bool good;

	good = fd >= 0 && write(fd, text, sizeof(text) - 1) == sizeof(text) - 1;
	close(fd);
	setenv("MOONRAIL_SECRET_FILE", path, 1);
	if (ft_ok(good, "a_file_with_a_secret") &&
	    submit_rig_start(&rig, "secret", "tcp", "127.0.0.1")) {
		submit_pieces(&rig);
		submit_atomics(&rig);
		submit_rig_stop(&rig);
	}
	unsetenv("MOONRAIL_SECRET_FILE");
	unlink(path);
}

int main(int argc, char **argv)
{
	struct submit_rig rig;

	fx_init(argc, argv);
	if (submit_rig_start(&rig, "1_rail", "tcp", "127.0.0.1")) {
		submit_pieces(&rig);
		submit_pieces_own(&rig);
		submit_atomics(&rig);
		submit_atomics_own(&rig);
		submit_contended(&rig);
		submit_bad(&rig);
		submit_kill(&rig);
		submit_unregister(&rig);
		submit_rig_stop(&rig);
	}
	if (submit_rig_start(&rig, "2_rails", "tcp", "127.0.0.1,127.0.0.2")) {
		submit_pieces(&rig);
		submit_atomics(&rig);
		submit_contended(&rig);
		submit_kill(&rig);
		submit_rig_stop(&rig);
	}
	if (submit_rig_start(&rig, "auto_discover", "auto", "127.0.0.1")) {
		submit_pieces(&rig);
		submit_atomics(&rig);
		submit_near(&rig);
		submit_rig_stop(&rig);
	}
	submit_over_shm();
	submit_with_secret();
	return ft_result();
}
