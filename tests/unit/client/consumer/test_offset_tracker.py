"""The committable offset is the lowest unfinished offset, independent of the order in which messages finish."""

from hypothesis import given
from hypothesis import strategies as st

from tianzhou.client.consumer.offset_tracker import OffsetTracker, PullLimits


def test_the_lowest_unfinished_offset_is_committable():
    tracker = OffsetTracker(10)
    assert tracker.committable == 10
    for offset in (10, 11, 12):
        tracker.add(offset)
    for offset, committable in ((11, 10), (10, 12), (12, 13)):
        tracker.finish(offset)
        assert tracker.committable == committable


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
    tracker.skip_to(50)
    assert tracker.committable == 3
    tracker.finish(3)
    assert tracker.committable == 50
    tracker.skip_to(40)
    assert tracker.committable == 50


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


class Reference:
    """The reference implementation, straight from the definition."""

    def __init__(self):
        self.unfinished = {}
        self.end = 0
        self.highest = -1

    def add(self, offset, size):
        if offset in self.unfinished:
            return False
        self.unfinished[offset] = size
        self.highest = max(self.highest, offset)
        self.end = max(self.end, self.highest + 1)
        return True

    def finish(self, offset):
        self.unfinished.pop(offset, None)


RUNS = st.lists(st.integers(0, 8), min_size=1, max_size=8)


@given(st.data())
def test_runs_and_single_messages_count_as_the_definition_says(data):
    tracker, reference = OffsetTracker(0), Reference()
    behind = 0
    for _ in range(data.draw(st.integers(1, 25))):
        step = data.draw(st.sampled_from(["run", "wild run", "add", "finish", "finish run", "skip"]))
        if step == "run":
            offsets = []
            for gap in data.draw(RUNS):
                offsets.append(behind + gap)
                behind += gap + 1
            known = max(reference.highest, -1)
            assert tracker.add_run(offsets, [o % 7 for o in offsets]) == (offsets[0] > known)
            if offsets[0] > known:
                assert all(reference.add(o, o % 7) for o in offsets)
        elif step == "wild run":
            offsets = data.draw(st.lists(st.integers(0, 60), min_size=2, max_size=5))
            in_order = offsets == sorted(set(offsets)) and offsets[0] > reference.highest
            assert tracker.add_run(offsets, [o % 7 for o in offsets]) == in_order
            if in_order:
                assert all(reference.add(o, o % 7) for o in offsets)
        elif step == "add":
            offset = data.draw(st.integers(0, 60))
            assert tracker.add(offset, offset % 7) == reference.add(offset, offset % 7)
        elif step == "finish":
            offset = data.draw(st.integers(0, 60))
            tracker.finish(offset)
            reference.finish(offset)
        elif step == "finish run":
            known = sorted(reference.unfinished)
            begin = data.draw(st.integers(0, 2))
            offsets = known[begin : begin + data.draw(st.integers(1, 6))]
            tracker.finish_run(offsets)
            for offset in offsets:
                reference.finish(offset)
        else:
            offset = data.draw(st.integers(0, 80))
            tracker.skip_to(offset)
            reference.end = max(reference.end, offset)
        unfinished = reference.unfinished
        assert len(tracker) == len(unfinished)
        assert tracker.size_bytes == sum(unfinished.values())
        assert tracker.committable == min(unfinished, default=reference.end)
        assert tracker.highest == (reference.highest if unfinished else None)
        assert tracker.span == (reference.highest - min(unfinished) if unfinished else 0)
        assert all((offset in tracker) == (offset in unfinished) for offset in range(62))


def test_what_is_passed_is_forgotten():
    tracker = OffsetTracker(0)
    for start in range(0, 20_000, 32):
        offsets = list(range(start, start + 32))
        tracker.add_run(offsets, [1] * 32)
        for offset in offsets:
            tracker.finish(offset)
    assert len(tracker._offsets) < 1_000
    assert (tracker.committable, tracker.size_bytes) == (20_000, 0)
