"""Accounts of RocketMQ 4.x at a name server and a broker: signed and permitted requests are served, all
others refused.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from authority import Authority, certified, trusting

from tianzhou.admin import Admin
from tianzhou.cli import reachability
from tianzhou.cli.reachability import unreachable
from tianzhou.client import Producer, PullConsumer, PushConsumer, TransactionProducer
from tianzhou.embedded import EmbeddedServer, EmbeddedSettings
from tianzhou.errors import BrokerError, ConfigError, TianzhouError
from tianzhou.model import ConsumeFromWhere, Message, TransactionState
from tianzhou.model.names import HALF_TOPIC
from tianzhou.remoting.client import RemotingClient
from tianzhou.remoting.signing import signing
from tianzhou.remoting.tls import TlsSettings
from tianzhou.wire.codes import RequestCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import read_reply
from waiting import until_async

ADMIN = {"access_key": "administrator", "secret_key": "admin-secret"}
WORKER = {"access_key": "worker-a", "secret_key": "worker-secret"}
ACCOUNTS = """
accounts:
- accessKey: administrator
  secretKey: admin-secret
  admin: true
- accessKey: worker-a
  secretKey: worker-secret
  topicPerms: [orders=PUB|SUB, audit=PUB]
  groupPerms: [billing=SUB]
