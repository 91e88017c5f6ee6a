"""Estimated histograms never decrease, and their counts are exact."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tianzhou.metrics.families import SampledHistogram

ROUNDS = st.lists(
    st.tuples(st.integers(0, 1_000), st.lists(st.tuples(st.sampled_from("ab"), st.floats(0, 100)), max_size=8)),
    max_size=10,
)


@given(ROUNDS)
def test_counts_never_fall_and_add_up(rounds: list) -> None:
    sampled = SampledHistogram((1.0, 10.0))
    total = counted = 0
    before: dict = {}
    for fresh, samples in rounds:
        total += fresh
        for label, value in samples:
            sampled.note((label,), value)
        sampled.advance(total)
        if samples and total > counted:
            counted = total
        elif sum(one.count for one in sampled.histograms.values()) > counted:
            counted = total  # with samples of a round without messages
        now = {key: one.counts[:] for key, one in sampled.histograms.items()}
        for key, counts in before.items():
            assert all(later >= earlier for later, earlier in zip(now[key], counts, strict=True))
        assert sum(sum(counts) for counts in now.values()) == counted
        before = now


def test_what_came_is_divided_as_the_samples_are() -> None:
    sampled = SampledHistogram((1.0,))
    for value in (0.5, 0.5, 0.5, 2.0):
        sampled.note(("send",), value)
    sampled.advance(400)
    assert sampled.histograms["send",].counts == [300, 100]
    assert sampled.histograms["send",].total == 350.0


def test_labels_are_bounded() -> None:
    sampled = SampledHistogram((1.0,), most=3)
    for n in range(10):
        sampled.note((str(n),), 1)
    sampled.advance(10)
    assert len(sampled.histograms) == 3
