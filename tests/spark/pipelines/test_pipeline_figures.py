"""`tianzhou pipeline trace`, `rates` and `timeouts`."""

from __future__ import annotations

import datetime as dt
import json

import pytest

from tianzhou.client.hooks import ConsumeOutcome, MessageKind
from tianzhou.client.tracing import trace_records
from tianzhou.pipelines.order_timeouts import order_timeouts
from tianzhou.pipelines.success_rate import success_rates
from tianzhou.pipelines.topics import Topics
from waiting import until

# --- trace


def sent(topic: str, number: int, cost_ms: int, success: bool = True) -> str:
    return trace_records.pub(
        trace_records.Traced(topic, f"id{number}", "t", "k"),
        timestamp_ms=1000 + number,
        region="DefaultRegion",
        group="shop",
        store_host="127.0.0.1:10911",
        body_bytes=3,
        cost_ms=cost_ms,
        kind=MessageKind.NORMAL,
        offset_msg_id="0A",
        success=success,
    )


def consumed(topic: str, number: int, cost_ms: int, success: bool = True) -> str:
    message = trace_records.Traced(topic, f"id{number}", "t", "k")
    return trace_records.sub_before(
        message, timestamp_ms=1500 + number, region=None, group="billing", request_id=f"r{number}", retry_times=0
    ) + trace_records.sub_after(
        message,
        timestamp_ms=2000,
        group="billing",
        request_id=f"r{number}",
        cost_ms=cost_ms,
        success=success,
        outcome=ConsumeOutcome.SUCCESS,
    )


ODD = [
    # An older client writes fewer fields; other texts are skipped.
    "Pub\x011\x01r\x01old\x01orders\x01idx\x01\x01\x01h\x013\x017\x010\x010A\x01true\x02",
    "?",
    "Pub\x02\x02SubAfter\x02SubBefore\x011\x02",
    "Pub\x01null\x01r\x01odd\x01orders\x01id300\x01\x01\x01h\x013\x01 7.5\x010\x010A\x01maybe\x02",
    "Pub\x01 12 \x01r\x01odd\x01null\x01id400\x01\x01\x01h\x013\x01+9\x010\x010A\x01YES\x02",
    "SubBefore\x0120\x01r\x01odd\x01q9\x01id400\x010\x01k\x02SubAfter\x01q9\x01id400\x018\x01no\x02SubAfter\x01q9\x01id400\x016\x011\x02",
]


def test_figures_of_traces_are_exact(server, topic, pipeline):
    server.send(topic, ["".join(sent("orders", n, n + 1, n % 10 != 0) for n in range(100))])
    server.send(topic, [consumed("orders", n, 10 * (n + 1), n != 3) for n in range(10)])
    server.send(topic, ODD)
    found = pipeline("trace", "--topic", topic)
    old, shop = (row for row in found["sends"] if row["group"] in ("old", "shop"))
    assert (old["group"], old["messages"], old["success"], old["p50_ms"]) == ("old", 1, 1.0, 7)
    assert (shop["topic"], shop["group"], shop["messages"], shop["success"]) == ("orders", "shop", 100, 0.9)
    assert (shop["p50_ms"], shop["p95_ms"], shop["p99_ms"], shop["max_ms"]) == (50.5, 95.05, 99.01, 100)
    odd, billing = found["deliveries"]
    assert (billing["topic"], billing["group"], billing["messages"]) == ("orders", "billing", 10)
    assert (billing["success"], billing["p50_ms"], billing["p50_waited"]) == (0.9, 55.0, 500.0)
    assert (odd["topic"], odd["group"], odd["messages"], odd["success"], odd["p50_ms"]) == (None, "odd", 2, 0.5, 7.0)


def test_what_our_clients_trace(server, topic, pipeline, cli):
    async def work():
        from tianzhou.client import Producer
        from tianzhou.model import Message

        async with Producer("traced", server.address, trace=True) as producer:
            for number in range(5):
                await producer.send(Message(topic, b"%d" % number))

    server.run(work())
    found = [row for row in pipeline("trace")["sends"] if row["topic"] == topic]
    assert [(row["group"], row["messages"], row["success"]) for row in found] == [("traced", 5, 1.0)]
    code, out, _ = cli("pipeline", "trace", "--since", "2100-01-01T00:00:00")
    assert (code, out) == (0, "")