"""


@asynccontextmanager
async def served(folder: Path, accounts: str = ACCOUNTS) -> AsyncIterator[EmbeddedServer]:
    (folder / "plain_acl.yml").write_text(accounts)
    settings = EmbeddedSettings(folder, namesrv_port=0, broker_port=0, values={"aclEnable": "true"})
    async with EmbeddedServer(settings) as server:
        async with Admin(server.namesrv_address, **ADMIN) as admin:
            for topic in ("orders", "audit"):
                await admin.topics.create(topic, read_queue_nums=1, write_queue_nums=1)
        yield server


async def refusal(server: EmbeddedServer, topic: str, **keys: str) -> str:
    options = {"retry_times_when_send_failed": 0, **keys}
    async with Producer("shop", server.namesrv_address, **options) as producer:  # type: ignore[arg-type]
        with pytest.raises(TianzhouError) as caught:
            await producer.send(Message(topic, b"x"))
    return str(caught.value)


async def test_who_signs_and_may_sends_and_consumes(tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        where, seen = server.namesrv_address, []
        consumer = PushConsumer(
            "billing", where, consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, **WORKER
        )
        consumer.subscribe("orders", handler=lambda message: seen.append(message.body))
        async with consumer, Producer("shop", where, **WORKER) as producer:
            await producer.send(Message("orders", b"1"))
            await producer.send_batch([Message("orders", b"2"), Message("orders", b"3")])
            await producer.send(Message("audit", b"4"))
            await until_async(lambda: sorted(seen) == [b"1", b"2", b"3"], "all orders are consumed", within_s=30)


async def test_a_broker_that_looks_whether_it_can_be_reached_is_not_refused(tmp_path: Path) -> None:
    (tmp_path / "plain_acl.yml").write_text(ACCOUNTS)
    settings = EmbeddedSettings(tmp_path, namesrv_port=0, broker_port=0, values={"aclEnable": "true"})
    async with EmbeddedServer(settings) as server:
        assert await unreachable(server.broker_address, "brokerIP1", hooks=server.broker.hooks) is None
        async with Admin(server.namesrv_address, **ADMIN) as admin:
            figures = await admin.cluster.runtime(server.broker_address)
        assert figures.get("refused_access", "0") == "0"


async def test_whoever_else_is_at_the_advertised_address_gets_no_signature(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    signed: list[object] = []
    async with EmbeddedServer(EmbeddedSettings(tmp_path, namesrv_port=0, broker_port=0)) as server:
        for own in (True, False):
            monkeypatch.setattr(reachability, "is_free", lambda host, port, own=own: own)
            assert await reachability.unreachable(server.broker_address, "brokerIP1", hooks=[signed.append]) is None
            assert len(signed) == 1


async def test_others_are_refused_with_rocketmqs_words(tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        assert "No accessKey is configured" in await refusal(server, "orders")
        assert "Check signature failed for accessKey=worker-a" in await refusal(
            server, "orders", **WORKER | {"secret_key": "wrong-secret"}
        )
        assert "No acl config for nobody-knows" in await refusal(
            server, "orders", **WORKER | {"access_key": "nobody-knows"}
        )
        assert "topic:elsewhere" in await refusal(server, "elsewhere", **WORKER)
        async with PullConsumer("billing", server.namesrv_address, **WORKER) as reader:
            queue = (await reader.queues("audit"))[0]
            with pytest.raises(BrokerError, match="topic:audit"):
                await reader.pull(queue, 0)
        async with Admin(server.namesrv_address, **WORKER) as admin:
            with pytest.raises(BrokerError, match="Need admin permission for request code=17"):
                await admin.topics.create("mine")


async def test_a_message_of_another_topic_is_not_had_by_sending_it_back(tmp_path: Path) -> None:
    async with served(tmp_path) as server, RemotingClient(hooks=[signing(*WORKER.values())]) as client:  # type: ignore[list-item]
        async with Producer("shop", server.namesrv_address, **WORKER) as producer:
            place = await producer.send(Message("audit", b"secret"))
        offset = str(int(place.offset_msg_id[16:], 16))
        fields = {"group": "billing", "offset": offset, "delayLevel": "0", "originTopic": "orders"}
        reply = await client.invoke(
            server.broker_address, Command(RequestCode.CONSUMER_SEND_MSG_BACK, fields=fields), 5000
        )
        assert (reply.code, "of a topic you may not read" in (reply.remark or "")) == (16, True)


async def test_a_transaction_is_ended_by_who_may_send_its_message_whatever_topic_is_named(tmp_path: Path) -> None:
    async with served(tmp_path) as server, RemotingClient(hooks=[signing(*ADMIN.values())]) as owner:
        where = server.broker_address
        sent = {
            "producerGroup": "shop", "topic": "secrets", "defaultTopic": "TBW102", "defaultTopicQueueNums": "1",
            "queueId": "0", "sysFlag": "4", "bornTimestamp": "1", "flag": "0",
            "properties": "TRAN_MSG\x01true\x02PGROUP\x01shop\x02UNIQ_KEY\x01u\x02",
        }  # fmt: skip
        reply = await owner.invoke(where, Command(RequestCode.SEND_MESSAGE, fields=sent, body=b"x"), 5000)
        place = read_reply(RequestCode.SEND_MESSAGE, reply)
        end = {
            "producerGroup": "shop", "tranStateTableOffset": str(place.queue_offset), "commitOrRollback": "12",
            "commitLogOffset": str(int(place.msg_id[16:], 16)), "msgId": "u", "transactionId": "u",
        }  # fmt: skip

        async def ended(client: RemotingClient, **more: str) -> tuple[int, str]:
            reply = await client.invoke(where, Command(RequestCode.END_TRANSACTION, fields=end | more), 5000)
            return reply.code, reply.remark or ""

        async with RemotingClient(hooks=[signing(*WORKER.values())]) as worker:
            for more in ({}, {"topic": "orders"}, {"producerGroup": "guess"}):
                code, remark = await ended(worker, **more)
                assert (code, "of a topic you may not send to" in remark, "shop" in remark) == (16, True, False)
        assert await ended(owner) == (0, "")


async def test_what_nobody_serves_is_told_to_accounts_alone(tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        for address in (server.namesrv_address, server.broker_address):
            async with RemotingClient() as stranger, RemotingClient(hooks=[signing(*WORKER.values())]) as worker:
                reply = await stranger.invoke(address, Command(4711, fields={}), 5000)
                assert (reply.code, "No accessKey is configured" in (reply.remark or "")) == (1, True)
                assert "127.0.0.1" not in (reply.remark or "")
                assert (await worker.invoke(address, Command(4711, fields={}), 5000)).code == 3


async def test_who_may_end_a_transaction_is_decided_by_the_topic_it_is_of(tmp_path: Path) -> None:
    """In a check reply, Java's client names the half topic, a client of 4.x none, and an attacker its own."""
    async with served(tmp_path) as server:
        where = server.namesrv_address
        async with Admin(where, **ADMIN) as admin:
            await admin.topics.create("secret", read_queue_nums=1, write_queue_nums=1)
        unknown = TransactionProducer("shop", where, check=lambda _: TransactionState.UNKNOWN, **ADMIN)
        async with unknown:
            asked = await unknown.send_in_transaction(Message("secret", b"x"), lambda *_: TransactionState.UNKNOWN)
        sent = asked.result
        fields = {
            "producerGroup": "shop", "tranStateTableOffset": str(sent.queue_offset), "commitOrRollback": "8",
            "commitLogOffset": str(int(sent.offset_msg_id[16:], 16)), "msgId": sent.msg_id,
            "fromTransactionCheck": "true",
        }  # fmt: skip

        async def end(account: dict[str, str], **topic: str) -> tuple[int, str]:
            async with RemotingClient(hooks=[signing(*account.values())]) as client:  # type: ignore[list-item]
                request = Command(RequestCode.END_TRANSACTION, fields=fields | topic)
                reply = await client.invoke(server.broker_address, request, 5000)
            return reply.code, reply.remark or ""

        for topic in ({}, {"topic": "orders"}, {"topic": HALF_TOPIC}):
            code, remark = await end(WORKER, **topic)
            assert (code, "of a topic you may not send to" in remark) == (16, True), (topic, remark)
        assert await end(ADMIN, topic=HALF_TOPIC) == (0, "")


