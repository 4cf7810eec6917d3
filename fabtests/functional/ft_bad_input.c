/* SPDX-License-Identifier: BSD-2-Clause */

/* Passes invalid arguments to each function. Checks that the function returns
 * the right code and that the engine still works. */

#include "fabtests/functional/ft_bad_input.h"
#include "fabtests/functional/fx.h"

int main(int argc, char **argv)
{
	fx_init(argc, argv);
	bad_setup();
	bad_handles();
	bad_memory();
	bad_ranges();
	bad_read_only();
	bad_table();
	return ft_result();
}
