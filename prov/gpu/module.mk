# SPDX-License-Identifier: BSD-2-Clause
# prov/gpu: copies to, from and between memory of GPUs
SRCS += \
	prov/gpu/gpu_copy.c \
	prov/gpu/gpu_ctx.c \
	prov/gpu/gpu_mem.c \
	prov/gpu/gpu_peer.c \
	# EOL

TEST_SRCS_gpu = \
	fabtests/common/cuda_stand_in_load.c \
	prov/gpu/gpu_copy_test.c \
	prov/gpu/gpu_cuda_test.c \
	prov/gpu/gpu_mem_test.c \
	prov/gpu/gpu_peer_test.c \
	prov/gpu/gpu_test_main.c \
	# EOL

UNIT_TESTS += gpu
