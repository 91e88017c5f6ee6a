"""A master's memory of halted slaves."""

from __future__ import annotations

from tianzhou.broker.replication.slave_reports import (
    FORGET_S,
    MAX_LINES,
    MAX_SLAVES,
    HaltedSlaves,
    difference,
    report_fields,
)


def test_a_halted_slave_is_a_figure_until_it_copies_again_or_is_silent() -> None:
    slaves = HaltedSlaves()
    assert slaves.reported({}, 0.0) == ""  # a request 906 of another broker
    assert "10.0.0.1:10911 has halted" in slaves.reported(report_fields("10.0.0.1:10911", "why"), 0.0)
    assert slaves.reported(report_fields("10.0.0.1:10911", "why"), 20.0) == ""
    slaves.reported(report_fields("10.0.0.2:10911", "other"), 30.0)
    assert slaves.figures(30.0) == {"haHaltedSlaves": "10.0.0.1:10911: why; 10.0.0.2:10911: other"}
    assert slaves.count(20.0 + FORGET_S) == 1
    slaves.reported(report_fields("10.0.0.2:10911", ""), 40.0)
    assert slaves.figures(20.0 + FORGET_S) == {}


def test_strangers_fill_no_memory_and_no_log() -> None:
    slaves = HaltedSlaves()
    reports = [report_fields(f"\x1b{number}", "x" * 10_000) for number in range(MAX_SLAVES * 2)]
    lines = [line for line in (slaves.reported(report, 0.0) for report in reports) if line]
    assert len(lines) == MAX_LINES
    for line in lines:
        assert "\x1b" not in line
        assert len(line) < 1_000
    assert slaves.count(0.0) == MAX_SLAVES
    assert len(slaves.figures(0.0)["haHaltedSlaves"]) < MAX_SLAVES * 1_000


def test_masters_of_apache_name_no_durability() -> None:
    assert difference("zero-loss", None) == ""
    assert difference("", "") == ""
