/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_UTIL_SETTINGS_INT_H
#define TEI_UTIL_SETTINGS_INT_H

/* Between the settings table and the names that are not in it. */

#include <stddef.h>

#include "util/settings.h"

/*
 * Returns the row of a variable, also for its second spelling, or NULL. The
 * name has len bytes and need not be terminated.
 */
const struct tei_setting_row *settings_find(const char *name, size_t len);

/*
 * Returns the name of the n-th ignored variable of Mooncake, NULL after the
 * last. A name that ends in '*' stands for all names with that beginning.
 */
const char *settings_ignored(size_t n);

/* Returns why a variable of Mooncake has no effect; NULL if it is not known. */
const char *settings_why_ignored(const char *name, size_t len);

/* Returns the name of the setting that differs in the fewest characters; of a
 * long name only the beginning is compared. */
const char *settings_closest(const char *name, size_t len);

#endif /* TEI_UTIL_SETTINGS_INT_H */
