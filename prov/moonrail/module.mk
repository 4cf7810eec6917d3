# SPDX-License-Identifier: BSD-2-Clause
#
# The libfabric provider: its own objects and those of the data plane.
PROV_SRCS = \
	prov/moonrail/moonrail_amo.c \
	prov/moonrail/moonrail_atomic.c \
	prov/moonrail/moonrail_attr.c \
	prov/moonrail/moonrail_av.c \
	prov/moonrail/moonrail_av_names.c \
	prov/moonrail/moonrail_bounce.c \
	prov/moonrail/moonrail_bounce_move.c \
	prov/moonrail/moonrail_bounce_thread.c \
	prov/moonrail/moonrail_cntr.c \
	prov/moonrail/moonrail_cq.c \
	prov/moonrail/moonrail_devices.c \
	prov/moonrail/moonrail_dispatch.c \
	prov/moonrail/moonrail_domain.c \
	prov/moonrail/moonrail_ep.c \
	prov/moonrail/moonrail_eq.c \
	prov/moonrail/moonrail_fabric.c \
	prov/moonrail/moonrail_failure.c \
	prov/moonrail/moonrail_fin.c \
	prov/moonrail/moonrail_flow.c \
	prov/moonrail/moonrail_inbox.c \
	prov/moonrail/moonrail_init.c \
	prov/moonrail/moonrail_key.c \
	prov/moonrail/moonrail_move.c \
	prov/moonrail/moonrail_mr.c \
	prov/moonrail/moonrail_msg.c \
	prov/moonrail/moonrail_name.c \
	prov/moonrail/moonrail_op.c \
	prov/moonrail/moonrail_order.c \
	prov/moonrail/moonrail_out.c \
	prov/moonrail/moonrail_peer.c \
	prov/moonrail/moonrail_pin.c \
	prov/moonrail/moonrail_policy.c \
	prov/moonrail/moonrail_poll.c \
	prov/moonrail/moonrail_read_back.c \
	prov/moonrail/moonrail_recv.c \
	prov/moonrail/moonrail_resolver.c \
	prov/moonrail/moonrail_rma.c \
	prov/moonrail/moonrail_stream.c \
	prov/moonrail/moonrail_timer.c \
	prov/moonrail/moonrail_unsupported.c \
	prov/moonrail/moonrail_wait.c \
	# EOL

TEST_SRCS_moonrail = \
	$(PROV_SRCS) \
	prov/moonrail/moonrail_atomic_test.c \
	prov/moonrail/moonrail_cq_test.c \
	prov/moonrail/moonrail_fabric_test.c \
	prov/moonrail/moonrail_init_test.c \
	prov/moonrail/moonrail_name_test.c \
	prov/moonrail/moonrail_peer_test.c \
	prov/moonrail/moonrail_test_main.c \
	# EOL

UNIT_TESTS += moonrail

# moonrail_init_test.c replaces the search for RDMA devices
LIBS_moonrail_test = -Wl,--wrap=tei_rail_transport_present
