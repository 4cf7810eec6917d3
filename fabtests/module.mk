# SPDX-License-Identifier: BSD-2-Clause
FABTESTS_COMMON_SRCS = \
	fabtests/common/ft_hist.c \
	fabtests/common/ft_json.c \
	fabtests/common/ft_num.c \
	fabtests/common/ft_pattern.c \
	fabtests/common/ft_proc.c \
	fabtests/common/ft_progress.c \
	fabtests/common/ft_test.c \
	# EOL

TOOLS += te_bench

SRCS_te_bench = \
	fabtests/benchmarks/te_bench.c \
	fabtests/benchmarks/te_bench_child.c \
	fabtests/benchmarks/te_bench_demo.c \
	fabtests/benchmarks/te_bench_engine.c \
	fabtests/benchmarks/te_bench_initiator.c \
	fabtests/benchmarks/te_bench_options.c \
	fabtests/benchmarks/te_bench_raw.c \
	fabtests/benchmarks/te_bench_raw_loop.c \
	fabtests/benchmarks/te_bench_raw_port.c \
	fabtests/benchmarks/te_bench_report.c \
	fabtests/benchmarks/te_bench_run.c \
	fabtests/benchmarks/te_bench_target.c \
	# EOL

LIBS_te_bench = -lfabric

FUNC_TESTS += \
	# EOL

SCRIPT_TESTS += \
	# EOL
