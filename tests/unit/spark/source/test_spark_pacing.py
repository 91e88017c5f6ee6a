"""A batch waits for more messages only within its limit."""

from tianzhou.spark.source.pacing import Pacing


def test_messages_wait_for_others_but_not_for_ever():
    pacing = Pacing(10, 5_000)
    assert not pacing.holds(0, 0.0)
    assert pacing.holds(3, 1.0)
    assert pacing.holds(4, 5.9)
    assert not pacing.holds(4, 6.0)
    assert pacing.holds(2, 6.1)  # the next ones wait again
    assert not pacing.holds(10, 6.2)
    assert pacing.holds(1, 100.0)


def test_enough_never_waits():
    assert not Pacing(10, 5_000).holds(10, 0.0)
    assert not Pacing(None, 5_000).holds(1, 0.0)
    assert not Pacing(10, 0).holds(1, 0.0)
