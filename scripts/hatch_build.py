"""Compiles `tianzhou._hot._compiled` while the package is built, where that is possible; hatchling runs it.

By hand, into the source tree, in an environment with Cython and setuptools: `python scripts/hatch_build.py`.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # run by hand
    BuildHookInterface = object

ROOT = Path(__file__).resolve().parents[1]
HOT = ROOT / "src" / "tianzhou" / "_hot"


def digest() -> str:
    """The mark of the sources, as the package itself computes it."""
    spec = importlib.util.spec_from_file_location("tianzhou_hot_sources", HOT / "sources.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return str(module.digest(HOT))


def compile_hot(target: Path) -> Path:
    """Compile the extension into a folder; returns the file.

    Raises:
        Exception: whatever is in the way: no compiler, no headers of Python, no Cython.
    """
    from Cython.Build import cythonize
    from setuptools import Distribution, Extension

    with tempfile.TemporaryDirectory() as scratch:
        extension = Extension(
            "tianzhou._hot._compiled",
            [str(HOT / "_compiled.pyx")],
            include_dirs=[str(HOT)],
            define_macros=[("TIANZHOU_SOURCE", f'"{digest()}"')],
            extra_compile_args=["-O2", "-g0"] if os.name == "posix" else [],
        )
        modules = cythonize([extension], build_dir=scratch, quiet=True, include_path=[str(HOT)])
        command = Distribution({"ext_modules": modules}).get_command_obj("build_ext")
        command.build_lib, command.build_temp = scratch, scratch
        command.ensure_finalized()
        command.run()
        built = Path(command.get_ext_fullpath("tianzhou._hot._compiled"))
        # Never half a file, and never into one that a running server has mapped.
        with tempfile.NamedTemporaryFile(dir=target, prefix=built.name, delete=False) as fresh:
            fresh.write(built.read_bytes())
        Path(fresh.name).chmod(0o755)
        Path(fresh.name).replace(target / built.name)
        return target / built.name


class CompileHot(BuildHookInterface):
    """Adds the extension to wheels, and to the source tree of an editable installation."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, or say why not: without the extension the package works as well, only slower."""
        for stale in HOT.glob("_compiled" + sysconfig.get_config_var("EXT_SUFFIX")):
            if version != "editable":
                break
            stale.unlink(missing_ok=True)
        if os.environ.get("TIANZHOU_PURE", "0") not in {"", "0"}:
            self.app.display_info("tianzhou: TIANZHOU_PURE is set, the hot functions stay pure Python")
            return
        try:
            built = compile_hot(HOT if version == "editable" else Path(tempfile.mkdtemp()))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever it is, the pure twin serves
            self.app.display_warning(
                f"tianzhou: the hot functions stay pure Python, they could not be compiled ({error}); "
                "a C compiler and the headers of Python (on Debian: gcc, python3-dev) make servers faster"
            )
            return
        if version != "editable":
            build_data["pure_python"] = False
            build_data["infer_tag"] = True
            build_data["force_include"][str(built)] = f"tianzhou/_hot/{built.name}"


if __name__ == "__main__":
    print(compile_hot(HOT), file=sys.stderr)
