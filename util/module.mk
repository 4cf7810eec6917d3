# SPDX-License-Identifier: BSD-2-Clause
SRCS += \
	util/atomic.c \
	util/channel.c \
	util/cuda.c \
	util/cuda_ipc.c \
	util/err.c \
	util/heap.c \
	util/hint.c \
	util/log.c \
	util/range.c \
	util/secret.c \
	util/settings.c \
	util/settings_names.c \
	util/sieve.c \
	util/text.c \
	util/thread.c \
	util/world.c \
	util/world_net.c \
	util/world_tcp.c \
	# EOL

TEST_SRCS_util = \
	util/atomic_test.c \
	util/channel_test.c \
	util/err_test.c \
	util/heap_test.c \
	util/list_test.c \
	util/lock_test.c \
	util/log_test.c \
	util/range_test.c \
	util/secret_test.c \
	util/settings_names_test.c \
	util/settings_test.c \
	util/sieve_test.c \
	util/text_test.c \
	util/thread_test.c \
	util/util_test_main.c \
	util/world_test.c \
	# EOL

UNIT_TESTS += util
# range_test.c has allocations fail
LIBS_util_test = -lm -Wl,--wrap=malloc
