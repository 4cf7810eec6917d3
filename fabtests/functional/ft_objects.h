/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_FUNCTIONAL_FT_OBJECTS_H
#define TEI_FABTESTS_FUNCTIONAL_FT_OBJECTS_H

/* The tests of the objects of moonrail.h, one file for each part. */

void objects_abi(void);		/* ft_objects_abi.c */
void objects_alloc(void);	/* ft_objects_alloc.c */
void objects_blob(void);	/* ft_objects_blob.c */
void objects_paths(void);	/* ft_objects_paths.c */

#endif /* TEI_FABTESTS_FUNCTIONAL_FT_OBJECTS_H */
