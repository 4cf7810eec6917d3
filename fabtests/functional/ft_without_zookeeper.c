/* SPDX-License-Identifier: BSD-2-Clause */
/* Replaces ft_zookeeper if the library was configured without ZooKeeper. */
#include "fabtests/common/ft_test.h"

int main(void)
{
	return ft_skip("built with --disable-zookeeper");
}
