"""The interface of a log that a member of a group reads."""

from __future__ import annotations

from typing import Protocol


class NodeEntryLog(Protocol):
    """The entries in the log, synced or not.

    The member reads the log during its calls. The log may change in three ways only: by the execution of a `Ready`, by
    entries that the leader's shell appends in the leader's term (`DLedgerMember.appended` follows), and at its
    beginning, where segments expire.
    """

    @property
    def begin_index(self) -> int:
        """Index of the first entry; -1 without entries."""

    @property
    def end_index(self) -> int:
        """Index of the last entry; -1 without entries."""

    @property
    def end_term(self) -> int:
        """Term of the last entry; -1 without entries."""

    @property
    def end_position(self) -> int:
        """Log offset after the last entry, before the mark that may end its segment."""

    def term_at(self, index: int) -> int:
        """Return the term of an entry between begin and end."""

    def entry(self, index: int) -> bytes:
        """Return header and body of an entry between begin and end."""

    def stretch(self, index: int, most_bytes: int) -> tuple[bytes, int]:
        """Return consecutive entries, headers and bodies, without the marks between segments.

        Args:
            index: of the first one, between begin and end.
            most_bytes: maximum bytes of the entries; the first entry may be larger.

        Returns:
            The bytes and the number of the entries, up to the first broken one.
        """

    def is_whole(self, index: int) -> bool:
        """Whether an entry between begin and end is undamaged, so that it may be copied to other nodes."""

    def position_of(self, index: int) -> int:
        """Return the log offset of the header of an entry between begin and end."""

    def end_of(self, index: int) -> int:
        """Return the log offset after an entry between begin and end."""

    def place(self, position: int, size: int) -> int:
        """Return the log offset of the next entry of a log that ends at an offset.

        Args:
            position: the end of the log.
            size: bytes of the entry.

        Returns:
            `position`, or the begin of the next segment when this one has too little room; -1 when no segment is large
            enough.
        """

    def may_begin(self, position: int, size: int) -> bool:
        """Whether a log without entries may begin with an entry of a size at an offset, the begin of a segment."""
