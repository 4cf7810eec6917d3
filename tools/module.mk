# SPDX-License-Identifier: BSD-2-Clause
# The tools te_info and te_meta. They are linked to the library as any program is, and
# contain copies of the parts that read the topology and the metadata.
TOOLS += te_info te_meta

SRCS_te_info = \
	$(filter util/% topo/% meta/%,$(SRCS)) \
	tools/te_info.c \
	tools/te_info_check.c \
	tools/te_info_check_fabric.c \
	tools/te_info_check_host.c \
	tools/te_info_check_meta.c \
	tools/te_info_check_net.c \
	tools/te_info_check_routes.c \
	tools/te_info_child.c \
	tools/te_info_doc.c \
	tools/te_info_engine.c \
	tools/te_info_ethtool.c \
	tools/te_info_fabric.c \
	tools/te_info_file.c \
	tools/te_info_machine.c \
	tools/te_info_net.c \
	tools/te_info_options.c \
	tools/te_info_pair.c \
	tools/te_info_probe.c \
	tools/te_info_probe_child.c \
	tools/te_info_prometheus.c \
	tools/te_info_rails.c \
	tools/te_info_route.c \
	tools/te_info_segment.c \
	tools/te_info_svg.c \
	tools/te_info_svg_draw.c \
	tools/te_info_text.c \
	tools/te_info_text_seg.c \
	tools/te_info_verbs.c \
	tools/te_info_watch.c \
	# EOL

LIBS_te_info = $(LIBS) -libverbs

SRCS_te_meta = \
	$(filter util/% meta/%,$(SRCS)) \
	tools/te_meta.c \
	tools/te_meta_change.c \
	tools/te_meta_check.c \
	tools/te_meta_options.c \
	# EOL

LIBS_te_meta = $(LIBS)

ifeq ($(WITH_SERVE),yes)
SRCS_te_meta += \
	tools/te_meta_extend.c \
	tools/te_meta_probe.c \
	tools/te_meta_request.c \
	tools/te_meta_serve.c \
	tools/te_meta_table.c \
	# EOL

LIBS_te_meta += -lmicrohttpd
endif
