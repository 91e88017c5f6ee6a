"""The report of a run: table, rows by the second, ratios to an earlier run, picture."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tianzhou.bench import report
from tianzhou.bench.plot import plot
from tianzhou.bench.series import RunSeries, Slice
from tianzhou.errors import ConfigError


def document(messages: int = 100, taken_us: int = 1_000, **more: Any) -> dict[str, Any]:
    series = RunSeries(0)
    series.add([Slice(0, messages, messages * 1024, {taken_us: messages})])
    return {
        "command": "produce",
        "send": {**series.figures(1.0), "client_cpu_us_per_message": 5.0},
        "given": {"rate": 0},
    } | more


def test_the_table_has_a_row_for_each_role() -> None:
    found = document(receive={**RunSeries(0).figures(0.0), "client_cpu_us_per_message": None})
    sent, received = report.table(found)
    assert sent[:5] == ["sent", "100", "0", "100", "0.10"]
    assert sent[5:] == ["1.000"] * 5 + ["5.00"]
    assert received == ["received", "0", "0", "0", "0.00", *["-"] * 6]
    assert len(sent) == len(received) == len(report.COLUMNS)


def test_ratios_are_new_to_old() -> None:
    ratios = report.compare(document(200, 500), document(100, 1_000))
    assert ratios["send"]["messages_per_second"] == 2.0
    assert ratios["send"]["latency_ms"]["p99"] == 0.5
    (row,) = report.ratio_rows(ratios)
    assert row[3] == "2.00"
    assert row[7] == "0.50"
    assert len(row) == len(report.COLUMNS)


def test_ratios_of_what_only_one_run_has_are_left_out() -> None:
    earlier = {"send": document()["send"] | {"latency_ms": None}}
    ratios = report.compare(document(receive=document()["send"]), earlier)
    assert list(ratios) == ["send"]
    assert set(ratios["send"]["latency_ms"].values()) == {None}
    assert report.ratio_rows(ratios)[0][5] == "-"


def test_runs_that_are_not_alike_are_distinguished() -> None:
    assert report.differing(document(), document()) == []
    other = document(command="mixed", given={"rate": 5, "more": 1})
    assert report.differing(document(), other) == ["command mixed -> produce", "rate 5 -> 0"]


def used(role: str, cpu: float, waited: float = 0.0) -> dict[str, Any]:
    return {"role": role, "cpu": cpu, "waited": waited}


@pytest.mark.parametrize(
    ("processes", "said"),
    [
        ([used("send", 0.9), used("receive", 0.5)], []),
        (
            [used("send", 0.97), used("receive", 0.5)],
            [("the load process that sends was the limit: it was busy for 97% of the time, so the cluster may do more; "
             "try --processes 2")],
        ),
        (
            [used("receive", 0.3), used("receive", 0.85, 0.12)],
            [("the load process that receives was the limit: it was busy for 97% of the time, so the cluster may do "
             "more; this machine has no more processors: run the load on another one")],
        ),
        (
            [used("send", 0.2, 0.6)],
            [("the machine was the limit: the load process that sends waited for a processor for 60% of the time; run "
             "the load on another machine, or when less else runs on this one")],
        ),
        ([], []),
    ],
)  # fmt: skip
def test_a_limit_of_the_load_is_not_taken_for_one_of_the_cluster(
    processes: list[dict[str, Any]], said: list[str]
) -> None:
    assert report.limits(processes, 2) == said


def test_an_earlier_run_is_read_back() -> None:
    assert report.read_earlier(json.dumps(document()), "f")["send"]["messages"] == 100


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"send": 5}', '{"send": {}}', "null"])
def test_what_is_no_earlier_run_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--compare f: is no result of an earlier run; keep one with: tianzhou"):
        report.read_earlier(text, "f")


def series() -> RunSeries:
    found = RunSeries(1)
    found.add([Slice(0, 3, 30, {1_000: 3}), Slice(1, 5, 50, {2_000: 5}, {"code 2: busy": 2}), Slice(2, 4, 40)])
    return found


def test_csv_has_a_row_for_each_second() -> None:
    lines = report.csv_text({"send": series().seconds()}).splitlines()
    assert lines[0] == "role,second,warm_up,messages,bytes,errors,mean_ms,p50_ms,p90_ms,p99_ms,p99.9_ms,max_ms"
    assert lines[1].startswith("send,0,true,3,30,0,1.0,")
    assert lines[2].startswith("send,1,false,5,50,2,2.0")
    assert lines[3] == "send,2,false,4,40,0,,,,,,"


def test_progress_is_a_line() -> None:
    found = series()
    assert report.progress_line(0, [("send", found.at(0))]) == "   1 s  sent 3/s, p50 1.00 ms, p99 1.00 ms  (warm-up)"
    assert report.progress_line(1, [("send", found.at(1)), ("receive", None)]) == (
        "   2 s  sent 5/s, p50 2.00 ms, p99 2.00 ms, 2 failed; received 0/s"
    )


def untimed() -> RunSeries:
    found = RunSeries(0)
    found.add([Slice(0, 3, 30), Slice(1, 3, 30)])
    return found


@pytest.mark.parametrize(
    "shown", [{"send": series()}, {"send": series(), "receive": series()}, {"receive": untimed()}], ids="+".join
)
def test_the_picture_is_a_png(tmp_path: Path, shown: dict[str, RunSeries]) -> None:
    path = tmp_path / "bench.png"
    plot(path, "title", {role: one.seconds() for role, one in shown.items()})
    assert path.read_bytes().startswith(b"\x89PNG")
