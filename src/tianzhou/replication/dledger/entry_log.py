"""What a member of a group needs to know of its log."""

from __future__ import annotations

from typing import Protocol


class NodeEntryLog(Protocol):
    """The entries that are in the log, synced or not.

    The member reads it while it is called, and trusts that it changes in three ways only: as a `Ready` says, by entries
    that the leader's shell appends in the leader's term (`DLedgerMember.appended` follows), and at the beginning, where
    segments expire.
    """

    @property
    def begin_index(self) -> int:
        """Index of the first entry; -1 while there is none."""

    @property
    def end_index(self) -> int:
        """Index of the last entry; -1 while there is none."""

    @property
    def end_term(self) -> int:
        """Term of the last entry; -1 while there is none."""

    @property
    def end_position(self) -> int:
        """Log offset behind the last entry, without the mark that may end its segment."""

    def term_at(self, index: int) -> int:
        """Term of an entry between begin and end."""

    def entry(self, index: int) -> bytes:
        """Header and body of an entry between begin and end."""

    def stretch(self, index: int, most_bytes: int) -> tuple[bytes, int]:
        """Entries from one on, headers and bodies one behind the other without marks of segments in between.

        Args:
            index: of the first one, between begin and end.
            most_bytes: how much there may be; the first one comes whatever its size.

        Returns:
            The bytes, and how many entries they are; none of those from a broken one on.
        """

    def is_whole(self, index: int) -> bool:
        """Whether an entry between begin and end is what was written, and may be copied to others."""

    def position_of(self, index: int) -> int:
        """Log offset of the header of an entry between begin and end."""

    def end_of(self, index: int) -> int:
        """Log offset behind an entry between begin and end."""

    def place(self, position: int, size: int) -> int:
        """Where an entry goes behind a log that ends at an offset.

        Args:
            position: the offset.
            size: bytes of the entry.

        Returns:
            `position`, or the begin of the next segment when too little is left of this one; -1 when no segment is
            large enough.
        """

    def may_begin(self, position: int, size: int) -> bool:
        """Whether a log without entries may begin with one of a size at an offset, the begin of a segment."""
