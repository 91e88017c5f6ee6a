"""Pulls served in runs, compared with the same pulls served one by one: the same replies, offsets and figures."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from broker_bench import Bench, OpenBench, Peer
from hypothesis import example, given
from hypothesis import strategies as st

from broker_probe import BrokerProbe, ConnectionProbe
from property_examples import costly
from store_probe import StoreProbe
from tianzhou import _hot
from tianzhou._hot import frames, pulls
from tianzhou.access.needs import plain_needs
from tianzhou.access.plain_config import Account, PlainConfig
from tianzhou.access.plain_rules import PlainRules
from tianzhou.access.signatures import signature
from tianzhou.broker.messages import pull_runs
from tianzhou.model import MessageModel, TopicConfig
from tianzhou.remoting.gates.access_gate import AccessGate
from tianzhou.remoting.session import MAX_FRAME
from tianzhou.store import NewRecord
from tianzhou.testing.clock import VirtualClock
from tianzhou.wire.codes import RequestCode
from tianzhou.wire.command import Command, encode, split
from tianzhou.wire.fields import read_reply, write_header
from tianzhou.wire.hashing import tags_code

COMMIT, SUSPEND, SUBSCRIPTION = 1, 2, 4
Change = Callable[[Bench, Peer], Any]


def header(**fields: Any) -> dict[str, Any]:
    """Return the fields of a pull with its own subscription to all tags, with changes."""
    fields_of_all = {
        "consumer_group": "G", "topic": "T", "queue_id": 0, "queue_offset": 0, "max_msg_nums": 3,
        "sys_flag": SUBSCRIPTION, "commit_offset": 0, "suspend_timeout_millis": 0, "subscription": "*",
        "sub_version": 0, "expression_type": "TAG",
    }  # fmt: skip
    return write_header(RequestCode.PULL_MESSAGE, **fields_of_all | fields)


def regroup(**fields: Any) -> Change:
    def change(bench: Bench, _: Peer) -> None:
        groups = bench.tables.groups
        groups.put(replace(groups.find("G", 1), **fields), 1)  # type: ignore[type-var]

    return change


def retopic(**fields: Any) -> Change:
    def change(bench: Bench, _: Peer) -> None:
        topics = bench.tables.topics
        topics.put(replace(topics.get("T") or TopicConfig("T", 2, 2), **fields), 1)

    return change


def set_of(**fields: Any) -> Change:
    def change(bench: Bench, _: Peer) -> None:
        for name, value in fields.items():
            setattr(bench.settings, name, value)

    return change


def distrust(bench: Bench, _: Peer) -> None:
    queue = StoreProbe(bench.store).queue("T", 0)
    if queue is not None:
        queue.trusted_from = 99


CHANGES: dict[str, Change] = {
    "a message": lambda _, peer: peer.send("T", b"more", queue_id=1, properties={"UNIQ_KEY": "U", "TAGS": "TagA"}),
    "one that is waited for": lambda _, peer: peer.send("T", b"new", properties={"UNIQ_KEY": "N", "TAGS": "TagA"}),
    "a heartbeat": lambda _, peer: peer.heartbeat("c", "T", "S", version=2),
    "of another tag": lambda _, peer: peer.heartbeat("c", "T", expression="TagB", version=3),
    "of a broadcaster": lambda _, peer: peer.heartbeat("c", "T", model=MessageModel.BROADCASTING),
    "a reset": lambda bench, _: bench.tables.offsets.reset("G", "T", 0, 1, 1),
    "the group is off": regroup(consume_enable=False),
    "the group is on": regroup(consume_enable=True, group_sys_flag=3),
    "the topic is closed": retopic(perm=2),
    "the topic is open": retopic(perm=6, read_queue_nums=2),
    "fewer queues": retopic(read_queue_nums=1),
    "the topic is gone": lambda bench, _: bench.tables.topics.delete("T", 1),
    "the broker is closed": set_of(broker_permission=2),
    "the broker is open": set_of(broker_permission=6),
    "slaves are read": set_of(slave_read_enable=True),
    "no pull consumers": set_of(reject_pull_consumer_enable=True),
    "forbidden": lambda bench, _: bench.tables.groups.set_readable("G", "T", False, 1),
    "allowed": lambda bench, _: bench.tables.groups.set_readable("G", "T", True, 1),
    "few may wait": set_of(max_long_polls_per_connection=1),
    "none may wait": set_of(max_long_polls=0),
    "short polls": set_of(long_polling_enable=False, short_polling_time_mills=5),
    "the queues are gone": lambda bench, _: bench.store.delete_topic("T"),
    "units of the past": distrust,
}
PULLS = st.fixed_dictionaries(
    {},
    optional={
        "topic": st.sampled_from(["T", "T", "T", "S", "nowhere"]),
        "queue_id": st.sampled_from([0, 0, 0, 1, 2, -1]),
        "queue_offset": st.integers(-1, 9),
        "max_msg_nums": st.sampled_from([1, 32, 0]),
        "sys_flag": st.sampled_from([0, 0, COMMIT, SUBSCRIPTION, SUBSCRIPTION | COMMIT, SUBSCRIPTION | SUSPEND]),
        "commit_offset": st.integers(0, 9),
        "subscription": st.sampled_from([None, "TagA", "TagA || TagB", "Täg"]),
        "sub_version": st.sampled_from([0, 0, 2, 3, 9]),
        "expression_type": st.sampled_from([None, "TAG", "SQL92"]),
        "max_msg_bytes": st.just(1000),
        "consumer_group": st.sampled_from(["G", "H"]),
    },
)
CONSUMERS: list[dict[str, Any]] = [
    {"sys_flag": SUBSCRIPTION | COMMIT},
    {"sys_flag": COMMIT, "sub_version": 2},
    {"subscription": "TagA", "queue_id": 1},
    {"sys_flag": SUBSCRIPTION | SUSPEND, "suspend_timeout_millis": 20_000, "queue_offset": 6},
    {"sys_flag": COMMIT | SUSPEND, "sub_version": 2, "suspend_timeout_millis": 0, "queue_offset": 6},
]
"""Pulls of consumers that repeat, so that most of them are served in runs."""
AGAIN = st.builds(
    lambda consumer, places: [consumer | {"queue_offset": at, "commit_offset": commit} for at, commit in places],
    st.sampled_from(CONSUMERS),
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 9)), min_size=2, max_size=4),
)
STEPS = st.lists(
    st.one_of(AGAIN, AGAIN, st.lists(PULLS, max_size=3), st.sampled_from(sorted(CHANGES))), min_size=4, max_size=12
)


SECRETS = {"may": "secret-of-all", "some": "secret-of-some", "nobody": "secret-of-nobody"}
"""Secrets of the signers; the broker has no account of the last."""
ACCOUNTS = (
    Account("may", SECRETS["may"], default_topic_perm="SUB", default_group_perm="SUB"),
    Account("some", SECRETS["some"], default_topic_perm="PUB", topic_perms=("T=SUB",), group_perms=("G=SUB",)),
)
SIGNERS = st.sampled_from(["may", "may", "may", "some", "nobody", "wrong", ""])


def signed_by(signer: str, fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a request, signed by an account. `wrong` signs with another secret; an empty signer does not
    sign.
    """
    if not signer:
        return fields
    fields = fields | {"AccessKey": "may" if signer == "wrong" else signer}
    return fields | {"Signature": signature(fields, b"", SECRETS.get(signer, "another secret"))}


