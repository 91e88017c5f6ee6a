"""The log as it will be after the pending decisions."""

from __future__ import annotations

from collections.abc import Sequence

from tianzhou.errors import StoreError
from tianzhou.records.entry import EntryHeader
from tianzhou.replication.dledger.entry_log import NodeEntryLog
from tianzhou.replication.dledger.outbox import ReadyBuilder
from tianzhou.replication.dledger.ready import Append, Cut


class LogView:
    """A `NodeEntryLog` with the changes of the outbox applied; members are those of the protocol.

    Args:
        log: the present log.
        out: gets the cut and the entries to append.
    """

    def __init__(self, log: NodeEntryLog, out: ReadyBuilder) -> None:
        self._log = log
        self._out = out
        self._changed = False
        self._cleared = False
        self._keep: int | None = None
        self._runs: list[Sequence[EntryHeader]] = []

    def settle(self) -> None:
        """Drop the pending changes after the shell has applied them.

        Raises:
            StoreError: the log differs, because the last `Ready` was not executed.
        """
        if not self._changed:
            return
        if self._out.changes_log or self.end_index != self._log.end_index or self.end_term != self._log.end_term:
            raise StoreError(
                f"the log ends with entry {self._log.end_index} of term {self._log.end_term} where it was to end with "
                f"entry {self.end_index} of term {self.end_term}; carry out `Ready` before the member is called again"
            )
        self._changed = self._cleared = False
        self._keep = None
        self._runs = []

    def cut(self, keep: int, *, whole_log: bool = False) -> None:
        """Cut the log after an entry; at most once before `settle`.

        Args:
            keep: its index, not below that of the first entry.
            whole_log: whether the whole log is cut, whatever `keep` is.
        """
        log = self._log
        self._out.cut = (
            Cut(log.begin_index, log.position_of(log.begin_index), whole_log=True)
            if whole_log
            else Cut(keep + 1, log.end_of(keep))
        )
        self._changed = True
        self._cleared = whole_log
        self._keep = keep

    def append(self, headers: Sequence[EntryHeader], entries: bytes) -> None:
        """Append entries to the end of the log, also after entries that were appended before `settle`."""
        if (before := self._out.append) is None:
            self._out.append = Append(headers[0].index, len(headers), headers[0].pos, entries)
        else:
            self._out.append = Append(
                before.index, before.count + len(headers), before.position, before.entries + entries
            )
        self._changed = True
        self._runs.append(headers)

    @property
    def _rest_end(self) -> int:
        """Index of the last entry of the present log that stays."""
        if self._cleared:
            return -1
        return self._log.end_index if self._keep is None else self._keep

    @property
    def begin_index(self) -> int:
        """Index of the first entry; -1 without entries."""
        if not self._cleared and 0 <= self._log.begin_index <= self._rest_end:
            return self._log.begin_index
        return self._runs[0][0].index if self._runs else -1

    @property
    def end_index(self) -> int:
        """Index of the last entry; -1 without entries."""
        return self._runs[-1][-1].index if self._runs else self._rest_end

    @property
    def end_term(self) -> int:
        """Term of the last entry; -1 without entries."""
        end = self.end_index
        return -1 if end < 0 else self.term_at(end)

    @property
    def end_position(self) -> int:
        """Log offset after the last entry."""
        if self._runs:
            return self._runs[-1][-1].end
        if self._cleared:
            return self._log.position_of(self._log.begin_index)
        return self._log.end_position if self._keep is None else self._log.end_of(self._keep)

    def _header(self, index: int) -> EntryHeader | None:
        for run in reversed(self._runs):
            if index >= run[0].index:
                return run[index - run[0].index]
        return None

    def term_at(self, index: int) -> int:
        """Return the term of an entry."""
        header = self._header(index)
        return self._log.term_at(index) if header is None else header.term

    def position_of(self, index: int) -> int:
        """Return the log offset of an entry."""
        header = self._header(index)
        return self._log.position_of(index) if header is None else header.pos

    def end_of(self, index: int) -> int:
        """Return the log offset after an entry."""
        header = self._header(index)
        return self._log.end_of(index) if header is None else header.end

    def entry(self, index: int) -> bytes:
        """Return header and body of an entry."""
        append, found = self._out.append, self._header(index)
        if found is None or append is None:
            return self._log.entry(index)
        at = sum(header.size for run in self._runs for header in run if header.index < index)
        return append.entries[at : at + found.size]

    def stretch(self, index: int, most_bytes: int) -> tuple[bytes, int]:
        """Return consecutive entries of the present log."""
        return self._log.stretch(index, most_bytes)

    def is_whole(self, index: int) -> bool:
        """Whether an entry is undamaged."""
        return self._header(index) is not None or self._log.is_whole(index)

    def place(self, position: int, size: int) -> int:
        """Return the log offset of an entry of a size after the end of a log; -1 when no segment is large enough."""
        return self._log.place(position, size)

    def may_begin(self, position: int, size: int) -> bool:
        """Whether a log without entries may begin with an entry of a size at an offset."""
        return self._log.may_begin(position, size)
