/* SPDX-License-Identifier: BSD-2-Clause */

/*
 * Tests a segment of two files, the second of which is on NVMe over TCP. Its
 * mount, its target and its controller are removed one after the other.
 * Transfers with the first file must work all the time. run_in_vm.sh -f
 * provides mount, target and controller; elsewhere the test is skipped.
 */

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include "fabtests/functional/ft_files.h"

#define NVMEOF_MOUNT "/mnt/nvmeof"
#define NVMEOF_DEVICE "/dev/nvme0n1"
#define NVMEOF_CONTROLLER "/sys/class/nvme/nvme0"
#define NVMEOF_TARGET "/sys/kernel/config/nvmet/subsystems/moonrail"
#define NVMEOF_PORT "/sys/kernel/config/nvmet/ports/1/subsystems/moonrail"
#define NVMEOF_BLOCK (64 * FX_KIB)
#define NVMEOF_LIMIT_MS 60000

static bool write_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	bool good = fd >= 0 &&
		    write(fd, text, strlen(text)) == (ssize_t)strlen(text);

	close(fd);
	return good;
}

/* Returns true if the controller is connected to the target. */
static bool connected(void)
{
	char state[16] = "";
	int fd = open(NVMEOF_CONTROLLER "/state", O_RDONLY | O_CLOEXEC);

	if (read(fd, state, sizeof(state) - 1) < 0)
		state[0] = '\0';
	close(fd);
	return !strncmp(state, "live", 4);
}

static bool connects(void)
{
	uint64_t end = ft_now_ns() + fx_ms(NVMEOF_LIMIT_MS) * UINT64_C(1000000);

	while (!connected() && ft_now_ns() < end)
		usleep(20000);
	return connected();
}

