# SPDX-License-Identifier: BSD-2-Clause
SRCS += \
	prov/local/local_atomic.c \
	prov/local/local_copy.c \
	prov/local/local_ctx.c \
	prov/local/local_gpu.c \
	prov/local/local_host.c \
	prov/local/local_id.c \
	prov/local/local_memfd.c \
	prov/local/local_memory.c \
	prov/local/local_move.c \
	prov/local/local_peer.c \
	prov/local/local_pool.c \
	prov/local/local_region.c \
	prov/local/local_run.c \
	prov/local/local_shared_table.c \
	prov/local/local_table.c \
	prov/local/local_view.c \
	prov/local/local_watch.c \
	# EOL

TEST_SRCS_local = \
	prov/local/local_agent_test.c \
	prov/local/local_bench.c \
	prov/local/local_gpu_test.c \
	prov/local/local_id_test.c \
	prov/local/local_peer_test.c \
	prov/local/local_pool_test.c \
	prov/local/local_region_test.c \
	prov/local/local_run_test.c \
	prov/local/local_test_main.c \
	prov/local/local_test_util.c \
	prov/local/local_view_test.c \
	# EOL

UNIT_TESTS += local
