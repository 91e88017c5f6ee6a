"""Progress of a pipeline: lines of JSON, and a bar on a terminal."""

from __future__ import annotations

import pytest

from tianzhou.cli.output import Output
from tianzhou.cli.pipelines.reporting import PipelineReport


class Clock:
    def __init__(self):
        self.at = 0.0

    def now(self):
        return self.at


def test_progress_as_json_lines():
    clock, lines = Clock(), []
    with PipelineReport("read", 400, Output.json, now=clock.now, write=lines.append) as report:
        for read in (100, 200, 300, 400):
            clock.at += 0.5
            report(read, read // 2)
    # A line a second, and none for shorter runs.
    assert lines == [
        {"progress": {"read": 200, "of": 400, "percent": 50.0, "sent": 100, "per_second": 200.0}},
        {"progress": {"read": 400, "of": 400, "percent": 100.0, "sent": 200, "per_second": 200.0}},
    ]


def test_progress_on_a_terminal_is_a_bar(monkeypatch, capsys):
    pytest.importorskip("rich")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "120")
    clock = Clock()
    with PipelineReport("read", 400, Output.text, now=clock.now) as report:
        clock.at += 2
        report(100, 50)
    shown = capsys.readouterr().err
    assert "100/400" in shown
    assert "25%" in shown
    assert "50 sent" in shown
    assert "50/s" in shown
