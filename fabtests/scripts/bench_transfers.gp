# SPDX-License-Identifier: BSD-2-Clause
# Plots transfers.svg: throughput by block size, for 128 requests per batch and
# one thread. The bars reach from the lowest to the highest run. `out` is the
# folder.
set terminal svg size 1000,800 font 'sans,12' background 'white'
set output out.'/transfers.svg'
set multiplot layout 2,2
set logscale xy
set xlabel 'block size, bytes'
set ylabel 'MB/s'
set xtics ('64' 64, '4K' 4096, '64K' 65536, '1M' 1048576, '16M' 16777216)
set xrange [32:33554432]
set key bottom right
set grid
set style data yerrorlines
do for [t in 'tcp shm'] {
	do for [op in 'write read'] {
		set title t.', '.op
		some = system(sprintf("cat '%s'/*-%s-%s.dat | wc -l", out, t, op))
		if (some > 0) {
			plot for [side in 'engine merged raw ucx'] \
				sprintf("< cat '%s/%s-%s-%s.dat'", out, side, t, op) \
				using 1:2:3:4 title side
		} else {
			set multiplot next
		}
	}
}
unset multiplot
