#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# te_stress on rails that break, for a short while: beside a control pair, and
# without one.
for on in links bare; do
	"${BUILD:?}/fabtests/te_stress" "$on" 30 || exit
done
