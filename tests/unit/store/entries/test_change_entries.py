"""Change entries: in no queue, found by followers in the order of the log, only when committed."""

from __future__ import annotations

from pathlib import Path

import pytest
from group_of_one import GROUP_ID, commit, entries_of, group_store, lead
from small_store import fill, number_of, opened, read_queue

from tianzhou.errors import StoreError
from tianzhou.store import MessageStore
from tianzhou.store.entries.change_entries import ChangeEntries
from tianzhou.store.offline.check import check_store
from tianzhou.store.offline.scan import StoreScan


def changes_of(store: MessageStore) -> ChangeEntries:
    assert store.changes is not None
    return store.changes


def found(store: MessageStore) -> list[bytes]:
    """Return the bodies of all committed change entries that were not returned before."""
    bodies = []
    while (entry := changes_of(store).next()) is not None:
        bodies.append(entry.body)
    return bodies


def scanned(store: MessageStore) -> list[tuple[int, bytes]]:
    """Return index and body of the change entries in the whole log."""
    entries = entries_of(store)
    steps = changes_of(store).scan(max(entries.begin_index, 0), entries.committed_index)
    return [(one.index, one.body) for one in steps if one is not None]


def raw(store: MessageStore) -> bytes:
    """Return all entries of a log, as a leader sends them."""
    entries = entries_of(store)
    return b"".join(entries.entry(index) for index in range(entries.end_index + 1))


def test_a_leader_keeps_messages_and_changes_apart(tmp_path: Path) -> None:
    with opened(group_store(tmp_path)) as store:
        lead(store, 1)
        fill(store, 0, 6)
        changes_of(store).append(b"first", 7)
        fill(store, 6, 9)
        changes_of(store).append(b"second", 8)
        commit(store)
        assert scanned(store) == [(7, b"first"), (11, b"second")]
        assert [number_of(record) for record in read_queue(store)] == [0, 3, 6]
        assert store.dispatch_behind_bytes == 0
        # The leader already has the changes that it appended.
        assert found(store) == []
        assert changes_of(store).taken_upto() == 11
    report = check_store(StoreScan(tmp_path))
    assert [problem.text for problem in report.problems] == []


def test_a_follower_finds_committed_changes_alone(tmp_path: Path) -> None:
    with opened(group_store(tmp_path / "leader")) as leader, opened(group_store(tmp_path / "follower")) as follower:
        lead(leader, 1)
        fill(leader, 0, 3)
        changes_of(leader).append(b"first", 7)
        changes_of(leader).append(b"second", 7)
        fill(leader, 3, 6)
        commit(leader)
        entries_of(follower).append_raw(raw(leader))
        assert found(follower) == []
        commit(follower, 4)
        assert found(follower) == [b"first"]
        assert changes_of(follower).taken_upto() == 4
        commit(follower)
        assert found(follower) == [b"second"]
        assert changes_of(follower).taken_upto() == entries_of(follower).end_index
        assert [number_of(record) for record in read_queue(follower)] == [0, 3]


def test_a_change_that_is_cut_is_never_returned(tmp_path: Path) -> None:
    with opened(group_store(tmp_path)) as store:
        lead(store, 1)
        changes_of(store).append(b"kept", 7)
        commit(store)
        changes_of(store).append(b"cut", 7)
        entries_of(store).follow()
        entries_of(store).cut_from(2)
        entries_of(store).lead(2)
        entries_of(store).append_opening(2, 5, GROUP_ID, f"{2:032x}")
        commit(store)
        assert found(store) == []
        assert scanned(store) == [(1, b"kept")]


def test_a_former_leader_finds_its_change_again_that_the_next_one_commits(tmp_path: Path) -> None:
    with opened(group_store(tmp_path)) as store:
        lead(store, 1)
        changes_of(store).append(b"late", 7)
        entries_of(store).follow()
        commit(store)
        assert found(store) == [b"late"]


def test_who_does_not_lead_appends_nothing(tmp_path: Path) -> None:
    with opened(group_store(tmp_path)) as store:
        with pytest.raises(StoreError, match="does not lead"):
            changes_of(store).append(b"x", 7)
        lead(store, 1)
        entries_of(store).follow()
        with pytest.raises(StoreError, match="does not lead"):
            changes_of(store).append(b"x", 7)
        assert entries_of(store).end_index == 0


def test_a_log_that_began_with_change_entries_has_all_changes(tmp_path: Path) -> None:
    with opened(group_store(tmp_path / "new")) as store:
        lead(store, 1)
        changes_of(store).append(b"first", 7)
        fill(store, 0, 3)
        commit(store)
        assert changes_of(store).began_with_tables(1)
    with opened(group_store(tmp_path / "older version")) as store:
        lead(store, 1)
        fill(store, 0, 3)
        changes_of(store).append(b"first", 7)
        commit(store)
        assert not changes_of(store).began_with_tables(4)
        assert not changes_of(store).began_with_tables(1 << 62)


def test_changes_are_found_again_after_a_restart(tmp_path: Path) -> None:
    with opened(group_store(tmp_path)) as store:
        lead(store, 1)
        for number in range(5):
            changes_of(store).append(b"%d" % number, 7)
            fill(store, number, number + 1)
        commit(store)
    with opened(group_store(tmp_path)) as store:
        assert [body for _, body in scanned(store)] == [b"0", b"1", b"2", b"3", b"4"]
        assert [number_of(record) for record in read_queue(store)] == [0, 3]


def test_changes_in_a_term_that_no_leader_of_ours_opened_are_passed_over(tmp_path: Path) -> None:
    """A leading broker of Apache's stores its clients' messages, also those that look like a change entry."""
    with opened(group_store(tmp_path / "leader")) as leader, opened(group_store(tmp_path / "follower")) as follower:
        lead(leader, 1)
        changes_of(leader).append(b"ours", 7)
        entries_of(leader).lead(2)
        entries_of(leader).append_opening(2, 8)  # without the identity of the group, as any client could write it
        commit(leader)
        assert entries_of(leader).serve()
        changes_of(leader).append(b"forged", 9)
        commit(leader)
        entries_of(follower).append_raw(raw(leader))
        commit(follower)
        assert found(follower) == [b"ours"]
        assert scanned(follower) == [(1, b"ours")]
