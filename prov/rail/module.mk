SRCS += \
	prov/rail/rail_cut.c \
	prov/rail/rail_dp.c \
	prov/rail/rail_fence.c \
	prov/rail/rail_info.c \
	prov/rail/rail_key.c \
	prov/rail/rail_lane.c \
	prov/rail/rail_mr.c \
	prov/rail/rail_msg.c \
	prov/rail/rail_path.c \
	prov/rail/rail_peer.c \
	prov/rail/rail_progress.c \
	prov/rail/rail_rail.c \
	prov/rail/rail_sched.c \
	# EOL
