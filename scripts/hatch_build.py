"""Compiles what is compiled of the package while it is built, where that is possible; hatchling runs it.

These are `tianzhou._hot._compiled` (docs/adr/0004-hot-path.md) and `tianzhou.spark.rows._rows._compiled`
(0008-rows.md). By hand, into the source tree, in an environment with Cython and setuptools:
`python scripts/hatch_build.py`.
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

SOURCE = Path(__file__).resolve().parents[1] / "src"
HOT = SOURCE / "tianzhou" / "_hot"
ROWS = SOURCE / "tianzhou" / "spark" / "rows" / "_rows"
FOLDERS = (HOT, ROWS)
"""Where a `_compiled.pyx` is."""


def is_set(name: str) -> bool:
    """Whether an environment variable is set to something other than an empty text or 0."""
    return os.environ.get(name, "0") not in {"", "0"}


DEBUG = is_set("TIANZHOU_DEBUG")
"""Whether what is compiled checks its invariants (`assert`) while it runs; for tests, as it takes time."""
_CHECKS = [] if DEBUG else [("CYTHON_WITHOUT_ASSERTIONS", None)]


def digest(folder: Path) -> str:
    """The mark of the sources in a folder, as the package itself computes it."""
    spec = importlib.util.spec_from_file_location("tianzhou_hot_sources", HOT / "sources.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return str(module.digest(folder))


def compile_in(folder: Path, target: Path) -> Path:
    """Compile the extension whose sources are in a folder into another; returns the file.

    Raises:
        Exception: whatever is in the way: no compiler, no headers of Python, no Cython.
    """
    from Cython.Build import cythonize
    from setuptools import Distribution, Extension

    name = ".".join([*folder.relative_to(SOURCE).parts, "_compiled"])
    with tempfile.TemporaryDirectory() as scratch:
        extension = Extension(
            name,
            [str(folder / "_compiled.pyx")],
            include_dirs=[str(folder), str(SOURCE / "tianzhou" / "records")],
            define_macros=[("TIANZHOU_SOURCE", f'"{digest(folder)}"'), *_CHECKS],
            extra_compile_args=["-O2", "-g0"] if os.name == "posix" else [],
        )
        modules = cythonize([extension], build_dir=scratch, quiet=True, include_path=[str(folder)])
        command = Distribution({"ext_modules": modules}).get_command_obj("build_ext")
        command.build_lib, command.build_temp = scratch, scratch
        command.ensure_finalized()
        command.run()
        built = Path(command.get_ext_fullpath(name))
        # Never half a file, and never into one that a running server has mapped.
        with tempfile.NamedTemporaryFile(dir=target, prefix=built.name, delete=False) as fresh:
            fresh.write(built.read_bytes())
        Path(fresh.name).chmod(0o755)
        Path(fresh.name).replace(target / built.name)
        return target / built.name


class NotCompiledError(Exception):
    """A build that must have the compiled extensions (`TIANZHOU_REQUIRE_COMPILED`) does not."""


class CompileHot(BuildHookInterface):
    """Adds the extensions to wheels, and to the source tree of an editable installation."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the extensions, or warn why not: without them the package works as well, only slower.

        Raises:
            NotCompiledError: `TIANZHOU_REQUIRE_COMPILED` is set and an extension could not be compiled.
        """
        if version == "editable":
            for folder in FOLDERS:
                for stale in folder.glob("_compiled" + sysconfig.get_config_var("EXT_SUFFIX")):
                    stale.unlink(missing_ok=True)
        if is_set("TIANZHOU_PURE"):
            if is_set("TIANZHOU_REQUIRE_COMPILED"):
                raise NotCompiledError(
                    "tianzhou: TIANZHOU_REQUIRE_COMPILED and TIANZHOU_PURE are both set; unset one of them"
                )
            self.app.display_info("tianzhou: TIANZHOU_PURE is set, the hot functions stay pure Python")
            return
        for folder in FOLDERS:
            self._compile(folder, version, build_data)

    def _compile(self, folder: Path, version: str, build_data: dict[str, Any]) -> None:
        place = folder.relative_to(SOURCE).as_posix()
        try:
            built = compile_in(folder, folder if version == "editable" else Path(tempfile.mkdtemp()))
        except (Exception, SystemExit) as error:
            if is_set("TIANZHOU_REQUIRE_COMPILED"):
                raise NotCompiledError(
                    f"tianzhou: the hot functions could not be compiled ({place}: {error}), and "
                    "TIANZHOU_REQUIRE_COMPILED is set; install a C compiler and the headers of Python (on Debian: gcc, "
                    "libc6-dev, python3-dev)"
                ) from error
            self.app.display_warning(
                f"tianzhou: the hot functions stay pure Python, they could not be compiled ({place}: {error}); "
                "a C compiler and the headers of Python (on Debian: gcc, python3-dev) make servers and Spark faster"
            )
            return
        if version != "editable":
            build_data["pure_python"] = False
            build_data["infer_tag"] = True
            build_data["force_include"][str(built)] = f"{place}/{built.name}"


if __name__ == "__main__":
    for source in FOLDERS:
        print(compile_in(source, source), file=sys.stderr)
