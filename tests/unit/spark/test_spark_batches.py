"""Decisions of driver and tasks on the replies of brokers, for arbitrary replies."""

import asyncio

import pytest

pytest.importorskip("pyspark")

from tianzhou.errors import BrokerError, ConfigError
from tianzhou.model import Message
from tianzhou.spark.sink.exactly_once import BatchName, BatchNotWritten, Staged, abort, commit, stage
from tianzhou.spark.sink.options import parse_write
from tianzhou.spark.sink.outgoing import OutgoingMessage
from tianzhou.wire.bodies.staging import BatchDecision, StagedAttempt, StagingState

GIVEN = {"namesrvAddr": "a:1", "topic": "t"}
OPTIONS = parse_write({**GIVEN, "delivery": "exactly-once"}, False, stream=True)


class FakeProcess:
    def run(self, work):
        return asyncio.run(work)


class FakeStaging:
    """A fake broker with batches decided up to a number."""

    def __init__(self, decided=-1, stands=None):
        self.decided, self.stands = decided, stands
        self.asked = []

    async def coordinator(self, writer):
        return "broker-a"

    async def state(self, broker, writer):
        return StagingState(decided=self.decided)

    async def decide(self, wanted):
        self.asked.append(("decide", wanted))
        return self.stands or wanted

    async def publish(self, decision):
        self.asked.append(("publish", decision))

    async def give_up(self, given, brokers):
        self.asked.append(("give up", given.attempts, brokers))


def connect(staging):
    return lambda _: (FakeProcess(), staging)


def staged(attempt="x", coordinator="broker-a", batch=3, **units):
    return Staged(5, "W", batch, coordinator, attempt, units)


def test_what_all_tasks_staged_is_decided_and_published():
    staging = FakeStaging()
    commit(OPTIONS, [staged("x", a=1), staged("y", a=2, b=1), None], connect(staging))
    wanted = BatchDecision("W", 3, "broker-a", [StagedAttempt("x", {"a": 1}), StagedAttempt("y", {"a": 2, "b": 1})])
    assert staging.asked == [("decide", wanted), ("publish", wanted)]
    assert wanted.brokers == ["a", "b"]


def test_the_decision_that_stands_is_published_and_an_older_batch_is_not():
    stands = BatchDecision("W", 3, "broker-a", [StagedAttempt("earlier", {"a": 1})])
    staging = FakeStaging(stands=stands)
    commit(OPTIONS, [staged("x", a=1)], connect(staging))
    assert staging.asked[1] == ("publish", stands)
    staging = FakeStaging(stands=BatchDecision("W", 9, "broker-a"))
    commit(OPTIONS, [staged("x", a=1)], connect(staging))
    assert [what for what, *_ in staging.asked] == ["decide"]


def test_a_batch_that_was_decided_is_not_staged_again():
    staging = FakeStaging(decided=3)
    rows = iter([OutgoingMessage(Message("t", b"x"), None)])
    report = stage(OPTIONS, rows, BatchName("W", 3), 0, connect(staging))
    assert (report.rows, report.attempt, report.units) == (0, "", {})
    assert next(rows), "not even read"
    commit(OPTIONS, [report], connect(staging))
    assert [what for what, *_ in staging.asked] == ["decide", "publish"]


@pytest.mark.parametrize(
    ("writer", "says"),
    [
        (
            "batch:by-hour",
            "batchKey=by-hour belongs to another write, or its numbers begin anew, as in a foreachBatch with",
        ),
        ("a-query", "the checkpoint was put back from a copy"),
    ],
)
def test_a_batch_before_the_last_one_is_warned_of(writer, says, caplog):
    staging = FakeStaging(decided=41, stands=BatchDecision(writer, 41, "broker-a"))
    report = stage(
        OPTIONS, iter([OutgoingMessage(Message("t", b"x"), None)]), BatchName(writer, 0), 0, connect(staging)
    )
    commit(OPTIONS, [report], connect(staging))
    assert f"batch 0 of {writer} writes nothing: batches up to 41 are written already" in caplog.text
    assert says in caplog.text


