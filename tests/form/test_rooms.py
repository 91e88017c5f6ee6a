"""Folders of the source have few files, and the page for newcomers names every folder."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MOST_FILES = 25
PAGE = ROOT / "docs" / "reference" / "where-to-change.md"


def rooms(top: str) -> list[Path]:
    return [ROOT / top, *(path for path in sorted((ROOT / top).rglob("*")) if path.is_dir())]


@pytest.mark.parametrize("top", ["src", "tests", "benchmarks"])
def test_no_room_has_more_files_than_can_be_looked_over(top: str) -> None:
    counts = {
        str(room.relative_to(ROOT)): len([file for file in room.glob("*.py") if file.name != "__init__.py"])
        for room in rooms(top)
    }
    assert {room: count for room, count in counts.items() if count > MOST_FILES} == {}


def test_every_room_says_what_it_is_for() -> None:
    for room in rooms("src/tianzhou"):
        opening = room / "__init__.py"
        if opening.exists():
            assert opening.read_text(encoding="utf-8").startswith('"""'), room


def test_the_page_for_newcomers_names_what_is_there() -> None:
    rows = re.findall(r"^\| (?!I want|-).*$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(rows) >= 10
    for row in rows:
        _, room, begin, tests = (cell.strip() for cell in row.strip("| ").split(" | "))
        place = ROOT / "src" / "tianzhou" / room.strip("`")
        assert place.exists(), room
        for name in re.findall(r"`([\w/]+\.(?:py|md))`", begin):
            beside = place if place.is_dir() else place.parent
            assert any((above / name).exists() for above in (beside, ROOT / "src" / "tianzhou", ROOT)), name
        for name in re.findall(r"`(tests/[\w/.]+)`", tests):
            assert (ROOT / name).exists(), name
