"""No request reaches its handler without passing the rules."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator
from itertools import pairwise

import pytest

from tianzhou.access.body_names import NAMES_PER_PART
from tianzhou.access.requests import NOBODY, AccessDenied, AccessRequest, Identity, RequestProof
from tianzhou.broker.large_bodies import Decoded
from tianzhou.limits import Refusals
from tianzhou.model import ConsumerData, HeartbeatData, SubscriptionData
from tianzhou.remoting.connection import Connection
from tianzhou.remoting.gates.access_gate import AccessGate
from tianzhou.remoting.group import ConnectionGroup
from tianzhou.remoting.turns import SLICE_S, Turns
from tianzhou.testing.clock import VirtualClock
from tianzhou.testing.memory import MemoryTransport
from tianzhou.wire.command import Command, decode, encode
from tianzhou.wire.fields import write_header

HEARTBEAT, SEND, END = 34, 310, 37


class Rules:
    """Rules with one account, which may only use `identify`, unless it is the boss."""

    epoch: object = None

    def __init__(self) -> None:
        self.seen: list[AccessRequest] = []
        self.questions: list[tuple[Identity, int, str, str, int]] = []
        self.looked_at = 0
        self.clock = VirtualClock()

    def secret_of(self, account: str) -> str | None:
        return None

    def identify(self, request: AccessRequest) -> Identity:
        self.seen.append(request)
        if request.fields.get("AccessKey") not in ("boss", "worker"):
            raise AccessDenied(1, "No accessKey is configured")
        return Identity(request.fields["AccessKey"], RequestProof.SIGNATURE)

    def may(self, identity: Identity, request: AccessRequest, *, part_of: int = 0) -> bool:
        self.questions.append((identity, request.code, request.fields["topic"], request.ip, part_of))
        return identity.account == "boss"

    def check_parts(self, request: AccessRequest, parts: Iterable[AccessRequest]) -> Iterator[None]:
        self.identify(request)
        for part in parts:
            self.looked_at += 1
            self.clock.advance(SLICE_S)
            if "secret" in part.decoded.topics:
                raise AccessDenied(16, "worker may not")
            yield

    def check(self, request: AccessRequest) -> str:
        account = self.identify(request).account
        if account != "boss":
            raise AccessDenied(16, "worker may not")
        return account


class Door:
    """A server with one handler behind the gate; `sent` are the replies."""

    def __init__(self) -> None:
        self.rules, self.refusals, self.served = Rules(), Refusals(), []
        gate = AccessGate(self.rules, self.refusals, frozenset({HEARTBEAT}))
        self.table = {
            code: gate.door(code, gate.inner(code, lambda _, command: self.served.append(command) or command.reply(0)))
            for code in (HEARTBEAT, SEND, END)
        }
        self.group = group = ConnectionGroup(
            lambda peer, command: self.table[command.code](peer, command), clock=VirtualClock(), idle_timeout_s=0
        )
        self.connection = Connection(group)
        self.transport = MemoryTransport(self.connection, ("10.0.0.6", 4000))

    def receive(self, command: Command) -> None:
        frame = encode(command)
        self.connection.get_buffer(-1)[: len(frame)] = frame
        self.connection.buffer_updated(len(frame))


def send(account: str | None, code: int = SEND, flag: int = 0) -> Command:
    values = {
        "producer_group": "g", "topic": "t", "default_topic": "T", "default_topic_queue_nums": 1, "queue_id": 0,
        "sys_flag": 0, "born_timestamp": 1, "flag": 0,
    }  # fmt: skip
    fields = write_header(SEND, **values) if code == SEND else {}
    return Command(code, 7, flag, fields=fields | ({"AccessKey": account} if account else {}), body=b"b")


@pytest.fixture
def door() -> Door:
    return Door()


@pytest.mark.parametrize("code", [SEND, HEARTBEAT])
def test_who_may_is_served_and_others_are_answered_with_the_words_of_the_rules(door: Door, code: int) -> None:
    for account in ("boss", "worker", None):
        door.receive(send(account, code))
    assert len(door.served) == 1
    replies = bytes(door.transport.written)
    assert b"worker may not" in replies
    assert b"No accessKey is configured" in replies
    assert door.refusals.counts["access"] == 2


def test_a_one_way_request_that_is_refused_is_counted_and_not_answered(door: Door) -> None:
    door.receive(send(None, flag=2))
    assert not door.served
    assert not door.transport.written
    assert door.refusals.counts["access"] == 1


async def test_a_refused_end_of_a_transaction_is_answered_though_it_is_one_way(door: Door) -> None:
    door.group.start()
    door.receive(send("worker", END, flag=2))
    await asyncio.sleep(0)
    assert not door.served
    answer = decode(memoryview(bytes(door.transport.written))[4:])
    assert (answer.code, answer.opaque, answer.remark) == (16, 7, "worker may not")


def test_refusals_of_two_accounts_at_one_address_are_two_lines(door: Door, caplog: pytest.LogCaptureFixture) -> None:
    door.rules.secret_of = lambda account: "secret" if account in ("worker", "other") else None
    with caplog.at_level(logging.WARNING):
        for name in ("worker", "other", "worker", *(f"made-up-{number}" for number in range(20))):
            door.receive(send(name))
    assert len(caplog.records) == 3


def test_what_a_message_needs_is_asked_about_the_sender_of_the_request(door: Door) -> None:
    gate = AccessGate(door.rules, door.refusals)
    boss = Identity("boss", RequestProof.SIGNATURE)
    assert gate.may_write(door.connection, send("boss", END), "half")
    assert not gate.may_read(door.connection, send("worker", 36), "theirs")
    assert not gate.may_send(door.connection, "asked"), "no heartbeat has come"
    door.receive(send("boss", HEARTBEAT))
    assert gate.may_send(door.connection, "asked")
    assert door.rules.questions == [
        (boss, 10, "half", "10.0.0.6", 37),
        (Identity("worker", RequestProof.SIGNATURE), 12, "theirs", "10.0.0.6", 36),
        (NOBODY, 10, "asked", "10.0.0.6", 0),
        (boss, 10, "asked", "10.0.0.6", 0),
    ]


def test_the_rules_see_what_handlers_see(door: Door) -> None:
    door.receive(send("boss"))
    (request,) = door.rules.seen
    assert (request.code, request.ip, bytes(request.body)) == (SEND, "10.0.0.6", b"b")
    assert (request.fields["b"], request.fields["AccessKey"]) == ("t", "boss")


def test_the_account_of_a_certificate_is_seen(door: Door) -> None:
    door.connection.account = "boss"
    door.receive(send(None))
    (request,) = door.rules.seen
    assert request.account == "boss"


def test_a_peer_that_is_refused_again_and_again_writes_one_line(door: Door, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        for _ in range(100):
            door.receive(send(None))
    lines = [record.getMessage() for record in caplog.records]
    assert lines == ["refused SEND_MESSAGE_V2 (310) of 10.0.0.6:4000: No accessKey is configured"]


def test_rules_that_change_in_between_count(door: Door) -> None:
    rules = door.rules
    identify = rules.identify

    def once(request: AccessRequest) -> None:
        identify(request)
        rules.check = lambda _: refuse()  # as when an account is deleted while a large body waits for its turn

    def refuse() -> None:
        raise AccessDenied(16, "worker is gone")

    rules.identify = once
    door.receive(send("boss", HEARTBEAT))
    assert not door.served
    assert b"worker is gone" in bytes(door.transport.written)


def test_codes_nobody_serves_need_an_account(door: Door) -> None:
    gate = AccessGate(door.rules, door.refusals)
    door.table[4711] = gate.signed(lambda _, command: command.reply(3, "not supported"))
    for account in (None, "worker"):
        door.receive(send(account, 4711))
    replies = bytes(door.transport.written)
    assert replies.count(b"not supported") == replies.count(b"No accessKey is configured") == 1


def test_the_account_of_a_heartbeat_is_that_of_its_signature(door: Door) -> None:
    door.rules.identify = lambda request: Identity(
        request.fields.get("AccessKey") or request.account, RequestProof.SIGNATURE
    )
    door.connection.account = "machine"
    assert AccessGate.account_of(door.connection) == ""
    for account in ("boss", None):
        door.receive(send(account, HEARTBEAT))
        assert AccessGate.account_of(door.connection) == (account or "machine")


@pytest.mark.parametrize("topic", ["open", "secret"])
async def test_a_heartbeat_of_thousands_of_names_is_looked_at_in_the_turns_of_others(door: Door, topic: str) -> None:
    names = [*(f"t{number}" for number in range(10 * NAMES_PER_PART)), topic]
    data = HeartbeatData("c", [], [ConsumerData("", subscription_data_set=list(map(SubscriptionData, names)))])
    gate, rules = AccessGate(door.rules, door.refusals, frozenset({HEARTBEAT})), door.rules
    turns = Turns(monotonic=rules.clock.monotonic)

    async def later(command: Command) -> Command:
        return command.reply(0)

    serve = gate.inner(HEARTBEAT, lambda _, command: later(command), turns)
    command = Command(HEARTBEAT, fields={"AccessKey": "worker"}, body=Decoded(b"{}", data))
    served = asyncio.ensure_future(serve(door.connection, command))
    seen = []
    while not served.done():
        await asyncio.sleep(0)
        seen.append(rules.looked_at)
    assert max(after - before for before, after in pairwise(seen)) <= 1
    assert rules.looked_at == 11 + (topic == "open"), "the empty name of the group is looked at, too"
    assert len(rules.seen) == 1
    if topic == "open":
        assert served.result().code == 0
    else:
        with pytest.raises(AccessDenied):
            served.result()
        assert door.refusals.counts["access"] == 1
