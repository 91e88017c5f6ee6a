"""A run of sends against the same sends one by one: the same log, queues, index, replies and figures."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import pytest
from group_of_one import GROUP, all_entries, commit, entries_of
from hypothesis import given
from hypothesis import strategies as st

from broker_probe import BrokerProbe
from property_examples import costly
from store_probe import StoreProbe
from tianzhou import _hot
from tianzhou.access.needs import plain_needs
from tianzhou.access.plain_config import Account, PlainConfig
from tianzhou.access.plain_rules import PlainRules
from tianzhou.access.signatures import signature
from tianzhou.broker.handlers import send as send_handler
from tianzhou.broker.server import make_parts, make_tables
from tianzhou.broker.services import Services
from tianzhou.broker.settings import BrokerSettings
from tianzhou.broker.stats.stats import BrokerStats
from tianzhou.model import TopicConfig
from tianzhou.remoting.client import RemotingClient
from tianzhou.remoting.connection import Connection
from tianzhou.remoting.gates.access_gate import AccessGate
from tianzhou.remoting.group import ConnectionGroup
from tianzhou.remoting.session import MAX_FRAME
from tianzhou.store.entries import framed_log
from tianzhou.store.settings import StoreSettings
from tianzhou.store.store import MessageStore
from tianzhou.supervision import Supervisor
from tianzhou.testing.clock import VirtualClock
from tianzhou.testing.memory import MemoryTransport
from tianzhou.wire.batch import encode_batch
from tianzhou.wire.command import encode, split

pytestmark = pytest.mark.skipif(_hot.MODE == "pure", reason="in pure mode each send takes its handler")

HOST = b"\x7f\x00\x00\x01"
LONG_NAMES = [
    "producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag", "bornTimestamp", "flag",
    "properties", "reconsumeTimes", "unitMode", "maxReconsumeTimes", "batch",
]  # fmt: skip
TOPICS = ("T", "topic_of-40", "n" * 100)
NO_JSON = '"opaque":0{opaque}'
"""Ends the connection."""
SECRETS = {"may": "secret-of-all", "some": "secret-of-some", "nobody": "secret-of-nobody"}
"""Secrets of the signers; the broker has no account of the last."""
ACCOUNTS = PlainConfig(
    accounts=(
        Account("may", SECRETS["may"], default_topic_perm="PUB"),
        Account("some", SECRETS["some"], default_topic_perm="SUB", topic_perms=("T=PUB",)),
    )
)


def frame(header: bytes, body: bytes) -> bytes:
    return (4 + len(header) + len(body)).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header + body


@dataclass(frozen=True)
class Sent:
    """A send with a client's spelling of JSON, or a similar one."""

    topic: str = "T"
    queue_id: int = 0
    properties: str = "UNIQ_KEY\\u0001AC110001\\u0002WAIT\\u0001true\\u0002"
    body: bytes = b"body"
    code: int = 310
    flag: int = 0
    sys_flag: int = 0
    more: str = ""
    batch: str = "false"
    signer: str = ""
    secret: str = ""
    spelled: str = '"flag":{flag},"language":"JAVA","opaque":{opaque},"serializeTypeCurrentRPC":"JSON","version":479'

    def frame(self, opaque: int) -> bytes:
        """Return the encoded request."""
        values = {
            "a": "P", "b": self.topic, "c": "TBW102", "d": 4, "e": self.queue_id, "f": self.sys_flag,
            "g": 1_700_000_000_000 + opaque, "h": 7, "i": self.properties, "j": 0, "k": "false", "l": 16,
            "m": self.batch,
        }  # fmt: skip
        names = LONG_NAMES if self.code == 10 else values
        fields = ",".join(f'"{name}":"{value}"' for name, value in zip(names, values.values(), strict=True))
        rest = self.spelled.format(flag=self.flag, opaque=opaque)
        more = self.more + (f',"AccessKey":"{self.signer}"' if self.signer else "")
        header = f'{{"code":{self.code},"extFields":{{{fields}%s}},{rest}}}'
        if self.signer and self.spelled != NO_JSON:
            read = json.loads(header.replace("%s", more, 1))["extFields"]
            more += f',"Signature":"{signature(read, self.body, self.secret or SECRETS[self.signer])}"'
        return frame(header.replace("%s", more, 1).encode(), self.body)


