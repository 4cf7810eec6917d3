# SPDX-License-Identifier: BSD-2-Clause
"""Tests the packages as they are installed: the tools, and another Mooncake."""
import os
import subprocess
import sys

import pytest

import mooncake


def python(*args, **environment):
    return subprocess.run([sys.executable, *args], capture_output=True, text=True,
                          timeout=60, check=False,
                          env=dict(os.environ, **environment))


@pytest.mark.parametrize("module, word", [("bench", "te_bench"), ("info", "te_info")])
def test_module_runs_the_tool(module, word):
    out = python("-m", "moonrail." + module, "--help")
    assert out.returncode == 0, out.stderr
    assert word in out.stdout


def test_tool_uses_the_library_of_the_package():
    out = python("-m", "moonrail.info", "--version")
    ours = python("-c", "import moonrail; print(moonrail.__version__)")
    assert out.returncode == 0, out.stderr
    assert ours.stdout.strip() in out.stdout


def test_missing_tool_is_named(tmp_path):
    out = python("-c", "from moonrail import _tools; _tools.HERE = '/none'; "
                 "_tools.run('te_bench')", PATH=str(tmp_path))
    assert out.returncode == 1
    assert "te_bench: not part of this package" in out.stderr


def test_mooncake_is_a_namespace_package():
    assert mooncake.__file__ is None


@pytest.mark.parametrize("other", ["engine.cpython-311-x86_64-linux-gnu.so",
                                   "engine.py"])
def test_engine_refuses_to_hide_another_mooncake(tmp_path, other):
    (tmp_path / "mooncake").mkdir()
    (tmp_path / "mooncake" / other).write_text("")
    (tmp_path / "mooncake" / "store.py").write_text("here = True")
    path = os.pathsep.join([os.environ["PYTHONPATH"], str(tmp_path)])
    out = python("-c", "import mooncake.store", PYTHONPATH=path)
    assert out.returncode == 0, out.stderr
    out = python("-c", "import mooncake.engine", PYTHONPATH=path)
    assert out.returncode == 1
    assert str(tmp_path / "mooncake" / other) in out.stderr
    assert "MOONRAIL_REPLACE_MOONCAKE=1" in out.stderr
    out = python("-c", "from mooncake.engine import Write", PYTHONPATH=path,
                 MOONRAIL_REPLACE_MOONCAKE="1")
    assert out.returncode == 0, out.stderr
