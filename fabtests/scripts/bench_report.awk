# SPDX-License-Identifier: BSD-2-Clause
# Reads runs.csv and then rows, prints the table and writes the file `summary`.
# Only rows from number `from` on are printed. If `part` is set, more rows follow.

function sort_values(v, n,	i, j, x)
{
	for (i = 2; i <= n; i++) {
		x = v[i]
		for (j = i - 1; j >= 1 && v[j] > x; j--)
			v[j + 1] = v[j]
		v[j + 1] = x
	}
}

# Sets median, lowest and highest value of a side of a case; returns 0 if there
# is no run.
function collect(key,	v, n, i)
{
	n = count[key]
	for (i = 1; i <= n; i++)
		v[i] = value[key, i]
	sort_values(v, n)
	low = n ? v[1] : 0
	high = n ? v[n] : 0
	if (!n)
		return 0
	return n % 2 ? v[(n + 1) / 2] : (v[n / 2] + v[n / 2 + 1]) / 2
}

function num(x)
{
	if (x == 0)
		return "0"
	if (x >= 1000)
		return sprintf("%.0f", x)
	return sprintf("%.3g", x)
}

function spread(mid)
{
	return sprintf("%s [%s..%s]", num(mid), num(low), num(high))
}

function head(text)
{
	printf "\n%s\n%-26s %-30s %-30s %7s %8s\n", text, "case", "this",
		"against", "ratio", "goal"
}

BEGIN {
	FS = ","
	print "case,side,against,metric,median,min,max,against_median,against_min,against_max,ratio,goal,verdict" >summary
}

FNR == 1 { file++ }
file == 1 && FNR > 1 {
	key = $1 SUBSEP $2 SUBSEP $4
	value[key, ++count[key]] = $5 + 0
}
file == 2 && FNR == 1 { FS = "|"; $0 = $0 }
file == 2 {
	name = $1; side = $2; against = $3; metric = $4; op = $5; goal = $6
	split(name, word, " ")
	group = side " against " against ", " metric
	if (against == "")
		group = metric
	shown = FNR >= from
	if (shown && group != last)
		head(group)
	last = group
	mine = collect(name SUBSEP side SUBSEP metric)
	n = count[name SUBSEP side SUBSEP metric]
	left = spread(mine); min = low; max = high
	other = 0; right = ""; ratio = mine; m = 1
	low = high = 0
	if (against != "") {
		other = collect(name SUBSEP against SUBSEP metric)
		m = count[name SUBSEP against SUBSEP metric]
		right = spread(other)
		ratio = other ? mine / other : 0
	}
	verdict = ""
	if (!n || !m || (against != "" && !other))
		verdict = "not measured"
	else if (goal != "") {
		met = op == ">=" ? ratio >= goal : ratio <= goal
		verdict = met ? "met" : "NOT met"
		if (met) n_met++; else n_not++
	}
	if (shown)
		printf "%-26s %-30s %-30s %7s %8s  %s\n", name, left, right,
			against == "" ? "" : sprintf("%.3f", ratio),
			goal == "" ? "-" : (op == ">=" ? ">= " : "<= ") goal,
			verdict
	printf "%s,%s,%s,%s,%g,%g,%g,%g,%g,%g,%g,%s,%s\n", name, side, against,
		metric, mine, min, max, other, low, high, ratio, goal,
		verdict >summary
}

END {
	if (!part)
		printf "\n%d goals met, %d not met; values are medians [lowest..highest]\n",
			n_met, n_not
}