/* Replaces the second file by a file on the mount. Returns true on success. */
static bool place(struct files_rig *rig)
{
	int fd;
	bool good;

	unlink(rig->path[1]);
	snprintf(rig->path[1], sizeof(rig->path[1]), NVMEOF_MOUNT "/1");
	fd = open(rig->path[1], O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	good = fd >= 0 && !posix_fallocate(fd, 0, FILES_SECOND);
	close(fd);
	return ft_ok(good, "the_second_file_is_remote");
}

static bool moves(struct files_rig *rig, uint64_t at, uint64_t len)
{
	static uint64_t sequence;
	uint64_t seq = ++sequence;

	fx_buf_fill(&rig->mem, 0, len, seq);
	if (!fx_move(rig->engine, rig->seg, OPCODE_WRITE, rig->mem.p, at, len,
		     0))
		return false;
	fx_buf_poison(&rig->mem, 0, len);
	return fx_move(rig->engine, rig->seg, OPCODE_READ, rig->mem.p, at, len,
		       0) &&
	       fx_buf_check(&rig->mem, 0, len, seq);
}

static struct fx_job job(struct files_rig *rig, int op, uint64_t at,
			 uint64_t len)
{
	struct fx_job j = {
		.engine = rig->engine, .seg = rig->seg, .op = op,
		.local = rig->mem.p + at, .remote = at, .len = len,
		.block = NVMEOF_BLOCK,
	};

	return j;
}

/* Unmounts the file system, so that the path does not lead to the file. Open
 * files stay usable. After mounting it again, transfers must work. */
static void mount_goes(struct files_rig *rig)
{
	struct te_error err = { 0 };

	ft_ok(!umount2(NVMEOF_MOUNT, MNT_DETACH) &&
		      files_one(rig, OPCODE_READ, FILES_FIRST, rig->mem.p, 4096,
				&err) == STATUS_FAILED &&
		      err.code == -6 && strstr(err.text, rig->path[1]),
	      "read_of_an_unmounted_file_fails_with_a_record");
	ft_diag("%s", err.text);
	ft_ok(moves(rig, 0, FX_MIB), "the_other_file_goes_on");
	ft_ok(!mount(NVMEOF_DEVICE, NVMEOF_MOUNT, "ext4", MS_NOATIME, NULL) &&
	      openSegment(rig->engine, FILES_NAME) == rig->seg &&
	      moves(rig, 0, FILES_SIZE), "mounted_and_opened_again_it_works");
}

/* Removes the target while the file is read. The kernel fails the requests
 * after fast_io_fail_tmo. When the target is back, reads must work. */
static void target_goes(struct files_rig *rig)
{
	struct fx_job reads = job(rig, OPCODE_READ, FILES_FIRST, FILES_SECOND);
	struct te_error err = { 0 };

	sync();
	ft_ok(write_text(NVMEOF_CONTROLLER "/fast_io_fail_tmo", "1") &&
	      write_text(NVMEOF_CONTROLLER "/reconnect_delay", "1") &&
	      !unlink(NVMEOF_PORT), "the_target_goes_away");
	ft_ok(!fx_job_start(&reads) && moves(rig, 0, FX_MIB),
	      "the_other_file_goes_on_meanwhile");
	ft_ok(fx_job_wait(&reads, fx_ms(NVMEOF_LIMIT_MS)) &&
	      reads.n[STATUS_FAILED] == reads.tasks,
	      "reads_fail_in_bounded_time");
	ft_diag("%s", fx_job_text(&reads));
	fx_job_free(&reads);
	ft_ok(files_one(rig, OPCODE_READ, FILES_FIRST + 3, rig->mem.p, 8192,
			&err) == STATUS_FAILED &&
		      err.code && strstr(err.text, rig->path[1]),
	      "law10_reads_fail_with_a_record");
	ft_diag("%s", err.text);
	ft_ok(!symlink(NVMEOF_TARGET, NVMEOF_PORT) && connects() &&
		      fx_move_until(rig->engine, rig->seg, OPCODE_READ,
				    rig->mem.p, FILES_FIRST, FILES_SECOND,
				    NVMEOF_BLOCK, fx_ms(NVMEOF_LIMIT_MS)),
	      "device_that_is_back_is_read");
}

/* Returns true if all tasks that use only the first file are COMPLETED. */
static bool first_completed(const struct fx_job *j)
{
	size_t i, n = FILES_FIRST / NVMEOF_BLOCK;

	for (i = 0; i < n && fx_task_status(j, i) == STATUS_COMPLETED; i++)
		;
	return i == n;
}

static void controller_goes(struct files_rig *rig)
{
	struct fx_job writes = job(rig, OPCODE_WRITE, 0, FILES_SIZE);
	struct te_error err = { 0 };

	ft_ok(!fx_job_start(&writes) &&
	      write_text(NVMEOF_CONTROLLER "/delete_controller", "1") &&
	      fx_job_wait(&writes, fx_ms(NVMEOF_LIMIT_MS)) &&
	      first_completed(&writes) &&
	      writes.n[STATUS_COMPLETED] + writes.n[STATUS_FAILED] ==
	      writes.tasks, "disconnected_only_its_own_file_fails");
	ft_diag("%s", fx_job_text(&writes));
	fx_job_free(&writes);
	ft_ok(files_one(rig, OPCODE_WRITE, FILES_FIRST, rig->mem.p, 4096,
			&err) == STATUS_FAILED && err.code &&
	      strstr(err.text, rig->path[1]),
	      "law10_writes_fail_with_a_record");
	ft_diag("%s", err.text);
	ft_ok(files_one(rig, OPCODE_WRITE, FILES_FIRST - 10, rig->mem.p, 20,
			NULL) == STATUS_FAILED,
	      "law4_request_that_crosses_into_a_failed_file_fails");
	ft_ok(moves(rig, 0, FILES_FIRST), "the_first_file_goes_on");
}

int main(int argc, char **argv)
{
	struct files_rig rig;

	fx_init(argc, argv);
	if (access(NVMEOF_CONTROLLER, F_OK) || access(NVMEOF_PORT, F_OK)) {
		printf("the target and the mount of run_in_vm.sh -f are "
		       "absent\n");
		return 77;
	}
	if (files_make(&rig) && place(&rig) && files_engine(&rig, "nvmeof") &&
	    files_register(&rig)) {
		rig.seg = openSegment(rig.engine, FILES_NAME);
		ft_ok(rig.seg > 0 && moves(&rig, 0, FILES_SIZE),
		      "file_segment_is_opened_and_moves_bytes");
		mount_goes(&rig);
		target_goes(&rig);
		controller_goes(&rig);
	}
	files_meta(&rig, "remove test");
	files_close(&rig);
	unlink(rig.path[0]);
	return ft_result();
}
