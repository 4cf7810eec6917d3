/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef FT_LOCAL_H
#define FT_LOCAL_H

#include "fabtests/functional/fx.h"

/* --- ft_local_mapped.c --------------------------------------------------- */

/* Commands of peers (fx_extend). */
int mapped_obey(transfer_engine_t engine, struct fx_buf *mem, const char *verb,
		const char *args, char *text);
/* Tests memory that other processes of this host map. */
void mapped_tests(void);

#endif /* FT_LOCAL_H */
