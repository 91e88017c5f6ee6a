"""Accounts accepted by their address, refused ends of transactions, and messages viewed by their offset."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tianzhou.admin import Admin
from tianzhou.client import Producer, PushConsumer, TransactionProducer
from tianzhou.embedded import EmbeddedServer, EmbeddedSettings
from tianzhou.model import ConsumeFromWhere, ConsumeResult, Message, TransactionState
from tianzhou.remoting.client import RemotingClient
from tianzhou.remoting.gates import plain_files
from tianzhou.remoting.signing import signing
from tianzhou.wire.codes import RequestCode
from tianzhou.wire.command import Command
from waiting import until_async

ADMIN = {"access_key": "administrator", "secret_key": "admin-secret"}
BY_ADDRESS = {"access_key": "by-address", "secret_key": "another-secret"}
READER = {"access_key": "only-reads", "secret_key": "reader-secret"}
OUTSIDER = {"access_key": "outsider", "secret_key": "outsider-secret"}
ACCOUNTS = """
accounts:
- {accessKey: administrator, secretKey: admin-secret, admin: true}
- {accessKey: by-address, secretKey: address-secret, whiteRemoteAddress: 127.0.0.*}
- {accessKey: only-reads, secretKey: reader-secret, topicPerms: [orders=SUB]}
- {accessKey: outsider, secretKey: outsider-secret}
"""
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


@asynccontextmanager
async def served(folder: Path, **more: str) -> AsyncIterator[EmbeddedServer]:
    file = folder / "plain_acl.yml"
    file.write_text(ACCOUNTS)
    file.chmod(0o600)
    values = {"aclEnable": "true", "messageDelayLevel": " ".join(["1s"] * 18), **more}
    async with EmbeddedServer(EmbeddedSettings(folder, namesrv_port=0, broker_port=0, values=values)) as server:
        async with Admin(server.namesrv_address, **ADMIN) as admin:
            await admin.topics.create("orders", read_queue_nums=1, write_queue_nums=1)
        yield server


async def stored(server: EmbeddedServer, topic: str) -> int:
    """Return the number of messages that a topic of one queue has had; 0 without the topic."""
    async with RemotingClient(hooks=[signing(*ADMIN.values())]) as client:
        fields = {"topic": topic, "queueId": "0"}
        reply = await client.invoke(server.broker_address, Command(RequestCode.GET_MAX_OFFSET, fields=fields), 5000)
    return int(reply.fields["offset"]) if reply.code == 0 else 0


async def test_an_account_that_its_address_lets_in_ends_transactions_at_once_and_on_a_check(tmp_path: Path) -> None:
    """Its secret differs from the file's, so in every request only its address gives it access."""
    asked: list[str] = []

    def check(message: object) -> TransactionState:
        asked.append(message.body.decode())  # type: ignore[attr-defined]
        return TransactionState.COMMIT

    quick = {"transactionTimeOut": "500", "transactionCheckInterval": "300"}
    async with served(tmp_path, **quick) as server:
        where = server.namesrv_address
        async with TransactionProducer("shop", where, check=check, **BY_ADDRESS) as producer:
            for state, body in ((TransactionState.COMMIT, b"now"), (TransactionState.UNKNOWN, b"on a check")):
                await producer.send_in_transaction(Message("orders", body), lambda *_, state=state: state)
            await until_async(lambda: asked == ["on a check"], "the broker asks for the second one")

            async def both() -> bool:
                return await stored(server, "orders") == 2

            await until_async(both, "both are stored")


async def test_what_such_an_account_sends_back_comes_again_and_dies(tmp_path: Path) -> None:
    seen: list[int] = []

    def refuse(message: object) -> ConsumeResult:
        seen.append(message.reconsume_times)  # type: ignore[attr-defined]
        return ConsumeResult.RECONSUME_LATER

    async with served(tmp_path) as server:
        where = server.namesrv_address
        consumer = PushConsumer("billing", where, consume_from_where=FIRST, max_reconsume_times=1, **BY_ADDRESS)
        consumer.subscribe("orders", handler=refuse)
        async with consumer, Producer("shop", where, **BY_ADDRESS) as producer:
            await producer.send(Message("orders", b"poison"))
            await until_async(lambda: seen == [0, 1], "it comes again", within_s=30)

            async def dead() -> bool:
                return await stored(server, "%DLQ%billing") == 1

            await until_async(dead, "it is a dead letter")


async def test_a_message_is_viewed_by_who_may_read_its_topic_whatever_topic_is_named(tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        async with Admin(server.namesrv_address, **ADMIN) as admin:
            await admin.topics.create("secret", read_queue_nums=1, write_queue_nums=1)
        places = {}
        async with Producer("shop", server.namesrv_address, **ADMIN) as producer:
            for topic in ("orders", "secret"):
                sent = await producer.send(Message(topic, b"x"))
                places[topic] = str(int(sent.offset_msg_id[16:], 16))

        async def view(account: dict[str, str], place: str, **named: str) -> int:
            fields = {"offset": places[place], **named}
            async with RemotingClient(hooks=[signing(*account.values())]) as client:  # type: ignore[list-item]
                request = Command(RequestCode.VIEW_MESSAGE_BY_ID, fields=fields)
                return (await client.invoke(server.broker_address, request, 5000)).code

        for named in ({}, {"topic": "orders"}):
            assert await view(READER, "orders", **named) == 0
            assert await view(READER, "secret", **named) == 16
            assert await view(BY_ADDRESS, "secret", **named) == 0
            assert await view(ADMIN, "secret", **named) == 0
        assert await view(READER, "orders", topic="secret") == 1, "the topic that is named is checked, too"
        assert await view(OUTSIDER, "orders") == 16


async def test_a_refused_end_is_seen_by_the_producer_and_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The account may send the half message, and loses that right before it ends the transaction."""
    monkeypatch.setattr(plain_files, "WATCH_S", 0.05)
    caplog.set_level(logging.WARNING, "tianzhou.remoting")  # commands of other tests silence it
    async with served(tmp_path) as server, RemotingClient(hooks=[signing(*BY_ADDRESS.values())]) as client:

        async def is_refused() -> bool:
            fields = {"topic": "orders", "queueId": "0"}
            request = Command(RequestCode.GET_MAX_OFFSET, fields=fields)
            return (await client.invoke(server.broker_address, request, 5000)).code == 1

        async def revoked(*_: object) -> TransactionState:
            (tmp_path / "plain_acl.yml").write_text(ACCOUNTS.replace("127.0.0.*", "10.0.0.*"))
            await until_async(is_refused, "the account is refused")
            return TransactionState.COMMIT

        def told() -> bool:
            return any("refuses to end transaction" in record.getMessage() for record in caplog.records)

        where = server.namesrv_address
        async with TransactionProducer(
            "shop", where, check=lambda _: TransactionState.COMMIT, **BY_ADDRESS
        ) as producer:
            await producer.send_in_transaction(Message("orders", b"x"), revoked)
            await until_async(told, "the producer logs the refusal")
        lines = [record.getMessage() for record in caplog.records]
        assert any("refused END_TRANSACTION (37) of 127.0.0.1" in line for line in lines), lines
        assert await stored(server, "orders") == 0
