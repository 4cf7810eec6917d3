/* SPDX-License-Identifier: BSD-2-Clause */

/*
 * Transfers to and from the GPU memory of another process of this host, which
 * this process cannot map. The bytes pass through remote bounce slots and are
 * copied inside this host; the messages about the slots use the rails.
 */
#include <stdio.h>
#include <string.h>

#include "fabtests/functional/fx_slot.h"

/* Bytes that this process has moved. */
struct host_bytes {
	uint64_t rails, copies;
};

static struct host_bytes host_bytes(const struct slot_rig *rig)
{
	struct te_rail_stats stats[64];
	struct host_bytes sum = { 0, 0 };
	size_t n = 64, i;

	if (te_rail_stats(rig->engine, stats, sizeof(stats[0]), &n))
		return sum;
	for (i = 0; i < n && i < 64; i++)
		*(strcmp(stats[i].transport, "local") ? &sum.rails
						      : &sum.copies) +=
			stats[i].tx_bytes + stats[i].rx_bytes;
	return sum;
}

typedef bool (*host_round_fn)(struct slot_rig *rig, uint64_t off, uint64_t len,
			      uint64_t block);

/* Moves SLOT_SIZE bytes to the peer and back. Returns true if the bytes are
 * right, and are copied inside this host or moved over rails. */
static bool host_moves(struct slot_rig *rig, host_round_fn round, bool copies,
		       uint64_t block)
{
	struct host_bytes before = host_bytes(rig), after;
	bool good = round(rig, 0, SLOT_SIZE, block);

	after = host_bytes(rig);
	ft_diag("%llu bytes over rails, %llu bytes copied",
		(unsigned long long)(after.rails - before.rails),
		(unsigned long long)(after.copies - before.copies));
	return good &&
	       after.rails - before.rails == (copies ? 0 : 2 * SLOT_SIZE) &&
	       after.copies - before.copies == (copies ? 2 * SLOT_SIZE : 0);
}

static bool host_round(struct slot_rig *rig, bool copies, uint64_t block)
{
	return host_moves(rig, slot_round, copies, block);
}

/* Returns true if this process, which has no such memory itself, has mapped
 * memory of another process. */
static bool host_maps(void)
{
	FILE *f = fopen("/proc/self/maps", "re");
	bool found = false;
	char line[512];

	while (f && !found && fgets(line, sizeof(line), f))
		found = strstr(line, "moonrail-memory") != NULL;
	if (f)
		fclose(f);
	return found;
}

static void counted(struct slot_rig *rig)
{
	struct te_peer_stats s = { .tx_bytes = 0 };

	ft_ok(!host_maps() && host_round(rig, true, 0),
	      "bytes_are_copied_inside_the_host");
	ft_ok(host_maps(), "slots_of_the_target_are_mapped");
	ft_ok(host_round(rig, true, 100000),
	      "bytes_of_small_requests_are_copied_inside_the_host");
	te_peer_stats(rig->engine, rig->seg, &s, sizeof(s));
	ft_ok(s.tx_bytes == 2 * SLOT_SIZE && s.rx_bytes == 2 * SLOT_SIZE,
	      "statistics_of_the_peer_count_the_bytes: %llu, %llu",
	      (unsigned long long)s.tx_bytes, (unsigned long long)s.rx_bytes);
}

/* Bytes between GPU memory of both processes pass through a bounce buffer and a
 * slot. */
static void between_gpus(struct slot_rig *rig)
{
	struct slot_rig other = *rig;

	other.engine = fx_engine("auto");
	ft_ok(other.engine && fx_register(other.engine, &other.mem) &&
		      slot_add_gpus(&other) &&
		      (other.seg = openSegment(other.engine,
					       other.peer.name)) > 0 &&
		      host_moves(&other, slot_gpus, true, 0) &&
		      host_moves(&other, slot_gpus, true, 100000),
	      "bytes_between_gpus_are_copied_inside_the_host");
	destroyTransferEngine(other.engine);
	rig->sequence = other.sequence;
}

/* Local copies are switched off and on again at any time during transfers. The
 * bytes then take the other way. */
static void switched_off(struct slot_rig *rig)
{
	struct fx_job job = slot_job(rig, OPCODE_WRITE);
	bool good = true, ended;
	int i, ret = 0;

	for (i = 0; i < 8 && good; i++) {
		fx_buf_fill(&rig->mem, 0, SLOT_SIZE, ++rig->sequence);
		good = !fx_job_start(&job);
		fx_nap((unsigned int)(i * 700));
		ret = uninstallTransport(rig->engine, "local");
		ended = fx_job_wait(&job, FX_LONG_MS);
		good = good && !ret && ended && job.n[STATUS_COMPLETED] == 1 &&
		       fx_gpu_has(&rig->peer, 0, SLOT_SIZE, rig->sequence);
		fx_job_free(&job);
		if (!i)
			ft_ok(host_round(rig, false, 0),
			      "bytes_use_the_rails_without_local_copies");
		good = good && installTransport(rig->engine, "local", NULL);
	}
	ft_ok(good, "transfers_complete_if_local_copies_are_switched_off: %d, %s",
	      ret, fx_job_text(&job));
	ft_ok(host_round(rig, true, 0),
	      "bytes_are_copied_again_when_local_copies_are_switched_on");
}

int main(int argc, char **argv)
{
	struct slot_rig rig = { .transport = "auto" };

	fx_extend(slot_obey);
	fx_init(argc, argv);
	if (!slot_setup(&rig))
		return ft_result();
	counted(&rig);
	between_gpus(&rig);
	switched_off(&rig);
	if (!slot_cases(&rig))
		return ft_result();
	slot_end(&rig);
	return ft_result();
}
