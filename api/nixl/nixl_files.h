/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef NIXL_FILES_H
#define NIXL_FILES_H
/*
 * File segments for the files that a NIXL agent registers. Each file is one
 * segment "nvmeof/NUMBER" of the agent's engine, so an offset in the file is an
 * offset in the segment. The descriptor of the segment is in a folder that only
 * this engine reads (MOONRAIL_SEGMENT_DIR). The folder is created when the
 * first file is added.
 */
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <sstream>
#include <string>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "moonrail.h"

namespace moonrail_nixl
{

/*
 * The file of a registration. If the metadata text of the registration has the
 * form that NIXL's file plug-ins use ("ro" or "rw", flags, a colon and a path,
 * such as "rw,create:/path"), it names the file. Otherwise NIXL's device number
 * is the number of an open file descriptor.
 */
struct file_spec {
	std::string path; /* path of the file; empty: the device number is an
			   * open file descriptor */
	bool writable = false, create = false;

	explicit file_spec(const std::string &meta)
	{
		std::size_t colon = meta.find(':');
		std::string mode;

		if (colon == std::string::npos || colon + 1 == meta.size())
			return;
		std::istringstream modes(meta.substr(0, colon));
		std::getline(modes, mode, ',');
		if (mode != "ro" && mode != "rw")
			return;
		bool write = mode == "rw", make = false;
		while (std::getline(modes, mode, ',')) {
			/* the flags direct, sync and noatime are accepted but
			 * have no effect */
			if (mode != "direct" && mode != "sync" &&
			    mode != "noatime" && mode != "create")
				return;
			make |= mode == "create";
		}
		path = meta.substr(colon + 1);
		writable = write;
		create = make;
	}
};

/* A registered file. fd keeps the file open, so that the path of fd in
 * /proc/self/fd always leads to this file. */
struct file {
	int fd = -1;
	segment_id_t segment = -1;
	std::string descriptor; /* path of the segment's descriptor; empty: it
				 * has not been written */
	bool readable = false, writable = false;
};

/* The registered files and the folder with their descriptors. Only one thread
 * at a time may call add or remove. */
class files
{
      public:
	files()
	{
		std::random_device random;
		char name[64];

		snprintf(name, sizeof(name), "/moonrail-nixl-%d-%08x%08x",
			 getpid(), random(), random());
		const char *tmp = getenv("TMPDIR");
		folder =
			(tmp && *tmp == '/' ? tmp : "/tmp") + std::string(name);
	}
	~files()
	{
		if (made)
			rmdir(folder.c_str());
	}
	files(const files &) = delete;
	files &operator=(const files &) = delete;

	/* Returns the setting that makes an engine use this folder. */
	std::string setting() const
	{
		return "MOONRAIL_SEGMENT_DIR=" + folder;
	}

	/*
	 * Opens length bytes of a file as a segment. If "meta" names no path,
	 * "number" is a file descriptor. A writable file that has fewer bytes
	 * is extended to this length. Returns 0 or a negative errno. After an
	 * error the file is not open and there is no descriptor.
	 */
	int add(transfer_engine_t engine, const std::string &meta,
		std::uint64_t number, std::uint64_t length, file &f)
	{
		int ret = open_file(meta, number, f);

		if (!ret)
			ret = fit(f, length);
		if (!ret)
			ret = publish(engine, length, f);
		if (!ret) {
			std::string name = "nvmeof/" + std::to_string(next);
			f.segment = openSegment(engine, name.c_str());
			ret = f.segment < 0 ? -EIO : 0;
		}
		if (ret)
			remove(engine, f);
		return ret;
	}

	void remove(transfer_engine_t engine, file &f)
	{
		if (f.segment >= 0)
			closeSegment(engine, f.segment);
		if (!f.descriptor.empty())
			unlink(f.descriptor.c_str());
		if (f.fd >= 0)
			close(f.fd);
		f = file();
	}

      private:
	std::string folder;
	bool made = false;
	unsigned next = 0; /* number of the last segment that was added */

	static int open_file(const std::string &meta, std::uint64_t number,
			     file &f)
	{
		file_spec spec(meta);

		if (spec.path.empty())
			f.fd = number > INT32_MAX
				       ? -1
				       : fcntl(static_cast<int>(number),
					       F_DUPFD_CLOEXEC, 3);
		else
			f.fd = open(spec.path.c_str(),
				    (spec.writable ? O_RDWR : O_RDONLY) |
					    (spec.create ? O_CREAT : 0) |
					    O_CLOEXEC | O_NOCTTY,
				    0644);
		if (f.fd < 0)
			return errno ? -errno : -EBADF;
		int mode = fcntl(f.fd, F_GETFL) & O_ACCMODE;
		f.readable = mode != O_WRONLY;
		f.writable = mode != O_RDONLY;
		return 0;
	}

	static int fit(const file &f, std::uint64_t length)
	{
		struct stat st;

		if (!length || fstat(f.fd, &st))
			return -EINVAL;
		if (!S_ISREG(st.st_mode) ||
		    static_cast<std::uint64_t>(st.st_size) >= length)
			return 0;
		if (!f.writable)
			return -EINVAL;
		return ftruncate(f.fd, static_cast<off_t>(length)) ? -errno : 0;
	}

	/* Writes the descriptor of the segment. It names the file by the path
	 * of the file descriptor in /proc, which needs no quoting and leads to
	 * the file that was registered. Returns 0 or a negative errno. */
	int publish(transfer_engine_t engine, std::uint64_t length, file &f)
	{
		char server[512];
		FILE *out;

		if (getLocalIpAndPort(engine, server, sizeof(server)))
			return -EIO;
		if (!made && mkdir(folder.c_str(), 0700))
			return -errno;
		made = true;
		std::string name = std::to_string(++next);
		f.descriptor = folder + "/" + name + ".json";
		std::string path = "/proc/self/fd/" + std::to_string(f.fd);
		out = fopen(f.descriptor.c_str(), "we");
		if (!out)
			return -errno;
		fprintf(out,
			"{\"name\":\"nvmeof/%s\","
			"\"server_name\":\"nvmeof/%s\","
			"\"protocol\":\"nvmeof\",\"version\":1,\"devices\":[],"
			"\"buffers\":[{\"file_path\":\"%s\",\"length\":%llu,"
			"\"local_path_map\":{\"%s\":\"%s\"}}]}",
			name.c_str(), name.c_str(), path.c_str(),
			static_cast<unsigned long long>(length), server,
			path.c_str());
		return fclose(out) ? -errno : 0;
	}
};

} // namespace moonrail_nixl

#endif
