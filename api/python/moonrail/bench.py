# SPDX-License-Identifier: BSD-2-Clause
"""Measures transfers: python3 -m moonrail.bench is te_bench(1)."""
from ._tools import run

if __name__ == "__main__":
    run("te_bench")