KEYED = b"UNIQ_KEY\x01AC11%04d\x02KEYS\x01one two\x02TAGS\x01tag%d"


def batched(*messages: tuple[bytes, bytes]) -> bytes:
    """Return bodies and properties of messages in the format of a batch."""
    return encode_batch([(number, body, properties) for number, (body, properties) in enumerate(messages)])


BATCHES = st.builds(
    Sent,
    topic=st.sampled_from(TOPICS),
    queue_id=st.sampled_from([0, 0, 1, 3, 3, 9]),
    properties=st.sampled_from(
        ["WAIT\\u0001true\\u0002"] * 4
        + [
            "",
            "WAIT\\u0001false",
            "UNIQ_KEY\\u0001A\\u0002",
            "x\\u0001y",
            "DELAY\\u00010\\u0002",
            "DELAY\\u00013\\u0002",
        ]
    ),
    body=st.one_of(
        st.integers(1, 70).map(lambda count: batched(*((b"b" * n, KEYED % (n, n)) for n in range(count)))),
        st.sampled_from(
            [
                batched((b"b", KEYED % (1, 1)), (b"c" * 900, b""), (b"", b"UNIQ_KEY\x01B\x02")),
                batched((b"b", KEYED % (1, 1)), (b"c", b"DELAY\x013\x02")),
                batched((b"b" * 3000, KEYED % (1, 1)), (b"c" * 3000, KEYED % (2, 2))),
                batched((b"b", KEYED % (1, 1)))[:-1],
                batched((b"b", b"a\x01\0\x02")),
                b"no batch",
            ]
        ),
    ),
    code=st.sampled_from([320, 320, 320, 310, 10]),
    flag=st.sampled_from([0, 0, 0, 2]),
    sys_flag=st.sampled_from([0, 0, 0, 0, 1, 4, 8]),
    batch=st.sampled_from(["true", "true", "true", "true", "false", "TRUE"]),
)
ODD = [
    Sent(topic="unknown"), Sent(queue_id=9), Sent(queue_id=-1), Sent(sys_flag=4), Sent(sys_flag=8), Sent(sys_flag=0xC0),
    Sent(properties=""), Sent(properties="KEYS\\u0001k\\u0002"), Sent(properties="UNIQ_KEY\\u0001ü\\u0002"),
    Sent(properties="UNIQ_KEY\\u0001A-1\\u0002"), Sent(properties="UNIQ_KEY\\u0001A\\u0002DELAY\\u00013\\u0002"),
    Sent(properties="UNIQ_KEY\\u0001A\\u0002UNIQ_KEY\\u0001B"), Sent(properties="UNIQ_KEY\\u0001A\\u0002broken"),
    Sent(properties="UNIQ_KEY\\u0001A\\u0002x\\u0001\\u0000\\u0002"), Sent(body=b""), Sent(more=',"zz":"1"'),
    Sent(more=',"b":"other"'), Sent(more=',"n":"broker-a"'), Sent(more=',"AccessKey":"a","Signature":"s"'),
    Sent(spelled='"opaque":{opaque},"flag":{flag}'), Sent(spelled='"opaque": {opaque}'),
    Sent(spelled=NO_JSON),
    Sent(spelled='"opaque":{opaque},"remark":"r"'), Sent(flag=4), Sent(code=35), Sent(body=b"x" * 5000),
]  # fmt: skip
ORDINARY = st.builds(
    Sent,
    topic=st.sampled_from(TOPICS),
    queue_id=st.integers(0, 3),
    properties=st.sampled_from(
        [
            "UNIQ_KEY\\u0001AC110001\\u0002WAIT\\u0001true\\u0002",
            "UNIQ_KEY\\u0001AC110009\\u0002WAIT\\u0001false",
            "KEYS\\u0001one two\\u0002UNIQ_KEY\\u0001AC110002\\u0002TAGS\\u0001tag\\u0002",
            'x\\u0001\\"\\\\\\/\\u0041\\u0002UNIQ_KEY\\u0001AC110003\\u0002TAGS\\u0001tagTag',
        ]
    ),
    body=st.sampled_from([b"b", b"\0" * 40, bytes(range(256)) * 3]),
    code=st.sampled_from([310, 310, 10]),
    flag=st.sampled_from([0, 0, 0, 2]),
)
SIGNED = st.builds(
    replace,
    st.one_of(ORDINARY, ORDINARY, ORDINARY, BATCHES, st.sampled_from([one for one in ODD if not one.more])),
    signer=st.sampled_from(["may", "may", "may", "some", "nobody", ""]),
    secret=st.sampled_from(["", "", "", "", "of another"]),
    more=st.sampled_from(["", "", "", "", ',"zz":"1"', ',"n":"broker-a"', ',"Signature":"c2lnbmF0dXJl"']),
)
FURTHER = "UNIQ_KEY\\u0001A\\u0002INNER_MULTI_DISPATCH\\u0001topic_of-40\\u0002"
DISPATCHED = st.sampled_from(
    [
        Sent(properties=FURTHER, signer="some"),
        Sent(
            code=320,
            batch="true",
            properties="WAIT\\u0001true\\u0002",
            body=batched((b"b", KEYED % (1, 1)), (b"c", b"INNER_MULTI_DISPATCH\x01topic_of-40\x02")),
            signer="some",
        ),
    ]
)
SIGNED_READS = st.lists(st.lists(st.one_of(SIGNED, SIGNED, SIGNED, DISPATCHED), max_size=12), max_size=5)
READS = st.lists(
    st.lists(st.one_of(ORDINARY, ORDINARY, BATCHES, BATCHES, st.sampled_from(ODD)), max_size=12), max_size=5
)


