"""Header fields of a registration in which one of our brokers states its right to be master (docs/adr/0024).

A slave sends them empty, with term 0, so that our name servers recognize it as one of our brokers.

Apache's name servers ignore unknown fields, and Apache's brokers send none of these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

OTHER_MASTER: Final = "tianzhouOtherMaster"
"""Field of the answer to a registration: address of another living broker of ours with the same name and id.

It is empty without such a broker. Apache's name servers do not send it. Older ones of ours do not send it to slaves.
"""
_GROUP: Final = "tianzhouGroup"
_GROUP_ID: Final = "tianzhouGroupId"
_MEMBERS: Final = "tianzhouMembers"
_TERM: Final = "tianzhouTerm"
_LONGEST: Final = 1_000


@dataclass(frozen=True, slots=True)
class Mastership:
    """Right of a broker to be master. A slave sends one without a group, too.

    Attributes:
        group: name of its DLedger group; empty for a broker without a group, and for one that is not the leader.
        members: ids of the members in its `dLegerPeers`.
        term: term in which it leads the group; 0 without a group.
        group_id: identity of the group; empty while the group has none.
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
    """Return the mastership in the fields of a registration; None from Apache's brokers and older versions of ours."""
    term = fields.get(_TERM, "")
    if not (term.isascii() and term.isdigit()):
        return None
    members = frozenset(filter(None, fields.get(_MEMBERS, "")[:_LONGEST].split(",")))
    group, group_id = fields.get(_GROUP, "")[:_LONGEST], fields.get(_GROUP_ID, "")[:_LONGEST]
    return Mastership(group, members, int(term[:18]), group_id)
