/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef MOONRAIL_CXX_TEST_HPP
#define MOONRAIL_CXX_TEST_HPP

/* Code that the tests of the C++ headers share: checks, the second process, and
 * the loop over the test cases. */
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <thread>
#include <sys/wait.h>
#include <unistd.h>

inline int failures;

#define CHECK(condition)                                                    \
	do {                                                                \
		if (!(condition)) {                                         \
			std::printf("# %s:%d: %s\n", __FILE__, __LINE__,    \
				    #condition);                            \
			failures++;                                         \
		}                                                           \
	} while (0)

/* A second process, which is the target. The destructor closes the standard
 * input of the process, which makes it end. */
struct child {
	FILE *in = nullptr;
	pid_t pid = -1;
	std::string name;

	explicit child(const char *program)
	{
		int to[2], from[2];
		char line[256] = "";

		if (pipe(to) || pipe(from))
			std::abort();
		pid = fork();
		if (!pid) {
			dup2(to[0], 0);
			dup2(from[1], 1);
			close(to[1]);
			close(from[0]);
			execl(program, program, "target", nullptr);
			_exit(127);
		}
		close(to[0]);
		close(from[1]);
		in = fdopen(to[1], "w");
		FILE *out = fdopen(from[0], "r");
		if (std::fgets(line, sizeof(line), out))
			name = line;
		std::fclose(out);
		if (!name.empty())
			name.pop_back();
	}

	/* Ends the process by closing its standard input, without a signal. */
	void end()
	{
		if (!in)
			return;
		std::fclose(in);
		in = nullptr;
		waitpid(pid, nullptr, 0);
	}

	~child() { end(); }
};

/* Calls condition() until it returns true, for at most a minute. Returns its
 * last result. */
template <class F> bool wait_until(F condition)
{
	auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);

	while (!condition()) {
		if (std::chrono::steady_clock::now() > end)
			return false;
		std::this_thread::sleep_for(std::chrono::milliseconds(1));
	}
	return true;
}

/* A test case. The argument of run() is the name of the target's segment. */
struct test_case {
	const char *name;
	void (*run)(const std::string &);
};

#define CASE(name) { #name, name }

/* Runs the cases and prints the result of each. Returns the exit status. */
inline int run_cases(const test_case *cases, std::size_t n,
		     const std::string &peer)
{
	bool bad = false;

	for (std::size_t i = 0; i < n; i++) {
		failures = 0;
		try {
			cases[i].run(peer);
		} catch (const std::exception &x) {
			std::printf("# exception: %s\n", x.what());
			failures++;
		}
		std::printf("%s - %s\n", failures ? "not ok" : "ok",
			    cases[i].name);
		bad |= failures > 0;
	}
	return bad;
}

#endif
