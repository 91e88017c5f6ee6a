"""Our clients at an Apache broker that checks who asks (ACL 1.0, 4.9.7)."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from apache import ApacheBroker, ApacheNamesrv
from toolchain import ToolchainMissingError

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "contract"))

from client_suite import CHECKS, DELAY_LEVELS, FIRST, Check, fresh, make_topic, until

from tianzhou import Message, Producer, PullConsumer, PushConsumer, TransactionProducer, TransactionState
from tianzhou.admin import Admin
from tianzhou.client import ClientInstance
from tianzhou.errors import BrokerError, TianzhouError

ADMIN = {"access_key": "rocketmq2", "secret_key": "12345678"}
READER = {"access_key": "RocketMQ", "secret_key": "abcdefgh"}
ACCOUNTS = f"""
globalWhiteRemoteAddresses: []
accounts:
- accessKey: {READER["access_key"]}
  secretKey: {READER["secret_key"]}
  whiteRemoteAddress:
  admin: false
  defaultTopicPerm: SUB
  defaultGroupPerm: SUB
- accessKey: {ADMIN["access_key"]}
  secretKey: {ADMIN["secret_key"]}
  whiteRemoteAddress:
  admin: true
"""
SIGNED = {
    "everything_sent_is_read_back_as_it_was",
    "a_batch_is_stored_in_one_piece",
    "large_bodies_travel_compressed",
    "members_share_the_messages_and_keep_their_progress",
    "what_fails_is_delivered_again",
    "messages_are_found_by_id_key_and_position",
    "groups_are_made_changed_and_deleted",
}
"""Checks that send requests of every form: built from fields, framed from templates, one way, answers to brokers."""


@pytest.fixture(scope="module")
def guarded() -> Iterator[str]:
    """Address of the name server of a broker that takes signed requests only."""
    namesrv = ApacheNamesrv(version="4.9.7")
    broker = None
    try:
        namesrv.start()
        broker = ApacheBroker(
            namesrv.address, conf={"aclEnable": "true", "messageDelayLevel": DELAY_LEVELS}, version="4.9.7"
        )
        rules = broker.home / "conf" / "plain_acl.yml"
        rules.parent.mkdir(parents=True, exist_ok=True)
        rules.write_text(ACCOUNTS)
        broker.start()
        yield namesrv.address
    except ToolchainMissingError as error:
        pytest.skip(str(error))
    finally:
        for server in (broker, namesrv):
            if server is not None:
                server.kill()
                server._remove_home()


def run(body) -> None:
    async def main() -> None:
        async with asyncio.timeout(90):
            await body

    asyncio.run(main())


def signing_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    made = ClientInstance.__init__
    monkeypatch.setattr(ClientInstance, "__init__", lambda self, *args, **options: made(self, *args, **ADMIN | options))


@pytest.mark.parametrize("check", [one for one in CHECKS if one.__name__ in SIGNED], ids=lambda check: check.__name__)
def test_checks_of_the_suite_hold_with_signed_requests(
    check: Check, guarded: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    signing_by_default(monkeypatch)
    run(check(guarded, tmp_path))


def test_transactions_and_orderly_consumers_are_signed_too(guarded: str, monkeypatch: pytest.MonkeyPatch) -> None:
    signing_by_default(monkeypatch)

    async def body() -> None:
        topic, seen = await make_topic(guarded, 1), []
        consumer = PushConsumer(fresh("G"), guarded, orderly=True, consume_from_where=FIRST)
        consumer.subscribe(topic, handler=lambda message: seen.append(message.body))
        producer = TransactionProducer(fresh("P"), guarded, check=lambda _: TransactionState.COMMIT)
        async with consumer, producer:
            await producer.send_in_transaction(Message(topic, b"both"), lambda *_: TransactionState.COMMIT)
            await until(lambda: seen == [b"both"], "it was committed and consumed in order")

    run(body())


async def refusal(address: str, topic: str, **keys: str) -> str:
    async with Producer(fresh("P"), address, retry_times_when_send_failed=0, **keys) as producer:
        with pytest.raises(TianzhouError) as caught:
            await producer.send(Message(topic, b"x"))
    return str(caught.value)


def test_who_does_not_sign_or_may_not_is_refused(guarded: str) -> None:
    async def body() -> None:
        topic = fresh("T")
        async with Admin(guarded, **ADMIN) as admin:
            await admin.topics.create(topic, read_queue_nums=1, write_queue_nums=1)
        wrong, nobody = ADMIN | {"secret_key": "wrong word"}, ADMIN | {"access_key": "nobody"}
        assert "No accessKey is configured" in await refusal(guarded, topic)
        assert "Check signature failed for accessKey=rocketmq2" in await refusal(guarded, topic, **wrong)
        assert "No acl config for nobody" in await refusal(guarded, topic, **nobody)
        async with Producer(fresh("P"), guarded, **ADMIN) as producer:
            result = await producer.send(Message(topic, b"x"))
        async with PullConsumer(fresh("G"), guarded, **READER) as reader:
            assert [message.body for message in (await reader.pull(result.queue, 0)).messages] == [b"x"]
        async with Producer(fresh("P"), guarded, retry_times_when_send_failed=0, **READER) as producer:
            with pytest.raises(BrokerError):
                await producer.send(Message(topic, b"x"))

    run(body())