async def stored(root: Path, reads: list[bytes], run: Any, *, signed: bool = False, **store: Any) -> Any:
    """Return the state of a broker after reads of a connection.

    Args:
        root: folder of its store.
        reads: the bytes of each read.
        run: class of the runs; None serves requests one by one.
        signed: whether there is access control.
        store: settings of the store, beside small sizes.
    """
    clock = VirtualClock()
    broker_settings = replace(BrokerSettings(), broker_ip1="127.0.0.1", auto_create_topic_enable=False)
    small = {"mapped_file_size_commit_log": 1 << 17, "mapped_file_size_consume_queue": 400, "max_hash_slot_num": 50}
    # On a busy machine, a queue could be flushed meanwhile in one case but not in the other.
    small |= {"max_index_num": 40, "flush_interval_consume_queue": 3_600_000}
    store_settings = StoreSettings(store_path_root_dir=str(root), max_message_size=4096, **small | store)
    tables = make_tables(broker_settings, store_settings, clock.now_ms())
    for topic in TOPICS:
        tables.topics.put(TopicConfig(topic, 4, 4), clock.now_ms())
    held = MessageStore(store_settings, clock, store_host=HOST, store_port=10911)
    await held.start()
    grouped = held.settings.enable_d_leger_commit_log
    if grouped:
        entries = entries_of(held)
        entries.lead(3)
        entries.append_opening(3, clock.now_ms())
        commit(held)
        await entries.served()
        held.flags.opened()
    services = Services(
        tables,
        held,
        BrokerStats(clock.now_ms()),
        clock,
        Supervisor("broker", clock),
        "127.0.0.1:10911",
        (HOST, 10911),
        rng=Random(1),
        access=AccessGate(PlainRules([ACCOUNTS], plain_needs), tables.refusals) if signed else None,
    )
    parts = make_parts(
        services, client=RemotingClient(clock=clock), written=asyncio.sleep, settings_changed=lambda _: None
    )  # type: ignore[arg-type]
    group = ConnectionGroup(parts.router.serve, idle_timeout_s=0, clock=clock)
    if run is not None:
        BrokerProbe(parts).serve_runs_by(run, send_handler._SPECIAL, send_handler.tags_code)
        group.fast_paths = parts.router.fast_paths
    group.start()
    answering = asyncio.ensure_future(parts.acks.run())
    connection = Connection(group)
    transport = MemoryTransport(connection, ("127.0.0.1", 40_001))
    for read in reads:
        while read and not transport.closed:
            read = read[transport.feed(read) :]
            await asyncio.sleep(0)
            await asyncio.sleep(0)
    if grouped:
        commit(held)
    async with asyncio.timeout(60):
        while len(parts.acks):
            await asyncio.sleep(0.001)
    answering.cancel()
    if held.settings.sync_flush:
        StoreProbe(held).dispatcher.limit = None
    StoreProbe(held).dispatch_all()
    queues = StoreProbe(held).queues()
    left = (
        sorted(encode(reply) for reply in split(transport.written, 0, len(transport.written), MAX_FRAME)[0]),
        [bytes(segment.view) for segment in StoreProbe(held).log.files.segments],
        [bytes(segment.view) for queue in queues for segment in queue.files],
        [(queue.next_offset, queue.max_offset, queue.max_physical, queue.dirty) for queue in queues],
        StoreProbe(held).index_bytes(),
        {topic: (traffic.counts, traffic.sizes) for topic, traffic in services.stats.puts.items()},
        (StoreProbe(held).dispatcher.position, StoreProbe(held).dispatcher.logics_timestamp),
        dict(tables.refusals.counts),
        all_entries(held) if grouped else [],
        [bytes(segment.view[:8192]) for segment in StoreProbe(held).log.units.files.segments] if grouped else [],
    )
    await group.close(0)
    await held.close()
    return left


