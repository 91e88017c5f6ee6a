"""Our clients at Apache brokers with access control: ACL 1.0 of 4.9.7, and users of 5.3.3."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from apache import serving
from at_once import Outcomes, outcomes, selected, tell
from client_suite import CHECKS, DELAY_LEVELS, FIRST, Check, fresh, make_topic
from frames import Account

from tianzhou import Message, Producer, PullConsumer, PushConsumer, TransactionProducer, TransactionState
from tianzhou.admin import Admin
from tianzhou.client import ClientInstance
from tianzhou.errors import BrokerError, TianzhouError
from waiting import until_async

ADMIN = {"access_key": "rocketmq2", "secret_key": "12345678"}
ADMINISTRATOR = Account(ADMIN["access_key"], ADMIN["secret_key"])
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
AUTH = "org.apache.rocketmq.auth"
USERS = {
    "authenticationEnabled": "true",
    "authenticationProvider": f"{AUTH}.authentication.provider.DefaultAuthenticationProvider",
    "authenticationMetadataProvider": f"{AUTH}.authentication.provider.LocalAuthenticationMetadataProvider",
    "initAuthenticationUser": f'{{"username":"{ADMIN["access_key"]}","password":"{ADMIN["secret_key"]}"}}',
    "innerClientAuthenticationCredentials": f'{{"accessKey":"{ADMIN["access_key"]}",'
    f'"secretKey":"{ADMIN["secret_key"]}"}}',
}
"""Every known user of 5.3.3 may do everything; permissions by group and topic would need another setting."""
SIGNED = {
    "everything_sent_is_read_back_as_it_was",
    "a_batch_is_stored_in_one_piece",
    "large_bodies_travel_compressed",
    "members_share_the_messages_and_keep_their_progress",
    "what_fails_is_delivered_again",
    "messages_are_found_by_id_key_and_position",
    "groups_are_made_changed_and_deleted",
}
"""Checks with requests of every form: built from fields, framed from templates, one-way, replies to brokers."""

SIGNED_BY_USERS = {
    "a_batch_is_stored_in_one_piece",
    "what_fails_is_delivered_again",
    "messages_are_found_by_id_key_and_position",
    "groups_are_made_changed_and_deleted",
}
"""Checks of requests that a newer broker might handle differently."""


@pytest.fixture(scope="module")
def guarded() -> Iterator[str]:
    """Yield the address of a name server whose broker has ACL 1.0, with rules by account."""
    with serving(
        "4.9.7",
        {"aclEnable": "true", "messageDelayLevel": DELAY_LEVELS},
        accounts=ACCOUNTS,
        administrator=ADMINISTRATOR,
    ) as address:
        yield address


@pytest.fixture(scope="module")
def guarded_by_users() -> Iterator[str]:
    """Yield the address of a name server whose broker has one user."""
    with serving(
        "5.3.3", USERS | {"messageDelayLevel": DELAY_LEVELS}, accounts=ACCOUNTS, administrator=ADMINISTRATOR
    ) as address:
        yield address


def run(body) -> None:
    async def main() -> None:
        async with asyncio.timeout(90):
            await body

    asyncio.run(main())


def signing_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    made = ClientInstance.__init__
    monkeypatch.setattr(ClientInstance, "__init__", lambda self, *args, **options: made(self, *args, **ADMIN | options))


def signed_checks(
    request: pytest.FixtureRequest, address: str, factory: pytest.TempPathFactory, names: set[str]
) -> Outcomes:
    """Run the selected checks with the given names, signed by default, and return their outcomes."""
    checks = [check for check in selected(request) if check.__name__ in names]
    with pytest.MonkeyPatch.context() as patch:
        signing_by_default(patch)
        return outcomes(checks, address, factory.mktemp("checks"))


@pytest.fixture(scope="module")
def ran(guarded: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    """Return the outcomes of the checks at a broker with ACL 1.0."""
    return signed_checks(request, guarded, tmp_path_factory, SIGNED)


@pytest.fixture(scope="module")
def ran_by_users(
    guarded_by_users: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Outcomes:
    """Return the outcomes of the checks at a broker with users."""
    return signed_checks(request, guarded_by_users, tmp_path_factory, SIGNED_BY_USERS)


@pytest.mark.parametrize("check", [one for one in CHECKS if one.__name__ in SIGNED], ids=lambda check: check.__name__)
def test_checks_of_the_suite_hold_with_signed_requests(check: Check, ran: Outcomes) -> None:
    tell(ran, check)


@pytest.mark.parametrize(
    "check", [one for one in CHECKS if one.__name__ in SIGNED_BY_USERS], ids=lambda check: check.__name__
)
def test_checks_of_the_suite_hold_with_a_user_of_the_newer_kind(check: Check, ran_by_users: Outcomes) -> None:
    tell(ran_by_users, check)


def test_transactions_and_orderly_consumers_are_signed_too(guarded: str, monkeypatch: pytest.MonkeyPatch) -> None:
    signing_by_default(monkeypatch)

    async def body() -> None:
        topic, seen = await make_topic(guarded, 1), []
        consumer = PushConsumer(fresh("G"), guarded, orderly=True, consume_from_where=FIRST)
        consumer.subscribe(topic, handler=lambda message: seen.append(message.body))
        producer = TransactionProducer(fresh("P"), guarded, check=lambda _: TransactionState.COMMIT)
        async with consumer, producer:
            await producer.send_in_transaction(Message(topic, b"both"), lambda *_: TransactionState.COMMIT)
            await until_async(lambda: seen == [b"both"], "it was committed and consumed in order")

    run(body())


async def refusal(address: str, topic: str, **keys: str) -> str:
    async with Producer(fresh("P"), address, retry_times_when_send_failed=0, **keys) as producer:
        with pytest.raises(TianzhouError) as caught:
            await producer.send(Message(topic, b"x"))
    return str(caught.value)


async def refused_but_signed(address: str, unsigned: str, wrong: str, unknown: str) -> str:
    """Check that sends are refused without a signature, with another key's and with an unknown account; return the
    topic.
    """
    topic = fresh("T")
    async with Admin(address, **ADMIN) as admin:
        await admin.topics.create(topic, read_queue_nums=1, write_queue_nums=1)
    assert unsigned in await refusal(address, topic)
    assert wrong in await refusal(address, topic, **ADMIN | {"secret_key": "wrong word"})
    assert unknown in await refusal(address, topic, **ADMIN | {"access_key": "nobody"})
    return topic


def test_who_does_not_sign_or_may_not_is_refused(guarded: str) -> None:
    async def body() -> None:
        topic = await refused_but_signed(
            guarded,
            unsigned="No accessKey is configured",
            wrong="Check signature failed for accessKey=rocketmq2",
            unknown="No acl config for nobody",
        )
        async with Producer(fresh("P"), guarded, **ADMIN) as producer:
            result = await producer.send(Message(topic, b"x"))
        async with PullConsumer(fresh("G"), guarded, **READER) as reader:

            async def bodies() -> list[bytes]:
                return [message.body for message in (await reader.pull(result.queue, 0)).messages]

            # Apache's broker dispatches a message some time after its sender has the reply.
            assert await until_async(bodies) == [b"x"]
        async with Producer(fresh("P"), guarded, retry_times_when_send_failed=0, **READER) as producer:
            with pytest.raises(BrokerError):
                await producer.send(Message(topic, b"x"))

    run(body())


def test_who_is_no_user_is_refused(guarded_by_users: str) -> None:
    async def body() -> None:
        await refused_but_signed(
            guarded_by_users,
            unsigned="username cannot be null",
            wrong="check signature failed",
            unknown="User:nobody is not found",
        )

    run(body())
