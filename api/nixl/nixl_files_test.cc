/* SPDX-License-Identifier: BSD-2-Clause */
/* Tests the file segments of the NIXL plug-in (nixl_files.h) without NIXL. The
 * script ft_cxx.sh compiles and runs this program. */
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <dirent.h>

#include "nixl_files.h"

using moonrail_nixl::file;
using moonrail_nixl::file_spec;
using moonrail_nixl::files;

namespace
{

constexpr std::size_t LEN = 1 << 20;

int failed;
std::string dir;

void check(bool good, const char *name)
{
	printf("%s - %s\n", good ? "ok" : "not ok", name);
	failed += !good;
}

unsigned descriptors()
{
	DIR *d = opendir("/proc/self/fd");
	unsigned n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

bool move(transfer_engine_t engine, int opcode, std::vector<char> &at,
	  const file &f)
{
	constexpr int64_t limit_us = 30000000;

	if (opcode == OPCODE_READ)
		return !te_read(engine, f.segment, at.data(), 0, at.size(),
				limit_us);
	return !te_write(engine, f.segment, at.data(), 0, at.size(), limit_us);
}

void parses_modes()
{
	struct {
		const char *meta, *path;
		bool writable, create;
	} const rows[] = {
		{ "ro:/a:b", "/a:b", false, false },
		{ "rw:/a", "/a", true, false },
		{ "rw,direct,sync,noatime,create:x", "x", true, true },
		{ "rx:/a", "", false, false },
		{ "rw,other:/a", "", false, false },
		{ "rw:", "", false, false },
		{ "/a/path", "", false, false },
		{ "", "", false, false },
	};
	bool good = true;

	for (const auto &row : rows) {
		file_spec spec(row.meta);

		good &= spec.path == row.path &&
			spec.writable == row.writable &&
			spec.create == row.create;
	}
	check(good, "metadata_of_files_is_parsed");
}

/* Writes two files and reads them back: a new file that is named by its path,
 * and one that is given by an open file descriptor. */
void moves_bytes(transfer_engine_t engine, files &folder)
{
	std::string path = dir + "/a \"b\\", other = dir + "/other";
	std::vector<char> out(LEN), in(LEN), raw(LEN);
	int fd = open(other.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	file named, bare;

	for (std::size_t i = 0; i < LEN; i++)
		out[i] = static_cast<char>(i * 31 + i / 4096);
	registerLocalMemory(engine, out.data(), LEN, "*", 1);
	registerLocalMemory(engine, in.data(), LEN, "*", 1);
	check(!folder.add(engine, "rw,create:" + path, 7, LEN, named) &&
		      !folder.add(engine, "", static_cast<unsigned>(fd), LEN,
				  bare),
	      "files_are_opened_by_path_and_by_descriptor");
	check(move(engine, OPCODE_WRITE, out, named) &&
		      move(engine, OPCODE_READ, in, named) && in == out,
	      "named_file_returns_what_was_written");
	std::memset(in.data(), 0, LEN);
	check(move(engine, OPCODE_WRITE, out, bare) &&
		      move(engine, OPCODE_READ, in, bare) && in == out &&
		      pread(fd, raw.data(), LEN, 0) ==
			      static_cast<ssize_t>(LEN) &&
		      raw == out,
	      "file_of_a_descriptor_returns_what_was_written");
	folder.remove(engine, named);
	folder.remove(engine, bare);
	check(fcntl(fd, F_GETFD) >= 0, "descriptor_of_the_caller_stays_open");
	close(fd);
	unlink(path.c_str());
	unlink(other.c_str());
	unregisterLocalMemory(engine, out.data());
	unregisterLocalMemory(engine, in.data());
}

void refuses(transfer_engine_t engine, files &folder)
{
	std::string path = dir + "/short";
	unsigned before = descriptors();
	file f;

	close(open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	check(folder.add(engine, "ro:" + dir + "/none", 0, LEN, f) == -ENOENT &&
		      folder.add(engine, "", 99999, LEN, f) < 0 &&
		      folder.add(engine, "ro:" + path, 0, LEN, f) == -EINVAL &&
		      folder.add(engine, "rw:" + path, 0, 0, f) == -EINVAL &&
		      f.fd < 0 && f.segment < 0 && descriptors() == before,
	      "bad_files_are_refused_and_leave_nothing");
	unlink(path.c_str());
}

} // namespace

int main()
{
	const char *tmp = getenv("TMPDIR");
	te_engine_options options = {};
	transfer_engine_t engine = nullptr;

	dir = std::string(tmp && *tmp ? tmp : "/tmp") + "/moonrail-test-XXXXXX";
	if (!mkdtemp(&dir[0]))
		return 1;
	setenv("TMPDIR", dir.c_str(), 1);
	parses_modes();
	{
		files folder;
		std::string text = folder.setting();
		const char *settings[] = { text.c_str() };

		options.metadata = "P2PHANDSHAKE";
		options.server_name = options.ip = "127.0.0.1";
		options.auto_discover = 1;
		options.settings = settings;
		options.settings_count = 1;
		check(!te_engine_create(&options, sizeof(options), &engine) &&
			      installTransport(engine, "nvmeof", nullptr),
		      "engine_takes_the_folder");
		moves_bytes(engine, folder);
		refuses(engine, folder);
		destroyTransferEngine(engine);
	}
	check(!rmdir(dir.c_str()), "folder_is_empty_afterwards");
	return failed != 0;
}
