"""The queue on disk behind an outbox."""

import random
import shutil
import sqlite3
import stat
import struct
import threading
import zlib

import pytest

from tianzhou.client.producer.outbox.outbox_entry import OutboxEntry, together
from tianzhou.client.producer.outbox.outbox_file import OutboxFile
from tianzhou.errors import ClientError, ConfigError, OutboxFull


def payloads(first: int, count: int, size: int = 20) -> list[bytes]:
    return [b"%08d" % i + b"x" * size for i in range(first, first + count)]


def drain(file: OutboxFile, most: int = 1_000_000) -> list[int]:
    seen: list[int] = []
    while file.count:
        frames = file.peek(len(seen) % 100)[: max(1, most - len(seen))]
        if not frames:
            break
        seen += [int(frame.payload[:8]) for frame in frames]
        file.advance(frames)
        if len(seen) >= most:
            break
    return seen


def flip(path, before: bytes, offset: int = 0) -> None:
    """Change the byte after the last occurrence of these bytes in a file."""
    data = bytearray(path.read_bytes())
    data[data.rindex(before) + offset] ^= 1
    path.write_bytes(data)


def test_nobody_else_may_read_it(tmp_path) -> None:
    file = OutboxFile(tmp_path / "outbox")
    file.write(payloads(0, 3))
    found = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "outbox").iterdir()}
    assert found == dict.fromkeys(("lock", "outbox.db", "outbox.db-shm", "outbox.db-wal"), 0o600)
    assert stat.S_IMODE((tmp_path / "outbox").stat().st_mode) == 0o700
    file.close()


def test_what_goes_in_comes_out_in_order_and_its_space_is_given_back(tmp_path) -> None:
    file = OutboxFile(tmp_path)
    for i in range(50):
        file.write(payloads(i * 3, 3))
    assert file.count == 150
    assert file.bytes == 150 * (8 + 28)
    assert drain(file) == list(range(150))
    assert (file.count, file.bytes) == (0, 0)
    file.write(payloads(7, 1))
    assert drain(file) == [7]
    file.write(payloads(0, 50, 100_000))
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) > 5_000_000
    assert drain(file) == list(range(50))
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 100_000
    file.close()


def test_it_goes_on_where_it_was_after_a_start(tmp_path) -> None:
    for start in range(0, 100, 10):
        file = OutboxFile(tmp_path)
        file.write(payloads(start, 10))
        assert drain(file, 5)[0] == start // 2
        assert file.count == 5 + start // 2
        file.close()
    file = OutboxFile(tmp_path)
    assert drain(file) == list(range(50, 100))
    file.close()


def test_dying_at_any_byte_loses_nothing_that_was_synced(tmp_path) -> None:
    """Every state that a crash can leave: a torn last write, no shared memory."""
    rng = random.Random(5)
    for trial in range(60):
        folder = tmp_path / str(trial)
        file = OutboxFile(folder)
        log = folder / "outbox.db-wal"
        total, handed_out = 0, 0
        for _ in range(rng.randint(1, 6)):
            count = rng.randint(1, 8)
            file.write(payloads(total, count, rng.randint(0, 60)))
            total += count
            handed_out += len(drain(file, rng.randint(1, 6)))
        safe, synced = log.stat().st_size, total
        if rng.random() < 0.5:  # a further write in progress, partly on the disk
            file.write(payloads(total, 3, rng.randint(0, 6_000)))
            total += 3
        copy = tmp_path / f"{trial}-after"
        shutil.copytree(folder, copy)
        file.close()
        with (copy / log.name).open("r+b") as torn:
            if total > synced and rng.random() < 0.7:
                torn.truncate(rng.randint(safe, log.stat().st_size if log.exists() else torn.seek(0, 2)))
            if rng.random() < 0.5:
                torn.seek(0, 2)
                torn.write(rng.randbytes(rng.randint(1, 40)))
        if rng.random() < 0.5:
            (copy / "outbox.db-shm").unlink()
        again = OutboxFile(copy)
        left = drain(again)
        whole = total if left and left[-1] >= synced else synced
        assert left == list(range(whole))[whole - len(left) :]
        assert len(left) >= synced - handed_out
        assert again.lost == total - whole
        again.write(payloads(total, 1))
        assert drain(again) == [total]
        again.close()


def test_damage_costs_its_message_and_no_more(tmp_path, caplog) -> None:
    file = OutboxFile(tmp_path)
    for i in range(20):
        file.write(payloads(i, 1))
    file.close()
    flip(tmp_path / "outbox.db", b"00000001", 10)
    file = OutboxFile(tmp_path)
    left = drain(file)
    assert "outbox.db is damaged: messages 2 are lost" in caplog.text
    assert left == [0, *range(2, 20)]
    assert (file.count, file.bytes) == (0, 0)
    file.close()


def test_damage_while_it_is_open(tmp_path, caplog) -> None:
    file = OutboxFile(tmp_path)
    file.write(payloads(0, 3))
    with sqlite3.connect(tmp_path / "outbox.db") as other:
        other.execute("UPDATE waiting SET payload = ?", (b"something else" + b"x" * 14,))
    other.close()
    assert file.peek(1_000) == []
    assert "is damaged" in caplog.text
    assert file.count == 0
    file.write(payloads(9, 1))
    assert drain(file) == [9]
    with sqlite3.connect(tmp_path / "outbox.db") as other:
        other.execute("DROP TABLE waiting")
    other.close()
    with pytest.raises(ClientError, match=r"outbox\.db cannot be used now \(no such table"):
        file.peek(1)
    with pytest.raises(OutboxFull, match="cannot take 36 bytes"):
        file.write(payloads(10, 1))
    assert (file.count, file.bytes) == (0, 0)
    file.close()


