# SPDX-License-Identifier: BSD-2-Clause
SCRIPT_TESTS += \
	scripts/abi_test.sh \
	scripts/configure_test.sh \
	scripts/install_test.sh \
	scripts/runner_test.sh \
	# EOL