def always(change: str, consumer: dict[str, Any]) -> list[Any]:
    """Return a change between pulls: earlier pulls form runs, later ones may not."""
    return ["a heartbeat", [consumer, consumer], [consumer | {"commit_offset": 2}], change, [consumer, consumer]]


async def left_by(folder: Path, steps: list[Any], *, runs: bool, accounts: tuple[Account, ...] = ()) -> tuple[Any, int]:
    """Return the state after a conversation, and the number of pulls that were served in runs."""
    served = 0
    bench = Bench(folder, VirtualClock(), {"enable_broadcast_offset_store": True}, {})
    bench.runs = runs
    if accounts:
        bench.access = AccessGate(PlainRules([PlainConfig(accounts=accounts)], plain_needs), bench.tables.refusals)

    def counted(*arguments: Any) -> Any:
        nonlocal served
        result = bench.parts.pulls.runs.serve(*arguments)
        replied = b"".join(result[1])
        served += len(split(replied, 0, len(replied), MAX_FRAME)[0])
        return result

    async with bench:
        if runs:
            bench.fast_paths[RequestCode.PULL_MESSAGE] = counted
        peer, opaque = bench.peer(), 1_000_000
        for topic in ("T", "S"):
            bench.tables.topics.put(TopicConfig(topic, 2, 2), 1)
            for number in range(6):
                tag = "AB"[number % 2]
                pairs = f"UNIQ_KEY\x01U{number}\x02TAGS\x01Tag{tag}\x02".encode()
                bench.store.append(NewRecord(topic, 0, b"m%d" % number, pairs, tags_code=tags_code(f"Tag{tag}")))
        async with asyncio.timeout(5):
            while bench.store.max_offset("S", 0) < 6:
                await asyncio.sleep(0)
        for step in steps:
            if isinstance(step, str):
                done = CHANGES[step](bench, peer)
                if asyncio.iscoroutine(done):
                    await done
            else:
                frames = b""
                for fields in step:
                    opaque += 1
                    signer = fields.get("signer", "may" if accounts else "")
                    of_pull = header(**{name: value for name, value in fields.items() if name != "signer"})
                    frames += encode(
                        Command(RequestCode.PULL_MESSAGE, opaque, version=479, fields=signed_by(signer, of_pull))
                    )
                peer.post_frame(frames)
                await asyncio.sleep(0)
        await asyncio.sleep(0.01)
        written = peer.transport.written
        replies, _ = split(written, 0, len(written), MAX_FRAME)
        tables, gets, probe = bench.tables, bench.stats.gets, BrokerProbe(tables=bench.tables)
        return (
            # Deferred replies are sent later, so their order does not count.
            sorted(encode(reply) for reply in replies),
            tables.offsets.snapshot()["offsetTable"],
            probe.pulled_offsets,
            {key: (got.count, got.bytes, got.calls, got.queues) for key, got in gets.items()},
            (bench.stats.found, bench.stats.missed, bench.parts.pulls.waiting, peer.connection.deferred_replies),
            sorted(tables.groups.all()),
            Counter(kind.expression for topics in probe.pulled_subscriptions.values() for kind in topics.values()),
        ), served


