# SPDX-License-Identifier: BSD-2-Clause
# Reads the lines of rails_watch.sh. Prints how long before the last rail the
# first rail ended, in percent of the duration of a request (in us). Less than
# 16 KiB at the end is ignored: acknowledgements and keep-alives.

NR == 1 { rails = (NF - 1) / 2; next }
NF == 2 * rails + 1 {
	n++
	ms[n] = $1
	for (i = 0; i < rails; i++)
		rx[i, n] = $(2 + 2 * i)
}
END {
	first = last = -1
	for (i = 0; i < rails; i++) {
		for (j = n; j > 1 && rx[i, n] - rx[i, j - 1] < 16384; j--)
			;
		if (first < 0 || ms[j] < first)
			first = ms[j]
		if (ms[j] > last)
			last = ms[j]
	}
	printf "%.2f\n", (last - first) * 100000 / us
}
