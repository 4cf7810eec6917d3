/* SPDX-License-Identifier: BSD-2-Clause */
/* The program that replaces the tests of ft_zookeeper if the library was
 * configured without ZooKeeper. It only reports that they are skipped. */
#include "fabtests/common/ft_test.h"

int main(void)
{
	return ft_skip("built with --disable-zookeeper");
}