# --- rates

EXAMPLE = [
    ("12:00:05", '{"status": "ok", "merchant": "m1"}'),
    ("12:00:59", '{"status": "ok", "merchant": "m1"}'),
    ("12:00:30", '{"status": "declined", "merchant": "m1"}'),
    ("12:00:30", '{"merchant": "m2"}'),
    ("12:01:00", '{"status": "ok", "merchant": "m1"}'),
]


def test_rates_by_window_and_group(spark):
    rows = [(dt.datetime.fromisoformat(f"2026-11-21T{at}+00:00"), body.encode()) for at, body in EXAMPLE]
    frame = spark.createDataFrame(rows, "storeTimestamp TIMESTAMP, body BINARY")
    made = success_rates(frame, status="$.status", good="ok", by="$.merchant", window="1 minute", late="0 seconds")
    found = [
        (row["start"].minute, row["group"], row["messages"], row["succeeded"], round(row["rate"], 3))
        for row in made.orderBy("start", "group").collect()
    ]
    assert found == [(0, "m1", 3, 2, 0.667), (0, "m2", 1, 0, 0.0), (1, "m1", 1, 1, 1.0)]


def test_finished_windows_become_messages(server, topic, pipeline, tmp_path):
    to = server.create(f"{topic}-rates")
    server.send(topic, ['{"status": "ok"}', '{"status": "failed"}'] * 3)
    server.send(topic, ['{"status": "ok"}'], after_s=5)  # moves the event time past the first windows
    args = ["--window", "1 second", "--late", "0 seconds", "--time", "born", "--checkpoint", str(tmp_path / "c")]
    found = pipeline("rates", topic, "--to", to, *args)
    assert (found["read"], found["late"]) == (7, 0)
    rates = [json.loads(m.body) for m in server.messages(to)]
    assert sum(rate["messages"] for rate in rates) == 6
    assert sum(rate["succeeded"] for rate in rates) == 3


def test_tags_say_how_it_went(spark):
    rows = [
        (dt.datetime.fromisoformat(f"2026-11-21T{at}+00:00"), tag, b'{"merchant": "m1"}')
        for at, tag in [
            ("12:00:05", "paid"),
            ("12:00:59", "paid"),
            ("12:00:30", "failed"),
            ("12:00:31", "created"),
            ("12:00:32", None),
            ("12:01:00", "failed"),
        ]
    ]
    frame = spark.createDataFrame(rows, "storeTimestamp TIMESTAMP, tags STRING, body BINARY")
    options = {"tags": ("paid", "failed"), "good": "paid", "window": "1 minute", "late": "0 seconds"}
    made = success_rates(frame, by="$.merchant", **options)
    found = [(row["start"].minute, row["group"], row["messages"], row["succeeded"]) for row in made.collect()]
    assert sorted(found) == [(0, "m1", 3, 2), (1, "m1", 1, 0)]


def test_windows_of_tags_become_messages(server, topic, pipeline, tmp_path):
    to = server.create(f"{topic}-rates")
    for tag, count in (("paid", 3), ("failed", 1), ("created", 5)):
        server.send(topic, [b"no JSON"] * count, tags=tag)
    server.send(topic, [b"\xff"], tags="paid", after_s=5)
    args = ["--tags", "paid||failed", "--good", "paid", "--window", "1 second", "--late", "0 seconds"]
    args += ["--time", "born", "--checkpoint", str(tmp_path / "c")]
    found = pipeline("rates", topic, "--to", to, *args)
    assert (found["read"], found["late"]) == (5, 0), "messages with other tags are not read"
    rates = [json.loads(m.body) for m in server.messages(to)]
    assert (sum(rate["messages"] for rate in rates), sum(rate["succeeded"] for rate in rates)) == (4, 3)


