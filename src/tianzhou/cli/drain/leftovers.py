"""What a broker that is being drained still has for somebody, and whether it is safe to stop. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

NOTICED_S = 30
"""Seconds until every producer has looked for routes again and left a broker without write permission."""


@dataclass(frozen=True, slots=True)
class GroupLeft:
    """What a consumer group has not consumed yet on a broker.

    Attributes:
        group: its name.
        lag: messages, those of its retry topic as well.
        members: of the group, connected to the broker.
    """

    group: str
    lag: int
    members: int


@dataclass(frozen=True, slots=True)
class Leftovers:
    """A look at a broker.

    Attributes:
        broker_name: the broker.
        address: where its master listens.
        writable: name servers that let producers write to it.
        in_per_second: messages that were stored per second, over the last ten seconds.
        groups: those that have something to consume, the longest lag first.
        delayed: delayed messages that wait for their time, retries of consumers among them.
        half: half messages whose transactions are open.
        half_unread: half messages that nobody knows more of: too many to be read.
        pop: messages that POP consumers have taken and not acknowledged; None where that is not known.
    """

    broker_name: str
    address: str
    writable: tuple[str, ...] = ()
    in_per_second: float = 0.0
    groups: tuple[GroupLeft, ...] = ()
    delayed: int = 0
    half: int = 0
    half_unread: int = 0
    pop: int | None = None


@dataclass(frozen=True, slots=True)
class DrainVerdict:
    """Whether a broker is drained.

    Attributes:
        reasons: why it is not, a sentence each; empty when it is safe to stop.
        ignored: groups with messages left that were not waited for.
    """

    reasons: tuple[str, ...] = ()
    ignored: tuple[str, ...] = field(default=())

    @property
    def drained(self) -> bool:
        """Whether it is safe to stop the broker."""
        return not self.reasons


def judge(seen: Leftovers, ignored: Collection[str] = (), *, notice_left_s: float = 0) -> DrainVerdict:
    """Say whether a broker is drained.

    Args:
        seen: a look at it.
        ignored: groups that nobody waits for.
        notice_left_s: seconds that producers still get to see that they may not write to it.
    """
    reasons = []
    if seen.writable:
        reasons.append(f"producers may write to it: {', '.join(seen.writable)} says so")
    elif notice_left_s > 0:
        reasons.append(f"producers get {notice_left_s:.0f} s more to notice that they may not write to it")
    if seen.in_per_second > 0:
        reasons.append(f"messages come in, {seen.in_per_second:.1f} per second")
    reasons += [_reason_of(one) for one in seen.groups if one.group not in ignored]
    if seen.delayed:
        reasons.append(f"{_messages(seen.delayed, 'delayed')} for their time")
    if seen.half:
        reasons.append(f"{_messages(seen.half, 'half')} for the end of their transactions")
    if seen.half_unread:
        reasons.append(f"{seen.half_unread} half messages behind those were not looked at")
    if seen.pop:
        reasons.append(f"{seen.pop} messages are with POP consumers that have not acknowledged them")
    return DrainVerdict(tuple(reasons), tuple(one.group for one in seen.groups if one.group in ignored))


def _reason_of(one: GroupLeft) -> str:
    what = f"group {one.group} has {one.lag} {'message' if one.lag == 1 else 'messages'} to consume"
    if one.members:
        return what
    return f"{what} and no members here: start some, or leave it out with --ignore {one.group}"


def _messages(count: int, kind: str) -> str:
    return f"{count} {kind} message waits" if count == 1 else f"{count} {kind} messages wait"
