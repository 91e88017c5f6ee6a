"""What pipelines without Spark decide: conditions they answer, how letters are counted, where a replay goes on."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace

import pytest

from tianzhou.cli.output import Output
from tianzhou.cli.pipelines.reporting import Report
from tianzhou.errors import ClientError, ConfigError
from tianzhou.model import MessageExt, MessageQueue, PullResult, PullStatus
from tianzhou.pipelines.conditions import condition_of
from tianzhou.pipelines.few_dead_letters import LETTER_COLUMNS, Causes, letter_of
from tianzhou.pipelines.few_messages import Span, send_in_order
from tianzhou.pipelines.few_replayed import STEPS, Checkpoint, Pace, Place, is_begun, is_sparks, place_of, replay

ROWS = [
    {"reason": "Timeout", "keys": "k1", "reconsumeTimes": 16, "originTopic": "orders"},
    {"reason": None, "keys": "k2", "reconsumeTimes": 3, "originTopic": "orders"},
    {"reason": "Declined", "keys": None, "reconsumeTimes": 1, "originTopic": "payments"},
]


@pytest.mark.parametrize(
    ("text", "chosen"),
    [
        ("reason = 'Timeout'", [0]),
        ("REASON <> 'Timeout'", [2]),
        ("reason IS NULL", [1]),
        ("reason IS NOT NULL AND (keys = 'k1' OR originTopic = 'payments')", [0, 2]),
        ("reason IN ('Timeout', 'Declined')", [0, 2]),
        ("reason NOT IN ('Timeout')", [2]),
        ("reconsumeTimes > 3 OR originTopic = 'payments'", [0, 2]),
        ("reconsumeTimes <= 3 AND originTopic = 'orders'", [1]),
        ("keys = 'k2' OR reason = 'Declined'", [1, 2]),
    ],
)
def test_conditions_mean_what_they_mean_in_sql(text, chosen):
    fulfils = condition_of(text, LETTER_COLUMNS)
    assert [number for number, row in enumerate(ROWS) if fulfils(row)] == chosen


@pytest.mark.parametrize(
    "text",
    [
        "colour = 'red'",
        "keys < 'k3'",
        "keys = 7",
        "reconsumeTimes = '7'",
        "reconsumeTimes > 3.5",
        "reconsumeTimes = 99999999999",
        "NOT reason = 'Timeout'",
        "reason = 'it''s'",
        "reason = 'a\\'b'",
        'reason = "Timeout"',
        "`reason` = 'Timeout'",
        "length(body) > 3",
        "reason LIKE 'T%'",
        "reason = 'a' = TRUE",
        "TRUE",
        "reason = originTopic",
        "reason =",
        "",
    ],
)
def test_what_may_mean_something_else_is_left_to_spark(text):
    assert condition_of(text, LETTER_COLUMNS) is None


def letter(number, properties, times=16, stored=0):
    message = SimpleNamespace(
        properties={"UNIQ_KEY": f"id{number}", **properties},
        reconsume_times=times,
        store_timestamp=stored,
        msg_id=f"id{number}",
    )
    return letter_of(message, ("reason", "exception"))


def test_letters_are_counted_by_cause_the_most_frequent_first():
    causes = Causes(samples=2)
    origin = {"DLQ_ORIGIN_TOPIC": "orders"}
    for number in range(3):
        causes(letter(number, {**origin, "reason": "Timeout"}, stored=100 - number))
    causes(letter(3, {**origin, "exception": "ValueError", "TAGS": "a"}))
    causes(letter(4, {**origin}))
    causes(letter(5, {}))
    found = causes.ordered()
    assert [cause for cause, _ in found] == [
        ("orders", None, "Timeout", 16),
        (None, None, None, 16),
        ("orders", None, None, 16),
        ("orders", "a", "ValueError", 16),
    ]
    first = found[0][1]
    assert (first.letters, first.first_ms, first.last_ms) == (3, 98, 100)
    assert [one.message.msg_id for one in first.newest] == ["id0", "id1"]


def span(number, begin, end):
    return Span(MessageQueue("orders", "broker-a", number), begin, end)


def test_where_a_replay_goes_on():
    begun = Place("orders", "again", (span(0, 5, 10), span(1, 7, 7)))
    assert place_of(begun.to_json()) == begun
    queue = begun.spans[0].queue
    read = begun.passed(queue, 6, SimpleNamespace(queue_offset=5, store_timestamp=77))
    assert place_of(read.to_json()) == read
    assert read.marks == {queue: (5, 77)}
    older = json.loads(read.to_json())
    del older["marks"]  # as it was written before there were any
    assert place_of(json.dumps(older)) == begun.passed(queue, 6)
    now = [span(0, 0, 12), span(1, 0, 9), span(2, 0, 4)]
    # What was begun is finished first; then what has come since is sent, and queues that came.
    assert begun.going_on(now) == begun
    finished = begun.passed(span(0, 0, 0).queue, 10)
    assert finished.going_on(now).spans == (span(0, 10, 12), span(1, 7, 9), span(2, 0, 4))
    # A topic that was made anew is shorter than the place.
    assert finished.going_on([span(0, 0, 3)]).spans == (span(0, 10, 10),)
    # Into its own topic it would send what it sent itself.
    own = Place("orders", "orders", (span(0, 10, 10),))
    assert own.going_on(now) == own


def test_a_checkpoint_is_of_one_replay(tmp_path):
    folder = str(tmp_path / "replay-1")
    checkpoint = Checkpoint(folder)
    assert not is_begun(folder)
    assert checkpoint.place("orders", "again") is None
    with checkpoint.held():
        checkpoint.save(Place("orders", "again", (span(0, 5, 10),)))
        with pytest.raises(ConfigError, match="another replay runs with it"), Checkpoint(folder).held():
            pass
    assert is_begun(folder)
    assert not is_sparks(folder)
    assert checkpoint.place("orders", "again").spans == (span(0, 5, 10),)
    with pytest.raises(ConfigError, match="is that of a replay from orders to again; give this one a folder"):
        checkpoint.place("orders", "orders")
    (tmp_path / "replay-1" / "replay.json").write_text(json.dumps([1]))
    with pytest.raises(ConfigError, match="is no place of a replay"):
        checkpoint.place("orders", "again")


def test_sparks_checkpoints_stay_sparks(tmp_path):
    (tmp_path / "offsets").mkdir()
    assert is_sparks(str(tmp_path))
    assert is_sparks("hdfs://cluster/replay-1")
    assert not is_sparks(str(tmp_path / "new"))


class Clock:
    def __init__(self):
        self.at = 0.0

    def now(self):
        return self.at

    async def sleep(self, seconds):
        self.at += seconds


@pytest.mark.parametrize(("rate", "step"), [(500, 50), (4, 1), (100_000, 256)])
def test_messages_are_sent_evenly(rate, step):
    clock = Clock()
    pace = Pace(rate, clock.now, clock.sleep)
    sent = []

    async def send():
        for _ in range(40):
            await pace.wait(pace.step)
            sent.extend([clock.at] * pace.step)

    asyncio.run(send())
    assert pace.step == step
    # No second has more than a second's worth and a step.
    assert all(later - at >= 0.999 for at, later in zip(sent, sent[rate + step :], strict=False))
    assert sent[-1] == pytest.approx((len(sent) - step) / rate)


def test_what_is_late_is_not_made_up_for():
    clock = Clock()
    pace = Pace(10, clock.now, clock.sleep)
    times = []

    async def send():
        for number in range(3):
            await pace.wait(1)
            times.append(clock.at)
            if number == 0:
                clock.at += 60

    asyncio.run(send())
    assert times == pytest.approx([0, 60, 60.1])


def test_messages_of_one_sharding_key_keep_their_order():
    sent = []

    class Producer:
        async def send(self, message):
            for _ in range(message.delay):
                await asyncio.sleep(0)
            if message.delay > 5:
                raise ConnectionError("gone")
            sent.append(message.body)

    def message(body, key, delay):
        return SimpleNamespace(topic="orders", body=body, sharding_key=key, delay=delay)

    asyncio.run(send_in_order(Producer(), [message(1, "a", 4), message(2, "a", 0), message(3, None, 0)]))
    assert sent == [3, 1, 2]
    with pytest.raises(ConnectionError):
        asyncio.run(send_in_order(Producer(), [message(1, None, 6), message(2, None, 0)]))


def test_progress_as_json_lines():
    clock, lines = Clock(), []
    with Report("read", 400, Output.json, now=clock.now, write=lines.append) as report:
        for read in (100, 200, 300, 400):
            clock.at += 0.5
            report(read, read // 2)
    # A line a second, and none for what takes less.
    assert lines == [
        {"progress": {"read": 200, "of": 400, "percent": 50.0, "sent": 100, "per_second": 200.0}},
        {"progress": {"read": 400, "of": 400, "percent": 100.0, "sent": 200, "per_second": 200.0}},
    ]


def test_progress_on_a_terminal_is_a_bar(monkeypatch, capsys):
    pytest.importorskip("rich")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "120")
    clock = Clock()
    with Report("read", 400, Output.text, now=clock.now) as report:
        clock.at += 2
        report(100, 50)
    shown = capsys.readouterr().err
    assert "100/400" in shown
    assert "25%" in shown
    assert "50 sent" in shown
    assert "50/s" in shown


class OneQueue:
    """A queue of messages, for a replay to read, and a producer that fails at a message."""

    def __init__(self, count, fails_at):
        self._messages = [
            MessageExt("orders", b"x", 0, {}, "broker-a", 0, number, 3, 0, 4, "h", 5, "h", 0, 0, 7, 8, f"id{number}")
            for number in range(count)
        ]
        self._fails_at = fails_at
        self.sent = []

    async def pull(self, queue, begin, count, *, tags):
        found = self._messages[begin : begin + count]
        return PullResult(PullStatus.FOUND, begin + len(found), 0, len(self._messages), found)

    async def send(self, message):
        if len(self.sent) == self._fails_at:
            raise ClientError("the broker is away")
        self.sent.append(message)


async def test_a_replay_that_fails_goes_on_behind_the_last_step_that_was_sent(tmp_path):
    checkpoint = Checkpoint(str(tmp_path / "replay"))
    pace = Pace(STEPS * 3)
    begun = Place("orders", "again", (span(0, 0, 8),))
    first = OneQueue(8, fails_at=6)
    work = {"tags": None, "wanted": lambda message: True, "pace": pace, "progress": lambda read, sent: None}
    with checkpoint.held():
        with pytest.raises(ClientError, match="away"):
            await replay(first, first, checkpoint, begun, **work)
        left = checkpoint.place("orders", "again")
        assert left.spans == (span(0, 6, 8),)
        second = OneQueue(8, fails_at=-1)
        assert await replay(second, second, checkpoint, left, **work) == 2
    assert len(first.sent) + len(second.sent) == 8
