"""Invariants of a group."""

from __future__ import annotations

from collections.abc import Callable

from memory_log import MemoryLog

from tianzhou.replication.dledger.ready import CommittedEnd, NodeRole, Standing


class Broken(AssertionError):
    """An invariant of the group is violated."""


class Checks:
    """Collects the reports of nodes and compares them."""

    def __init__(self) -> None:
        self.leaders: dict[int, str] = {}
        self.agreed: dict[int, bytes] = {}
        """Committed entries by index."""
        self.answered: dict[int, bytes] = {}
        """Bodies of acknowledged entries by index."""
        self.reached: dict[str, int] = {}
        self.serving: dict[str, int] = {}
        self.elections = 0
        self.survivors: Callable[[], list[MemoryLog] | None] = lambda: None
        """All logs, when so many nodes lost entries that some may be lost everywhere; None otherwise."""
        self.elected: Callable[[str], None] = lambda name: None

    def standing(self, name: str, standing: Standing, log: MemoryLog) -> None:
        """Check a node's change of role."""
        if standing.role is not NodeRole.LEADER:
            return
        # A leader that lost contact with its quorum stops serving and reports that. It was not elected again.
        was_elected = standing.term not in self.leaders
        before = self.leaders.setdefault(standing.term, name)
        if before != name:
            raise Broken(f"{before} and {name} both lead in term {standing.term}")
        if was_elected:
            self.elections += 1
            self.elected(name)
            self._forget_what_is_nowhere()
            for index, entry in self.agreed.items():
                if index >= log.begin_index >= 0 and (index > log.end_index or log.entry(index) != entry):
                    raise Broken(f"{name} leads in term {standing.term} without the committed entry {index}")

    def _forget_what_is_nowhere(self) -> None:
        logs = self.survivors()
        if logs is None:
            return
        gone = [
            index
            for index, entry in self.agreed.items()
            if not any(
                log.begin_index > index or (index <= log.end_index and log.entry(index) == entry) for log in logs
            )
        ]
        for index in gone:
            del self.agreed[index]
            self.answered.pop(index, None)
        if gone:
            self.reached = {name: min(reached, min(gone) - 1) for name, reached in self.reached.items()}

    def committed(self, name: str, log: MemoryLog, committed: CommittedEnd) -> None:
        """Check a node's report that entries are committed."""
        begin = max(self.reached.get(name, -1) + 1, log.begin_index)
        if committed.index > log.end_index:
            raise Broken(f"{name} has committed entry {committed.index} and does not have it")
        if committed.position != log.end_of(committed.index):
            raise Broken(f"{name} says that entry {committed.index} ends at {committed.position}")
        for index in range(min(begin, committed.index), committed.index + 1):
            if index < log.begin_index:
                continue
            entry = log.entry(index)
            if self.agreed.setdefault(index, entry) != entry:
                raise Broken(f"entry {index} is committed twice, {name} has another one")
        self.reached[name] = max(self.reached.get(name, -1), committed.index)

    def acknowledged(self, index: int, term: int, body: bytes) -> None:
        """Check an acknowledgement to a client."""
        self.answered[index] = body
        if not self.agreed.get(index, b"").endswith(body):
            raise Broken(f"entry {index} of term {term} was acknowledged and is not committed")

    def logs(self, logs: dict[str, MemoryLog]) -> None:
        """Check that entries with the same index and term are equal, and all entries before them."""
        names = list(logs)
        for n, one in enumerate(names):
            for other in names[n + 1 :]:
                self._match(one, logs[one], other, logs[other])

    def _match(self, one: str, mine: MemoryLog, other: str, theirs: MemoryLog) -> None:
        same = False
        for index in range(min(mine.end_index, theirs.end_index), max(mine.begin_index, theirs.begin_index, 0) - 1, -1):
            same = same or mine.term_at(index) == theirs.term_at(index)
            if same and mine.entry(index) != theirs.entry(index):
                raise Broken(f"{one} and {other} differ at {index} and are the same behind it")
