"""Families in Prometheus's text format, version 0.0.4. Pure.

https://prometheus.io/docs/instrumenting/exposition_formats/ ; names of topics and groups come from peers, so label
values are truncated and escaped here, in one place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import inf, isnan
from typing import Final

from tianzhou.metrics.families import LABEL_CHARACTERS, PER_STEP, Family, Histogram, Value

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def pieces(families: Iterable[Family], common: Mapping[str, str]) -> Iterator[bytes]:
    """Yield the page in pieces of at most `PER_STEP` samples.

    Args:
        families: families to write; a family without samples is omitted.
        common: labels of all samples.
    """
    shared = "".join(f'{name}="{escaped(value)}",' for name, value in common.items())
    for family in families:
        if not family.samples:
            continue
        name = family.name
        lines = [f"# HELP {name} {_help(family.help)}", f"# TYPE {name} {family.kind}"]
        for number, (values, value) in enumerate(family.samples, 1):
            own = "".join(f'{key}="{escaped(text)}",' for key, text in zip(family.labels, values, strict=True))
            lines += _lines(name, shared + own, value)
            if number % PER_STEP == 0:
                yield _joined(lines)
                lines = []
        if lines:
            yield _joined(lines)


def escaped(text: str) -> str:
    """Return a label's value for a place between quotes: truncated, escaped, and valid UTF-8."""
    return text[:LABEL_CHARACTERS].translate(_ESCAPES)


def number(value: float) -> str:
    """Return a number in Prometheus's format."""
    if isnan(value):
        return "NaN"
    if value in (inf, -inf):
        return "+Inf" if value > 0 else "-Inf"
    return str(value) if isinstance(value, int) or value % 1 else str(int(value))


def _lines(name: str, labels: str, value: Value) -> Iterator[str]:
    if not isinstance(value, Histogram):
        yield f"{name}{{{labels[:-1]}}} {number(value)}" if labels else f"{name} {number(value)}"
        return
    below = 0
    for bound, count in zip((*value.bounds, inf), value.counts, strict=True):
        below += count
        yield f'{name}_bucket{{{labels}le="{number(bound)}"}} {below}'
    shown = f"{{{labels[:-1]}}}" if labels else ""
    yield f"{name}_sum{shown} {number(value.total)}"
    yield f"{name}_count{shown} {below}"


def _help(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")


def _joined(lines: list[str]) -> bytes:
    return ("\n".join(lines) + "\n").encode("utf-8", "replace")
