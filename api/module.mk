SRCS += \
	api/engine.c \
	api/engine_batch.c \
	api/engine_handle.c \
	api/engine_memory.c \
	api/engine_notify.c \
	api/engine_segment.c \
	api/engine_shutdown.c \
	api/engine_stats.c \
	api/engine_transport.c \
	api/engine_work.c \
	# EOL
