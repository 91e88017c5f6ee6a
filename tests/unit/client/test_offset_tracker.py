"""What may be committed is the lowest unfinished offset, whatever the order messages finish in."""

from hypothesis import given
from hypothesis import strategies as st

from tianzhou.client.offset_tracker import OffsetTracker, PullLimits


def test_the_lowest_unfinished_offset_is_committable():
    tracker = OffsetTracker(10)
    assert tracker.committable == 10
    for offset in (10, 11, 12):
        tracker.add(offset)
    assert tracker.finish(11) == 10
    assert tracker.finish(10) == 12
    assert tracker.finish(12) == 13


def test_a_repeated_message_counts_once():
    tracker = OffsetTracker(0)
    assert tracker.add(0, 100)
    assert not tracker.add(0, 100)
    assert (len(tracker), tracker.size_bytes) == (1, 100)
    tracker.finish(0)
    tracker.finish(0)
    assert (len(tracker), tracker.size_bytes) == (0, 0)


def test_offsets_without_a_message_for_us_are_passed_when_all_is_done():
    tracker = OffsetTracker(0)
    tracker.add(3)
    assert tracker.skip_to(50) == 3
    assert tracker.finish(3) == 50
    assert tracker.skip_to(40) == 50


def test_filtered_messages_do_not_widen_the_span():
    tracker = OffsetTracker(0)
    tracker.add(3)
    tracker.skip_to(100_000)
    assert tracker.span == 0
    assert tracker.pause_reason(PullLimits()) is None


def test_pulling_pauses_above_each_limit_and_not_at_it():
    limits = PullLimits(messages=2, size_bytes=100, span=10)
    count = OffsetTracker(0)
    count.add(0)
    count.add(1)
    assert count.pause_reason(limits) is None
    count.add(2)
    assert count.pause_reason(limits) == "3 messages wait, the limit is 2"
    size = OffsetTracker(0)
    size.add(0, 100)
    assert size.pause_reason(limits) is None
    size.add(1, 1)
    assert size.pause_reason(limits) == "101 bytes wait, the limit is 100"
    span = OffsetTracker(0)
    span.add(0)
    span.add(10)
    assert span.pause_reason(limits) is None
    span.finish(10)
    span.add(11)
    assert span.pause_reason(limits) == "unfinished offsets span 11, the limit is 10"
    span.finish(0)
    assert span.pause_reason(limits) is None


@given(st.lists(st.integers(0, 60), unique=True, max_size=40), st.randoms(use_true_random=False), st.data())
def test_committable_never_passes_an_unfinished_message(offsets, rng, data):
    tracker = OffsetTracker(0)
    unfinished = set()
    waiting = sorted(offsets)
    committed = 0
    while waiting or unfinished:
        if waiting and (not unfinished or rng.random() < 0.6):
            offset = waiting.pop(0)
            tracker.add(offset, 1)
            unfinished.add(offset)
        else:
            offset = data.draw(st.sampled_from(sorted(unfinished)))
            unfinished.discard(offset)
            tracker.finish(offset)
        assert tracker.committable <= min(unfinished, default=max(offsets) + 1)
        assert tracker.committable >= committed
        committed = tracker.committable
        assert tracker.size_bytes == len(tracker) == len(unfinished)
    assert tracker.committable == (max(offsets) + 1 if offsets else 0)