def found(reads: list[list[Sent]], cut: int, **how: Any) -> list[Any]:
    """What reads leave behind, one by one and by runs."""
    pieces, opaque = [b""], 0
    for read in reads:
        for one in read:
            if one.spelled == NO_JSON and how["flush_disk_type"] == "SYNC_FLUSH":
                continue  # it depends on timing whether the disk is flushed before the close, and so does the reply
            opaque += 1
            pieces[-1] += one.frame(opaque)
        pieces.append(b"")
    # A read may end anywhere.
    first, place = pieces[0], max(len(pieces[0]) - cut, 0)
    pieces = [first[:place], first[place:] + b"".join(pieces[1:2]), *pieces[2:]]
    left = []
    for one_by_one in (True, False):
        with TemporaryDirectory() as root:
            left.append(asyncio.run(stored(Path(root), pieces, None if one_by_one else _hot.SendRun, **how)))
    return left


def counting(run: Any) -> tuple[Any, list[int]]:
    """Return a class of runs, and the number of sends of each of its runs."""
    taken: list[int] = []

    class Counted(run):  # type: ignore[misc]
        def store(self, buffer: Any, start: int, *more: Any) -> Any:
            result = super().store(buffer, start, *more)
            taken.append(result[2])
            return result

    return Counted, taken


@costly(0.4)
@given(READS, st.booleans(), st.sampled_from(["ASYNC_FLUSH", "ASYNC_FLUSH", "SYNC_FLUSH"]), st.integers(0, 400))
def test_a_run_stores_what_its_sends_do_one_by_one(
    reads: list[list[Sent]], indexed: bool, flush: str, cut: int
) -> None:
    one_by_one, by_runs = found(reads, cut, message_index_enable=indexed, flush_disk_type=flush)
    assert by_runs == one_by_one


