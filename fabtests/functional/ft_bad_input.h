/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_FUNCTIONAL_FT_BAD_INPUT_H
#define TEI_FABTESTS_FUNCTIONAL_FT_BAD_INPUT_H

void bad_handles(void);		/* ft_bad_handles.c */
void bad_ranges(void);		/* ft_bad_ranges.c */
void bad_memory(void);		/* ft_bad_ranges.c */
void bad_read_only(void);	/* ft_bad_read_only.c */
void bad_setup(void);		/* ft_bad_setup.c */
void bad_table(void);		/* ft_bad_table.c */

#endif /* TEI_FABTESTS_FUNCTIONAL_FT_BAD_INPUT_H */