def test_the_last_batch_once_more_is_no_warning(caplog):
    staging = FakeStaging(decided=3)
    commit(OPTIONS, [Staged(0, "batch:by-hour", 3, "broker-a")], connect(staging))
    assert not caplog.records


def test_a_coordinator_that_has_forgotten_is_not_believed():
    staging = FakeStaging(decided=-1)
    with pytest.raises(BatchNotWritten, match="reported it as decided, and has forgotten that"):
        commit(OPTIONS, [staged(""), staged("x", a=1)], connect(staging))
    assert staging.asked == []


def test_tasks_that_do_not_agree_write_nothing():
    staging = FakeStaging()
    with pytest.raises(BatchNotWritten, match="batch 3 of W at broker-a; batch 3 of W at broker-b"):
        commit(OPTIONS, [staged("x"), staged("y", coordinator="broker-b")], connect(staging))
    assert staging.asked == []


def test_nothing_staged_is_nothing_to_do():
    # No broker exists, so a request would fail.
    commit(OPTIONS, [], connect(None))
    abort(OPTIONS, [None, staged("")], connect(None))


def test_a_failed_batch_is_given_up():
    staging = FakeStaging()
    abort(OPTIONS, [None, staged("x", b=1), staged("y", a=1)], connect(staging))
    assert staging.asked == [("give up", ["x", "y"], ["a", "b"])]


def test_a_refusal_reaches_the_driver():
    class Refusing(FakeStaging):
        async def decide(self, wanted):
            raise BrokerError(604, "given up")

    with pytest.raises(BrokerError, match="given up"):
        commit(OPTIONS, [staged("x", a=1)], connect(Refusing()))


@pytest.mark.parametrize(
    ("options", "stream", "text"),
    [
        ({"delivery": "exactly-once"}, False, "a batch write has no name .* give it one with the option batchKey"),
        ({"delivery": "once"}, False, "delivery=once: expected at-least-once or exactly-once"),
        ({"batchKey": "k"}, False, "batchKey=k: counts with delivery=exactly-once only"),
        ({"batchNumber": "1"}, False, "batchNumber=1: says which batch of a batchKey it is"),
        (
            {"delivery": "exactly-once", "batchKey": "k", "batchNumber": "-1"},
            False,
            "batchNumber=-1: expected a whole number from 0",
        ),
        ({"delivery": "exactly-once", "batchKey": "x" * 181}, False, "batchKey=x+: expected 1 to 180 characters"),
        ({"delivery": "exactly-once", "batchKey": "k"}, True, "batchKey=k: a stream's batches have names of their own"),
        ({"maxMessagesPerSecond": "0"}, True, "maxMessagesPerSecond=0: expected a whole number from 1, for each task"),
        ({"maxMessagesPerSecond": "1.5"}, False, "maxMessagesPerSecond=1.5: expected a whole number from 1"),
        (
            {"maxMessagesPerSecond": "5", "delivery": "exactly-once"},
            True,
            "maxMessagesPerSecond=5: what is delivered exactly-once becomes visible a batch at a time",
        ),
    ],
)
def test_options_that_do_not_go_together(options, stream, text):
    with pytest.raises(ConfigError, match=text):
        parse_write({**GIVEN, **options}, False, stream=stream)


def test_how_it_is_delivered():
    assert not parse_write(GIVEN, False).exactly_once
    assert not parse_write({**GIVEN, "delivery": "At-Least-Once"}, False, stream=True).exactly_once
    options = parse_write({**GIVEN, "delivery": "exactly-once", "batchKey": "k", "batchNumber": "7"}, False)
    assert (options.exactly_once, options.batch_key, options.batch_number) == (True, "k", 7)
    assert options.max_messages_per_second is None
    assert parse_write({**GIVEN, "maxmessagespersecond": "7"}, False).max_messages_per_second == 7
