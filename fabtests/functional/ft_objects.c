/* SPDX-License-Identifier: BSD-2-Clause */
#include "fabtests/functional/ft_objects.h"

#include "fabtests/functional/fx.h"

int main(int argc, char **argv)
{
	fx_init(argc, argv);
	objects_abi();
	objects_alloc();
	objects_paths();
	objects_blob();
	return ft_result();
}
