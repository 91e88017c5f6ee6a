"""Findings of a proof: losses, differences, repetitions, and questions it cannot decide."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tianzhou.bench.proof.acknowledged import line_of, read_lines
from tianzhou.bench.proof.comparison import MessagePlace, ProofVerdict, QueueReading, Reading, compare, majority
from tianzhou.bench.proof.promises import left_out
from tianzhou.errors import ConfigError

A, B, C = "10.0.0.1:10911", "10.0.0.2:10911", "10.0.0.3:10911"


def replica(address: str, *keys: str, broker: str = "broker-a", begin: int = 0, whole: bool = True) -> Reading:
    return Reading(broker, address, {0: QueueReading(begin, list(keys))}, whole=whole)


def check(acknowledged: str, *readings: Reading, copies: int = 0, consumed: str | None = None) -> ProofVerdict:
    promised = {key: MessagePlace("broker-a", 0, offset) for offset, key in enumerate(acknowledged)}
    sets = {reading.broker: copies for reading in readings}
    return compare(promised, readings, sets, Counter(acknowledged if consumed is None else consumed))


def test_three_replicas_that_agree_prove_it() -> None:
    verdict = check("kmn", replica(A, *"kmn"), replica(B, *"kmn"), replica(C, *"kmn"))
    assert verdict.proven
    assert verdict.settled
    assert (verdict.acknowledged, verdict.on_majority, verdict.consumed) == (3, 3, 3)


def test_one_of_three_may_be_behind_and_is_named() -> None:
    verdict = check("kmn", replica(A, *"kmn"), replica(B, *"kmn"), replica(C, *"k"))
    assert verdict.proven
    assert not verdict.settled
    assert [str(one) for one in verdict.behind] == [f"{C}: broker-a:0 ends at 1, elsewhere at 3"]


def test_a_message_on_one_of_three_is_lost_and_named_with_its_place() -> None:
    verdict = check("kmn", replica(A, *"kmn"), replica(B, *"km"), replica(C, *"km"))
    assert not verdict.proven
    assert [str(one) for one in verdict.lost] == [f"n acknowledged at broker-a:0@2: on 1 of 3 replicas ({A})"]
    assert verdict.on_majority == 2


def test_a_message_on_none_is_lost() -> None:
    verdict = check("kmn", replica(A, *"km"))
    assert [str(one) for one in verdict.lost] == ["n acknowledged at broker-a:0@2: on 0 of 1 replicas (none)"]


def test_what_a_replica_that_was_not_read_may_hold_is_not_lost_and_not_proven() -> None:
    silent = Reading("broker-a", C, why="connection refused")
    verdict = check("kmn", replica(A, *"kmn"), replica(B, *"km"), silent)
    assert [one.key for one in verdict.unproven] == ["n"]
    assert not verdict.lost
    assert not verdict.proven


def test_a_set_that_should_have_more_replicas_than_are_known_needs_their_majority() -> None:
    verdict = check("k", replica(A, "k"), copies=3)
    assert [one.key for one in verdict.unproven] == ["k"]
    both = check("k", replica(A, "k"), replica(B, "k"), copies=3)
    assert both.proven


def test_a_replica_that_holds_it_though_not_read_to_its_end_does_not_count_twice() -> None:
    verdict = check("k", replica(A, "k", whole=False), replica(B, whole=True), replica(C, whole=True))
    assert [one.key for one in verdict.lost] == ["k"]


def test_replicas_that_hold_different_messages_at_an_offset_are_named() -> None:
    verdict = check("kmn", replica(A, *"kmn"), replica(B, *"kmn"), replica(C, *"kXn"))
    assert not verdict.proven
    assert [str(one) for one in verdict.differing] == [f"broker-a:0@1: {A} has m, {B} has m, {C} has X"]


def test_a_hole_in_a_queue_is_a_difference() -> None:
    holed = Reading("broker-a", B, {0: QueueReading(0)}, whole=True)
    holed.queues[0].add(0, "k")
    holed.queues[0].add(2, "n")
    verdict = check("kn", replica(A, *"kmn"), holed)
    assert [str(one) for one in verdict.differing] == [f"broker-a:0@1: {A} has m, {B} has nothing"]


def test_what_one_has_deleted_because_it_is_old_is_not_compared() -> None:
    assert check("n", replica(A, *"kmn"), replica(B, "n", begin=2)).proven


def test_sets_are_counted_by_themselves() -> None:
    other = replica(C, "m", broker="broker-b")
    verdict = check("km", replica(A, "k"), replica(B, "k"), other)
    assert verdict.proven


def test_two_halves_of_two_sets_are_no_majority_of_any() -> None:
    verdict = check(
        "k", replica(A, "k"), replica(B, "z"), replica(A + "1", "k", broker="b"), replica(B + "1", "z", broker="b")
    )
    assert [one.key for one in verdict.lost] == ["k"]


def test_messages_that_nobody_consumed_and_those_that_came_twice_are_named() -> None:
    verdict = check("kmn", replica(A, *"kmn"), consumed="kmm")
    assert verdict.not_consumed == ("n",)
    assert [str(one) for one in verdict.consumed_twice] == ["m: 2 times"]
    assert not verdict.proven


def test_a_message_that_is_stored_twice_is_named_and_no_loss() -> None:
    verdict = check("km", replica(A, *"kmk"))
    assert verdict.proven
    assert [str(one) for one in verdict.stored_twice] == ["k: 2 times: broker-a:0@0, broker-a:0@2"]


def test_keys_that_were_asked_for_one_by_one_count_too() -> None:
    asked = Reading("broker-a", B, found={"k": [(0, 0)]}, whole=True)
    assert check("k", replica(A, "k"), asked).proven


def test_without_any_replica_nothing_is_proven() -> None:
    assert not check("k").proven


@pytest.mark.parametrize(("copies", "most"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)])
def test_majorities(copies: int, most: int) -> None:
    assert majority(copies) == most


@given(st.data())
def test_what_was_taken_from_a_majority_is_always_found_out(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 30))
    copies = data.draw(st.integers(1, 5))
    keys = [f"key-{number}" for number in range(count)]
    missing = [data.draw(st.sets(st.sampled_from(keys))) for _ in range(copies)]
    readings = []
    for number, gone in enumerate(missing):
        queue = QueueReading(0)
        for offset, key in enumerate(keys):
            if key not in gone:
                queue.add(offset, key)
        readings.append(Reading("s", f"h{number}:1", {0: queue}, whole=True))
    verdict = compare(dict.fromkeys(keys), readings, {}, Counter(keys))
    expected = {key for key in keys if sum(key not in gone for gone in missing) < majority(copies)}
    assert {one.key for one in verdict.lost} == expected
    assert verdict.on_majority == count - len(expected)
    assert not verdict.unproven
    for one in verdict.differing:
        assert one.place.offset < count
        assert len(set(one.keys.values())) > 1


def test_the_file_of_acknowledged_messages_is_read_as_it_is_written() -> None:
    lines = [line_of("K1", MessagePlace("broker-a", 3, 1071)), "# by hand\n", "\n", "K2\n", "K1 other 0 0\n", "half"]
    assert read_lines(lines, "f") == {"K1": MessagePlace("broker-a", 3, 1071), "K2": None}


@pytest.mark.parametrize("line", ["K1 broker-a\n", "K1 broker-a x 1\n", "K1 broker-a 1 -1\n", "K" * 300 + "\n"])
def test_a_line_that_is_something_else_is_refused_with_its_number(line: str) -> None:
    with pytest.raises(ConfigError, match="acked, line 2"):
        read_lines(["K0\n", line], "acked")


def test_what_settings_do_not_promise_is_said() -> None:
    assert list(left_out({"durability": "zero-loss", "flushDiskType": "SYNC_FLUSH", "brokerRole": "SYNC_MASTER"})) == []
    loose = {"flushDiskType": "ASYNC_FLUSH", "brokerRole": "ASYNC_MASTER", "cleanFileForciblyEnable": "true"}
    assert [text.partition("=")[0] for text in left_out(loose)] == [
        "flushDiskType", "brokerRole", "cleanFileForciblyEnable",
    ]  # fmt: skip
    theirs = {"flushDiskType": "SYNC_FLUSH", "brokerRole": "SYNC_MASTER", "inSyncReplicas": "1"}
    assert [text.partition("=")[0] for text in left_out(theirs)] == ["inSyncReplicas"]
    group = {"flushDiskType": "SYNC_FLUSH", "brokerRole": "ASYNC_MASTER", "enableDLegerCommitLog": "true"}
    assert list(left_out(group)) == []
    assert list(left_out({})) == []
