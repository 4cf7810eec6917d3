# SPDX-License-Identifier: BSD-2-Clause
# Plots scaling.svg: throughput by the number of threads, rails and processes. The
# bars reach from the lowest to the highest run. `out` is the folder.
set terminal svg size 1000,400 font 'sans,12' background 'white'
set output out.'/scaling.svg'
set multiplot layout 1,3
set logscale x 2
set xrange [0.8:10]
set xtics (1, 2, 4, 8)
set yrange [0:*]
set ylabel 'MB/s'
set key bottom right
set grid
set style data yerrorlines
do for [part in 'threads rails processes'] {
	set title part eq 'threads' ? '4 KiB x 32, one rail' : \
		  part eq 'rails' ? '1 MiB x 32, one thread' : \
		  '1 MiB x 16, pairs of processes'
	set xlabel part
	files = system(sprintf("find '%s' -name '%s-*.dat' -size +0 | sort", \
		out, part))
	if (words(files) > 0) {
		plot for [f in files] f using 1:2:3:4 \
			title system(sprintf("basename %s .dat | cut -d- -f2- | tr - ' '", f))
	} else {
		set multiplot next
	}
}
unset multiplot