def test_a_file_that_is_no_outbox_any_more_is_named_with_what_to_do(tmp_path) -> None:
    file = OutboxFile(tmp_path)
    file.write(payloads(0, 1_000))
    file.close()
    path = tmp_path / "outbox.db"
    whole = path.read_bytes()
    for data in (b"\xff" * 4096 + whole[4096:], whole[:8192] + b"\xff" * 4096 + whole[12288:]):
        path.write_bytes(data)
        with pytest.raises(
            ConfigError, match=r"outbox\.db is damaged .*move all files out of the folder and start again"
        ):
            OutboxFile(tmp_path)
    for file in tmp_path.iterdir():
        file.unlink()
    OutboxFile(tmp_path).close()


@pytest.mark.parametrize("harm", ["empty", "NUL bytes", "cut", "gone"])
def test_a_file_that_has_lost_its_messages_is_no_new_outbox(tmp_path, harm: str) -> None:
    OutboxFile(tmp_path).close()
    file = OutboxFile(tmp_path)
    file.write(payloads(0, 1_000))
    file.close()
    path = tmp_path / "outbox.db"
    match harm:
        case "empty":
            path.write_bytes(b"")
        case "NUL bytes":
            path.write_bytes(bytes(path.stat().st_size))
        case "cut":
            path.write_bytes(path.read_bytes()[:8192])
        case _:
            path.unlink()
    with pytest.raises(ConfigError, match=r"outbox\.db is damaged.*move all files out of the folder"):
        OutboxFile(tmp_path)


def frame(payload: bytes) -> bytes:
    return struct.pack(">II", len(payload), zlib.crc32(payload)) + payload


@pytest.mark.parametrize(("position", "first"), [(None, 0), ("3 0", 0), ("3 72", 2), ("4 36", 6), ("9 0", 10)])
def test_segments_of_frames_are_taken_over_once(tmp_path, caplog, position: str | None, first: int) -> None:
    """The contents of an outbox in the format before SQLite."""
    (tmp_path / f"{3:020}.log").write_bytes(b"".join(map(frame, payloads(0, 5))))
    (tmp_path / f"{4:020}.log").write_bytes(b"".join(map(frame, payloads(5, 5))) + frame(b"half written")[:-1])
    if position is not None:
        (tmp_path / "position").write_text(position + "\n", encoding="ascii")
    for _ in range(2):
        file = OutboxFile(tmp_path)
        assert (file.count, file.bytes) == (10 - first, (10 - first) * 36)
        assert list(tmp_path.glob("*.log")) == []
        file.close()
    assert caplog.text.count("damaged at byte 180: the 19 bytes from there are lost") == (first < 10)
    file = OutboxFile(tmp_path)
    file.write(payloads(10, 1))
    assert drain(file) == list(range(first, 11))
    file.close()


def test_two_producers_cannot_share_a_folder(tmp_path) -> None:
    file = OutboxFile(tmp_path)
    with pytest.raises(ConfigError, match="in use by another producer"):
        OutboxFile(tmp_path)
    file.close()
    OutboxFile(tmp_path).close()
    (tmp_path / "a-file").touch()
    with pytest.raises(ConfigError, match="cannot be used"):
        OutboxFile(tmp_path / "a-file")


def test_a_writer_and_a_reader_in_two_threads_count_right(tmp_path) -> None:
    file = OutboxFile(tmp_path)
    seen: list[int] = []

    def read() -> None:
        while len(seen) < 2_000:
            if frames := file.peek(1_000):
                seen.extend(int(one.payload[:8]) for one in frames)
                file.advance(frames)

    reader = threading.Thread(target=read)
    reader.start()
    for i in range(200):
        file.write(payloads(i * 10, 10))
    reader.join()
    assert seen == list(range(2_000))
    assert (file.count, file.bytes) == (0, 0)
    file.close()


def kept(topic: str = "T", **properties: str) -> OutboxEntry:
    return OutboxEntry(topic, b"x", {"UNIQ_KEY": "U", **properties}, 0, 1)


def test_what_travels_together() -> None:
    assert together([kept(), kept(TAGS="a"), kept("U")]) == 2
    assert together([kept(DELAY="1"), kept()]) == 1
    assert together([kept(), kept(DELAY="1"), kept()]) == 1
    assert together([kept(__SHARDINGKEY="a"), kept(__SHARDINGKEY="a"), kept(__SHARDINGKEY="b")]) == 2
    assert together([kept(WAIT="false"), kept()]) == 1
    assert together([kept() for _ in range(500)]) == 200


def test_a_message_comes_back_as_it_was() -> None:
    one = kept(TAGS="t", KEYS="a b", DELAY="3", WAIT="false", __SHARDINGKEY="s", mine="v")
    message = one.message()
    assert (message.tags, message.keys, message.delay_level, message.sharding_key) == ("t", "a b", 3, "s")
    assert (message.wait_store_ok, message.properties) == (False, {"mine": "v"})
