# SPDX-License-Identifier: BSD-2-Clause
"""Builds the Python packages moonrail and mooncake.

The environment variable MOONRAIL_LIBRARY chooses the C library:

  bundled   (default) it is built from the sources above this folder, and the
            wheel contains it
  system    the installed library that pkg-config finds
  FOLDER    the library in this folder, for example build/lib of a source tree
            in which make has run; the wheel contains a copy

With a copy of the library, the wheel also contains te_bench and te_info.
"""
import os
import shutil
import subprocess
import sys

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
LIBRARY = os.environ.get("MOONRAIL_LIBRARY", "bundled")
MAIN = "moonrail._moonrail"    # the extension that needs the C library
TOOLS = ("te_bench", "te_info")
# The stable ABI has the buffer protocol since Python 3.11. MOONRAIL_ABI3=0 builds for
# this version of Python only, as older versions do.
STABLE = sys.version_info >= (3, 11) and os.environ.get("MOONRAIL_ABI3") != "0"


def version():
    with open(os.path.join(TOP, "VERSION"), encoding="ascii") as file:
        return file.read().strip()


def soname():
    return "libmoonrail.so." + version().split(".")[0]


def replace(source, target):
    """Copies a file. Processes that use the old file keep it."""
    shutil.copy(source, target + ".new")
    os.replace(target + ".new", target)


def pkg_config(option):
    try:
        words = subprocess.check_output(
            ["pkg-config", option, "moonrail"], text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise SystemExit(
            "MOONRAIL_LIBRARY=system: pkg-config does not find moonrail; install it, "
            "set PKG_CONFIG_PATH, or leave MOONRAIL_LIBRARY unset") from error
    return words.split()


class Build(build_ext):
    """Builds the C library first, if it is to be part of the wheel."""

    def library(self):
        """Returns the folder that holds the C library."""
        if LIBRARY != "bundled":
            return os.path.abspath(LIBRARY)
        folder = os.path.join(os.path.abspath(self.build_temp), "moonrail")
        os.makedirs(folder, exist_ok=True)
        subprocess.check_call(
            [os.path.join(TOP, "configure"), "--disable-tests", "--disable-prov"],
            cwd=folder)
        subprocess.check_call(
            ["make", "-j%d" % (os.cpu_count() or 1), "lib", "tools"], cwd=folder)
        return os.path.join(folder, "build", "lib")

    def build_extension(self, ext):
        if ext.name == MAIN and LIBRARY != "system":
            folder = self.library()
            source = os.path.join(folder, soname())
            if not os.path.exists(source):
                raise SystemExit("MOONRAIL_LIBRARY=%s: there is no %s; run make"
                                 % (LIBRARY, source))
            ext.library_dirs.append(folder)
            ext.runtime_library_dirs.append("$ORIGIN")
            target = os.path.dirname(self.get_ext_fullpath(ext.name))
            os.makedirs(target, exist_ok=True)
            replace(source, os.path.join(target, soname()))
            os.makedirs(os.path.join(target, "bin"), exist_ok=True)
            for tool in TOOLS:
                source = os.path.join(folder, os.pardir, "bin", tool)
                if os.path.exists(source):
                    replace(source, os.path.join(target, "bin", tool))
        super().build_extension(ext)


def sources(prefix, suffix):
    """Returns paths relative to this folder, as setuptools wants them."""
    return sorted(os.path.join("src", name)
                  for name in os.listdir(os.path.join(HERE, "src"))
                  if name.startswith(prefix) and name.endswith(suffix))


def extensions():
    options = {"define_macros": [("_GNU_SOURCE", None)]}
    if STABLE:
        options["define_macros"].append(("Py_LIMITED_API", "0x030B0000"))
        options["py_limited_api"] = True
    library = {}
    if LIBRARY == "system":
        library["extra_compile_args"] = pkg_config("--cflags")
        library["extra_link_args"] = pkg_config("--libs")
    else:
        library["include_dirs"] = [os.path.join(TOP, "api")]
        library["libraries"] = ["moonrail"]
    return [
        Extension("moonrail._signals", sources("signals", ".c"), **options),
        Extension(MAIN, sources("py_", ".c"), depends=sources("py_", ".h"),
                  **options, **library),
    ]


os.chdir(HERE)
setup(
    name="moonrail",
    version=version(),
    description="Moves memory between machines over libfabric",
    license="BSD-2-Clause",
    python_requires=">=3.9",
    packages=["moonrail", "mooncake"],
    package_data={"moonrail": ["py.typed", "*.pyi"], "mooncake": ["*.pyi"]},
    ext_modules=extensions(),
    cmdclass={"build_ext": Build},
    options={"bdist_wheel": {"py_limited_api": "cp311"} if STABLE else {}},
    zip_safe=False,
)
