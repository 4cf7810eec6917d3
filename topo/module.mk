# topo: NICs, NUMA nodes, GPUs, their distances and the priority matrix
SRCS += \
	topo/topo_discover.c \
	topo/topo_hwloc.c \
	topo/topo_json.c \
	topo/topo_locate.c \
	topo/topo_sysfs.c \
	topo/topo_table.c \
	topo/topo_text.c \
	# EOL
