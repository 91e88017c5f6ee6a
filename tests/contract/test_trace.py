"""Trace topic and switch of our own broker (broker.md §21)."""

import pytest
from client_suite import FIRST, read_all
from own_server import own_server
from scripted import within

from tianzhou import Message, Producer, PushConsumer
from tianzhou.admin import Admin
from waiting import until_async

pytestmark = pytest.mark.runner.with_args(within(60))


async def traced(namesrv: str) -> list[str]:
    """Return the contents of the default trace topic after one message was sent and consumed."""
    seen = []
    consumer = PushConsumer("G", namesrv, consume_from_where=FIRST, trace=True)
    consumer.subscribe("T", handler=lambda message: seen.append(message))
    async with Producer("P", namesrv, trace=True) as producer:
        await producer.send(Message("T", b"x", keys="k"))
        async with consumer:
            await until_async(lambda: seen, "it came")
    assert seen[0].properties["TRACE_ON"] in {"true", "false"}
    async with Admin(namesrv) as admin:
        if "RMQ_SYS_TRACE_TOPIC" not in await admin.topics.names():
            return []
        found = await admin.messages.by_key("RMQ_SYS_TRACE_TOPIC", "k")
    records = [record for message in found for record in message.body.decode().split("\x02") if record]
    return sorted(record.split("\x01")[0] for record in records)


async def test_the_trace_topic_is_there_from_the_start_when_it_is_wanted(tmp_path) -> None:
    async with own_server(tmp_path, trace_topic_enable=True) as namesrv:
        async with Admin(namesrv) as admin:
            configs = await admin.topics.config("RMQ_SYS_TRACE_TOPIC")
            assert [(one.read_queue_nums, one.write_queue_nums) for one in configs.values()] == [(1, 1)]
        assert await traced(namesrv) == ["Pub", "SubAfter", "SubBefore"]
        assert len(await read_all(namesrv, "RMQ_SYS_TRACE_TOPIC", 2)) >= 2


async def test_otherwise_the_first_trace_makes_it(tmp_path) -> None:
    async with own_server(tmp_path) as namesrv:
        async with Admin(namesrv) as admin:
            assert "RMQ_SYS_TRACE_TOPIC" not in await admin.topics.names()
        assert await traced(namesrv) == ["Pub", "SubAfter", "SubBefore"]


@pytest.mark.parametrize("settings", [{}, {"trace_topic_enable": True}])
async def test_a_broker_can_switch_traces_off(tmp_path, settings) -> None:
    async with own_server(tmp_path, trace_on=False, **settings) as namesrv:
        assert await traced(namesrv) == []


async def test_the_trace_topic_may_have_another_name(tmp_path) -> None:
    settings = {"trace_topic_enable": True, "msg_trace_topic_name": "my_traces"}
    async with own_server(tmp_path, **settings) as namesrv, Admin(namesrv) as admin:
        assert "my_traces" in await admin.topics.names()