async def test_a_server_does_not_start_with_rules_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "plain_acl.yml").write_text("accounts: [{")
    settings = EmbeddedSettings(tmp_path, namesrv_port=0, broker_port=0, values={"aclEnable": "true"})
    with pytest.raises(ConfigError, match=r"plain_acl\.yml"):
        async with EmbeddedServer(settings):
            pass
    settings = EmbeddedSettings(tmp_path, namesrv_port=0, broker_port=0, values={"authorizationEnabled": "true"})
    with pytest.raises(ConfigError, match="authorizationEnabled=true: needs authenticationEnabled=true"):
        async with EmbeddedServer(settings):
            pass


async def test_a_server_without_rules_refuses_everybody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Like Apache's; an account is accepted as soon as the file has it."""
    settings = EmbeddedSettings(tmp_path, namesrv_port=0, broker_port=0, values={"aclEnable": "true"})
    async with EmbeddedServer(settings) as server:
        assert "plain_acl.yml: no account" in caplog.text
        assert "No acl config for administrator" in await refusal(server, "orders", **ADMIN)
        assert "No accessKey is configured" in await refusal(server, "orders")


async def test_a_certificate_is_an_account_and_a_signature_goes_before_it(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "plain_acl.yml").write_text(ACCOUNTS)
    at_server = replace(
        certified(authority),
        server_mode="enforcing",
        server_auth_client=True,
        need_client_auth="require",
        server_trust_cert_path=str(authority.path),
        account_from="CN",
    )
    settings = EmbeddedSettings(tmp_path / "data", namesrv_port=0, broker_port=0, values={"aclEnable": "true"})

    def shows(name: str) -> TlsSettings:
        certificate, key = authority.issue(name)
        return replace(trusting(authority), client_cert_path=certificate, client_key_path=key)

    # Its broker presents the server's certificate, which is no account, and signs.
    async with EmbeddedServer(settings, tls=at_server) as server:
        where = server.namesrv_address
        async with Admin(where, tls=shows("somebody"), **ADMIN) as admin:
            await admin.topics.create("orders", read_queue_nums=1, write_queue_nums=1)
        async with Producer("shop", where, tls=shows("worker-a")) as producer:
            assert (await producer.send(Message("orders", b"x"))).msg_id
            with pytest.raises(BrokerError, match="topic:elsewhere"):
                await producer.send(Message("elsewhere", b"x"))
        async with Admin(where, tls=shows("nobody-knows")) as admin:
            with pytest.raises(BrokerError, match="No acl config for nobody-knows"):
                await admin.topics.create("mine")
