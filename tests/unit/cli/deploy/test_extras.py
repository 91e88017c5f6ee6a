"""The package alone is small: the dependencies of the console and other extras come only with them, and a page lists
them.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[4]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[\[<>=;]", one)[0].strip() for one in requirements}


def test_the_package_alone_needs_nothing_of_the_extras() -> None:
    of_extras = set().union(*map(names, EXTRAS.values())) - {"tianzhou"}
    assert {"nicegui", "duckdb", "argon2-cffi", "pyspark"} <= of_extras
    assert names(PROJECT["dependencies"]) & of_extras == set()


def test_the_page_about_installing_names_every_extra() -> None:
    page = (ROOT / "docs" / "howto" / "install.md").read_text(encoding="utf-8")
    table = page[page.index("| extra | for |") :]
    assert [name for name in EXTRAS if f"`{name}`" not in table] == []


def test_commands_and_clients_import_nothing_of_the_console() -> None:
    script = (
        "import sys, tianzhou, tianzhou.sync, tianzhou.embedded, tianzhou.cli.app as app; app.whole_app();"
        " print(*{'nicegui', 'duckdb', 'argon2', 'fastapi', 'pyarrow'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.split() == []
