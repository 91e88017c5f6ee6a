"""`tianzhou plan`: the table, the document, and figures of a measured run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., tuple[int, str, str]]


def test_the_table_has_brokers_disks_network_and_memory(run: Run) -> None:
    code, out, err = run("plan", "--rate", 100_000, "--node-rate", 30_000, "--headroom", 50)
    assert code == 0
    lines = {line.split("  ")[0].strip(): line for line in out.splitlines()}
    assert "  7 " in lines["brokers that take messages"]
    assert "  21 " in lines["brokers in all"]
    assert "TiB" in lines["disk of a broker"]
    assert "MB/s" in lines["network from a broker"]
    assert "as measured" in lines["rate of a broker"]
    assert err == ""


def test_who_has_not_measured_hears_where_the_rate_is_from(run: Run) -> None:
    code, out, err = run("plan", "--rate", 1000, "--mode", "SYNC_FLUSH")
    assert code == 0
    assert "docs/performance.md" in out
    assert "measure yours" in err


def test_programs_get_every_figure_as_a_number(run: Run) -> None:
    code, out, err = run("plan", "--rate", 100_000, "--node-rate", 30_000, "--headroom", 50, "-o", "json")
    found = json.loads(out)
    assert (code, err) == (0, "")
    assert (found["sets"], found["nodes"], found["bound_by"]) == (7, 21, "rate")
    assert isinstance(found["disk_bytes"], int)
    assert found["warnings"] == []


def test_the_rate_of_a_run_is_taken_from_its_document(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    file.write_text(json.dumps({"send": {"messages_per_second": 12_345.6}}))
    code, out, _ = run("plan", "--rate", 20_000, "--headroom", 0, "--measured", file, "-o", "json")
    found = json.loads(out)
    assert (code, found["node_rate"], found["sets"]) == (0, 12_345.6, 2)


@pytest.mark.parametrize(
    ("text", "words"),
    [("{", "is no run of sending"), ('{"send": {"messages_per_second": 0}}', "nothing was sent"), (None, "No such")],
)
def test_a_file_that_is_no_run_is_refused(run: Run, tmp_path: Path, text: str | None, words: str) -> None:
    file = tmp_path / "run.json"
    if text is not None:
        file.write_text(text)
    code, _, err = run("plan", "--rate", 1, "--measured", file)
    assert code == 2
    assert words in err


def test_values_that_cannot_be_are_refused_with_their_option(run: Run) -> None:
    code, _, err = run("plan", "--rate", 0)
    assert code == 2
    assert "rate=0" in err
