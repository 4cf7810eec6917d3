# SPDX-License-Identifier: BSD-2-Clause
"""Describes this host: python3 -m moonrail.info is te_info(1)."""
from ._tools import run

if __name__ == "__main__":
    run("te_info")
