# meta: descriptors, names, the control channel, stores, the segment cache
SRCS += \
	meta/meta_desc.c \
	meta/meta_desc_json.c \
	meta/meta_json.c \
	meta/meta_name.c \
	meta/meta_resolve.c \
	# EOL