# --- timeouts


def test_orders_time_out_by_the_clock_without_traffic(spark, server, topic, tmp_path):
    payments, to = server.create(f"{topic}-payments"), server.create(f"{topic}-outcomes")
    server.send(topic, ['{"order": "a"}', '{"order": "b"}'])
    server.send(payments, ['{"order": "a"}', '{"order": "nobody"}'])
    query = order_timeouts(
        Topics(spark, server.address), topic, payments, to, str(tmp_path / "c"),
        timeout_s=1, late="1 second", by_clock=True, follow=True,
    )  # fmt: skip
    try:
        until(lambda: len(server.messages(to)) == 3, "each order has an outcome without traffic", within_s=60)
    finally:
        query.stop()
    found = {m.keys: m.tags for m in server.messages(to)}
    assert found == {"a": "paid", "b": "timed-out", "nobody": "no-order"}
    assert len(server.messages(to)) == 3


def test_orders_that_were_not_paid_in_time_are_reported(server, topic, pipeline, tmp_path):
    payments, to = server.create(f"{topic}-payments"), server.create(f"{topic}-outcomes")
    server.send(topic, ['{"order": "a"}', '{"order": "b"}', '{"order": "c"}'])
    server.send(payments, ['{"order": "a"}', '{"order": "nobody"}'])
    args = ["timeouts", topic, payments, "--to", to, "--timeout", "1", "--late", "0 seconds"]
    args += ["--time", "born", "--checkpoint", str(tmp_path / "c")]
    first = pipeline(*args)
    assert (first["read"], first["sent"]) == (5, 1)
    assert [(m.keys, m.tags) for m in server.messages(to)] == [("a", "paid")]

    server.send(payments, ['{"order": "c"}'], after_s=5)  # too late for the order; moves the event time
    pipeline(*args)
    outcomes = {m.keys: (m.tags, json.loads(m.body)) for m in server.messages(to)}
    assert {key: tag for key, (tag, _) in outcomes.items()} == {
        "a": "paid",
        "b": "timed-out",
        "c": "timed-out",
        "nobody": "no-order",
    }
    assert outcomes["a"][1]["paid"] >= outcomes["a"][1]["ordered"]
    assert "paid" not in outcomes["b"][1]
    assert len(server.messages(to)) == 4


@pytest.mark.parametrize(
    ("args", "text", "code"),
    [
        (["rates", "{topic}", "--to", "{topic}", "--status", "status"], "--status status: expected a JSON path", 2),
        (["rates", "{topic}", "--to", "{topic}", "--window", "long"], "long", 1),
        (["timeouts", "{topic}", "no-payments", "--to", "{topic}"], "topic no-payments does not exist", 2),
        (["timeouts", "{topic}", "{topic}", "--to", "{topic}", "--timeout", "0"], "--timeout", 2),
        (["rates", "{topic}", "--to", "{topic}", "--time", "mine"], "--time mine: expected store or born", 2),
        (["rates", "{topic}", "--to", "{topic}", "--tags", "paid||failed"], "--good ok: is none of --tags", 2),
        (["rates", "{topic}", "--to", "{topic}", "--tags", "paid||", "--good", "paid"], "--tags paid||: expected", 2),
        (["rates", "{topic}", "--to", "{topic}", "--tags", "*", "--good", "*"], "--tags *: expected", 2),
        (["rates", "{topic}", "--to", "{topic}", "--tags", "ok", "--status", "$.x"], "exclude each other", 2),
        (["timeouts", "{topic}", "{topic}", "--to", "{topic}", "--timer", "sand"], "--timer sand: expected event", 2),
        (["timeouts", "{topic}", "{topic}", "--to", "{topic}", "--timer", "clock"], "add --follow", 2),
    ],
)
def test_mistakes_are_explained(topic, cli, tmp_path, args, text, code):
    args = [arg.format(topic=topic) for arg in args]
    found, _, err = cli("pipeline", *args, "--checkpoint", str(tmp_path / "c"))
    assert (found, text in err) == (code, True), err
    assert "Traceback" not in err
