"""`message get|query|trace` and `consume` of parts of a topic: output and refusals."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tianzhou import Message, MessageQueue
from tianzhou.cli.messages.looking import TopicSpan, chosen, span_of
from tianzhou.cli.messages.moments import moment_ms, span_ms
from tianzhou.errors import ClientError, ConfigError
from tianzhou.testing import Cluster

Run = Callable[..., tuple[int, str, str]]
NOW_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(virtual=False) as one:
        one.create_topic("orders", 2)
        yield one


@pytest.fixture(scope="module")
def sent(cluster: Cluster) -> list[Any]:
    """Return three messages in queue 0 of orders and one in queue 1; the producer traces."""
    with cluster.producer("shop", trace=True) as producer:
        first = [
            producer.send(
                Message("orders", b"body %d" % n, tags="paid", keys=f"k{n}", properties={"shop": "north"}),
                MessageQueue("orders", "broker-a", 0),
            )
            for n in range(3)
        ]
        return [
            *first,
            producer.send(
                Message("orders", b"other", properties={"a\x1b[2J": "b\x1b[2J"}), MessageQueue("orders", "broker-a", 1)
            ),
        ]


@pytest.fixture
def ask(cluster: Cluster, sent: list[Any], run: Run) -> Run:
    """Return the runner of commands at the cluster."""
    del sent
    return lambda *args: run(*args, "-n", cluster.namesrv_addr)


# --- times ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("30s", NOW_MS - 30_000),
        ("10m", NOW_MS - 600_000),
        ("2h", NOW_MS - 7_200_000),
        ("3d", NOW_MS - 259_200_000),
        ("999999999d", 0),
        ("1970-01-01T00:00:01+00:00", 1_000),
        ("2026-01-31T08:00:00Z", 1_769_846_400_000),
        ("2026-01-31T08:00:00", int(dt.datetime(2026, 1, 31, 8).timestamp() * 1000)),  # noqa: DTZ001
        ("1960-01-01", 0),
    ],
)
def test_a_time_is_how_long_ago_or_iso(text: str, expected: int) -> None:
    assert moment_ms(text, "--since", NOW_MS) == expected


@pytest.mark.parametrize("text", ["", "10", "m", "10 m", "-5m", "1w", "soon", "٣m", "2026-13-01", "9999999999d"])
def test_what_is_no_time_is_named(text: str) -> None:
    with pytest.raises(ConfigError, match=f"--until {text}: expected how long ago as 30s"):
        moment_ms(text, "--until", NOW_MS)


def test_a_span_has_its_beginning_before_its_end() -> None:
    assert span_ms(None, "1m", NOW_MS) == (None, NOW_MS - 60_000)
    assert span_ms("1m", "1m", NOW_MS) == (NOW_MS - 60_000, NOW_MS - 60_000)
    with pytest.raises(ConfigError, match="--since 1m is after --until 2m"):
        span_ms("1m", "2m", NOW_MS)


# --- parts of a topic ----------------------------------------------------------------------------------------


def test_only_an_end_means_from_the_beginning() -> None:
    assert span_of((), None, "0s", None, False, NOW_MS) == TopicSpan(end_ms=NOW_MS, from_beginning=True)
    assert span_of(("0",), None, None, 5, False, NOW_MS) == TopicSpan(("0",), offset=5)
    assert span_of((), "1s", None, None, False, NOW_MS) == TopicSpan(begin_ms=NOW_MS - 1_000)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (((), "1m", None, 0, False), "give one"),
        (((), None, None, 0, True), "give one"),
        ((("x",), None, None, None, False), "--queue x: expected a queue's number"),
        (((), None, None, 5, False), "--offset 5 is a place in one queue"),
    ],
)
def test_parts_that_cannot_be_are_refused(arguments: tuple[Any, ...], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        span_of(*arguments, NOW_MS)


def test_queues_are_named_by_number_or_by_broker_and_number() -> None:
    queues = [MessageQueue("t", broker, number) for broker in ("a", "b") for number in (0, 1)]
    assert chosen(queues, ()) == queues
    assert chosen(queues, ("1",)) == [queues[1], queues[3]]
    assert chosen(queues, ("b:0", "0")) == [queues[0], queues[2]]
    with pytest.raises(ClientError, match="--queue c:0: topic t has no such queue; it has a:0, a:1, b:0, b:1"):
        chosen(queues, ("c:0",))


def bodies(printed: str) -> list[str]:
    return sorted(json.loads(line)["body"] for line in printed.splitlines())


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("--until 0s", ["body 0", "body 1", "body 2", "other"]),
        ("--since 1h --until 0s", ["body 0", "body 1", "body 2", "other"]),
        ("--until 1h", []),
        ("--offset 1 --queue broker-a:0 --until 0s", ["body 1", "body 2"]),
        ("--offset -1 --until 0s", ["body 2", "other"]),
        ("--queue 1 --from-beginning --max 1", ["other"]),
        ("--tags nothing --until 0s", []),
    ],
)
def test_a_part_of_a_topic_is_shown_and_the_end_is_not_waited_for(
    ask: Run, options: str, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tianzhou.cli.consume.output_closed", lambda: False)  # the test's stdout is no file
    code, out, err = ask("consume", "orders", *options.split(), "-o", "json")
    assert (code, bodies(out), err) == (0, expected, "")


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        ("consume orders -g billing --since 1m", 2, "tianzhou group reset billing -t orders --to ..."),
        ("consume orders --from-end --since 1m", 2, "leave --since, --until and --offset out"),
        ("consume orders --offset 99 --queue 0", 1, "offset 99 is outside of"),
        ("consume orders --queue 7", 1, "it has broker-a:0, broker-a:1"),
        ("consume ordres --since 1m", 1, "did you mean orders?"),
        ("message get ordres broker-a:0@0", 1, "did you mean orders?"),
        ("message get orders broker-a:0@99", 1, "no message at broker-a:0@99"),
        ("message get orders broker-b:0@0", 1, "no message at broker-b:0@0"),
        ("message get orders nonsense", 1, "no message with id nonsense"),
        ("message query ordres -k k1", 1, "did you mean orders?"),
        ("message query orders -k k1 --since soon", 2, "--since soon: expected how long ago"),
        ("message trace x --trace-topic nowhere", 1, "traceTopicEnable=true"),
        ("topic describe ordres", 1, "did you mean orders?"),
    ],
)
def test_what_cannot_be_done_is_said(ask: Run, line: str, code: int, words: str) -> None:
    ended, out, err = ask(*line.split())
    assert (ended, out) == (code, "")
    assert words in err


# --- messages ------------------------------------------------------------------------------------------------


def test_a_message_is_found_by_its_ids_and_by_its_place(ask: Run, sent: list[Any]) -> None:
    for name in (sent[1].msg_id, sent[1].offset_msg_id, "broker-a:0@1"):
        code, out, _ = ask("message", "get", "orders", name, "-o", "json")
        found = json.loads(out)
        assert (code, found["body"], found["keys"], found["groups"]) == (0, "body 1", "k1", [])
    _, out, err = ask("message", "get", "orders", "broker-a:0@1")
    assert "property shop  north" in out
    assert "\nbody 1\n" in out
    assert err == "no group consumes topic orders\n"


def test_a_senders_property_moves_no_cursor(ask: Run) -> None:
    code, out, _ = ask("message", "get", "orders", "broker-a:1@0")
    assert (code, "property a" in out, "\x1b" in out) == (0, True, False)


def test_what_became_of_a_message_is_shown_by_group(ask: Run, cluster: Cluster) -> None:
    cluster.create_topic("invoices", 1)
    with cluster.producer("shop") as producer:
        producer.send(Message("invoices", b"an invoice"))
    with cluster.admin() as admin:
        admin.groups.create("billing")
        admin.groups.reset("billing", "invoices", to_latest=True)
    _, out, _ = ask("message", "get", "invoices", "broker-a:0@0", "-o", "json")
    assert json.loads(out)["groups"] == [{"group": "billing", "status": "NOT_ONLINE", "why": None}]


def test_messages_are_found_by_key(ask: Run) -> None:
    code, out, err = ask("message", "query", "orders", "--key", "k2", "--since", "1h")
    assert (code, err) == (0, "")
    assert "broker-a:0@2" in out.splitlines()[1]
    [found] = json.loads(ask("message", "query", "orders", "-k", "k1", "-o", "json")[1])
    assert (found["body"], found["properties"]) == ("body 1", {"shop": "north"})
    code, out, err = ask("message", "query", "orders", "-k", "k1", "--until", "1h")
    assert (code, out) == (0, "")
    assert "no message with key k1" in err


def test_messages_of_a_time_are_found_the_newest_first(ask: Run) -> None:
    found = json.loads(ask("message", "query", "orders", "--since", "1h", "--limit", "4", "-o", "json")[1])
    assert [one["body"] for one in found if one["queue_id"] == 0] == ["body 2", "body 1", "body 0"]
    assert len(json.loads(ask("message", "query", "orders", "--limit", "2", "-o", "json")[1])) == 2
    code, out, err = ask("message", "query", "orders", "--until", "1h")
    assert (code, out, err) == (0, "", "topic orders has no message of that time\n")


def test_a_trace_says_who_sent(ask: Run, sent: list[Any]) -> None:
    code, out, _ = ask("message", "trace", sent[0].msg_id)
    heading, line = out.splitlines()
    assert (code, heading.split()[:2]) == (0, ["what", "when"])
    assert line.startswith("Pub")
    [record] = json.loads(ask("message", "trace", sent[0].msg_id, "-o", "json")[1])
    assert (record["group"], record["topic"], record["success"]) == ("shop", "orders", True)
    assert "no trace of nothing" in ask("message", "trace", "nothing")[2]


@pytest.mark.parametrize(("option", "expected"), [("--from-end", 0), ("--from-beginning", 4), ("", 4)])
def test_a_new_group_begins_where_the_option_says(
    ask: Run, cluster: Cluster, option: str, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tianzhou.cli.consume.output_closed", lambda: False)  # the test's stdout is no file
    topic = group = f"begin{option or '-by-default'}"
    cluster.create_topic(topic, 2)
    with cluster.producer("shop") as producer:
        for n in range(4):
            producer.send(Message(topic, b"body %d" % n))
    code, out, err = ask("consume", topic, "-g", group, *option.split(), "--timeout", "1.5", "-o", "json")
    assert (code, err) == (0, "")
    assert len(bodies(out)) == expected
