"""The results of `scripts/wheels` can be installed anywhere, and contain every part of the package."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from email.parser import Parser
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

import tianzhou

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("src", "scripts", "locks")
FILES = ("pyproject.toml", "README.md", "LICENSE", ".gitignore")
NAME = f"tianzhou-{tianzhou.__version__}"


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """Return the folder of the build results, from a copy of the sources."""
    copy = tmp_path_factory.mktemp("copy")
    for name in FOLDERS:
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in FILES:
        shutil.copy(ROOT / name, copy)
    to = tmp_path_factory.mktemp("built")
    done = subprocess.run(
        [copy / "scripts" / "wheels", "--pure", "--to", to],
        env={**os.environ, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return to


@pytest.fixture(scope="module")
def wheel(built) -> zipfile.ZipFile:
    return zipfile.ZipFile(built / f"{NAME}-py3-none-any.whl")


def test_a_wheel_for_every_machine_and_the_sources_are_built(built):
    assert sorted(path.name for path in built.iterdir()) == [f"{NAME}-py3-none-any.whl", f"{NAME}.tar.gz"]


def test_the_wheel_runs_where_it_is_unpacked(wheel, tmp_path):
    wheel.extractall(tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "tianzhou", "--version"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, tianzhou.__version__ in done.stdout) == (0, True), done.stderr


def test_the_wheel_has_what_belongs_to_the_package(wheel):
    names = set(wheel.namelist())
    source = ROOT / "src"
    wanted = {
        path.relative_to(source).as_posix()
        for path in source.rglob("*")
        if path.suffix in {".py", ".yml", ".properties", ".pyi"} or path.name == "py.typed"
    }
    assert {"pyspark_tianzhou.py", "tianzhou/pipelines/declarative/spark-pipeline.yml", "tianzhou/py.typed"} <= wanted
    assert wanted - names == set()
    assert [name for name in names if name.endswith(".so")] == []


def test_the_wheel_says_where_it_can_be_installed(wheel):
    said = Parser().parsestr(wheel.read(f"{NAME}.dist-info/METADATA").decode())
    assert said["Requires-Python"] == ">=3.11"
    pythons = {text.rpartition(" ")[2] for text in said.get_all("Classifier") if "Python :: 3." in text}
    assert pythons == {"3.11", "3.13"}, "versions that the tests ran on"
    assert {"spark", "lake", "pipelines", "fast"} <= set(said.get_all("Provides-Extra"))


def test_compiled_wheels_are_for_the_same_pythons():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    pythons = [text.rpartition(" ")[2] for text in project["project"]["classifiers"] if "Python :: 3." in text]
    assert project["tool"]["cibuildwheel"]["build"] == [f"cp{text.replace('.', '')}-*" for text in pythons]


def test_the_sources_can_be_built_again(built):
    with tarfile.open(built / f"{NAME}.tar.gz") as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "scripts/hatch_build.py", "src/tianzhou/_hot/_compiled.pyx", "README.md"} <= names


SOURCE = ROOT / "src" / "tianzhou"
WITH_EXTRAS = (
    "spark", "pipelines", "console", "cli/pipelines", "cli/flights", "client/consumer/once/engines.py",
    "metrics/otlp.py", "testing/plugin.py",
)  # fmt: skip
"""Imported only with their extra."""


def imported_at_once(tree: ast.AST) -> Iterator[str]:
    """Yield the names of modules that are imported together with the module, whatever is installed."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
        elif isinstance(node, ast.With | ast.ClassDef | ast.If) and "TYPE_CHECKING" not in ast.unparse(node):
            yield from imported_at_once(node)


def test_modules_outside_of_extras_import_what_comes_with_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    core = {re.split(r"[\[<>=!;~ ]", one)[0].lower() for one in project["dependencies"]}
    distributions = packages_distributions()
    missing = {}
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE).as_posix()
        if name.startswith(WITH_EXTRAS):
            continue
        roots = {module.partition(".")[0] for module in imported_at_once(ast.parse(path.read_text(encoding="utf-8")))}
        strangers = roots - set(sys.stdlib_module_names) - {"tianzhou", "__future__"}
        unknown = {root for root in strangers if not core & {one.lower() for one in distributions.get(root, [])}}
        if unknown:
            missing[name] = sorted(unknown)
    assert not missing, missing
