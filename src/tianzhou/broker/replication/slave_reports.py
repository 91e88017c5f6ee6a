"""Reports between a master and its slaves that RocketMQ's protocol lacks: halted slaves, and `durability`. Pure.

A slave that has halted reports the reason in a request of RocketMQ's (906), whose other fields Apache's brokers ignore.
A master names its `durability` in its answers with tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tianzhou.escaping import shown
from tianzhou.repeats import Repeats

DURABILITY: Final = "durability"
"""Header field of an answer with a table, and runtime figure of a broker: the value of this key in its file."""
HALTED_SLAVES: Final = "haHaltedSlaves"
"""Runtime figure of a master: its slaves that copy nothing until an operator decides, each with its reason."""
REPEAT_S: Final = 20.0
"""Seconds between two reports of a slave that has halted."""
FORGET_S: Final = 60.0
"""Seconds after which a master drops a halted slave that sends no further report."""
MAX_SLAVES: Final = 64
"""Maximum number of halted slaves that a master remembers. One more report evicts the oldest one."""
MAX_LINES: Final = 10
"""Maximum number of log lines per minute about slaves that have halted."""
_SLAVE: Final = "tianzhouSlave"
_HALTED: Final = "tianzhouHalted"
_LONGEST: Final = 500
_LONGEST_ADDRESS: Final = 100


def report_fields(address: str, halted: str) -> dict[str, str]:
    """Return the header fields of a slave's report to its master.

    Args:
        address: address of the slave, `host:port`.
        halted: why the slave copies nothing; empty once it may copy again.
    """
    return {_SLAVE: address, _HALTED: halted[:_LONGEST]}


class HaltedSlaves:
    """The slaves of a master that have halted."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[str, float]] = {}
        self._lines = Repeats(lines=MAX_LINES)

    def reported(self, fields: Mapping[str, str], now_s: float) -> str:
        """Process the header fields of a request; return a log line for a newly halted slave, or "".

        Args:
            fields: header fields of a request 906; a request of an Apache broker has none of a report.
            now_s: monotonic time, seconds.
        """
        address = fields.get(_SLAVE, "")[:_LONGEST_ADDRESS]
        if not address:
            return ""
        known = self._found.pop(address, ("", 0.0))[0]
        reason = fields.get(_HALTED, "")[:_LONGEST]
        if not reason:
            return ""
        while len(self._found) >= MAX_SLAVES:
            del self._found[next(iter(self._found))]
        self._found[address] = reason, now_s
        if known or self._lines.due("halted", now_s) is None:
            return ""
        return f"slave {shown(address)} has halted and copies nothing until an operator decides: {shown(reason, 600)}"

    def count(self, now_s: float) -> int:
        """Return the number of halted slaves."""
        return len(self._present(now_s))

    def figures(self, now_s: float) -> dict[str, str]:
        """Return the runtime figure of the master; empty without a halted slave."""
        present = self._present(now_s)
        text = "; ".join(f"{address}: {reason}" for address, reason in present.items())
        return {HALTED_SLAVES: text} if text else {}

    def _present(self, now_s: float) -> dict[str, str]:
        return {address: reason for address, (reason, at_s) in self._found.items() if now_s - at_s < FORGET_S}


def difference(own: str, theirs: str | None) -> str:
    """Return a log line about a master whose `durability` differs from the slave's; empty when they are equal.

    Args:
        own: the slave's value; empty when its file has none.
        theirs: the master's value; None when it does not name it, as Apache's brokers do not.
    """
    if theirs is None or theirs == own:
        return ""
    ours, masters = (f"{DURABILITY}={shown(one)}" if one else f"no {DURABILITY}" for one in (own, theirs))
    keeps = "a slave without zero-loss may cut acknowledged messages" if theirs else "the master may lose messages"
    return f"this slave's file has {ours} and its master's has {masters}: {keeps}; write the same into both files"
