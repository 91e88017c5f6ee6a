"""`currterm`, `checkpoint` and the note of lost entries."""

from __future__ import annotations

from pathlib import Path

import pytest

from tianzhou.errors import StoreUnreadable
from tianzhou.store.entries.member_files import EntryCheckpoint, EntryMarks, ImpairedNote, Loss, TermFile


def test_term_and_vote(tmp_path: Path) -> None:
    terms = TermFile(tmp_path / "dledger-n0")
    assert terms.read() == (0, None)
    terms.write(7, "n1")
    assert TermFile(tmp_path / "dledger-n0").read() == (7, "n1")
    assert set(terms.path.read_text().splitlines()) == {"currTerm=7", "voteLeader=n1"}
    terms.write(8, None)
    assert terms.read() == (8, None)


def test_a_term_that_cannot_be_read_is_not_term_0(tmp_path: Path) -> None:
    (tmp_path / "currterm").write_text("currTerm=many\nvoteLeader=n1\n")
    with pytest.raises(StoreUnreadable, match="currTerm=many"):
        TermFile(tmp_path).read()


@pytest.mark.parametrize("text", ["", "\0\0\0\0", "currTerm=7\n", "currTerm=7\n\0\0\0", "voteLeader=n1\n"])
def test_a_damaged_term_file_is_refused_because_a_vote_could_be_given_twice(tmp_path: Path, text: str) -> None:
    (tmp_path / "currterm").write_text(text)
    with pytest.raises(
        StoreUnreadable, match=r"currterm is damaged: no (currTerm|voteLeader) is in it.*write currTerm=N"
    ):
        TermFile(tmp_path).read()


@pytest.mark.parametrize("text", ["", "endIndex=\ncommittedIndex=x\n", "\0\0\0\0"])
def test_a_checkpoint_that_says_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "checkpoint").write_text(text)
    assert EntryCheckpoint(tmp_path).read() == EntryMarks(-1, -1)


def test_a_checkpoint(tmp_path: Path) -> None:
    assert EntryCheckpoint(tmp_path).read() == EntryMarks(-1, -1)
    EntryCheckpoint(tmp_path).write(EntryMarks(12, 9))  # in the format of DLedger's nodes
    assert EntryCheckpoint(tmp_path).read() == EntryMarks(12, 9, None)
    EntryCheckpoint(tmp_path).write(EntryMarks(12, 9, -1))
    assert EntryCheckpoint(tmp_path).read() == EntryMarks(12, 9, -1)


def test_a_checkpoint_calls_nothing_synced_that_was_cut_off(tmp_path: Path) -> None:
    EntryCheckpoint(tmp_path).forget_synced(0)
    assert not EntryCheckpoint(tmp_path).path.exists()
    EntryCheckpoint(tmp_path).write(EntryMarks(12, 9, 11))
    checkpoint = EntryCheckpoint(tmp_path)
    cuts = checkpoint.cuts
    checkpoint.forget_synced(10)
    assert EntryCheckpoint(tmp_path).read() == EntryMarks(12, 9, 9)
    checkpoint.write(EntryMarks(12, 9, 12), cuts)  # another thread's, begun before
    assert EntryCheckpoint(tmp_path).read() == EntryMarks(12, 9, 9)
    checkpoint.write(EntryMarks(14, 9, 14), checkpoint.cuts)
    assert EntryCheckpoint(tmp_path).read() == EntryMarks(14, 9, 14)


@pytest.mark.parametrize("loss", [Loss("much"), Loss("more", 7)])
def test_a_note_of_what_was_lost(tmp_path: Path, loss: Loss) -> None:
    note = ImpairedNote(tmp_path / "dledger-n0")
    assert note.read() == Loss()
    note.write(loss)
    assert note.read() == loss
    note.write(Loss())
    assert note.read() == Loss()
    note.write(Loss())


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"lost": "x", "doubted_from": "y"}'])
def test_a_note_that_cannot_be_read_doubts_everything(tmp_path: Path, text: str) -> None:
    (tmp_path / "impaired.json").write_text(text)
    loss = ImpairedNote(tmp_path).read()
    assert loss.lost
    assert loss.doubted_from == 0
