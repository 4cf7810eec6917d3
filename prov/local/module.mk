SRCS += \
	prov/local/local_board.c \
	prov/local/local_copy.c \
	prov/local/local_ctx.c \
	prov/local/local_host.c \
	prov/local/local_id.c \
	prov/local/local_peer.c \
	prov/local/local_pool.c \
	prov/local/local_region.c \
	# EOL
