"""DLedger stores of groups of one: ours continues a store of Apache's broker, and the other way (broker.md §19.5)."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from apache import HOST, ApacheBroker, ApacheNamesrv
from frames import create_topic
from questions import Answers, Asker, Queue, await_maximum, everything
from sends import PREPARED, Sender
from toolchain import SERVERS, ToolchainMissingError

from server_ports import server_ports
from store_reads import read_now
from tianzhou.records.codec import decode_record
from tianzhou.records.entry import UNIT_SIZE
from tianzhou.store import MessageStore, NewRecord, PutStatus, RecordBatch, StoreSettings
from tianzhou.store.files.lookup_steps import at_once
from tianzhou.wire.hashing import tags_code
from tianzhou.wire.properties import get_property

pytestmark = pytest.mark.at_once

SEGMENT = 1 << 16
TOPICS = ("orders", "bills")
QUEUES = [(topic, queue_id) for topic in TOPICS for queue_id in range(2)]
END_TRANSACTION = 37
GROUP = {"enableDLegerCommitLog": "true", "dLegerGroup": "one", "dLegerSelfId": "n0"}


@contextmanager
def apache(namesrv: ApacheNamesrv, folder: Path, home: Path, version: str, *, kill: bool) -> Iterator[ApacheBroker]:
    """Yield Apache's broker, a group of one, on a store folder."""
    port = server_ports(6) + 2
    conf = GROUP | {"dLegerPeers": f"n0-{HOST}:{port + 3}", "mappedFileSizeCommitLog": SEGMENT}
    broker = ApacheBroker(namesrv.address, port, folder, conf, home, version)
    try:
        broker.start()
        for topic in TOPICS:
            create_topic(namesrv.address, broker.address, topic, 2)
        yield broker
        if not kill:
            broker.stop()
    except ToolchainMissingError as error:
        pytest.skip(str(error))
    finally:
        broker.kill()


def our_settings(folder: Path) -> StoreSettings:
    return StoreSettings(
        store_path_root_dir=str(folder), mapped_file_size_commit_log=SEGMENT, enable_d_leger_commit_log=True,
        d_leger_group="one", d_leger_peers=f"n0-{HOST}:1", d_leger_self_id="n0",
    )  # fmt: skip


@contextmanager
def ours(folder: Path) -> Iterator[MessageStore]:
    """Yield our store as the leader of a group of one."""
    store = MessageStore(our_settings(folder))
    report = store.open()
    try:
        assert not report.impaired
        entries = store.entries
        assert entries is not None
        term = entries.terms.read()[0] + 1
        entries.terms.write(term, "n0")
        entries.lead(term)
        entries.append_opening(term, int(time.time() * 1000))
        entries.committed(entries.end_index)
        assert entries.serve()
        store.flags.opened()
        yield store
    finally:
        store.close_now()


def commit(store: MessageStore) -> None:
    assert store.entries is not None
    store.entries.committed(store.entries.end_index)


def append(store: MessageStore, name: str) -> None:
    """Store the same messages as `send` at Apache's broker."""
    for number in range(60):
        topic, queue_id = QUEUES[number % 4]
        key = f"{name}{number}"
        text = f"TAGS\x01t{number % 3}\x02KEYS\x01{key}\x02UNIQ_KEY\x01U{key}\x02".encode()
        record = NewRecord(
            topic, queue_id, b"%s %d " % (name.encode(), number) * 90, text, keys=key, uniq_key="U" + key
        )
        record.tags_code = tags_code(get_property(text, "TAGS"))
        assert store.append(record).status is PutStatus.PUT_OK
    for queue_id in (0, 1):
        members = [(0, b"%s batch %d" % (name.encode(), n) * 100, b"TAGS\x01t1\x02") for n in range(20)]
        assert store.append(RecordBatch(NewRecord("bills", queue_id, b"", b""), members)).status is PutStatus.PUT_OK
    half = NewRecord("RMQ_SYS_TRANS_HALF_TOPIC", 0, b"half", b"", sys_flag=PREPARED)
    assert store.append(half).status is PutStatus.PUT_OK
    commit(store)


def send(broker: ApacheBroker, name: str) -> None:
    with Asker(broker.address) as asker:
        sender = Sender(asker, name)
        for number in range(60):
            topic, queue_id = QUEUES[number % 4]
            body = b"%s %d " % (name.encode(), number) * 90
            sender.send(topic, queue_id, body, {"TAGS": f"t{number % 3}", "KEYS": f"{name}{number}"})
        for queue_id in (0, 1):
            sender.batch("bills", queue_id, [b"%s batch %d" % (name.encode(), n) * 100 for n in range(20)])
        for number in range(6):
            half = sender.send(
                "orders", 1, b"half %d" % number, {"TRAN_MSG": "true", "PGROUP": "frames_producer"}, PREPARED
            )
            sender.done(
                END_TRANSACTION, producerGroup="frames_producer", tranStateTableOffset=half.queue_offset,
                commitLogOffset=half.log_offset, commitOrRollback=(8, 12)[number % 2], fromTransactionCheck=False,
                msgId=half.unique, transactionId=half.unique,
            )  # fmt: skip