@pytest.mark.parametrize("consumer", CONSUMERS)
@pytest.mark.parametrize("change", sorted(CHANGES))
def test_after_each_change_a_run_answers_as_the_handler_does(change: str, consumer: dict[str, Any]) -> None:
    compare(always(change, consumer))


@costly(0.4)  # two stores an example
@given(STEPS)
def test_a_run_answers_as_the_handler_does(steps: list[Any]) -> None:
    compare(steps)


def compare(steps: list[Any], accounts: tuple[Account, ...] = ()) -> None:
    """Check that a conversation ends in the same state in runs and one by one."""
    with TemporaryDirectory() as one, TemporaryDirectory() as other:
        by_runs, _ = asyncio.run(left_by(Path(one), steps, runs=True, accounts=accounts))
        one_by_one, served = asyncio.run(left_by(Path(other), steps, runs=False, accounts=accounts))
    assert served == 0
    assert by_runs == one_by_one


SIGNED = st.lists(
    st.one_of(
        st.builds(
            lambda consumer, signers: [consumer | {"queue_offset": at, "signer": signer} for at, signer in signers],
            st.sampled_from([consumer for consumer in CONSUMERS if "sub_version" not in consumer]),
            st.lists(st.tuples(st.integers(0, 6), SIGNERS), min_size=2, max_size=4),
        ),
        st.lists(st.builds(lambda fields, signer: fields | {"signer": signer}, PULLS, SIGNERS), max_size=2),
    ),
    min_size=3,
    max_size=8,
)


@costly(0.4)  # two stores an example
@given(SIGNED)
def test_a_run_knows_who_may_pull_as_the_handler_does(steps: list[Any]) -> None:
    compare(steps, ACCOUNTS)


async def test_signed_pulls_are_a_run(tmp_path: Path) -> None:
    """Pulls of an account with the permission and a valid signature; all others get the reply of the access rules."""
    again = [{"queue_offset": offset} for offset in range(5)]
    others = [{"signer": signer} for signer in ("some", "wrong", "", "nobody", "some", "some")]
    (replies, *_), served = await left_by(tmp_path, [again, again, others], runs=True, accounts=ACCOUNTS)
    codes = Counter(split(reply, 0, len(reply), MAX_FRAME)[0][0].code for reply in replies)
    assert codes == {0: 13, 1: 3}
    assert served == 5


