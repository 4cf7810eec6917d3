# topo: NICs, NUMA nodes, GPUs, their distances and the priority matrix
SRCS += \
	topo/topo_discover.c \
	topo/topo_hwloc.c \
	topo/topo_json.c \
	topo/topo_locate.c \
	topo/topo_map.c \
	topo/topo_maps.c \
	topo/topo_sysfs.c \
	topo/topo_table.c \
	topo/topo_text.c \
	# EOL
TEST_SRCS_topo = \
	topo/topo_discover_test.c \
	topo/topo_json_test.c \
	topo/topo_locate_test.c \
	topo/topo_map_test.c \
	topo/topo_maps_test.c \
	topo/topo_table_test.c \
	topo/topo_test_main.c \
	topo/topo_text_test.c \
	# EOL
UNIT_TESTS += topo

ifeq ($(WITH_HWLOC),no)
SRCS := $(SRCS:topo/topo_hwloc.c=topo/topo_without_hwloc.c)
endif