def asked(broker: ApacheBroker, names: list[str], bounds: dict[Queue, int] | None = None) -> Answers:
    keys = [(topic, f"{name}{number}") for topic in TOPICS for name in names for number in range(0, 60, 7)]
    with Asker(broker.address) as asker:
        await_maximum(asker, bounds or {})
        return everything(asker, QUEUES, keys)


def records(store: MessageStore, queue: Queue) -> list[bytes]:
    found: list[bytes] = []
    offset, end = max(store.min_offset(*queue), 0), store.max_offset(*queue)
    while offset < end:
        result = read_now(store, *queue, offset, 32)
        for part in result.parts:
            found.append(bytes(part))
            decode_record(part, check_crc=True)
        assert result.next_offset > offset
        offset = result.next_offset
    return found


def check(store: MessageStore, answers: Answers) -> None:
    """Check that our store has all answered messages at their positions; it may have more keys, which Apache's broker
    lost in a crash.
    """
    for queue in QUEUES:
        assert records(store, queue) == answers.records[queue], queue
        assert (max(store.min_offset(*queue), 0), store.max_offset(*queue)) == answers.bounds[queue]
    for (topic, key), expected in answers.keys.items():
        found = at_once(store.lookups.key_steps(topic, key, 64)).parts
        assert set(map(bytes, found)) >= set(expected)


def copied(folder: Path, to: Path) -> None:
    """Copy a store with its sparse files."""
    subprocess.run(["cp", "-a", "--sparse=always", folder, to], check=True)


def units(folder: Path) -> bytes:
    (file,) = (folder / "dledger-n0" / "index").iterdir()
    with file.open("rb") as opened:
        return opened.read(UNIT_SIZE * 2000)


@pytest.mark.parametrize(
    ("version", "stop"),
    [
        pytest.param(SERVERS[0], "killed", marks=pytest.mark.slow),
        pytest.param(SERVERS[0], "stopped", marks=pytest.mark.slow),
        pytest.param(SERVERS[1], "stopped", marks=pytest.mark.slow),
        pytest.param(SERVERS[1], "killed", marks=pytest.mark.slow),
    ],
)
def test_what_apache_wrote_is_continued_and_given_back(
    version: str, stop: str, namesrv: ApacheNamesrv, tmp_path: Path
) -> None:
    folder = tmp_path / "store"
    with apache(namesrv, folder, tmp_path / "home", version, kill=stop == "killed") as broker:
        send(broker, "first")
        answers = asked(broker, ["first"])
    # All rebuilt units are equal to those of Apache's broker.
    bare = tmp_path / "bare"
    copied(folder, bare)
    shutil.rmtree(bare / "dledger-n0" / "index")
    store = MessageStore(our_settings(bare))
    assert not store.open().impaired
    assert store.entries is not None
    end = store.entries.end_index
    store.close_now()
    assert end >= 100
    assert units(bare) == units(folder)
    with ours(folder) as store:
        check(store, answers)
        append(store, "second")
        mine = {queue: records(store, queue) for queue in QUEUES}
        # The files that a process leaves if it dies now.
        copied(folder, tmp_path / "left")
    for number, left in enumerate((folder, tmp_path / "left")):
        with apache(namesrv, left, tmp_path / f"home{number}", version, kill=True) as broker:
            bounds = {queue: answers.bounds[queue][0] + len(mine[queue]) for queue in QUEUES}
            found = asked(broker, ["first", "second"], bounds)
            assert found.records == mine
            if left == folder:
                # After a crash, Apache's broker drops its newest index file, and rebuilds only a part of it.
                assert all(found.keys[asked_for] == expected for asked_for, expected in answers.keys.items())
            send(broker, "third")
            final = asked(broker, ["first", "second", "third"])
        with ours(left) as store:
            check(store, final)


@pytest.mark.parametrize("version", [pytest.param(SERVERS[0], marks=pytest.mark.slow), SERVERS[1]])
def test_what_ours_wrote_apache_serves(version: str, namesrv: ApacheNamesrv, tmp_path: Path) -> None:
    folder = tmp_path / "store"
    with ours(folder) as store:
        append(store, "first")
        mine = {queue: records(store, queue) for queue in QUEUES}
    with apache(namesrv, folder, tmp_path / "home", version, kill=False) as broker:
        found = asked(broker, ["first"], {queue: len(mine[queue]) for queue in QUEUES})
        assert found.records == mine
        send(broker, "second")
        answers = asked(broker, ["first", "second"])
    with ours(folder) as store:
        check(store, answers)
