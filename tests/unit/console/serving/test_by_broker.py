"""Pages of a topic and of a group while one of two brokers does not reply: they show the other one's figures."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

pytest.importorskip("nicegui", reason="the console's packages are not installed")

from nicegui import ui

from console_probe import served_console, texts_on, toolkit_page, visitor_at
from tianzhou.console.serving.by_broker import ALL_WITHIN_S, EACH_WITHIN_S, ask_each, describe_group, describe_topic
from tianzhou.console.settings import ConsoleSettings
from tianzhou.errors import ConnectFailed, UnknownTopic
from tianzhou.model import Message, MessageExt
from tianzhou.model.names import dead_letter_topic
from tianzhou.testing import AsyncCluster, run_virtual
from tianzhou.testing.faults import EVERYTHING

pytestmark = pytest.mark.runner.with_args(run_virtual)
WITHIN_S = ALL_WITHIN_S + 3 * EACH_WITHIN_S


async def consume(message: MessageExt) -> None:
    """Consume a message."""


@asynccontextmanager
async def cluster_of_two() -> AsyncIterator[AsyncCluster]:
    """Start two brokers that have a topic `orders` of two queues each and a group `billing` with a member."""
    async with AsyncCluster(virtual=True, brokers=2) as cluster:
        async with cluster.admin() as admin:
            await admin.topics.create("orders", read_queue_nums=2, write_queue_nums=2)
            await admin.groups.create("billing")
        await cluster.send("orders", [b"x"] * 8)
        consumer = cluster.push_consumer("billing")
        consumer.subscribe("orders", handler=consume)
        async with consumer:
            await cluster.wait_until_consumed("billing", "orders")
            await cluster.advance(seconds=10)
        yield cluster


async def test_the_answers_of_the_others_are_put_together() -> None:
    async with cluster_of_two() as cluster, cluster.admin() as admin:
        whole, group = await describe_topic(admin, "orders"), await describe_group(admin, "billing")
        assert (whole.failures, group.failures) == ({}, {})
        assert len(whole.found.offsets) == 4
        with cluster.brokers["broker-b"].faults.lose_requests(requests=EVERYTHING):
            loop = asyncio.get_running_loop()
            begun = loop.time()
            part = await describe_topic(admin, "orders")
            assert loop.time() - begun < WITHIN_S
            assert list(part.failures) == ["broker-b"]
            assert f"no answer within {EACH_WITHIN_S:g} s" in part.failures["broker-b"]
            queues = [queue for queue in whole.found.offsets if queue.broker_name == "broker-a"]
            assert list(part.found.offsets) == queues
            assert list(part.found.configs) == ["broker-a"]
            assert part.found.groups == ["billing"]
            begun = loop.time()
            part_of_group = await describe_group(admin, "billing")
            assert loop.time() - begun < WITHIN_S
            assert list(part_of_group.failures) == ["broker-b"]
            own = [one for one in group.found.lag.queues if one.queue.broker_name == "broker-a"]
            assert [(one.queue, one.lag) for one in part_of_group.found.lag.queues] == [
                (one.queue, one.lag) for one in own
            ]
            assert list(part_of_group.found.configs) == ["broker-a"]
        with pytest.raises(UnknownTopic):
            await describe_topic(admin, "nope")


async def test_a_page_shows_the_answers_and_names_the_broker(tmp_path: Path) -> None:
    async with cluster_of_two() as cluster:
        settings = ConsoleSettings(cluster.namesrv_addr, tmp_path, port=0)
        async with served_console(settings) as console, visitor_at(console) as visitor:
            await asyncio.sleep(5)  # of virtual time: the console knows the topic and the group then
            with cluster.brokers["broker-b"].faults.lose_requests(requests=EVERYTHING):
                pages = [await visitor.get(path) for path in ("/topics/orders", "/groups/billing")]
                assert all("Asking the servers" in page.text for page in pages), "the frame comes before the content"
                await asyncio.sleep(WITHIN_S)
                for page in pages:
                    client = toolkit_page(page)
                    assert any(text.startswith("broker-b has not answered") for text in texts_on(client)), page.url
                    rows = [row for one in client.elements.values() if isinstance(one, ui.table) for row in one.rows]
                    assert "broker-a" in {row.get("broker") for row in rows}, page.url
            missing = await visitor.get("/topics/nope")
            assert missing.status_code == 404
            assert "/topics" in missing.text, "the menu"


async def test_lists_of_messages_show_the_answers_and_name_the_broker(tmp_path: Path) -> None:
    async with cluster_of_two() as cluster:
        async with cluster.admin() as admin:
            await admin.topics.create(dead_letter_topic("billing"), read_queue_nums=1, write_queue_nums=1, perm=6)
            async with cluster.producer("shop", trace=True) as producer:
                for number in range(8):
                    for topic in ("orders", dead_letter_topic("billing")):
                        await producer.send(Message(topic, b"x", keys=str(number)))
            everything = await admin.messages.by_time("orders")
        ours = next(one for one in everything if one.broker_name == "broker-a")
        settings = ConsoleSettings(cluster.namesrv_addr, tmp_path, port=0)
        async with served_console(settings) as console, visitor_at(console) as visitor:
            await asyncio.sleep(5)  # of virtual time: the console knows the topic and the group then
            with cluster.brokers["broker-b"].faults.lose_requests(requests=EVERYTHING):
                addresses = {
                    "/messages?topic=orders": 4,
                    "/messages?topic=orders&by=key&key=nope": 0,
                    f"/message?topic=orders&id={ours.msg_id}": 1,
                    "/dead-letters?group=billing": 1,
                    "/delay": 0,
                    "/transactions": 0,
                    f"/trace?id={ours.msg_id}&topic=orders": 0,
                }
                pages = {address: await visitor.get(address) for address in addresses}
                await asyncio.sleep(30)
                for address, rows_at_least in addresses.items():
                    client = toolkit_page(pages[address])
                    texts = texts_on(client)
                    named = [text for text in texts if text.startswith("broker-b has not answered")]
                    assert len(named) == 1, (address, texts)
                    assert "No message is found." not in texts, address
                    assert not [text for text in texts if "cannot be shown" in text], (address, texts)
                    rows = [row for one in client.elements.values() if isinstance(one, ui.table) for row in one.rows]
                    assert len(rows) >= rows_at_least, (address, rows)


async def test_each_broker_has_its_own_limit() -> None:
    async def ask(address: str) -> str:
        if address == "slow":
            await asyncio.sleep(60)
        if address == "gone":
            raise ConnectFailed("connection refused")
        return address.upper()

    answers = await ask_each({"a": "fine", "b": "slow", "c": "gone"}, ask, 2.0)
    assert answers.found == {"a": "FINE"}
    assert answers.failures == {"b": "no answer within 2 s from slow", "c": "connection refused"}
