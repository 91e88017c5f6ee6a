"""Extension files: addresses in place of tags codes, found again, truncated, expired (store.md §5.5)."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_store import opened, read_queue, small_store

from store_probe import StoreProbe
from tianzhou._hot.records import UNIT
from tianzhou.store import MessageStore, NewRecord
from tianzhou.store.files.lookup_steps import at_once
from tianzhou.store.queues.extension import Extension, ExtensionUnit, is_address
from tianzhou.wire.hashing import tags_code

FIRST = -(1 << 63)
UNITS = st.builds(
    ExtensionUnit, st.integers(-(1 << 31), (1 << 31) - 1), st.integers(0, 1 << 62), st.binary(max_size=60)
)


@given(st.lists(UNITS, min_size=1, max_size=40))
def test_units_are_at_their_addresses_and_the_end_is_found_again(
    tmp_path_factory: pytest.TempPathFactory, units: list[ExtensionUnit]
) -> None:
    folder = tmp_path_factory.mktemp("ext")
    extension = Extension(folder, 256)
    addresses = [extension.put(unit) for unit in units]
    end = extension.end
    known = dict(zip(addresses, units, strict=True))
    for address, unit in known.items():
        assert address is not None
        assert is_address(address)
        assert extension.get(address) == unit
        at = address - FIRST
        assert at % 256 + 20 + len(unit.bitmap) <= 252, "four bytes stay free"
    assert extension.get(end + FIRST) is None
    assert extension.resume(addresses[-1])
    assert extension.end == end
    kept = addresses[: len(addresses) // 2]
    assert extension.resume(kept[-1] if kept else None)
    assert [extension.get(address) for address in kept if address is not None] == units[: len(kept)]
    again = [extension.put(unit) for unit in units[len(kept) :]]
    assert kept + again == addresses
    extension.reset()
    assert not folder.exists()


def test_what_cannot_be_stored_leaves_the_plain_code(tmp_path: Path) -> None:
    extension = Extension(tmp_path, 256)
    assert extension.put(ExtensionUnit(1, 2, bytes(233))) is None
    assert extension.put(ExtensionUnit(1, 2, bytes(232))) == FIRST
    assert not is_address(-(1 << 31))


small = partial(
    small_store, mapped_file_size_consume_queue_ext=256, enable_consume_queue_ext=True, message_index_enable=False
)


def put(store: MessageStore, count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        store.append(
            NewRecord("T", 0, b"%d" % number, b"TAGS\x01%d\x02" % (number % 3), tags_code=tags_code(str(number % 3)))
        )


def tagged(store: MessageStore, tag: int) -> list[int]:
    return [int(record.body) for record in read_queue(store, tags=frozenset({tags_code(str(tag))}))]


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.glob("consumequeue*/*/*/*")}


def test_tags_select_by_the_codes_in_the_extension(tmp_path: Path) -> None:
    with opened(small(tmp_path)) as store:
        put(store, 50)
        assert tagged(store, 1) == list(range(1, 50, 3))
        assert tagged(store, 9) == []
        raw = (tmp_path / "consumequeue/T/0" / ("0" * 20)).read_bytes()
        assert [tags for _, _, tags in UNIT.iter_unpack(raw)] == [
            FIRST + n // 12 * 256 + n % 12 * 20 for n in range(20)
        ]


@pytest.mark.parametrize("crashed", [False, True])
@pytest.mark.parametrize("lost", ["", "consumequeue", "consumequeue_ext", "last"])
def test_both_kinds_of_files_are_rebuilt_together(tmp_path: Path, lost: str, *, crashed: bool) -> None:
    with opened(small(tmp_path)) as store:
        put(store, 50)
    before = files(tmp_path)
    if lost == "last":
        max((tmp_path / "consumequeue_ext/T/0").iterdir()).unlink()
    elif lost:
        shutil.rmtree(tmp_path / lost)
    if crashed:
        (tmp_path / "abort").write_text("1")
    with opened(small(tmp_path)) as store:
        assert tagged(store, 2) == list(range(2, 50, 3))
    assert files(tmp_path) == before


def test_the_setting_may_be_turned_on_and_off(tmp_path: Path) -> None:
    for number, enabled in enumerate((False, True, False, True)):
        with opened(small(tmp_path, enable_consume_queue_ext=enabled)) as store:
            put(store, 10, number * 10)
            wanted = set(range(1, number * 10 + 10, 3))
            # Without the extensions a broker does not have the tags of units with extension addresses; consumers
            # compare them again.
            assert set(tagged(store, 1)) >= wanted
            if enabled:
                assert set(tagged(store, 1)) == wanted


def test_extensions_go_with_the_units_that_expire(tmp_path: Path) -> None:
    with opened(small(tmp_path)) as store:
        put(store, 60)
        queue = StoreProbe(store).queue("T", 0)
        unit = queue.unit(45)
        assert unit is not None
        queue.correct_min_offset(unit[0])
        assert queue.min_offset == 45
        for retired in at_once(queue.expire_steps(unit[0])):
            retired.unlink()
            assert retired.release()
        names = sorted(path.name for path in (tmp_path / "consumequeue_ext/T/0").iterdir())
        assert names == [f"{768:020d}", f"{1024:020d}"]
        assert [n for n in tagged(store, 0) if n >= 45] == [45, 48, 51, 54, 57]


def test_a_deleted_topic_leaves_no_extension(tmp_path: Path) -> None:
    with opened(small(tmp_path)) as store:
        put(store, 20)
        store.delete_topic("T")
        assert not list((tmp_path / "consumequeue_ext").glob("*/*/*"))
        put(store, 5)
        assert tagged(store, 0) == [0, 3]
