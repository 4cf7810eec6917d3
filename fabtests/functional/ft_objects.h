/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_FUNCTIONAL_FT_OBJECTS_H
#define TEI_FABTESTS_FUNCTIONAL_FT_OBJECTS_H

/* Tests of structs and functions of moonrail.h, in one file for each part. */

void objects_abi(void);		/* in ft_objects_abi.c: sizes of structs,
				 * versions */
void objects_alloc(void);	/* in ft_objects_alloc.c: memory of the
				 * engine */
void objects_blob(void);	/* in ft_objects_blob.c: exported descriptors */
void objects_paths(void);	/* in ft_objects_paths.c: paths and counters */

#endif /* TEI_FABTESTS_FUNCTIONAL_FT_OBJECTS_H */
