"""The queue on disk behind an outbox."""

import random
import shutil

import pytest

from tianzhou.client.producer.outbox.outbox_entry import Kept, together
from tianzhou.client.producer.outbox.outbox_file import OutboxFile
from tianzhou.errors import ConfigError, OutboxFull


def payloads(first: int, count: int, size: int = 20) -> list[bytes]:
    return [b"%08d" % i + b"x" * size for i in range(first, first + count)]


def drain(file: OutboxFile, most: int = 1_000_000) -> list[int]:
    seen: list[int] = []
    while file.count:
        frames = file.peek(len(seen) % 100)[: max(1, most - len(seen))]
        seen += [int(frame.payload[:8]) for frame in frames]
        file.advance(frames)
        if len(seen) >= most:
            break
    return seen


def test_what_goes_in_comes_out_in_order_over_many_segments(tmp_path) -> None:
    file = OutboxFile(tmp_path, 1_000_000, segment_bytes=300)
    for i in range(50):
        file.append(payloads(i * 3, 3))
        if i % 7 == 0:
            file.sync()
    assert file.count == 150
    assert file.bytes == 150 * (8 + 28)
    assert drain(file) == list(range(150))
    assert (file.count, file.bytes) == (0, 0)
    assert list(tmp_path.glob("*.log")) == []
    file.append(payloads(7, 1))
    assert drain(file) == [7]
    file.close()


def test_it_goes_on_where_it_was_after_a_start(tmp_path) -> None:
    for start in range(0, 100, 10):
        file = OutboxFile(tmp_path, 1_000_000, segment_bytes=200)
        file.append(payloads(start, 10))
        assert drain(file, 5)[0] == start // 2
        assert file.count == 5 + start // 2
        file.close()
    file = OutboxFile(tmp_path, 1_000_000)
    assert drain(file) == list(range(50, 100))
    file.close()


def test_dying_at_any_byte_loses_nothing_that_was_synced(tmp_path) -> None:
    """Whatever a dying process leaves: a torn last frame, a position that is old or gone."""
    rng = random.Random(5)
    for trial in range(60):
        folder = tmp_path / str(trial)
        file = OutboxFile(folder, 1_000_000, segment_bytes=rng.choice([100, 1_000]))
        total, handed_out, old_position = 0, 0, None
        for _ in range(rng.randint(1, 6)):
            count = rng.randint(1, 8)
            file.append(payloads(total, count, rng.randint(0, 60)))
            file.sync()
            total += count
            if rng.random() < 0.5 and (position := folder / "position").exists():
                old_position = position.read_bytes()
            handed_out += len(drain(file, rng.randint(1, 6)))
        copy = tmp_path / f"{trial}-after"
        shutil.copytree(folder, copy)
        file.close()
        segments = sorted(copy.glob("*.log"))
        if segments and rng.random() < 0.5:  # a frame that was being written and never synced
            with segments[-1].open("ab") as tail:
                tail.write(rng.randbytes(rng.randint(1, 40)))
        match rng.randrange(3):
            case 0:
                (copy / "position").unlink(missing_ok=True)
            case 1 if old_position is not None:
                (copy / "position").write_bytes(old_position)
            case _:
                pass
        again = OutboxFile(copy, 1_000_000)
        left = drain(again)
        assert left == list(range(total))[total - len(left) :]
        assert len(left) >= total - handed_out
        again.append(payloads(total, 1))
        assert drain(again) == [total]
        again.close()


def test_damage_costs_the_rest_of_its_segment_and_no_more(tmp_path, caplog) -> None:
    file = OutboxFile(tmp_path, 1_000_000, segment_bytes=200)
    for i in range(20):
        file.append(payloads(i, 1))
    file.close()
    first, *_ = sorted(tmp_path.glob("*.log"))
    data = bytearray(first.read_bytes())
    data[50] ^= 1
    first.write_bytes(data)
    file = OutboxFile(tmp_path, 1_000_000)
    left = drain(file)
    assert "is damaged at byte 36" in caplog.text
    assert left == [0, *range(6, 20)]
    file.close()


def test_damage_while_it_is_open(tmp_path, caplog) -> None:
    file = OutboxFile(tmp_path, 1_000_000)
    file.append(payloads(0, 3))
    (segment,) = tmp_path.glob("*.log")
    data = bytearray(segment.read_bytes())
    data[20] ^= 1
    segment.write_bytes(data)
    assert file.peek(1_000) == []
    assert "is damaged" in caplog.text
    assert file.count == 0
    file.append(payloads(9, 1))
    assert drain(file) == [9]
    file.close()


def test_it_is_bounded_and_says_what_holds_it(tmp_path) -> None:
    file = OutboxFile(tmp_path, 100)
    file.append(payloads(0, 2))
    with pytest.raises(OutboxFull, match=r"holds 2 messages of 72 bytes, the limit is 100 \(outbox_max_bytes\)"):
        file.append(payloads(2, 1))
    assert drain(file, 1) == [0]
    file.append(payloads(2, 1))
    assert drain(file) == [1, 2]
    file.close()


def test_two_producers_cannot_share_a_folder(tmp_path) -> None:
    file = OutboxFile(tmp_path, 100)
    with pytest.raises(ConfigError, match="in use by another producer"):
        OutboxFile(tmp_path, 100)
    file.close()
    OutboxFile(tmp_path, 100).close()
    (tmp_path / "a-file").touch()
    with pytest.raises(ConfigError, match="cannot be used"):
        OutboxFile(tmp_path / "a-file", 100)


def kept(topic: str = "T", **properties: str) -> Kept:
    return Kept(topic, b"x", {"UNIQ_KEY": "U", **properties}, 0, 1)


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
