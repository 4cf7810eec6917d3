/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_UTIL_SETTINGS_INT_H
#define TEI_UTIL_SETTINGS_INT_H

/* Functions that the table of settings (settings.c) and the names that are not
 * in it (settings_names.c) need of each other. */

#include <stddef.h>

#include "util/settings.h"

/*
 * Returns the row of the variable with that name or second spelling, or NULL if
 * there is none. name has len bytes and need not be terminated.
 */
const struct tei_setting_row *settings_find(const char *name, size_t len);

/*
 * Returns the name of the n-th ignored variable of Mooncake, or NULL after the
 * last. A name that ends in '*' stands for all names with that beginning.
 */
const char *settings_ignored(size_t n);

/*
 * Returns why a variable of Mooncake has no effect, or NULL if the name is not
 * in the list of ignored variables.
 */
const char *settings_why_ignored(const char *name, size_t len);

/* Returns the name of the setting that differs from name in the fewest
 * characters. Of a long name, only the beginning is compared. */
const char *settings_closest(const char *name, size_t len);

#endif /* TEI_UTIL_SETTINGS_INT_H */
