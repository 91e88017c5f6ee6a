"""The parts of a run, and their distribution over processes."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
from hypothesis import given as draws
from hypothesis import settings
from hypothesis import strategies as st

from tianzhou.bench import payloads
from tianzhou.bench.jobs import receiving_jobs, sending_jobs
from tianzhou.bench.payloads import Keys
from tianzhou.bench.spec import DEFAULT_SECONDS, BenchKind, LoadSpec, Payload
from tianzhou.bench.worker_protocol import decode_job, encode
from tianzhou.errors import ConfigError

MARK = "01234567"


def chance(size: int) -> bytes:
    return bytes(itertools.islice(itertools.cycle(range(256)), size))


@settings(deadline=None)
@draws(
    topics=st.integers(1, 4),
    connections=st.integers(1, 5),
    groups=st.integers(1, 3),
    consumers=st.integers(1, 4),
    processes=st.integers(1, 4),
    count=st.integers(1, 1000),
    batch=st.integers(1, 32),
)
def test_processes_share_connections_and_members(
    topics: int, connections: int, groups: int, consumers: int, processes: int, count: int, batch: int
) -> None:
    names = tuple(f"t{n}" for n in range(topics))
    given = LoadSpec(
        BenchKind.mixed, names, connections=connections, groups=groups, consumers=consumers, count=count, batch=batch,
        processes=min(processes, topics * connections),
    ).checked()  # fmt: skip
    senders = sending_jobs(given, "h:1", None, MARK)
    sent = [topic for job in senders for topic, _ in job.members]
    assert sorted(sent) == sorted(names * connections)
    assert all(job.members for job in senders)
    assert {(job.tickets, job.of, job.mark) for job in senders} == {(-(-count // batch), len(senders), MARK)}
    receivers = receiving_jobs(given, "h:1", None, MARK)
    members = [member for job in receivers for member in job.members]
    assert len(members) == topics * groups * consumers
    assert len(set(members)) == topics * groups
    assert len({group for _, group in members}) == topics * groups
    assert all(job.members for job in receivers)
    for job in [*senders, *receivers]:
        assert decode_job(encode(job)) == job


def test_a_rate_of_messages_becomes_one_of_batches() -> None:
    (job,) = sending_jobs(LoadSpec(BenchKind.produce, rate=1000, batch=32).checked(), "h:1", None, MARK)
    assert (job.tickets_a_second, job.seconds, job.mark) == (31.25, DEFAULT_SECONDS, "")


def test_producers_go_on_until_stopped_while_a_backlog_is_consumed() -> None:
    (job,) = sending_jobs(LoadSpec(BenchKind.mixed, seconds=5, backlog_bytes=1).checked(), "h:1", None, MARK)
    assert job.seconds is None


def test_each_process_gets_a_connection_by_default() -> None:
    assert LoadSpec(BenchKind.produce, processes=3).checked().connections == 3
    assert LoadSpec(BenchKind.produce, ("a", "b"), processes=3).checked().connections == 2
    with pytest.raises(ConfigError, match=r"--processes 4: each needs a connection.*give --connections 4"):
        LoadSpec(BenchKind.produce, processes=4, connections=2).checked()


def test_latency_needs_a_rate() -> None:
    with pytest.raises(ConfigError, match="--rate 0: latency is measured under a steady load"):
        LoadSpec(BenchKind.latency).checked()


def test_there_is_a_member_for_each_process_that_consumes() -> None:
    assert LoadSpec(BenchKind.consume, processes=3).checked().consumers == 3
    assert LoadSpec(BenchKind.consume, processes=3, groups=2).checked().consumers == 2


def test_the_document_can_be_compared() -> None:
    given = LoadSpec(BenchKind.mixed, payload=Payload(10)).checked()
    assert given.document()["payload"] == dataclasses.asdict(Payload(10))
    assert given.document()["topics"] == ["bench"]


def test_bodies() -> None:
    assert len(payloads.letters(1000, chance)) == 1000
    assert set(payloads.letters(1000, chance)) <= set(payloads.LETTERS)
    assert payloads.bodies_of_lines(b"a\r\n\nbb\n", "f") == [b"a", b"bb"]
    with pytest.raises(ConfigError, match="--payload-file f: holds no line"):
        payloads.bodies_of_lines(b"\n\n", "f")
    pool = payloads.half_random(10, 0.25, 3, lambda size: b"x" * size)
    assert pool == [b"xx" + bytes(8)] * 3


def test_keys() -> None:
    assert payloads.key_source(Keys.none, 0, chance) is None
    in_turn = payloads.key_source(Keys.round_robin, 1, chance)
    assert in_turn is not None
    first = list(itertools.islice(in_turn, payloads.ROUND_ROBIN_KEYS))
    assert (first[0], len(set(first)), next(in_turn)) == ("key-01009", payloads.ROUND_ROBIN_KEYS, "key-01009")
    random = payloads.key_source(Keys.random, 0, chance)
    assert random is not None
    assert next(random) == "0001020304050607"
