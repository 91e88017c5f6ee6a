"""Times of handlers in a member's running info: written, read, named anew, and merged."""

from __future__ import annotations

import pytest

from tianzhou.wire.bodies.handler_times import HandlerTimes, RunsIn, merged, read, read_cores, renamed, written

ORDERS = HandlerTimes(2.0125, 20.25, 812, RunsIn.threads)


def test_entries_are_read_as_they_were_written() -> None:
    entries = written({"orders": ORDERS, "mails": HandlerTimes(0.5, 0.5, 3, RunsIn.loop)}, 8)
    assert entries["handler:orders"] == "cpuMs=2.0125 wallMs=20.2500 messages=812 runsIn=threads"
    assert read(entries)["orders"] == ORDERS
    assert read_cores(entries) == 8
    assert ORDERS.io_ms == pytest.approx(18.2375)


def test_a_member_without_measured_handlers_reports_nothing() -> None:
    assert written({}, 8) == {}


@pytest.mark.parametrize(
    "text",
    ["", "cpuMs=1", "cpuMs=x wallMs=1 messages=1 runsIn=loop", "cpuMs=1 wallMs=1 messages=1 runsIn=moon",
     "cpuMs=nan wallMs=1 messages=1 runsIn=loop", "cpuMs=-1 wallMs=1 messages=1 runsIn=loop",
     "cpuMs=1e300 wallMs=1 messages=1 runsIn=loop", f"cpuMs=1 wallMs=1 messages={'9' * 400} runsIn=loop"],
)  # fmt: skip
def test_entries_of_another_form_are_passed_over(text: str) -> None:
    assert read({"handler:orders": text, "own": "of a user"}) == {}


@pytest.mark.parametrize("text", ["", "0", "-1", "many", "9999999999", "٣", "012345" + "0" * 5_000])
def test_cores_that_cannot_be_are_unknown(text: str) -> None:
    assert read_cores({"cores": text}) is None


def test_topics_of_entries_are_renamed_and_other_entries_stay() -> None:
    entries = renamed({"handler:orders": "x", "cores": "8"}, lambda topic: f"shop%{topic}")
    assert entries == {"handler:shop%orders": "x", "cores": "8"}


def test_members_count_by_their_messages() -> None:
    other = HandlerTimes(4.0, 10.0, 3 * 812, RunsIn.processes)
    found = merged([ORDERS, other, HandlerTimes(99.0, 99.0, 0, RunsIn.loop)])
    assert found is not None
    assert (found.cpu_ms, found.messages, found.runs_in) == (pytest.approx(3.503125), 4 * 812, RunsIn.processes)
    assert merged([]) is None
