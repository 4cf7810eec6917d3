SRCS += \
	api/engine.c \
	api/engine_abi.c \
	api/engine_addr.c \
	api/engine_alloc.c \
	api/engine_batch.c \
	api/engine_blob.c \
	api/engine_blocking.c \
	api/engine_bounce.c \
	api/engine_cancel.c \
	api/engine_deadline.c \
	api/engine_desc.c \
	api/engine_devices.c \
	api/engine_event.c \
	api/engine_flush.c \
	api/engine_gpu.c \
	api/engine_handle.c \
	api/engine_host_copy.c \
	api/engine_ipc.c \
	api/engine_local.c \
	api/engine_log.c \
	api/engine_memory.c \
	api/engine_merged.c \
	api/engine_nested.c \
	api/engine_notify.c \
	api/engine_paths.c \
	api/engine_prepared.c \
	api/engine_probe.c \
	api/engine_publish.c \
	api/engine_refusal.c \
	api/engine_report.c \
	api/engine_request.c \
	api/engine_segment.c \
	api/engine_shutdown.c \
	api/engine_stats.c \
	api/engine_status.c \
	api/engine_submit.c \
	api/engine_submit_ranges.c \
	api/engine_target.c \
	api/engine_task.c \
	api/engine_topology.c \
	api/engine_traffic.c \
	api/engine_transport.c \
	api/engine_transports.c \
	api/engine_wait.c \
	api/engine_work.c \
	api/transport_bounce.c \
	api/transport_file.c \
	api/transport_gpu.c \
	api/transport_ipc.c \
	api/transport_local.c \
	api/transport_rail.c \
	api/transport_staging.c \
	# EOL

EXAMPLES += \
	event_loop \
	initiator \
	notify \
	own_exchange \
	scatter_gather \
	target \
	# EOL

TEST_SRCS_api = \
	api/api_test_main.c \
	api/engine_alloc_test.c \
	api/engine_create_test.c \
	api/engine_files_test.c \
	api/engine_flush_test.c \
	api/engine_ipc_test.c \
	api/engine_local_test.c \
	api/engine_memory_test.c \
	api/engine_pages_test.c \
	api/engine_provider_test.c \
	api/engine_segment_test.c \
	api/engine_settings_test.c \
	api/engine_shutdown_test.c \
	api/engine_status_test.c \
	api/engine_transport_test.c \
	api/transport_store.c \
	fabtests/common/cuda_stand_in_load.c \
	# EOL

UNIT_TESTS += api

# engine_alloc_test.c makes single allocations fail
LIBS_api_test = -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=strdup,--wrap=madvise,--wrap=tei_rail_wants,--wrap=tei_local_copy_op