async def test_pulls_like_one_that_found_messages_are_a_run(tmp_path: Path) -> None:
    again = [
        {"queue_offset": offset, "sys_flag": SUBSCRIPTION | COMMIT, "commit_offset": offset} for offset in range(5)
    ]
    (replies, committed, *_), served = await left_by(tmp_path, [again, again, again], runs=True)
    assert len(replies) == 15
    assert served == 10
    assert committed == {"T@G": {0: 4}}


async def test_pulls_at_the_end_of_a_queue_wait_in_runs(bench: Bench, peer: Peer) -> None:
    """The handler serves only the first pull. New messages go to the waiting pulls, and the clock ends the others."""
    handled, probe = 0, BrokerProbe(bench.parts)
    pull = probe.handlers[RequestCode.PULL_MESSAGE]

    def counted(*request: Any) -> Any:
        nonlocal handled
        handled += 1
        return pull(*request)

    probe.answer_with(RequestCode.PULL_MESSAGE, counted)
    await peer.send("T", b"m", properties={"UNIQ_KEY": "U"})
    for offset in range(1, 5):
        waiting = peer.post_pull("T", offset, sys_flag=SUBSCRIPTION | SUSPEND)
        await asyncio.sleep(0)
        assert (bench.parts.pulls.waiting, peer.connection.deferred_replies, handled) == (1, 1, 1)
        await peer.send("T", b"m", properties={"UNIQ_KEY": f"U{offset}"})
        reply = await peer.reply(waiting)
        assert (reply.code, read_reply(11, reply).next_begin_offset) == (0, offset + 1)
    assert bench.parts.pulls.waiting == 0
    ends = peer.post_pull("T", 5, sys_flag=SUBSCRIPTION | SUSPEND, suspend_timeout_millis=20)
    assert (await peer.reply(ends)).code == 19
    peer.post_pull("T", 5, sys_flag=SUBSCRIPTION | SUSPEND)
    await asyncio.sleep(0)
    peer.connection.connection_lost(None)
    assert bench.parts.pulls.waiting == 0, "who is gone waits no more"


@pytest.mark.parametrize("flags", [SUBSCRIPTION, 0])
async def test_what_decides_about_a_run_is_looked_at_in_each_pull(bench: Bench, peer: Peer, flags: int) -> None:
    await peer.heartbeat("c", "T", version=1)
    for number in range(4):
        await peer.send("T", b"m%d" % number, properties={"UNIQ_KEY": f"U{number}", "TAGS": "TagA"})
    for _ in range(2):
        assert (await peer.pull("T", sys_flag=flags)).code == 0
    group = bench.tables.groups.get("G")
    assert group is not None
    bench.tables.groups.put(replace(group, consume_enable=False), 1)
    assert (await peer.pull("T", sys_flag=flags)).code == 16
    bench.tables.groups.put(group, 1)
    assert (await peer.pull("T", sys_flag=flags)).code == 0
    bench.settings.broker_permission = 2
    assert (await peer.pull("T", sys_flag=flags)).code == 16


async def large_messages(bench: Bench) -> tuple[Peer, bytes]:
    """Return a peer that has stored half a mebibyte of messages, and a pull for them."""
    peer = bench.peer()
    for number in range(8):
        await peer.send("T", b"x" * 60_000, properties={"UNIQ_KEY": f"U{number}"})
    return peer, encode(Command(RequestCode.PULL_MESSAGE, 7, version=479, fields=header(max_msg_nums=32)))


async def test_a_run_ends_before_its_replies_are_many(broker: OpenBench) -> None:
    """Unread replies do not accumulate: the connection processes the rest of the read later, and stops reading."""
    async with broker() as bench:
        peer, frame = await large_messages(bench)
        peer.post_frame(frame)
        peer.transport.stall()
        while peer.connection.room() is None:
            peer.connection.send(b"x" * 65_536)
        buffer = bytearray(frame * 50)
        after, replies = bench.parts.pulls.runs.serve(peer.connection, buffer, 0, len(buffer))
        assert 0 < after < len(buffer)
        assert sum(map(len, replies)) < 2 * pull_runs.FLUSH_BYTES


