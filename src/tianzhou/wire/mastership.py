"""Header fields by which a broker of ours says, at its registration, by what right it is the master (docs/adr/0024).

Apache's name servers pass over fields that they do not know, and Apache's brokers send none of these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

OTHER_MASTER: Final = "tianzhouOtherMaster"
"""Field of an answer to a registration of a master of ours: address of the other living master of the broker's name.

It is empty without another master. Apache's name servers and older ones of ours do not send it then.
"""
_GROUP: Final = "tianzhouGroup"
_GROUP_ID: Final = "tianzhouGroupId"
_MEMBERS: Final = "tianzhouMembers"
_TERM: Final = "tianzhouTerm"
_LONGEST: Final = 1_000


@dataclass(frozen=True, slots=True)
class Mastership:
    """Right by which a broker is the master.

    Attributes:
        group: name of its DLedger group; empty for a broker without one.
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
