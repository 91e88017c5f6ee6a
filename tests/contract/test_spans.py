"""Spans of sends and consumption, joined through messages."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from client_suite import FIRST, fresh, make_topic
from own_server import own_server
from scripted import within

from tianzhou import ConsumeResult, Message, Producer, PullConsumer, PushConsumer, TransactionProducer, TransactionState
from tianzhou.client import Spans
from tianzhou.errors import BrokerError, ConfigError
from tianzhou.testing import Cluster
from waiting import until_async

pytestmark = pytest.mark.runner.with_args(within(60))

ROOT = Path(__file__).resolve().parents[2]


class Bench:
    """Recorded spans, with a current one."""

    def __init__(self) -> None:
        export = pytest.importorskip("opentelemetry.sdk.trace.export")
        memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
        sdk = pytest.importorskip("opentelemetry.sdk.trace")
        self.exporter = memory.InMemorySpanExporter()
        self.provider = sdk.TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(export.SimpleSpanProcessor(self.exporter))
        self.spans = Spans(self.provider)
        self.tracer = self.provider.get_tracer("test")
        self.producing = {"stamp_hooks": [self.spans.on_message], "send_hooks": [self.spans.on_send]}
        self.consuming = {"consume_hooks": [self.spans.on_consume], "consume_from_where": FIRST}

    def named(self, name: str) -> list:
        return [span for span in self.exporter.get_finished_spans() if span.name == name]

    def one(self, name: str):
        (span,) = self.named(name)
        return span


@pytest.fixture
def bench() -> Bench:
    return Bench()


def ids(span) -> tuple[int, int]:
    return span.context.trace_id, span.context.span_id


def parent(span) -> tuple[int, int] | None:
    return (span.parent.trace_id, span.parent.span_id) if span.parent else None


async def test_one_trace_from_who_sends_to_what_the_handler_sends(bench: Bench, tmp_path: Path) -> None:
    async with own_server(tmp_path) as namesrv:
        orders, invoices = await make_topic(namesrv, 1), await make_topic(namesrv, 1)
        group = fresh("G")
        consumer = PushConsumer(group, namesrv, **bench.consuming)
        async with Producer(fresh("P"), namesrv, **bench.producing) as producer:

            @consumer.on(orders)
            async def bill(message) -> None:
                await producer.send(Message(invoices, message.body))

            with bench.tracer.start_as_current_span("checkout") as checkout:
                result = await producer.send(Message(orders, b"12345", tags="A", keys=["k1", "k2"]))
            async with consumer:
                await until_async(lambda: bench.named(f"process {orders}"), "it was consumed")
        create, send, process = (bench.one(f"{verb} {orders}") for verb in ("create", "send", "process"))
        assert parent(create) == parent(send) == (checkout.context.trace_id, checkout.context.span_id)
        assert parent(process) == ids(create)
        assert parent(bench.one(f"create {invoices}")) == parent(bench.one(f"send {invoices}")) == ids(process)
        assert [span.kind.name for span in (create, send, process)] == ["PRODUCER", "CLIENT", "CONSUMER"]
        assert dict(create.attributes) == {
            "messaging.system": "rocketmq",
            "messaging.operation.name": "create",
            "messaging.operation.type": "create",
            "messaging.destination.name": orders,
            "messaging.message.id": result.msg_id,
            "messaging.message.body.size": 5,
            "messaging.rocketmq.message.tag": "A",
            "messaging.rocketmq.message.keys": ("k1", "k2"),
        }
        assert send.attributes["messaging.rocketmq.send_result"] == "SEND_OK"
        assert send.attributes["server.port"] > 0
        assert process.attributes["messaging.consumer.group.name"] == group
        assert process.attributes["messaging.rocketmq.consume_result"] == "SUCCESS"
        assert process.attributes["messaging.rocketmq.message.delivery_attempt"] == 1
        async with PullConsumer(fresh("G"), namesrv) as reader:
            (message,) = (await reader.pull(result.queue, result.queue_offset)).messages
        pattern = rf"00-{create.context.trace_id:032x}-{create.context.span_id:016x}-0[13]"
        assert re.fullmatch(pattern, message.user_properties["traceparent"])


async def test_batches_lists_failures_and_what_is_iterated(bench: Bench, tmp_path: Path) -> None:
    async with own_server(tmp_path) as namesrv:
        topic = await make_topic(namesrv, 1)
        async with Producer(fresh("P"), namesrv, **bench.producing) as producer:
            await producer.send_batch([Message(topic, b"%d" % number) for number in range(3)])
        origins = [ids(span) for span in bench.named(f"create {topic}")]
        assert len(set(origins)) == 3
        assert bench.one(f"send {topic}").attributes["messaging.batch.message_count"] == 3

        lists = PushConsumer(fresh("G"), namesrv, consume_message_batch_max_size=10, **bench.consuming)
        seen: list = []
        lists.subscribe(topic, handler=seen.extend)
        async with lists:
            await until_async(lambda: len(bench.named(f"process {topic}")) == 1, "the list was consumed")
        process = bench.one(f"process {topic}")
        assert [(link.context.trace_id, link.context.span_id) for link in process.links] == origins
        assert parent(process) is None
        bench.exporter.clear()

        failing = PushConsumer(fresh("G"), namesrv, orderly=True, suspend_current_queue_time_ms=10, **bench.consuming)
        answers = iter([ValueError("not today"), ConsumeResult.SUSPEND_CURRENT_QUEUE_A_MOMENT])

        def handle(message) -> ConsumeResult | None:
            answer = next(answers, None)
            if isinstance(answer, Exception):
                raise answer
            return answer

        failing.subscribe(topic, handler=handle)
        async with failing:
            await until_async(lambda: len(bench.named(f"process {topic}")) == 5, "all were consumed in the end")
        raised, asked, *fine = bench.named(f"process {topic}")
        assert [parent(span) for span in (raised, asked, *fine)] == [origins[0]] * 3 + origins[1:]
        assert (raised.status.status_code.name, raised.attributes["error.type"]) == ("ERROR", "ValueError")
        assert raised.events[0].name == "exception"
        assert (asked.status.status_code.name, asked.status.description) == ("ERROR", "FAILED")
        assert {span.status.status_code.name for span in fine} == {"UNSET"}
        attempts = [span.attributes["messaging.rocketmq.message.delivery_attempt"] for span in (raised, asked, *fine)]
        assert attempts == [1, 2, 3, 1, 1]
        bench.exporter.clear()

        async with PushConsumer(fresh("G"), namesrv, **bench.consuming) as consumer:
            consumer.subscribe(topic)
            count = 0
            async for message in consumer:
                with bench.tracer.start_as_current_span(f"inside {message.body.decode()}"):
                    count += 1
                if count == 3:
                    break
        assert [parent(span) for span in bench.named(f"process {topic}")] == origins
        inside = [bench.one(f"inside {number}") for number in range(3)]
        assert [parent(span) for span in inside] == [ids(span) for span in bench.named(f"process {topic}")]


async def test_transactions_and_messages_without_a_context(bench: Bench, tmp_path: Path) -> None:
    async with own_server(tmp_path) as namesrv:
        topic = await make_topic(namesrv, 1)
        producer = TransactionProducer(
            fresh("P"),
            namesrv,
            check=lambda _: TransactionState.COMMIT,
            end_transaction_hooks=[bench.spans.on_end_transaction],
            **bench.producing,
        )
        async with producer, Producer(fresh("P"), namesrv) as plain:
            await producer.send_in_transaction(Message(topic, b"both"), lambda *_: TransactionState.COMMIT)
            await plain.send(Message(topic, b"without"))
            consumer = PushConsumer(fresh("G"), namesrv, **bench.consuming)
            consumer.subscribe(topic, handler=lambda message: None)
            async with consumer:
                await until_async(lambda: len(bench.named(f"process {topic}")) == 2, "both were consumed")
        assert bench.one(f"settle {topic}").attributes["messaging.rocketmq.transaction_state"] == "COMMIT"
        assert bench.one(f"send {topic}").attributes["messaging.rocketmq.message.type"] == "transaction"
        parents = {parent(span) for span in bench.named(f"process {topic}")}
        assert parents == {ids(bench.one(f"create {topic}")), None}


def test_the_blocking_face_and_its_threads_have_the_same_spans(bench: Bench) -> None:
    with Cluster() as cluster:
        cluster.create_topic("orders", queues=1)
        cluster.create_topic("invoices", queues=1)
        consumer = cluster.push_consumer("billing", **bench.consuming)
        with cluster.producer(**bench.producing) as producer:

            @consumer.on("orders")
            def bill(message) -> None:
                producer.send(Message("invoices", message.body))

            with consumer, bench.tracer.start_as_current_span("checkout") as checkout:
                producer.send(Message("orders", b"x"))
                cluster.wait_until(lambda: bench.named("process orders"))
        context = checkout.get_span_context()
        assert parent(bench.one("create orders")) == (context.trace_id, context.span_id)
        assert parent(bench.one("create invoices")) == ids(bench.one("process orders"))


def test_an_attempt_that_failed_is_seen_beside_the_one_that_did_not(bench: Bench) -> None:
    with Cluster(virtual=True) as cluster:
        cluster.create_topic("orders", queues=1)
        with cluster.producer(**bench.producing) as producer, cluster.faults.refuse(times=1):
            producer.send(Message("orders", b"x"))
    failed, sent = bench.named("send orders")
    assert (failed.status.status_code.name, failed.attributes["error.type"]) == ("ERROR", BrokerError.__qualname__)
    assert sent.attributes["messaging.rocketmq.send_result"] == "SEND_OK"
    assert len(bench.named("create orders")) == 1


def test_it_is_optional_and_its_absence_names_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", None)
    with pytest.raises(ConfigError, match=r"pip install tianzhou\[otel\]"):
        Spans()


def test_the_example_of_the_how_to(tmp_path: Path) -> None:
    pytest.importorskip("opentelemetry.sdk.trace")
    text = (ROOT / "docs" / "howto" / "tracing.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    # Its provider is not installed in the process.
    example = example.replace("trace.set_tracer_provider(provider)", "").replace("Spans()", "Spans(provider)")
    place = {"out": (out := (tmp_path / "spans").open("w"))}
    exec(compile(example.replace("ConsoleSpanExporter()", "ConsoleSpanExporter(out=out)"), "tracing.md", "exec"), place)
    with Cluster() as cluster:
        cluster.create_topic("orders", queues=1)
        place["shop"](cluster.namesrv_addr)
        consumer = place["billing"](cluster.namesrv_addr)
        with consumer:
            cluster.wait_until(lambda: consumer.assignment)
            place["shop"](cluster.namesrv_addr)
            cluster.wait_until_consumed("billing", "orders")
    place["provider"].shutdown()
    out.close()
    written = (tmp_path / "spans").read_text()
    assert written.count('"name": "create orders"') == 2
    assert '"invoice": 17' in written
