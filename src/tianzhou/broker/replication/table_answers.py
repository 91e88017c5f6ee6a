"""Rules by which a slave or member of a group accepts answers with tables, and their deletions. Pure.

A broker answers requests for its tables whatever its role is, because admin tools ask any broker. So each answer of a
Tianzhou broker states whether it serves as master. A table that lacks an entry is no proof that the entry was deleted:
the broker may have started with an empty folder. Only a source that listed the entry before, within the same start and
term, proves the deletion.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tianzhou.model import DataVersion

ASKED: Final = "tianzhouTables"
"""Header field with which Tianzhou's slaves and members request the fields below.

Other requests get the answers of Apache's brokers.
"""
SERVING: Final = "tableServing"
"""Header field of an answer with a table: `true` while the broker serves as master. Apache's brokers send none."""
START: Final = "tableStart"
"""Header field of an answer with a table: the time at which the broker started, in ms. It identifies the start."""
COMPLETE: Final = "tableComplete"
"""Header field of an answer with a table: `true` while a member of a group is known to have all tables."""
REBUILT: Final = "tableRebuilt"
"""Header field of an answer with a table: `true` while the broker serves tables that it rebuilt from its log, after a
loss. A missing entry is then no deletion, and the asking broker retains its entries.
"""
TERM: Final = "dLegerTerm"
"""Header field of an answer with a table: the term of the broker in its DLedger group."""


@dataclass(frozen=True, slots=True)
class AnswerSource:
    """The broker that answers, in one of its starts and terms.

    Attributes:
        address: `host:port` of the broker.
        start: its start; empty for an Apache broker.
        term: the term that this member of the group knows; -1 outside of a group.
    """

    address: str
    start: str
    term: int


def refusal(fields: Mapping[str, str], term: int) -> str:
    """Return why the tables of an answer must be rejected, empty when they are accepted.

    Args:
        fields: header fields of the answer.
        term: the term that this member of the group knows; -1 outside of a group.
    """
    serving = fields.get(SERVING)
    if serving is None:
        return ""  # Apache's brokers do not send the field.
    if serving != "true":
        return "it does not serve as master"
    theirs = fields.get(TERM)
    if term >= 0 and theirs != str(term):
        return f"it serves in term {theirs or 'unknown'} of the group, and this member is in term {term}"
    return ""


class SourceAnswers:
    """The last answers of one source by table, for comparison with the next ones.

    Attributes:
        changed: whether the listed entries changed; the caller that writes them to the disk resets it.
    """

    def __init__(self) -> None:
        self.changed = False
        self._source: AnswerSource | None = None
        self._names: dict[int, frozenset[str]] = {}
        self._versions: dict[int, DataVersion] = {}

    @property
    def is_known_to_serve(self) -> bool:
        """Whether the present source has stated that it serves as master."""
        return self._source is not None and bool(self._source.start)

    def begin(self, source: AnswerSource) -> bool:
        """Drop the answers when another source answers; return whether the source changed."""
        if source == self._source:
            return False
        self._source = source
        self._names.clear()
        self._versions.clear()
        return True

    def is_known(self, table: int, version: DataVersion) -> bool:
        """Whether the last answer of this source had the same version of the table."""
        return self._versions.get(table) == version

    def is_older(self, table: int, version: DataVersion) -> bool:
        """Whether this source had a later version of the table before: it has started again with an older folder."""
        last = self._versions.get(table)
        return last is not None and version.counter < last.counter

    def deleted(self, table: int, names: Iterable[str]) -> frozenset[str]:
        """Return the entries that this source listed in its last answer and no longer lists.

        An answer of an Apache broker deletes no entries, because it does not state whether the broker restarted.

        Args:
            table: request code of the table.
            names: entries of the present answer.
        """
        if self._source is None or not self._source.start:
            return frozenset()
        return self._names.get(table, frozenset()).difference(names)

    def to_json(self) -> dict[str, Any]:
        """Return the source and the entries that it listed as JSON values, for the next start of this broker."""
        if self._source is None:
            return {}
        listed = {str(table): sorted(names) for table, names in self._names.items()}
        return {"address": self._source.address, "start": self._source.start, "listed": listed}

    def load(self, value: Mapping[str, Any]) -> None:
        """Load the result of `to_json` from an earlier start, outside of a group."""
        if value.get("address") and value.get("start"):
            self._source = AnswerSource(str(value["address"]), str(value["start"]), -1)
            self._names = {int(table): frozenset(map(str, names)) for table, names in value["listed"].items()}

    def note(self, table: int, version: DataVersion, names: Iterable[str]) -> None:
        """Note an accepted answer."""
        self._versions[table] = version
        listed = frozenset(names)
        self.changed |= listed != self._names.get(table)
        self._names[table] = listed
