"""The compiled twin of a run of pulls, compared with the pure one: the same replies and figures after any change."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hot_stores import compiled_store
from store_probe import StoreProbe
from tianzhou._hot import pulls, signing, sources
from tianzhou._hot.records import UNIT
from tianzhou.access.signatures import signature
from tianzhou.records.codec import decode_records
from tianzhou.records.layout import AT, HEAD_SIZE
from tianzhou.store import GetResult, MessageStore, NewRecord, ReadRequest, StoreSettings
from tianzhou.store.log.checked import CheckedRecords
from tianzhou.store.queues.reading import proof_of
from tianzhou.wire.command import Command, encode, split
from tianzhou.wire.fields import write_header
from tianzhou.wire.hashing import tags_code

compiled = pytest.importorskip("tianzhou._hot._compiled", reason="the compiled twin was not built here")
pytestmark = pytest.mark.skipif(
    sources.digest() != compiled.SOURCE, reason="the compiled twin was built from other sources"
)

MAX_FRAME = 1 << 20
BROADCASTING = object()
SECRET = "secret"
LATER = sys.float_info.max
TAGS = [None, frozenset({tags_code("odd")}), frozenset({tags_code("even"), 7})]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MessageStore]:
    """Yield a store whose log files have a few records."""
    folder: Path = tmp_path_factory.mktemp("store")
    small = StoreSettings(
        str(folder), mapped_file_size_commit_log=4096, mapped_file_size_consume_queue=800, max_hash_slot_num=10,
        max_index_num=50,
    )  # fmt: skip
    store = MessageStore(small)
    store.open()
    for number in range(50):
        tag = "odd" if number % 2 else "even"
        body = b"x" * (number * 37 % 400)
        store.append(NewRecord("T", number % 3 % 2, body, f"TAGS\x01{tag}\x02".encode(), tags_code=tags_code(tag)))
    store.max_offset("T", 0)
    yield store
    store.close_now()


@pytest.fixture(scope="module")
def stretches(store: MessageStore) -> list[Any]:
    """Return the position that a read of each kind finds in memory, for the following reads."""
    requests = [
        ReadRequest("T", fields["queue_id"], 0, fields["max_msg_nums"], codes, goes_on=True) for fields, codes in KINDS
    ]
    assert all(isinstance(store.read(request), GetResult) for request in requests)
    return [request.ready for request in requests]


class Side:
    """The data of one of the twins.

    Args:
        twin: its module.
        store: store of the messages.
    """

    def __init__(self, twin: Any, store: MessageStore) -> None:
        self.twin, self.store = twin, store
        self.groups: dict[str, Any] = {"G": self._group(), "H": self._group()}
        self.topics: dict[str, Any] = {"T": SimpleNamespace(topic_sys_flag=4)}
        self.subscription = object()
        self.online = SimpleNamespace(message_model=None, subscriptions={"T": self.subscription})
        self.consumers: dict[str, Any] = {"H": self.online}
        self.resets: dict[str, Any] = {}
        self.commits: list[tuple[str, int, int]] = []
        self.room = 99
        arguments = self.groups, self.topics, self.consumers, self.resets
        self.run = twin.PullRun(*arguments, BROADCASTING, self._commit)
        self.notes: dict[str, Any] = {"T": "note"}
        self.reached: dict[int, int] = {0: 0}
        self.counts = [0, 0, 0]
        self.of_queue = {0: [0, 0, 0, 0], 1: [0, 0, 0, 0]}

    @staticmethod
    def _group() -> Any:
        return SimpleNamespace(group_sys_flag=3, which_broker_when_consume_slowly=1, broker_id=0)

    def _commit(self, cursor: Any, offset: int) -> bool:
        if len(self.commits) >= self.room:
            return False
        self.commits.append((cursor.name, cursor.queue_id, offset))
        return True

    def learn(self, fields: dict[str, Any], codes: frozenset[int] | None, ready: Any, until: float) -> None:
        """Let such pulls resume from a position that a read of the store has found in memory."""
        group, queue_id, most, flags = (
            fields[key] for key in ("consumer_group", "queue_id", "max_msg_nums", "sys_flag")
        )
        frame = pull(fields, "")
        key = pulls.pull_key(split(frame, 0, len(frame), MAX_FRAME)[0][0].header)
        stretch = self.twin.ReadyStretch(
            StoreProbe(self.store).log, ready.queue, ready.segment, ready.begin, ready.end, until, ready.looked_at,
            ready.limits,
        )  # fmt: skip
        subscription = self.subscription if group == "H" else None
        arguments = group, "T", queue_id, most, codes, bool(flags & 1), self.groups[group], self.topics["T"]
        cursor = self.twin.PullCursor(*arguments, subscription)
        reached = self.reached if queue_id == 0 else None
        notes, note = (self.notes, self.notes.get("T")) if flags & 4 else (None, None)
        cursor.found(stretch, notes, note, reached, self.counts, self.of_queue[queue_id])
        self.run.cursors[key] = cursor

    def answered(self, buffer: bytes, *arguments: Any) -> Any:
        """Return all parts of a reply, and the changes it causes."""
        *numbers, now, reads_slaves, accounts = arguments
        replies: list[bytes] = []
        found = self.run.answer(buffer, *numbers, now, reads_slaves, replies, accounts)
        return found, b"".join(replies), self.commits, self.reached, self.counts, self.of_queue


def pull(fields: dict[str, Any], signer: str) -> bytes:
    """Return an encoded pull."""
    plain = write_header(
        11, topic="T", commit_offset=fields.get("queue_offset", 0), suspend_timeout_millis=0, sub_version=0,
        **{"queue_offset": 0} | fields,
    )  # fmt: skip
    if signer:
        plain["AccessKey"] = signer
        plain["Signature"] = signature(plain, b"", SECRET)
    return encode(Command(11, 7, version=453, fields=plain))


KINDS: list[tuple[dict[str, Any], frozenset[int] | None]] = [
    ({"consumer_group": group, "queue_id": queue_id, "max_msg_nums": most, "sys_flag": flags}, codes)
    for group, queue_id, most, flags, codes in (
        ("G", 0, 3, 4, None), ("G", 1, 1, 5, TAGS[1]), ("H", 0, 32, 1, TAGS[2]), ("H", 1, 2, 0, None),
    )
]  # fmt: skip
FRAMES = st.builds(
    lambda kind, offset, signer: pull(KINDS[kind][0] | {"queue_offset": offset}, signer),
    st.integers(0, 3),
    st.integers(-1, 36),
    st.sampled_from(["", "may", "may", "other"]),
)
CHANGES = {
    "nothing": lambda side: None,
    "another group": lambda side: side.groups.update(G=side._group()),
    "no group": lambda side: side.groups.pop("G", None),
    "another topic": lambda side: side.topics.update(T=SimpleNamespace(topic_sys_flag=1)),
    "a broadcaster": lambda side: setattr(side.online, "message_model", BROADCASTING),
    "another subscription": lambda side: side.online.subscriptions.update(T=object()),
    "no consumers": lambda side: side.consumers.clear(),
    "a reset": lambda side: side.resets.update(key={0: 1}),
    "another note": lambda side: side.notes.update(T="other"),
    "no room for commits": lambda side: setattr(side, "room", 1),
    "to be looked at": lambda side: [cursor.forget() for cursor in side.run.cursors.values()],
}
STEPS = st.lists(
    st.tuples(
        st.lists(FRAMES, max_size=5),
        st.sampled_from(sorted(CHANGES)),
        st.sampled_from([0.0, 2.0]),
        st.booleans(),
        st.booleans(),
        st.sampled_from([0, 700, 1 << 20]),
        st.integers(0, 3),
    ),
    min_size=1,
    max_size=4,
)


@compiled_store
@given(steps=STEPS)
def test_both_twins_answer_alike(store: MessageStore, stretches: list[Any], steps: list[Any]) -> None:
    sides = [Side(pulls, store), Side(compiled, store)]
    for side in sides:
        for (fields, codes), ready in zip(KINDS, stretches, strict=True):
            side.learn(fields, codes, ready, 1.0)
    for frames, change, now, reads_slaves, signed, most, cut in steps:
        buffer = b"".join(frames)
        outcomes = []
        for side in sides:
            begin = signing if side.twin is pulls else compiled
            starts = {("may", "T", "G"): begin.begin_hmac(SECRET), ("may", "T", "H"): begin.begin_hmac(SECRET)}
            accounts = (lambda *names, starts=starts: starts.get(names)) if signed and compiled.HAS_SHA1 else None
            outcomes.append(side.answered(buffer, 0, len(buffer) - cut, MAX_FRAME, most, now, reads_slaves, accounts))
            CHANGES[change](side)
        assert outcomes[0] == outcomes[1]


@compiled_store
def test_what_goes_on_is_answered(store: MessageStore, stretches: list[Any]) -> None:
    """All that the run can serve are answered in one call."""
    for twin in (pulls, compiled):
        side = Side(twin, store)
        for (fields, codes), ready in zip(KINDS, stretches, strict=True):
            side.learn(fields, codes, ready, LATER)
        buffer = b"".join(pull(fields | {"queue_offset": 2}, "") for fields, _ in KINDS)
        (start, served, brought, found), replies, *_ = side.answered(
            buffer, 0, len(buffer), MAX_FRAME, 1 << 20, 0.0, True, None
        )
        assert (start, served, found) == (len(buffer), 4, None)
        assert brought == side.counts[1]
        assert [reply.code for reply in split(replies, 0, len(replies), MAX_FRAME)[0]] == [0] * 4
        assert len(side.commits) == 2


def reads_from_disk(store: MessageStore, twin: Any, ready: Any, codes: Any, reads: list[tuple[int, int]]) -> list[Any]:
    """Return what a twin reads from a range that this process has not written; read twice, because proved records are
    cached.
    """
    log, queue = StoreProbe(store).log, ready.queue
    before = log.checked, queue.trusted_from
    log.checked, queue.trusted_from = CheckedRecords(), queue.max_offset
    log.checked.opened(log.end)
    prove = partial(proof_of, log, queue)
    arguments = log, queue, ready.segment, ready.begin, ready.end, LATER, ready.looked_at, ready.limits
    try:
        assert twin.ReadyStretch(*arguments).read(2, 1, codes, 0.0) is None, "whoever cannot prove leaves it to others"
        stretch = twin.ReadyStretch(*arguments, prove)
        return [stretch.read(offset, most, codes, 0.0) for offset, most in reads for _ in range(2)]
    finally:
        log.checked, queue.trusted_from = before


@compiled_store
@given(
    kind=st.sampled_from([0, 1, 3]),
    reads=st.lists(st.tuples(st.integers(0, 17), st.integers(1, 32)), min_size=1, max_size=4),
    broken=st.none() | st.integers(0, 15),
    where=st.sampled_from(["size", "queue_id", "queue_offset", "physical_offset", "body"]),
)
def test_what_came_from_the_disk_proves_itself(
    store: MessageStore, stretches: list[Any], kind: int, reads: list[tuple[int, int]], broken: int | None, where: str
) -> None:
    ready, (_, codes) = stretches[kind], KINDS[kind]
    sound = [reads_from_disk(store, twin, ready, codes, reads) for twin in (pulls, compiled)]
    assert sound[0] == sound[1]
    if broken is None:
        return
    place, size, _ = UNIT.unpack_from(ready.segment.view, broken * UNIT.size)
    segment = StoreProbe(store).log.files.find(place)
    assert segment is not None
    begin = place - segment.start
    record = segment.view[begin : begin + size]
    at = HEAD_SIZE if where == "body" else AT[where] + 3
    if where == "body" and not int.from_bytes(record[HEAD_SIZE - 4 : HEAD_SIZE], "big"):
        return
    with segment.path.open("r+b", buffering=0) as file:

        def flip() -> None:
            file.seek(begin + at)
            file.write(bytes([record[at] ^ 1]))

        flip()
        try:
            found = [reads_from_disk(store, twin, ready, codes, reads) for twin in (pulls, compiled)]
        finally:
            flip()
    assert found[0] == found[1]
    for one, whole in zip(found[0], sound[0], strict=True):
        if one is None:
            continue
        assert whole is not None
        offsets = [record.queue_offset for record in decode_records(one[0])]
        assert broken not in offsets, "it is others' to say what became of it"
        assert whole[0].startswith(one[0])


@compiled_store
def test_what_came_from_the_disk_whole_is_read(store: MessageStore, stretches: list[Any]) -> None:
    for twin in (pulls, compiled):
        found, again = reads_from_disk(store, twin, stretches[0], None, [(2, 3)])
        assert found is not None
        assert found[1:3] == (3, 5)
        assert again == found
