# SPDX-License-Identifier: BSD-2-Clause
# prov/staging: GPU memory through pinned host memory
SRCS += \
	prov/staging/staging_ctx.c \
	prov/staging/staging_grant.c \
	prov/staging/staging_local.c \
	prov/staging/staging_mem.c \
	prov/staging/staging_pool.c \
	prov/staging/staging_quarantine.c \
	prov/staging/staging_region.c \
	prov/staging/staging_remote.c \
	prov/staging/staging_request.c \
	prov/staging/staging_step.c \
	prov/staging/staging_task.c \
	# EOL

TEST_SRCS_staging = \
	fabtests/common/cuda_stand_in_load.c \
	prov/staging/staging_copy_test.c \
	prov/staging/staging_remote_test.c \
	prov/staging/staging_rig_test.c \
	prov/staging/staging_test_main.c \
	# EOL

UNIT_TESTS += staging
