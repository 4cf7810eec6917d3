# SPDX-License-Identifier: BSD-2-Clause
# Reads the lines of rails_watch.sh. Prints the time in seconds and the Mbit/s of
# each rail in steps of 100 ms; `side` is rx or tx.

NR == 1 { rails = (NF - 1) / 2; first = side == "tx" ? 3 : 2; next }
NR == 2 || $1 - at >= 100 {
	if (NR > 2) {
		printf "%.3f", ($1 + at) / 2000
		for (i = 0; i < rails; i++)
			printf ",%.1f", ($(first + 2 * i) - was[i]) * 0.008 / ($1 - at)
		print ""
	}
	at = $1
	for (i = 0; i < rails; i++)
		was[i] = $(first + 2 * i)
}
