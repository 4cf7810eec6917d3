#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# Runs te_stress for a short time on rails that break, with a separate control
# link and without one.
for on in links bare; do
	"${BUILD:?}/fabtests/te_stress" "$on" 30 || exit
done
