SRCS += \
	prov/rail/conn/rail_announce.c \
	prov/rail/conn/rail_cache.c \
	prov/rail/conn/rail_conn.c \
	prov/rail/conn/rail_contact_lane.c \
	prov/rail/conn/rail_disconnect.c \
	prov/rail/conn/rail_key.c \
	prov/rail/conn/rail_loss.c \
	prov/rail/conn/rail_msg.c \
	prov/rail/conn/rail_pair.c \
	prov/rail/conn/rail_reopen.c \
	prov/rail/conn/rail_tcp.c \
	prov/rail/core/rail_addr.c \
	prov/rail/core/rail_cloexec.c \
	prov/rail/core/rail_closing.c \
	prov/rail/core/rail_done.c \
	prov/rail/core/rail_failure.c \
	prov/rail/core/rail_hmem.c \
	prov/rail/core/rail_info.c \
	prov/rail/core/rail_lane.c \
	prov/rail/core/rail_limits.c \
	prov/rail/core/rail_list.c \
	prov/rail/core/rail_mr.c \
	prov/rail/core/rail_mr_open.c \
	prov/rail/core/rail_numa.c \
	prov/rail/core/rail_peer_state.c \
	prov/rail/core/rail_ports.c \
	prov/rail/core/rail_reg.c \
	prov/rail/core/rail_wake.c \
	prov/rail/core/rail_window.c \
	prov/rail/health/rail_health.c \
	prov/rail/health/rail_link.c \
	prov/rail/health/rail_probe.c \
	prov/rail/health/rail_renew.c \
	prov/rail/health/rail_send.c \
	prov/rail/health/rail_stall.c \
	prov/rail/peer/rail_atomic_ctl.c \
	prov/rail/peer/rail_contact.c \
	prov/rail/peer/rail_ctl.c \
	prov/rail/peer/rail_deadline.c \
	prov/rail/peer/rail_fence_ctl.c \
	prov/rail/peer/rail_hello.c \
	prov/rail/peer/rail_hello_msg.c \
	prov/rail/peer/rail_hello_recv.c \
	prov/rail/peer/rail_key_ctl.c \
	prov/rail/peer/rail_notify.c \
	prov/rail/peer/rail_notify_recv.c \
	prov/rail/peer/rail_peer.c \
	prov/rail/peer/rail_presume.c \
	prov/rail/peer/rail_reverse.c \
	prov/rail/peer/rail_revoke.c \
	prov/rail/peer/rail_served.c \
	prov/rail/peer/rail_user_msg.c \
	prov/rail/rail_dispatch.c \
	prov/rail/rail_dp.c \
	prov/rail/rail_open.c \
	prov/rail/rail_peer_run.c \
	prov/rail/rail_progress.c \
	prov/rail/rail_refresh.c \
	prov/rail/rail_report.c \
	prov/rail/sched/rail_atomic.c \
	prov/rail/sched/rail_complete.c \
	prov/rail/sched/rail_fence.c \
	prov/rail/sched/rail_iov.c \
	prov/rail/sched/rail_pick.c \
	prov/rail/sched/rail_post.c \
	prov/rail/sched/rail_retry.c \
	prov/rail/sched/rail_sched.c \
	prov/rail/sched/rail_select.c \
	prov/rail/sched/rail_share.c \
	prov/rail/sched/rail_slice.c \
	prov/rail/wire/rail_auth.c \
	prov/rail/wire/rail_resend.c \
	prov/rail/wire/rail_wire.c \
	# EOL

TEST_SRCS_rail = \
	prov/rail/conn/rail_cache_test.c \
	prov/rail/conn/rail_contact_lane_test.c \
	prov/rail/conn/rail_disconnect_test.c \
	prov/rail/conn/rail_key_test.c \
	prov/rail/conn/rail_loss_test.c \
	prov/rail/conn/rail_reopen_test.c \
	prov/rail/core/rail_closing_test.c \
	prov/rail/core/rail_limits_test.c \
	prov/rail/core/rail_mr_test.c \
	prov/rail/core/rail_ports_test.c \
	prov/rail/core/rail_shim.c \
	prov/rail/core/rail_window_test.c \
	prov/rail/health/rail_health_test.c \
	prov/rail/health/rail_link_test.c \
	prov/rail/health/rail_probe_test.c \
	prov/rail/peer/rail_contact_test.c \
	prov/rail/peer/rail_hello_test.c \
	prov/rail/peer/rail_notify_test.c \
	prov/rail/peer/rail_peer_test.c \
	prov/rail/peer/rail_reverse_test.c \
	prov/rail/peer/rail_served_test.c \
	prov/rail/rail_dispatch_test.c \
	prov/rail/rail_progress_test.c \
	prov/rail/rail_refresh_test.c \
	prov/rail/rail_test_main.c \
	prov/rail/sched/rail_sched_test.c \
	prov/rail/sched/rail_select_test.c \
	prov/rail/sched/rail_slice_test.c \
	prov/rail/wire/rail_auth_test.c \
	prov/rail/wire/rail_wire_test.c \
	# EOL

UNIT_TESTS += rail

# rail_contact_test.c has single allocations fail; rail_notify_test.c takes messages
LIBS_rail_test = -Wl,--wrap=malloc -Wl,--wrap=calloc -Wl,--wrap=realloc
LIBS_rail_test += -Wl,--wrap=rail_msg_send

TIMEOUT_rail_test = 600
