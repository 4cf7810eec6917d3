# SPDX-License-Identifier: BSD-2-Clause
"""Tests the packages as they are installed: the tools, and another Mooncake."""
import ast
import importlib
import inspect
import os
import subprocess
import sys

import pytest

import mooncake
import moonrail


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


def parameters(function):
    """Returns the names of the parameters in the stub of a function, those with a
    default marked with "=" and those that must be keywords marked with "*"."""
    args = function.args
    plain = args.posonlyargs + args.args
    names = [a.arg + "=" * (i >= len(plain) - len(args.defaults))
             for i, a in enumerate(plain)]
    names += ["*" + a.arg + "=" * (d is not None)
              for a, d in zip(args.kwonlyargs, args.kw_defaults)]
    return names + ["**"] * bool(args.vararg)


def runtime_parameters(function):
    names = []
    for one in inspect.signature(function).parameters.values():
        names.append("**" if one.kind == one.VAR_POSITIONAL else
                     "*" * (one.kind == one.KEYWORD_ONLY) + one.name
                     + "=" * (one.default is not one.empty))
    return sorted(names, key=lambda name: name.startswith("**"))


def check_stub(body, owner, where):
    """Compares functions in a stub with those of a module or class. Returns the names of
    the stub."""
    names = set()
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            names.add(node.name)
            if not any(ast.unparse(d) == "property" for d in node.decorator_list):
                assert parameters(node) == runtime_parameters(
                    getattr(owner, node.name)), "%s.%s" % (where, node.name)
        elif isinstance(node, ast.ClassDef):
            names.add(node.name)
            inner = check_stub(node.body, getattr(owner, node.name), node.name)
            missing = {name for name, value in vars(getattr(owner, node.name)).items()
                       if not name.startswith("_") and callable(value)} - inner
            assert not missing, "%s: not in the stub: %s" % (node.name, missing)
        elif isinstance(node, ast.AnnAssign):
            names.add(node.target.id)
    return names


@pytest.mark.parametrize("name", ["engine", "errors", "events", "memory", "prepared",
                                  "transfer"])
def test_stubs_agree_with_the_modules(name):
    module = importlib.import_module("moonrail." + name)
    with open(module.__file__ + "i", encoding="ascii") as file:
        names = check_stub(ast.parse(file.read()).body, module, name)
    public = {one for one in moonrail.__all__
              if getattr(getattr(moonrail, one), "__module__", None) == module.__name__}
    assert public <= names, public - names


def test_public_names_have_docstrings():
    for name in moonrail.__all__:
        one = getattr(moonrail, name)
        if callable(one):
            assert one.__doc__, name
            for method, value in vars(one).items() if inspect.isclass(one) else ():
                if callable(value) and not method.startswith("_"):
                    assert value.__doc__, "%s.%s" % (name, method)