@costly(0.4)
@given(SIGNED_READS, st.sampled_from(["ASYNC_FLUSH", "ASYNC_FLUSH", "SYNC_FLUSH"]), st.integers(0, 400))
def test_under_access_control_a_run_stores_what_its_sends_do_one_by_one(
    reads: list[list[Sent]], flush: str, cut: int
) -> None:
    one_by_one, by_runs = found(reads, cut, signed=True, message_index_enable=False, flush_disk_type=flush)
    assert by_runs == one_by_one


@costly(0.4)
@given(READS, st.sampled_from(["ASYNC_FLUSH", "SYNC_FLUSH"]), st.sampled_from([0, 1, 3, 20]), st.integers(0, 400))
def test_in_a_group_a_run_stores_the_entries_that_its_sends_do_one_by_one(
    reads: list[list[Sent]], flush: str, most: int, cut: int
) -> None:
    """Headers, units and positions of all entries; a leader in a group with few of them accepts no more."""
    with patch.object(framed_log, "MOST_UNCOMMITTED", most or framed_log.MOST_UNCOMMITTED):
        one_by_one, by_runs = found(reads, cut, message_index_enable=True, flush_disk_type=flush, **GROUP)
    assert by_runs == one_by_one


def test_sends_to_a_leader_are_a_run(tmp_path: Path) -> None:
    """As far as there is room for their units."""
    counted, taken = counting(_hot.SendRun)
    batch = Sent(code=320, batch="true", properties="WAIT\\u0001true", body=batched((b"b", KEYED % (1, 1))))
    mixed = [Sent(), batch, Sent(flag=2), Sent(topic=TOPICS[1])]
    reads = [b"".join(one.frame(10 * read + number) for number, one in enumerate(mixed)) for read in range(3)]
    replies, *_, entries, _ = asyncio.run(stored(tmp_path, reads, counted, **GROUP))
    assert len(replies) == 9
    assert len(entries) == 1 + 12
    # The first of each kind is the handler's.
    assert taken[-2:] == [4, 4]


def test_signed_sends_like_one_that_was_allowed_are_a_run(tmp_path: Path) -> None:
    """The first send of an account to a topic is looked at by the rules; those of the next read are one call's."""
    counted, taken = counting(_hot.SendRun)
    reads = [
        b"".join(Sent(signer=name, code=code).frame(10 * read + number) for number in range(4))
        for read, (name, code) in enumerate([("may", 310), ("may", 310), ("some", 310), ("some", 310), ("may", 10)])
    ]
    replies, *_ = asyncio.run(stored(tmp_path, reads, counted, signed=True))
    assert len(replies) == 20
    assert taken == [0, 4, 0, 4, 0]


@pytest.mark.parametrize("signer", ["", "may"])
def test_batches_like_one_that_was_taken_are_a_run(signer: str, tmp_path: Path) -> None:
    """What the messages of a batch have in common is read once."""
    counted, taken = counting(_hot.SendRun)
    many = batched(*((b"b", KEYED % (n, n) + b"\x02x\x01" + b"x" * 900) for n in range(75)))
    body = batched((b"b", KEYED % (1, 1)))
    same = Sent(code=320, batch="true", properties="WAIT\\u0001true", body=body, signer=signer)
    others = replace(same, properties="WAIT\\u0001false")
    large = replace(same, body=many)
    mixed = [same, Sent(signer=signer), same, same]
    reads = [
        b"".join(one.frame(10 * read + number) for number, one in enumerate(ones))
        for read, ones in enumerate([[same] * 3, mixed, [others, same], [large], [large]])
    ]
    store = {"mapped_file_size_commit_log": 1 << 20}
    replies, *_ = asyncio.run(stored(tmp_path, reads, counted, signed=bool(signer), **store))
    assert len(replies) == 11
    if signer:
        # Plain sends have a grant of their own, which the first of them gets from the rules.
        assert taken == [0, 1, 0, 0, 0, 0, 1]
    else:
        # The first of each kind is the handler's, and so is what needs more of the log than is prepared. A frame of
        # more than 64 KiB is looked at when its first part comes, and when it is whole.
        assert taken == [0, 4, 0, 0, 0, 0, 1]
