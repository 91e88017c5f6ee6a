"""Messages and transactions that a broker still has during a drain, and whether it is safe to stop. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

NOTICED_S = 30
"""Seconds until every producer has refreshed its routes and left a broker without write permission."""


@dataclass(frozen=True, slots=True)
class GroupLeft:
    """The lag of a consumer group on a broker.

    Attributes:
        group: name of the group.
        lag: number of messages to consume, including those of its retry topic.
        members: number of members that are connected to the broker.
    """

    group: str
    lag: int
    members: int


@dataclass(frozen=True, slots=True)
class Leftovers:
    """The state of a broker during a drain.

    Attributes:
        broker_name: the broker.
        address: address of its master.
        writable: name servers whose routes let producers write to it.
        in_per_second: messages stored per second, over the last ten seconds.
        groups: groups with messages to consume, the longest lag first.
        delayed: number of delayed messages that are not due, including retries of consumers.
        half: number of half messages with open transactions.
        half_unread: number of half messages whose state is unknown, because there are too many to read.
        pop: number of unacknowledged messages of POP consumers; None if unknown.
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
    """The decision whether a broker is drained.

    Attributes:
        reasons: reasons why it is not, one sentence each; empty if it is safe to stop.
        ignored: ignored groups that still have messages.
    """

    reasons: tuple[str, ...] = ()
    ignored: tuple[str, ...] = field(default=())

    @property
    def drained(self) -> bool:
        """Whether it is safe to stop the broker."""
        return not self.reasons


def judge(seen: Leftovers, ignored: Collection[str] = (), *, notice_left_s: float = 0) -> DrainVerdict:
    """Decide whether a broker is drained.

    Args:
        seen: state of the broker.
        ignored: groups that need not be waited for.
        notice_left_s: remaining seconds for producers to notice that they may not write to the broker.
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
