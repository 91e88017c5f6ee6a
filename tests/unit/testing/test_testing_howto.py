"""The examples of the how-to, run as printed, with only the plugin."""

import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "howto" / "test-your-consumers.md"


def run_pytest(folder, *arguments):
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{folder}"}
    # An installed package registers the plugin itself; naming it again would be an error.
    plugin = [] if entry_points(group="pytest11", name="tianzhou") else ["-p", "tianzhou.testing.plugin"]
    command = [sys.executable, "-m", "pytest", *plugin, "-p", "no:cacheprovider", *arguments]
    return subprocess.run(
        [*command, str(folder)], cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )


def test_the_examples_of_the_how_to(tmp_path):
    blocks = re.findall(r"^```python\n# (\S+)\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert len(blocks) == PAGE.read_text(encoding="utf-8").count("```python")
    for name, text in blocks:
        (tmp_path / name).write_text(text, encoding="utf-8")
    done = run_pytest(tmp_path, "-q", "--strict-markers", "-W", "error")
    count = sum(len(re.findall(r"^def test_", text, re.MULTILINE)) for _, text in blocks)
    assert count >= 15
    assert f"{count} passed" in done.stdout, done.stdout + done.stderr


FAILING = """
import pytest
from tianzhou.testing import cluster_fixture

mine = cluster_fixture(virtual=True)

def test_fails(mine):
    mine.create_topic("orders")
    mine.send("orders", "a")
    mine.send("orders", "b", delay_level=3)
    consumer = mine.push_consumer("billing")
    consumer.subscribe("orders", handler=lambda message: 1 / 0)
    with consumer:
        mine.wait_until_consumed("billing", "orders", within=5)

@pytest.mark.tianzhou("virtual")
def test_options_without_names(tianzhou_cluster):
    pass
"""
WAITING = """
import pytest

@pytest.mark.tianzhou(virtual=True)
def test_consumed(tianzhou_cluster):
    tianzhou_cluster.create_topic("orders")
    tianzhou_cluster.wait_until_consumed("billing", "orders", within=1)

@pytest.mark.tianzhou(virtual=True)
def test_condition(tianzhou_cluster):
    tianzhou_cluster.wait_until(lambda: False, within=1)
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """Return the output of one run of all failing tests."""
    folder = tmp_path_factory.mktemp("failing")
    (folder / "test_failing.py").write_text(FAILING, encoding="utf-8")
    (folder / "test_waits.py").write_text(WAITING, encoding="utf-8")
    return run_pytest(folder).stdout


def test_a_failed_test_says_where_the_messages_are(said):
    assert "NotReached: group billing has not consumed everything of orders: 1 that will be delivered again" in said
    section = said.split("cluster mine")[1]
    assert "virtual time passed: 0:00:05" in section
    assert re.search(r"for orders: a message waits for 5.0 s more", section)
    assert re.search(r"for %RETRY%billing: a message waits for 5.0 s more", section)


def test_a_wait_that_was_given_up_shows_the_line_of_the_test_and_none_of_the_kit(said):
    assert (
        ">       tianzhou_cluster.wait_until_consumed(" in said or ">   tianzhou_cluster.wait_until_consumed(" in said
    )
    ends = re.findall(r"^(\S+\.py):\d+: NotReached$", said, re.MULTILINE)
    assert ends == ["test_failing.py", *["test_waits.py"] * 2]
    failures = said.split("= FAILURES =")[1]
    assert not re.search(r"^\S*(tianzhou|asyncio|concurrent)/\S+:\d+:", failures, re.MULTILINE)


def test_options_without_names_are_refused(said):
    assert "options have names, as in @pytest.mark.tianzhou(virtual=True)" in said


def test_installed_pytest_finds_the_plugin_by_itself():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["entry-points"]["pytest11"] == {"tianzhou": "tianzhou.testing.plugin"}


def test_the_plugin_costs_other_test_runs_nothing(tmp_path):
    (tmp_path / "test_other.py").write_text(
        "import sys\n\ndef test_other():\n"
        "    loaded = sorted(name for name in sys.modules if name.startswith('tianzhou.'))\n"
        "    assert loaded == ['tianzhou.lazy_exports', 'tianzhou.testing', 'tianzhou.testing.plugin']\n",
        encoding="utf-8",
    )
    assert "1 passed" in run_pytest(tmp_path).stdout
