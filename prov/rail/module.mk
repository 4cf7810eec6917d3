SRCS += \
	prov/rail/rail_atomic.c \
	prov/rail/rail_auth.c \
	prov/rail/rail_cache.c \
	prov/rail/rail_cloexec.c \
	prov/rail/rail_closing.c \
	prov/rail/rail_complete.c \
	prov/rail/rail_conn.c \
	prov/rail/rail_contact.c \
	prov/rail/rail_contact_lane.c \
	prov/rail/rail_ctl.c \
	prov/rail/rail_deadline.c \
	prov/rail/rail_disconnect.c \
	prov/rail/rail_dp.c \
	prov/rail/rail_fence.c \
	prov/rail/rail_fence_ctl.c \
	prov/rail/rail_health.c \
	prov/rail/rail_hello.c \
	prov/rail/rail_hmem.c \
	prov/rail/rail_info.c \
	prov/rail/rail_iov.c \
	prov/rail/rail_key.c \
	prov/rail/rail_key_ctl.c \
	prov/rail/rail_lane.c \
	prov/rail/rail_limits.c \
	prov/rail/rail_link.c \
	prov/rail/rail_loss.c \
	prov/rail/rail_mr.c \
	prov/rail/rail_mr_open.c \
	prov/rail/rail_msg.c \
	prov/rail/rail_notify.c \
	prov/rail/rail_notify_recv.c \
	prov/rail/rail_numa.c \
	prov/rail/rail_open.c \
	prov/rail/rail_peer.c \
	prov/rail/rail_ports.c \
	prov/rail/rail_post.c \
	prov/rail/rail_presume.c \
	prov/rail/rail_probe.c \
	prov/rail/rail_progress.c \
	prov/rail/rail_refresh.c \
	prov/rail/rail_reg.c \
	prov/rail/rail_reopen.c \
	prov/rail/rail_report.c \
	prov/rail/rail_retry.c \
	prov/rail/rail_reverse.c \
	prov/rail/rail_sched.c \
	prov/rail/rail_select.c \
	prov/rail/rail_served.c \
	prov/rail/rail_slice.c \
	prov/rail/rail_stall.c \
	prov/rail/rail_tcp.c \
	prov/rail/rail_user_msg.c \
	prov/rail/rail_window.c \
	# EOL

TEST_SRCS_rail = \
	prov/rail/rail_auth_test.c \
	prov/rail/rail_cache_test.c \
	prov/rail/rail_closing_test.c \
	prov/rail/rail_contact_lane_test.c \
	prov/rail/rail_contact_test.c \
	prov/rail/rail_disconnect_test.c \
	prov/rail/rail_health_test.c \
	prov/rail/rail_hello_test.c \
	prov/rail/rail_key_test.c \
	prov/rail/rail_limits_test.c \
	prov/rail/rail_link_test.c \
	prov/rail/rail_loss_test.c \
	prov/rail/rail_mr_test.c \
	prov/rail/rail_msg_test.c \
	prov/rail/rail_notify_test.c \
	prov/rail/rail_peer_test.c \
	prov/rail/rail_ports_test.c \
	prov/rail/rail_probe_test.c \
	prov/rail/rail_progress_test.c \
	prov/rail/rail_refresh_test.c \
	prov/rail/rail_reopen_test.c \
	prov/rail/rail_reverse_test.c \
	prov/rail/rail_sched_test.c \
	prov/rail/rail_select_test.c \
	prov/rail/rail_served_test.c \
	prov/rail/rail_shim.c \
	prov/rail/rail_slice_test.c \
	prov/rail/rail_test_main.c \
	prov/rail/rail_window_test.c \
	prov/rail/rail_wire_test.c \
	# EOL

UNIT_TESTS += rail

# rail_contact_test.c has single allocations fail; rail_notify_test.c takes messages
LIBS_rail_test = -Wl,--wrap=malloc -Wl,--wrap=calloc -Wl,--wrap=realloc
LIBS_rail_test += -Wl,--wrap=rail_msg_send

TIMEOUT_rail_test = 600
