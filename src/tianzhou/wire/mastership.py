"""Header fields by which a broker of ours says, at its registration, by what right it is the master (docs/adr/0024).

A slave sends them empty, with term 0, so that name servers of ours know it as a broker of ours.

Apache's name servers pass over fields that they do not know, and Apache's brokers send none of these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

OTHER_MASTER: Final = "tianzhouOtherMaster"
"""Field of an answer to a registration of a broker of ours: address of the other living one of its name and id.

It is empty without another one. Apache's name servers do not send it, nor do older ones of ours to slaves.
"""
_GROUP: Final = "tianzhouGroup"
_GROUP_ID: Final = "tianzhouGroupId"
_MEMBERS: Final = "tianzhouMembers"
_TERM: Final = "tianzhouTerm"
_LONGEST: Final = 1_000


@dataclass(frozen=True, slots=True)
class Mastership:
    """Right by which a broker is the master; without a group also what a slave sends.

    Attributes:
        group: name of its DLedger group; empty for a broker without one, and for one that does not lead.
        members: ids of the members in its `dLegerPeers`.
        term: in which it leads the group; 0 without one.
        group_id: identity of the group; empty while it has none.
    """

    group: str = ""
    members: frozenset[str] = frozenset()
    term: int = 0
    group_id: str = ""

    def as_fields(self) -> dict[str, str]:
        """Return the header fields."""
        return {
            _GROUP: self.group,
            _GROUP_ID: self.group_id,
            _MEMBERS: ",".join(sorted(self.members)),
            _TERM: str(self.term),
        }


def mastership_of(fields: Mapping[str, str]) -> Mastership | None:
    """Return what the fields of a registration say; None for one of Apache's brokers or of an older version of ours."""
    term = fields.get(_TERM, "")
    if not (term.isascii() and term.isdigit()):
        return None
    members = frozenset(filter(None, fields.get(_MEMBERS, "")[:_LONGEST].split(",")))
    group, group_id = fields.get(_GROUP, "")[:_LONGEST], fields.get(_GROUP_ID, "")[:_LONGEST]
    return Mastership(group, members, int(term[:18]), group_id)
