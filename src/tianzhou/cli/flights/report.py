"""The results that the main job shows: the proof, the table and the plot."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tianzhou.cli.flights.pipeline import SinkFigures
from tianzhou.cli.flights.rows import SourceFigures
from tianzhou.cli.output import Output, print_rows

MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


@dataclass(frozen=True)
class Check:
    """One row of the proof."""

    name: str
    expected: int
    found: int

    @property
    def holds(self) -> bool:
        """Whether both sides are equal."""
        return self.expected == self.found


def prove(source: SourceFigures, acknowledged: int, stored: int, sink: SinkFigures) -> list[Check]:
    """Compare the source with the sinks: no row lost, duplicated or changed.

    Args:
        source: counts from reading the source.
        acknowledged: number of acknowledged sends.
        stored: number of messages in the queues, from the broker.
        sink: counts of Parquet and of the topic of late flights, from Spark.
    """
    return [
        Check("acknowledged by the broker", source.rows, acknowledged),
        Check("stored in the queues", source.rows, stored),
        Check("rows in Parquet", source.rows, sink.rows),
        Check("distinct row numbers in Parquet", source.rows, sink.distinct_rows),
        *[Check(f"sum of {name} in Parquet", source.sums[name], sink.sums[name]) for name in source.sums],
        Check("late flights in their topic", source.late_rows, sink.late_rows),
        Check("distinct row numbers among them", source.late_rows, sink.late_distinct_rows),
        Check("sum of dep_delay among them", source.late_minutes, sink.late_minutes),
    ]


def print_proof(checks: list[Check]) -> None:
    """Print the proof as a table of both sides."""
    print_rows(
        ("proof", "source", "found", "equal"),
        [(c.name, c.expected, c.found, "yes" if c.holds else "NO") for c in checks],
        Output.text,
    )


def print_delays(delays: list[dict[str, Any]]) -> None:
    """Print carriers by months: mean departure delay in minutes, number of flights, and the share of late ones."""
    by_carrier: dict[str, dict[int, dict[str, Any]]] = defaultdict(dict)
    for row in delays:
        by_carrier[row["carrier"]][row["month"]] = row
    months = sorted({row["month"] for row in delays})
    rows = []
    for carrier, cells in sorted(by_carrier.items()):
        flights = sum(c["flights"] for c in cells.values())
        late = sum((c["late_share"] or 0) * c["flights"] for c in cells.values()) / max(1, flights)
        means = [_minutes(cells.get(month)) for month in months]
        rows.append((carrier, flights, f"{late:.0%}", *means))
    print_rows(("carrier", "flights", "late>15", *[MONTHS[m - 1] for m in months]), rows, Output.text)


def _minutes(cell: dict[str, Any] | None) -> str | None:
    return None if cell is None or cell["mean_dep_delay"] is None else f"{cell['mean_dep_delay']:.1f}"


def plot_delays(delays: list[dict[str, Any]], path: Path) -> None:
    """Plot a heat map of the mean departure delay, carriers by months.

    Args:
        delays: the aggregate table.
        path: PNG file to write.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    carriers = sorted({row["carrier"] for row in delays})
    grid = [[float("nan")] * 12 for _ in carriers]
    for row in delays:
        if row["mean_dep_delay"] is not None:
            grid[carriers.index(row["carrier"])][row["month"] - 1] = row["mean_dep_delay"]
    figure, axes = plt.subplots(figsize=(9, 0.35 * len(carriers) + 1.6), layout="constrained")
    image = axes.imshow(grid, aspect="auto", cmap="RdYlBu_r", vmin=-10, vmax=40)
    axes.set_xticks(range(12), MONTHS)
    axes.set_yticks(range(len(carriers)), carriers)
    axes.set_title("Mean departure delay from New York, 2013 (minutes)")
    for y, line in enumerate(grid):
        for x, value in enumerate(line):
            if value == value:
                axes.text(x, y, f"{value:.0f}", ha="center", va="center", fontsize=7)
    figure.colorbar(image, ax=axes)
    figure.savefig(path, dpi=130)
    plt.close(figure)
