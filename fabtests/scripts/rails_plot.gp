# SPDX-License-Identifier: BSD-2-Clause
# Plots file.svg: Mbit/s of each of the n rails over time, from file.csv.
set terminal svg size 900,400 font 'sans,12' background 'white'
set output file.'.svg'
set datafile separator ','
set xlabel 'seconds'
set ylabel 'Mbit/s'
set yrange [0:*]
set grid
set key outside right
set title title noenhanced
plot for [i=1:n] file.'.csv' using 1:(column(i + 1)) with lines \
	title sprintf('rail %d', i - 1)
