"""A topic gets fewer queues and more again, with restarts in between; no message is lost, and offsets continue."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from small_broker import ask, pull, send, small_broker

from tianzhou.broker.server import Broker
from tianzhou.records.codec import decode_records
from tianzhou.remoting.client import RemotingClient
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import read_reply


def broker_in(folder: Path) -> Broker:
    small = {"mapped_file_size_commit_log": 64 << 10, "mapped_file_size_consume_queue": 400}
    return small_broker(folder, small | {"clean_file_forcibly_enable": False})


class Peer:
    def __init__(self, client: RemotingClient, address: str) -> None:
        self._client = client
        self._address = address

    async def ask(self, code: int, body: bytes = b"", **header: Any) -> Command:
        return await ask(self._client, self._address, code, body, **header)

    async def resize(self, write: int, read: int) -> None:
        reply = await self.ask(
            RequestCode.UPDATE_AND_CREATE_TOPIC, topic="S", default_topic="TBW102", read_queue_nums=read,
            write_queue_nums=write, perm=6, topic_filter_type="SINGLE_TAG", topic_sys_flag=0, order=False,
        )  # fmt: skip
        assert reply.code == ResponseCode.SUCCESS, reply.remark

    async def send(self, queue_id: int, body: bytes) -> Command:
        return await send(self._client, self._address, body, topic="S", queue_id=queue_id, default_topic_queue_nums=4)

    async def bodies(self, queue_id: int) -> list[bytes]:
        found: list[bytes] = []
        while True:
            reply = await pull(self._client, self._address, topic="S", queue_id=queue_id, queue_offset=len(found))
            if reply.code != ResponseCode.SUCCESS:
                assert reply.code == ResponseCode.PULL_NOT_FOUND, reply.remark
                return found
            found += [record.body for record in decode_records(reply.body)]


def test_fewer_queues_and_more_again(tmp_path: Path) -> None:
    expected: dict[int, list[bytes]] = {queue_id: [] for queue_id in range(6)}

    async def phase(write: int, read: int) -> None:
        async with broker_in(tmp_path) as broker, RemotingClient() as client:
            peer = Peer(client, broker.address)
            await peer.resize(write, read)
            for number in range(30):
                queue_id = number % write
                body = b"%d of %d in queue %d" % (len(expected[queue_id]), write, queue_id)
                sent = await peer.send(queue_id, body)
                assert sent.code == ResponseCode.SUCCESS, sent.remark
                assert read_reply(RequestCode.SEND_MESSAGE_V2, sent).queue_offset == len(expected[queue_id])
                expected[queue_id].append(body)
            # A client with an old route cannot write to a queue without readers.
            assert (await peer.send(max(write, read), b"lost?")).code == ResponseCode.INVALID_PARAMETER
            for code in (RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, RequestCode.CLEAN_UNUSED_TOPIC):
                assert (await peer.ask(code)).code == ResponseCode.SUCCESS
            for queue_id in range(read):
                assert await peer.bodies(queue_id) == expected[queue_id]

    async def main() -> None:
        async with asyncio.timeout(60):
            # Many queues, fewer for writes, fewer for reads, one queue, and back in two steps: a queue is read as long
            # as it exists.
            for write, read in ((6, 6), (2, 6), (2, 2), (1, 1), (4, 4), (6, 6)):
                await phase(write, read)

    asyncio.run(main())
    assert sum(map(len, expected.values())) == 180
