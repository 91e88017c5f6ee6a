"""Conversion of figures to Markdown: medians, ratios, and whether targets are met."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lines import A_SLAVE, FIGURES, FLAT, GROWTH, LINES, Line, Wanted

Rounds = Mapping[str, Mapping[str, Sequence[float]]]
"""Figure of each round, by side and by `line.figure`."""


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table, or an empty text when there are no rows."""
    return "".join(f"| {' | '.join(row)} |\n" for row in (head, ["---"] * len(head), *rows)) if rows else ""


def medians(rounds: Rounds) -> dict[str, dict[str, float]]:
    """Return the median of each figure over the rounds with that figure."""
    return {
        side: {name: statistics.median(values) for name, values in figures.items() if values}
        for side, figures in rounds.items()
    }


def shown(figure: str, value: float) -> str:
    """Return a figure as text for the reader."""
    if figure.endswith("_us"):
        return f"{value:.0f} µs" if value < 1000 else f"{value / 1000:.2f} ms"
    if figure == "disk_share":
        return f"{value:.0%}"
    if figure in {"msgs_per_s", "idle_anon_mb", "stored_mb_per_s", "disk_mb_per_s"}:
        return f"{value:,.0f}"
    return f"{value:.2f}"


def bound(wanted: Wanted) -> str:
    """Return the short text of a target."""
    sign, value = ("≥", wanted.least) if wanted.least is not None else ("≤", wanted.most)
    assert value is not None
    return f"{sign} {shown(wanted.figure, value)}" if wanted.absolute else f"{sign} {value:g}x"


def verdict(wanted: Wanted, apache: float | None, ours: float) -> str:
    """Return `met`, `not met`, or an empty text when no figure exists to compare with."""
    if wanted.absolute:
        return "met" if wanted.met(ours) else "**not met**"
    if not apache:
        return ""
    return "met" if wanted.met(ours / apache) else "**not met**"


def table(sides: Mapping[str, str], rounds: Rounds, lines: Sequence[Line]) -> str:
    """Return the lines as a Markdown table: each side, its ratio to Apache's, and our target.

    Args:
        sides: measured sides with their titles.
        rounds: the figures.
        lines: lines of the table, in order.
    """
    middle = medians(rounds)
    compared = "apache" in sides
    head = ["line", "figure"]
    for side, title in sides.items():
        head.append(title)
        if compared and side != "apache":
            head.append("ratio")
        if side == "tianzhou":
            head += ["wanted", ""]
    rows = [
        [line.title, title, *_cells(sides, middle, line, figure)]
        for line in lines
        for figure, title in FIGURES.items()
        if any(f"{line.name}.{figure}" in middle.get(side, {}) for side in sides)
    ]
    return markdown_table(head, rows)


def _cells(sides: Mapping[str, str], middle: Mapping[str, Mapping[str, float]], line: Line, figure: str) -> list[str]:
    name = f"{line.name}.{figure}"
    apache = middle.get("apache", {}).get(name)
    cells = []
    for side in sides:
        value = middle.get(side, {}).get(name)
        cells.append("not run" if value is None else shown(figure, value))
        if "apache" in sides and side != "apache":
            cells.append(f"{value / apache:.2f}x" if apache and value is not None else "")
        if side == "tianzhou":
            wanted = next((each for each in line.wanted if each.figure == figure), None)
            cells.append(bound(wanted) if wanted else "")
            cells.append(verdict(wanted, apache, value) if wanted and value is not None else "")
    return cells


def against_before(rounds: Rounds, lines: Sequence[Line]) -> str:
    """Return the changes since another checkout: the median, smallest and largest ratio over the rounds.

    Args:
        rounds: the figures; only `before` and `tianzhou` count.
        lines: lines of the table, in order.
    """
    before, now = rounds.get("before", {}), rounds.get("tianzhou", {})
    rows = []
    for line in lines:
        for figure, title in FIGURES.items():
            pairs = zip(before.get(f"{line.name}.{figure}", ()), now.get(f"{line.name}.{figure}", ()), strict=False)
            ratios = [after / earlier for earlier, after in pairs if earlier]
            if ratios:
                cells = [f"{value:.3f}x" for value in (statistics.median(ratios), min(ratios), max(ratios))]
                rows.append([line.title, title, *cells])
    return markdown_table(["now against before, round by round", "figure", "median", "smallest", "largest"], rows)


def growth(sides: Mapping[str, str], rounds: Rounds) -> str:
    """Return how much each side slows down from small to large, or by a slave; up to 1.5 times counts as flat."""
    middle = medians(rounds)
    rows = []
    for small, large, most in GROWTH:
        for figure in ("msgs_per_s", "p99_us", "start_s"):
            cells = []
            for side in sides:
                first, second = (middle.get(side, {}).get(f"{name}.{figure}") for name in (small, large))
                if not first or not second:
                    cells += ["", ""] if side == "tianzhou" else [""]
                    continue
                worse = first / second if figure == "msgs_per_s" else second / first
                cells.append(f"{worse:.2f}x")
                if side == "tianzhou" and figure == "start_s":
                    cells.append("")
                elif side == "tianzhou":
                    cells.append("met" if worse <= most else "**not met**")
            if any(cells):
                titles = f"{LINES[small].title} → {LINES[large].title.removeprefix('PUT 64 x 1').strip(' ,')}"
                rows.append([titles, FIGURES[figure], *cells])
    head = ["growth: how many times worse", "figure"]
    for side, title in sides.items():
        head += [title, f"flat within {FLAT}x; a slave costs {A_SLAVE}x at most"] if side == "tianzhou" else [title]
    return markdown_table(head, rows)


def machine_list(machine: Mapping[str, str]) -> str:
    """Return the machine as a Markdown list."""
    return "".join(f"- {name}: {value}\n" for name, value in machine.items())


def with_section(page: str, name: str, section: str) -> str:
    """Return a page with the section of that name replaced, or appended at the end."""
    begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
    block = f"{begin}\n\n{section.strip()}\n\n{end}"
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    if pattern.search(page):
        return pattern.sub(lambda _: block, page, count=1)
    return f"{page.rstrip()}\n\n{block}\n".lstrip()


def put_section(path: Path | None, name: str, section: str) -> None:
    """Print a section, and write it into a page, see `with_section`."""
    print(section)
    if path is not None:
        page = path.read_text(encoding="utf-8") if path.exists() else ""
        path.write_text(with_section(page, name, section), encoding="utf-8")


def write_json(path: Path | None, document: Mapping[str, Any]) -> None:
    """Write every figure of every round to a file, unless the path is None."""
    if path is not None:
        path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
