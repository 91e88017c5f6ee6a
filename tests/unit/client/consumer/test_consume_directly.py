"""A client asked to consume one message directly processes the one in the request, and no other."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from tianzhou.client.cluster.broker_requests import answer
from tianzhou.model import MessageExt
from tianzhou.records.codec import Record, encode_record
from tianzhou.wire.bodies.clients import DirectConsumption
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import write_header
from tianzhou.wire.ids import offset_msg_id

HOST = b"\x7f\x00\x00\x01"


def record(at: int) -> bytes:
    return encode_record(
        Record(
            "T", queue_id=0, queue_offset=0, physical_offset=at, flag=0, sys_flag=0, born_timestamp=1, born_host=HOST,
            born_port=1, store_timestamp=1, store_host=HOST, store_port=1, reconsume_times=0,
            prepared_transaction_offset=0, body=b"body", properties=b"",
        )
    )  # fmt: skip


def ask(msg_id: str | None, body: bytes) -> tuple[Command, list[MessageExt]]:
    consumed: list[MessageExt] = []

    async def consume(message: MessageExt) -> DirectConsumption:
        consumed.append(message)
        return DirectConsumption()

    member = SimpleNamespace(consume_directly=consume)
    client: Any = SimpleNamespace(
        namespace=None, client_id="c", max_unpacked_body_bytes=1 << 20, consumer=lambda _group: member
    )
    code = RequestCode.CONSUME_MESSAGE_DIRECTLY
    request = Command(code, fields=write_header(code, consumer_group="G", client_id="c", msg_id=msg_id), body=body)

    async def main() -> Command:
        connection: Any = None
        reply = await answer(client, connection, request)  # type: ignore[misc]
        assert isinstance(reply, Command)
        return reply

    return asyncio.run(main()), consumed


@pytest.mark.parametrize("msg_id", [None, "", "zz", offset_msg_id(HOST, 1, 8)])
def test_a_message_that_nobody_looked_up_is_not_consumed(msg_id: str | None) -> None:
    reply, consumed = ask(msg_id, record(7))
    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert "is not the one of msgId=" in (reply.remark or "")
    assert consumed == []


def test_the_message_of_the_id_is_consumed() -> None:
    # The broker may have changed its address since.
    reply, consumed = ask(offset_msg_id(b"\x0a\x00\x00\x01", 9, 7), record(7))
    assert reply.code == ResponseCode.SUCCESS
    assert [message.body for message in consumed] == [b"body"]
