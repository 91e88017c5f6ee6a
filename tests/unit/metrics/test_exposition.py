"""Prometheus's own library parses the page, with any names from peers."""

from __future__ import annotations

from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tianzhou.metrics.exposition import number, pieces
from tianzhou.metrics.families import LABEL_CHARACTERS, Family, Histogram, Kind, counter, left_out

parser = pytest.importorskip("prometheus_client.parser")


def read(*families: Family, **common: str) -> list:
    text = b"".join(pieces(families, common)).decode()
    return list(parser.text_string_to_metric_families(text))


@given(st.text(max_size=40), st.floats(allow_nan=False))
def test_a_label_comes_back_as_it_is(text: str, value: float) -> None:
    family = Family("tianzhou_x", Kind.GAUGE, 'one "line"\\ and\nanother', ("topic",))
    family.add(value, text)
    (found,) = read(family, cluster="c")
    (sample,) = found.samples
    # Half characters are in no UTF-8.
    assert sample.labels == {"cluster": "c", "topic": text.encode("utf-8", "replace").decode()}
    assert sample.value == value
    assert found.documentation == family.help


def test_a_histogram_is_cumulative() -> None:
    histogram = Histogram((1.0, 5.0))
    for value in (0.5, 1.0, 3.0, 9.0):
        histogram.note(value)
    family = Family("tianzhou_h", Kind.HISTOGRAM, "h")
    family.add(histogram)
    (found,) = read(family)
    by_name = {(s.name, s.labels.get("le")): s.value for s in found.samples}
    assert by_name == {
        ("tianzhou_h_bucket", "1"): 2, ("tianzhou_h_bucket", "5"): 3, ("tianzhou_h_bucket", "+Inf"): 4,
        ("tianzhou_h_sum", None): 13.5, ("tianzhou_h_count", None): 4,
    }  # fmt: skip


def test_what_is_beyond_the_most_is_left_out_and_counted() -> None:
    family = Family("tianzhou_x", Kind.GAUGE, "x", ("topic",), most=2)
    for name in ("a", "b", "c"):
        family.add(1, name)
    assert [labels for labels, _ in family.samples] == [("a",), ("b",)]
    assert left_out([family, counter("y_total", "y", 1)]).samples == [(("tianzhou_x",), 1.0)]


def test_long_labels_are_cut_and_large_families_come_in_pieces() -> None:
    family = Family("tianzhou_x", Kind.GAUGE, "x", ("topic",))
    for n in range(1_000):
        family.add(n, f"{n}" + "x" * 2 * LABEL_CHARACTERS)
    made = list(pieces([family], {}))
    assert len(made) == 5
    (found,) = parser.text_string_to_metric_families(b"".join(made).decode())
    assert {len(sample.labels["topic"]) for sample in found.samples} == {LABEL_CHARACTERS}
    assert len(found.samples) == 1_000


@pytest.mark.parametrize(
    ("value", "text"), [(3, "3"), (3.0, "3"), (0.25, "0.25"), (nan, "NaN"), (inf, "+Inf"), (-inf, "-Inf"), (-7.0, "-7")]
)
def test_numbers(value: float, text: str) -> None:
    assert number(value) == text
