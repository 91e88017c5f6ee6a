"""`currterm`, `checkpoint` and the note of what was lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from tianzhou.errors import StoreUnreadable
from tianzhou.store.entries.member_files import EntryCheckpoint, EntryMarks, ImpairedNote, TermFile


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


@pytest.mark.parametrize("text", ["", "endIndex=\ncommittedIndex=x\n", "\0\0\0\0"])
def test_a_checkpoint_that_says_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "checkpoint").write_text(text)
    assert EntryCheckpoint(tmp_path).read() == EntryMarks(-1, -1)


def test_a_checkpoint(tmp_path: Path) -> None:
    assert EntryCheckpoint(tmp_path).read() == EntryMarks(-1, -1)
    EntryCheckpoint(tmp_path).write(EntryMarks(12, 9))
    assert EntryCheckpoint(tmp_path).read() == EntryMarks(12, 9)


def test_a_note_of_what_was_lost(tmp_path: Path) -> None:
    note = ImpairedNote(tmp_path / "dledger-n0")
    assert note.read() == ""
    note.write("much")
    assert note.read() == "much"
    note.write("")
    assert note.read() == ""
    note.write("")
    (tmp_path / "dledger-n0" / "impaired.json").write_bytes(b"{")
    assert note.read()