async def test_who_takes_what_is_written_is_served_run_after_run(broker: OpenBench) -> None:
    async with broker() as bench:
        peer, frame = await large_messages(bench)
        before = len(peer.transport.written)
        peer.post_frame(frame)
        reply_bytes = len(peer.transport.written) - before
        buffer = bytearray(frame * 50)
        serve = bench.parts.pulls.runs.serve
        before = len(peer.transport.written)
        after, replies = serve(peer.connection, buffer, 0, len(buffer))
        assert after == len(buffer)
        assert len(peer.transport.written) - before + sum(map(len, replies)) == 50 * reply_bytes
        peer.transport.stall()
        before = len(peer.transport.written)
        after, replies = serve(peer.connection, buffer, 0, len(buffer))
        assert 0 < after < len(buffer), "the rest is for when it reads again"
        most = ConnectionProbe(peer.connection).group.write_high_bytes + 2 * pull_runs.FLUSH_BYTES
        assert len(peer.transport.written) - before + sum(map(len, replies)) < most


@given(
    st.binary(max_size=30), st.sampled_from([b'{"code":', b'{"codes"', b""]), st.binary(max_size=12), st.integers(0, 9)
)
@example(b"", b'{"code":', b"310,", 0)
@example(b"", b'{"code":', b"310", 0)
@example(b"", b'{"code":', b"-11,", 0)
@example(b"", b'{"code":', b"123456789,", 0)
def test_both_twins_read_the_same_request_code(before: bytes, mark: bytes, code: bytes, short: int) -> None:
    buffer = before + b"\0" * 8 + mark + code
    arguments = buffer, len(before), len(buffer) - short
    assert _hot.request_code(*arguments) == frames.request_code(*arguments)


SPELLED = st.one_of(
    st.builds(lambda fields: encode(Command(11, 5, version=453, fields=header(**fields))), PULLS),
    st.builds(
        lambda old, new: encode(Command(11, 5, version=453, fields=header())).replace(old, new, 1),
        st.sampled_from([b'"0"', b'"32"', b'"T"', b'"flag":0', b'"queueId"', b"}", b",", b'"opaque":5', b'"G"', b"11"]),
        st.sampled_from(
            [
                b'"000"', b'"-0"', b'"0x1"', b'""', b"null", b'"T\\u0041"', b'"flag":2', b'"queueOffset"', b"}}",
                b',"a":"b",', b'"opaque":99999999999', b'"99999999999999999999"', b'"remark":"r"', b"361", b" ",
                b'"bname":"broker-a","queueId"', b'"G","nsd":"true"', b'"G","requestSource":"1"', b'"\xc3\xa4"',
            ]
        ),
    ),
)  # fmt: skip


@given(SPELLED, st.integers(0, 3), st.integers(-1, 4), st.sampled_from([MAX_FRAME, 50]))
def test_both_twins_know_the_same_pulls(frame: bytes, before: int, behind: int, most: int) -> None:
    frame = (len(frame) - 4).to_bytes(4, "big") + (len(frame) - 8).to_bytes(4, "big") + frame[8:]
    buffer = b"\0" * before + frame + b"\0" * 4
    arguments = buffer, before, before + len(frame) + behind, most
    found = _hot.scan_pull(*arguments)
    assert found is None or found == pulls.scan_pull(*arguments)
    if found is not None:
        command = split(frame, 0, len(frame), MAX_FRAME)[0][0]
        fields = command.header
        assert found[1:] == (pulls.pull_key(fields), command.opaque, fields.queue_offset, fields.commit_offset)


def test_what_clients_send_is_known() -> None:
    for fields in ({}, {"subscription": None}, {"expression_type": None}, {"bname": "b", "max_msg_bytes": 9}):
        frame = encode(Command(11, 5, version=453, fields=header(**fields)))
        assert _hot.scan_pull(frame, 0, len(frame), MAX_FRAME) is not None
        assert pulls.scan_pull(frame, 0, len(frame), MAX_FRAME) is not None
        padded = frame.replace(b'"queueOffset":"0"', b'"queueOffset":"0000000000"')
        padded = (len(padded) - 4).to_bytes(4, "big") + (len(padded) - 8).to_bytes(4, "big") + padded[8:]
        assert _hot.scan_pull(padded, 0, len(padded), MAX_FRAME) == pulls.scan_pull(padded, 0, len(padded), MAX_FRAME)
