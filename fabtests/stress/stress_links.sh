#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# timeout: 200
#
# te_stress on rails that break, for a short while.
exec "${BUILD:?}/fabtests/te_stress" links 20
