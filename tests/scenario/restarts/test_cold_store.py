"""Requests for messages that are not in memory wait for the disk; a broker serves all others meanwhile."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from small_broker import ask, send, small_broker

from tianzhou.broker.server import Broker
from tianzhou.records.codec import decode_records
from tianzhou.remoting.client import RemotingClient
from tianzhou.testing.cold_disk import ColdDisk
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import read_reply
from waiting import until_async

SEGMENT = 64 << 10
MOVING = re.compile(rb'"(consumeTps|delayTime)":[0-9.]+')
PAGE = 4096


def broker_in(folder: Path) -> Broker:
    store = {
        "store_path_root_dir": str(folder / "store"), "mapped_file_size_commit_log": SEGMENT, "max_hash_slot_num": 4000,
        "delete_when": "", "clean_file_forcibly_enable": False,
    }  # fmt: skip
    return small_broker(folder, store)


async def send_numbered(client: RemotingClient, address: str, number: int, topic: str = "T") -> Command:
    properties = f"KEYS\x01K{number}\x02UNIQ_KEY\x01U{number}\x02"
    return await send(client, address, b"x" * 900, topic=topic, properties=properties)


REQUESTS: dict[str, tuple[int, dict[str, Any]]] = {
    "a key": (
        RequestCode.QUERY_MESSAGE,
        {"topic": "T", "key": "K20", "max_num": 32, "begin_timestamp": 0, "end_timestamp": 1 << 60},
    ),
    "a unique key": (
        RequestCode.QUERY_MESSAGE,
        {"topic": "T", "key": "U20", "max_num": 32, "begin_timestamp": 0, "end_timestamp": 1 << 60,
         "unique_key_query": True},
    ),
    "an offset id": (RequestCode.VIEW_MESSAGE_BY_ID, {"offset": 0}),
    "a time": (RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, {"topic": "T", "queue_id": 0, "timestamp": 1}),
    "the earliest time": (RequestCode.GET_EARLIEST_MSG_STORETIME, {"topic": "T", "queue_id": 0}),
    "a group's first offset": (
        RequestCode.QUERY_CONSUMER_OFFSET, {"consumer_group": "New", "topic": "T", "queue_id": 0}
    ),
    "messages": (
        RequestCode.PULL_MESSAGE,
        {"consumer_group": "G", "topic": "T", "queue_id": 0, "queue_offset": 20, "max_msg_nums": 3, "sys_flag": 4,
         "commit_offset": 0, "suspend_timeout_millis": 0, "subscription": "*", "sub_version": 0},
    ),
    "how far a group is": (RequestCode.GET_CONSUME_STATS, {"consumer_group": "Read", "topic": "T"}),
    "times in a topic": (RequestCode.QUERY_CONSUME_TIME_SPAN, {"topic": "T", "group": "Read"}),
    "the broker's figures": (RequestCode.GET_BROKER_RUNTIME_INFO, {}),
    "a message sent back": (
        RequestCode.CONSUMER_SEND_MSG_BACK, {"offset": 0, "group": "G", "delay_level": 3, "unit_mode": False}
    ),
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    async def main() -> None:
        async with broker_in(tmp_path) as broker, RemotingClient() as client:
            for number in range(300):
                assert (await send_numbered(client, broker.address, number)).code == ResponseCode.SUCCESS

            code, header = REQUESTS["messages"]
            assert (await ask(client, broker.address, code, **header | {"consumer_group": "Read"})).code == 0
            committed = await ask(
                client, broker.address, RequestCode.UPDATE_CONSUMER_OFFSET, consumer_group="Read", topic="T",
                queue_id=0, commit_offset=20,
            )  # fmt: skip
            assert committed.code == ResponseCode.SUCCESS, committed.remark

    asyncio.run(main())
    return tmp_path


@pytest.mark.parametrize("name", REQUESTS)
async def test_others_are_served_while_one_request_waits_for_the_disk(name: str, folder: Path) -> None:
    code, header = REQUESTS[name]

    async with asyncio.timeout(60):
        with ColdDisk().installed() as disk:
            async with broker_in(folder) as broker, RemotingClient() as one, RemotingClient() as other:
                address = broker.address
                expected = await ask(one, address, code, **header)
                assert expected.code == ResponseCode.SUCCESS, expected.remark
                store = folder / "store"
                for path in [*sorted((store / "commitlog").iterdir())[:3], *(store / "consumequeue/T/0").iterdir()]:
                    disk.take(path, 0, 4 * PAGE if "consumequeue" in path.parts else None)
                for path in (store / "index").iterdir():
                    disk.take(path, PAGE)
                disk.shut()
                task = asyncio.ensure_future(ask(one, address, code, **header))
                passed = 0
                while not task.done():
                    await until_async(lambda: bool(disk.waiting) or task.done(), every_s=0.001)
                    # A producer's message is stored and consumed meanwhile.
                    sent = read_reply(RequestCode.SEND_MESSAGE_V2, await send_numbered(other, address, 0, topic="Hot"))
                    assert sent.queue_offset == passed
                    passed += 1
                    if not task.done():
                        disk.let_one_pass()
                        await until_async(lambda: disk.passed >= passed, every_s=0.001)  # noqa: B023
                reply = task.result()
                assert disk.fetches
                assert reply.code == expected.code
                if name != "the broker's figures":
                    assert MOVING.sub(b"", reply.body) == MOVING.sub(b"", expected.body)
                if name in ("a key", "a unique key", "an offset id"):
                    assert len(list(decode_records(reply.body))) == 1
