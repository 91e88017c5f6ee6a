"""One store with BatchCQ topics, light queues and queue extensions: ours writes it, Apache's continues, then ours
again.

The same requests must get the same answers from both, byte for byte.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from apache import HOST, SEGMENT_SIZE, ApacheBroker, ApacheNamesrv
from servers import Ports
from toolchain import ToolchainMissingError

from tianzhou.broker.server import Broker
from tianzhou.broker.settings import BrokerSettings
from tianzhou.records.codec import decode_records
from tianzhou.remoting.client import RemotingClient
from tianzhou.settings import dump
from tianzhou.store.offline.check import check_store
from tianzhou.store.offline.scan import StoreScan
from tianzhou.store.settings import StoreSettings
from tianzhou.wire.batch import encode_batch
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import read_reply, write_header
from tianzhou.wire.properties import encode_properties
from tianzhou.wire.pulled import to_message

BATCHES, PARENT = "batches", "parent"
LIGHT = ("%LMQ%a", "%LMQ%b")


class Talk:
    """A client for the requests of the test.

    Args:
        client: connection of the requests.
        address: of the broker.
    """

    def __init__(self, client: RemotingClient, address: str) -> None:
        self._client = client
        self._address = address

    async def ask(self, code: RequestCode, body: bytes = b"", **fields: Any) -> Command:
        command = Command(code, fields=write_header(code, **fields), body=body)
        return await self._client.invoke(self._address, command, 10_000)

    async def create(self, topic: str, attributes: str = "") -> None:
        reply = await self.ask(
            RequestCode.UPDATE_AND_CREATE_TOPIC, topic=topic, default_topic="TBW102", read_queue_nums=2,
            write_queue_nums=2, perm=6, topic_filter_type="SINGLE_TAG", topic_sys_flag=0, order=False,
            attributes=attributes,
        )  # fmt: skip
        assert reply.code == ResponseCode.SUCCESS, reply.remark

    async def send(self, topic: str, body: bytes, properties: dict[str, str], *, batch: bool = False) -> int:
        code = RequestCode.SEND_BATCH_MESSAGE if batch else RequestCode.SEND_MESSAGE_V2
        reply = await self.ask(
            code, body, producer_group="P", topic=topic, default_topic="TBW102", default_topic_queue_nums=2, queue_id=1,
            sys_flag=0, born_timestamp=1, flag=0, properties=encode_properties(properties).decode(), reconsume_times=0,
            unit_mode=False, batch=batch,
        )  # fmt: skip
        assert reply.code == ResponseCode.SUCCESS, reply.remark
        # Of records stored in the same millisecond, Apache finds the last by their time, and ours the first.
        await asyncio.sleep(0.002)
        header = read_reply(code, reply)
        assert header.batch_uniq_id == (properties["UNIQ_KEY"] if batch else None)
        return int(header.queue_offset)

    async def write(self, first: int) -> list[int]:
        """Send batches and single messages; return their positions."""
        places = []
        for number in range(first, first + 30):
            entries = [(0, b"%d/%d" % (number, n), b"TAGS\x01T%d\x02" % n) for n in range(2 + number % 5)]
            places.append(await self.send(BATCHES, encode_batch(entries), {"UNIQ_KEY": f"B{number}"}, batch=True))
            if number % 3 == 0:
                single = {"UNIQ_KEY": f"S{number}", "TAGS": "One", "KEYS": f"k{number}"}
                places.append(await self.send(BATCHES, b"single", single))
            named = [LIGHT[0], ",".join(LIGHT), LIGHT[1], ""][number % 4]
            own = {"UNIQ_KEY": f"L{number}", "TAGS": f"T{number % 3}"}
            places.append(
                await self.send(PARENT, b"%d" % number, own | ({"INNER_MULTI_DISPATCH": named} if named else {}))
            )
        return places

    async def everything(self) -> dict[str, Any]:
        """Return all values that both servers must have in common."""
        found: dict[str, Any] = {}
        for topic, queue_id in ((BATCHES, 1), (PARENT, 1), (LIGHT[0], 0), (LIGHT[1], 0)):
            place: dict[str, Any] = {"topic": topic, "queue_id": queue_id}
            low = read_reply(RequestCode.GET_MIN_OFFSET, await self.ask(RequestCode.GET_MIN_OFFSET, **place)).offset
            high = read_reply(RequestCode.GET_MAX_OFFSET, await self.ask(RequestCode.GET_MAX_OFFSET, **place)).offset
            bodies = [await self.pull(topic, queue_id, low, high, wanted) for wanted in (32, 5)]
            found[topic] = low, high, bodies
        for tags in ("T0", "T1 || T2", "none"):
            found[tags] = await self.pull(PARENT, 1, 0, found[PARENT][1], 32, tags)
        records = list(decode_records(b"".join(found[BATCHES][2][0])))
        first, last = records[0].store_timestamp, records[-1].store_timestamp
        for stored in (first - 1, first, last, last + 1):
            when: dict[str, Any] = {"topic": BATCHES, "queue_id": 1, "timestamp": stored, "boundary_type": "LOWER"}
            reply = await self.ask(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, **when)
            found[f"at {stored}"] = read_reply(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, reply).offset
        query: dict[str, Any] = {
            "topic": BATCHES,
            "key": "k3",
            "max_num": 32,
            "begin_timestamp": 0,
            "end_timestamp": 1 << 62,
        }
        found["k3"] = bytes((await self.ask(RequestCode.QUERY_MESSAGE, **query)).body)
        return found

    async def pull(self, topic: str, queue_id: int, offset: int, end: int, wanted: int, tags: str = "*") -> list[bytes]:
        bodies = []
        while offset < end:
            reply = await self.ask(
                RequestCode.PULL_MESSAGE, consumer_group="G", topic=topic, queue_id=queue_id, queue_offset=offset,
                max_msg_nums=wanted, sys_flag=4, commit_offset=0, suspend_timeout_millis=0, subscription=tags,
                sub_version=0, expression_type="TAG",
            )  # fmt: skip
            header = read_reply(RequestCode.PULL_MESSAGE, reply)
            assert header.next_begin_offset > offset, reply.remark
            offset = header.next_begin_offset
            bodies.append(bytes(reply.body))
        return bodies


@asynccontextmanager
async def ours(store: StoreSettings, port: int) -> AsyncIterator[Talk]:
    settings = BrokerSettings(broker_name="broker-a", broker_ip1=HOST, listen_port=port)
    async with Broker(settings, store) as broker, RemotingClient() as client:
        assert broker.store.report.clean
        assert broker.store.report.notes == []
        yield Talk(client, broker.address)
    assert check_store(StoreScan(store.root)).problems == []


@asynccontextmanager
async def theirs(store: StoreSettings, ports: Ports, home: Path) -> AsyncIterator[Talk]:
    changed = {key: value for key, value in dump(store).items() if value != dump(StoreSettings()).get(key)}
    namesrv = ApacheNamesrv(ports.namesrv, home / "namesrv")
    broker = ApacheBroker(namesrv.address, ports.broker, store.root, conf=changed, home=home / "broker")
    try:
        await asyncio.to_thread(namesrv.start)
        await asyncio.to_thread(broker.start)
        async with RemotingClient() as client:
            yield Talk(client, broker.address)
        await asyncio.to_thread(broker.stop)
    finally:
        broker.kill()
        namesrv.kill()


@pytest.mark.slow
def test_apache_goes_on_with_our_structures_and_we_with_its(tmp_path: Path) -> None:
    ports = Ports.free()
    store = StoreSettings(
        store_path_root_dir=str(tmp_path / "store"), mapped_file_size_commit_log=SEGMENT_SIZE,
        mapped_file_size_consume_queue=400, mapper_file_size_batch_consume_queue=920,
        mapped_file_size_consume_queue_ext=1024, enable_lmq=True, enable_multi_dispatch=True,
        enable_consume_queue_ext=True,
    )  # fmt: skip

    async def main() -> None:
        async with ours(store, ports.broker) as talk:
            await talk.create(BATCHES, "+queue.type=BatchCQ")
            await talk.create(PARENT)
            first = await talk.write(0)
            before = await talk.everything()
        check_messages(before, 30)
        async with theirs(store, ports, tmp_path / "home") as talk:
            await until_served(talk)
            assert await talk.everything() == before
            second = await talk.write(30)
            assert min(second) > 0
            after = await talk.everything()
        check_messages(after, 60)
        async with ours(store, ports.broker) as talk:
            assert await talk.everything() == after
            third = await talk.write(60)
            check_messages(await talk.everything(), 90)
        assert len({*first, *second, *third}) > 90

    try:
        asyncio.run(main())
    except ToolchainMissingError as error:
        pytest.skip(str(error))


async def until_served(talk: Talk) -> None:
    """Return when the broker serves the topic, soon after its registration."""
    for _ in range(50):
        reply = await talk.ask(RequestCode.GET_MAX_OFFSET, topic=BATCHES, queue_id=1)
        if reply.code == ResponseCode.SUCCESS:
            return
        await asyncio.sleep(0.1)


def check_messages(found: dict[str, Any], numbers: int) -> None:
    """Check that each queue has every sent message once."""
    _, high, (whole, _) = found[BATCHES]
    messages = [m for record in decode_records(b"".join(whole)) for m in to_message(record, "broker-a")]
    assert [message.queue_offset for message in messages] == list(range(high))
    expected = []
    for number in range(numbers):
        expected += [b"%d/%d" % (number, n) for n in range(2 + number % 5)]
        expected += [b"single"] if number % 3 == 0 else []
    assert [message.body for message in messages] == expected
    for topic, wanted in ((LIGHT[0], (0, 1)), (LIGHT[1], (1, 2)), (PARENT, (0, 1, 2, 3))):
        bodies = [record.body for record in decode_records(b"".join(found[topic][2][0]))]
        assert bodies == [b"%d" % number for number in range(numbers) if number % 4 in wanted]
    tagged = [record.body for record in decode_records(b"".join(found["T1 || T2"]))]
    assert tagged == [b"%d" % number for number in range(numbers) if number % 3]
