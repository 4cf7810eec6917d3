/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_FUNCTIONAL_FT_BAD_INPUT_H
#define TEI_FABTESTS_FUNCTIONAL_FT_BAD_INPUT_H

void bad_handles(void);		/* in ft_bad_handles.c: engine handles, other
				 * arguments */
void bad_ranges(void);		/* in ft_bad_ranges.c: requests */
void bad_memory(void);		/* in ft_bad_ranges.c: registrations */
void bad_read_only(void);	/* in ft_bad_read_only.c: memory that is only
				 * readable */
void bad_setup(void);		/* in ft_bad_setup.c: settings, JSON, leaks */
void bad_table(void);		/* in ft_bad_table.c: every exported function */

#endif /* TEI_FABTESTS_FUNCTIONAL_FT_BAD_INPUT_H */
