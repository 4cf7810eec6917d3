# SPDX-License-Identifier: BSD-2-Clause
#
# The simulator: its core and the simulated fabric, which sim_test and simulate
# contain, and libsim-fi.so, through which libfabric finds the fabric in the program.
SIM_SRCS = \
	fabtests/sim/fabric/fab_av.c \
	fabtests/sim/fabric/fab_conn.c \
	fabtests/sim/fabric/fab_cq.c \
	fabtests/sim/fabric/fab_ep.c \
	fabtests/sim/fabric/fab_eq.c \
	fabtests/sim/fabric/fab_fault.c \
	fabtests/sim/fabric/fab_fd.c \
	fabtests/sim/fabric/fab_handle.c \
	fabtests/sim/fabric/fab_info.c \
	fabtests/sim/fabric/fab_mr.c \
	fabtests/sim/fabric/fab_net.c \
	fabtests/sim/fabric/fab_post.c \
	fabtests/sim/fabric/fab_wire.c \
	fabtests/sim/fabric/fab_world.c \
	fabtests/sim/sim_event.c \
	fabtests/sim/sim_fiber.c \
	fabtests/sim/sim_host.c \
	fabtests/sim/sim_trace.c \
	fabtests/sim/sim_world.c \
	# EOL

SIM_FI_SRCS = \
	fabtests/sim/fabric/fab_plugin.c \
	# EOL

SIMULATE_SRCS = $(SIM_SRCS) $(PROV_SRCS) \
	fabtests/sim/sim_check.c \
	fabtests/sim/sim_cluster.c \
	fabtests/sim/sim_engine.c \
	fabtests/sim/sim_engine_batch.c \
	fabtests/sim/sim_engine_message.c \
	fabtests/sim/sim_fence.c \
	fabtests/sim/sim_fence_hooks.c \
	fabtests/sim/sim_fi.c \
	fabtests/sim/sim_fi_rma.c \
	fabtests/sim/sim_load.c \
	fabtests/sim/sim_plan.c \
	fabtests/sim/sim_stream.c \
	fabtests/sim/simulate.c \
	fabtests/sim/simulate_shrink.c \
	fabtests/sim/simulate_timeline.c \
	meta/meta_inside.c \
	# EOL

# The functions of prov/rail whose calls sim_fence_hooks.c records.
SIMULATE_WRAPPED = \
	rail_fence_answered \
	rail_fence_event \
	rail_fence_no_answers \
	rail_fence_on_reply \
	rail_fence_requested \
	rail_health_collect \
	rail_lane_open \
	rail_lane_shutdown \
	rail_msg_send \
	rail_slice_cut \
	rail_slice_drop \
	rail_slice_handle_error \
	rail_slice_put \
	tei_rail_dp_close \
	# EOL
SIMULATE_LDFLAGS = -rdynamic $(SIMULATE_WRAPPED:%=-Wl,--wrap=%)

SCALE_SRCS = $(SIM_SRCS) \
	fabtests/sim/scale.c \
	fabtests/sim/scale_memory.c \
	# EOL

TEST_SRCS_sim = $(SIM_SRCS) \
	fabtests/sim/sim_core_test.c \
	fabtests/sim/sim_engine_test.c \
	fabtests/sim/sim_fabric_test.c \
	fabtests/sim/sim_fence.c \
	fabtests/sim/sim_fence_test.c \
	fabtests/sim/sim_health_test.c \
	fabtests/sim/sim_overtake_test.c \
	fabtests/sim/sim_plane_test.c \
	fabtests/sim/sim_planes.c \
	fabtests/sim/sim_test_main.c \
	meta/meta_inside.c \
	# EOL

UNIT_TESTS += sim
LIBS_sim_test = -rdynamic
