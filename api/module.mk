SRCS += \
	api/engine.c \
	api/engine_abi.c \
	api/engine_alloc.c \
	api/engine_batch.c \
	api/engine_blob.c \
	api/engine_cancel.c \
	api/engine_deadline.c \
	api/engine_event.c \
	api/engine_files.c \
	api/engine_flush.c \
	api/engine_gpu.c \
	api/engine_handle.c \
	api/engine_memory.c \
	api/engine_notify.c \
	api/engine_paths.c \
	api/engine_report.c \
	api/engine_segment.c \
	api/engine_shutdown.c \
	api/engine_stage.c \
	api/engine_stage_pool.c \
	api/engine_stats.c \
	api/engine_status.c \
	api/engine_submit.c \
	api/engine_transport.c \
	api/engine_wait.c \
	api/engine_work.c \
	# EOL

EXAMPLES += \
	event_loop \
	initiator \
	notify \
	own_exchange \
	scatter_gather \
	target \
	# EOL
