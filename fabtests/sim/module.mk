# SPDX-License-Identifier: BSD-2-Clause
#
# The simulator: its core, which sim_test and simulate contain, and the simulated
# fabric, a shared object that takes the core's functions from the program.
SIM_SRCS = \
	fabtests/sim/sim_event.c \
	fabtests/sim/sim_fiber.c \
	fabtests/sim/sim_host.c \
	fabtests/sim/sim_trace.c \
	# EOL

SIM_FI_SRCS = \
	# EOL

TEST_SRCS_sim = $(SIM_SRCS) \
	fabtests/sim/sim_core_test.c \
	fabtests/sim/sim_test_main.c \
	# EOL

UNIT_TESTS += sim
LIBS_sim_test = -rdynamic
