# SPDX-License-Identifier: BSD-2-Clause
# prov/nvmeof: files segments
SRCS += \
	prov/nvmeof/nvmeof_blocking.c \
	prov/nvmeof/nvmeof_bounce.c \
	prov/nvmeof/nvmeof_ctx.c \
	prov/nvmeof/nvmeof_cufile.c \
	prov/nvmeof/nvmeof_file.c \
	prov/nvmeof/nvmeof_mem.c \
	prov/nvmeof/nvmeof_op.c \
	prov/nvmeof/nvmeof_pool.c \
	prov/nvmeof/nvmeof_uring.c \
	# EOL

TEST_SRCS_nvmeof = \
	prov/nvmeof/nvmeof_fault_test.c \
	prov/nvmeof/nvmeof_op_test.c \
	prov/nvmeof/nvmeof_test_main.c \
	# EOL

UNIT_TESTS += nvmeof
