"""The tables of `benchmarks/compare.py`, the store it fills, and wrong options."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from store_reads import read_now
from tianzhou.store import MessageStore, StoreSettings
from tianzhou.store.offline.check import check_store
from tianzhou.store.offline.scan import StoreScan

BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"


def cells(table: str, *starts: str) -> list[str]:
    """Return the cells of the row that begins with `starts`."""
    rows = [[cell.strip() for cell in line.strip("|\n").split("|")] for line in table.splitlines()]
    return next(row for row in rows if row[: len(starts)] == list(starts))


def test_medians_ratios_and_whether_what_is_wanted_is_met(tables, lines) -> None:
    rounds = {
        "apache": {"put64x1.msgs_per_s": [900.0, 1000.0, 5000.0], "put64x1.p99_us": [10_000.0]},
        "tianzhou": {"put64x1.msgs_per_s": [2500.0, 2000.0, 1.0], "put64x1.p99_us": [2100.0]},
    }
    table = tables.table({"apache": "Theirs", "tianzhou": "Ours"}, rounds, [lines.LINES["put64x1"]])
    assert cells(table, "PUT 64 x 1", "messages/s")[2:] == ["1,000", "2,000", "2.00x", "≥ 2x", "met"]
    assert cells(table, "PUT 64 x 1", "p99")[2:] == ["10.00 ms", "2.10 ms", "0.21x", "≤ 0.2x", "**not met**"]


def test_a_bound_on_the_figure_itself_needs_no_other_side(tables, lines) -> None:
    for p99, said in ((1999.0, "met"), (2001.0, "**not met**")):
        rounds = {"tianzhou": {"e2e10k.p99_us": [p99]}}
        table = tables.table({"tianzhou": "Ours"}, rounds, [lines.LINES["e2e10k"]])
        assert cells(table, "end to end at 10 000/s", "p99")[-2:] == ["≤ 2.00 ms", said]


def test_what_was_not_run_is_called_so_and_never_met(tables, lines) -> None:
    rounds = {"apache": {"put1x1.p50_us": [100.0]}, "tianzhou": {}, "pure": {"put1x1.p50_us": [50.0]}}
    sides = {"apache": "Theirs", "tianzhou": "Ours", "pure": "Pure"}
    row = cells(tables.table(sides, rounds, [lines.LINES["put1x1"]]), "PUT 1 x 1", "p50")
    assert row[2:] == ["100 µs", "not run", "", "≤ 0.4x", "", "50 µs", "0.50x"]


def test_now_and_before_are_compared_round_by_round(tables, lines) -> None:
    rounds = {
        "before": {"put64x1.msgs_per_s": [1000.0, 2000.0, 500.0]},
        "tianzhou": {"put64x1.msgs_per_s": [1010.0, 1900.0, 500.0]},
    }
    table = tables.against_before(rounds, [lines.LINES["put64x1"]])
    assert cells(table, "PUT 64 x 1", "messages/s")[2:] == ["1.000x", "0.950x", "1.010x"]
    assert tables.against_before({"tianzhou": rounds["tianzhou"]}, [lines.LINES["put64x1"]]) == ""


def test_growth_is_how_many_times_worse_it_gets(tables) -> None:
    rounds = {
        "tianzhou": {
            "topics10.msgs_per_s": [3000.0],
            "topics1000.msgs_per_s": [1500.0],
            "topics10.p99_us": [1000.0],
            "topics1000.p99_us": [1400.0],
        }
    }
    table = tables.growth({"tianzhou": "Ours"}, rounds)
    title = "PUT 64 x 1 over 10 topics → over 1 000 topics"
    assert cells(table, title, "messages/s")[2:] == ["2.00x", "**not met**"]
    assert cells(table, title, "p99")[2:] == ["1.40x", "met"]
    assert tables.growth({"tianzhou": "Ours"}, {"tianzhou": {}}) == ""


def test_a_section_takes_the_place_of_the_last_one_of_its_name(tables) -> None:
    page = tables.with_section("# Page\n\nText.\n", "one", "first\\1")
    page = tables.with_section(page, "two", "other")
    page = tables.with_section(page, "one", "second\\1")
    assert "first" not in page
    assert page.index("Text.") < page.index("second\\1") < page.index("other")
    assert tables.with_section(page, "one", "second\\1") == page


def test_a_filled_store_is_sound_and_takes_little_space(stored, tmp_path) -> None:
    count = stored.fill(tmp_path, 3, length=4 << 20, body=500_000)
    assert count == 24
    assert sum(path.stat().st_blocks * 512 for path in tmp_path.rglob("*")) < 1 << 20
    report = check_store(StoreScan(tmp_path))
    assert (report.records, report.units, report.problems) == (count, count, [])
    settings = StoreSettings(
        store_path_root_dir=str(tmp_path), mapped_file_size_commit_log=4 << 20, disk_max_used_space_ratio=99
    )
    store = MessageStore(settings)
    opened = store.open()
    try:
        assert opened.clean
        assert [store.max_offset("Stored", queue) for queue in range(8)] == [3] * 8
        assert read_now(store, "Stored", 7, 2, 32).count == 1
    finally:
        store.close_now()


@pytest.mark.parametrize(
    ("script", "option", "value", "text"),
    [
        ("compare.py", "--lines", "put2x2", "no line put2x2; there are start, "),
        ("compare.py", "--sides", "apache,kafka", "--sides: kafka is unknown; there are apache, "),
        ("rivals.py", "--systems", "kafka", "--systems: kafka is unknown; there are tianzhou, "),
        ("clients.py", "--ways", "one,two", "--ways: two is unknown; there are one, in256, push"),
        ("clients.py", "--clients", "java", "--clients: java is unknown; there are ours, pure, cpp"),
        ("clients.py", "--messages", "3", "--messages: 3 is too few; at least 256"),
    ],
)
def test_options_held_wrong_say_how_to_hold_them(script: str, option: str, value: str, text: str) -> None:
    command = [sys.executable, str(BENCHMARKS / script), option, value]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 2
    assert text in ended.stderr
