"""Decision about each send under the limits of senders (docs/adr/0031). Pure: the time is an argument.

A send is counted by its topic, its producer group and its client, and needs tokens of every limit that matches. A
refused send takes no tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, NamedTuple

from tianzhou.broker.send_limits.table import SendLimitTable
from tianzhou.limits import SEND_BUCKETS, Bounds
from tianzhou.model.send_limit import DEFAULT, LimitScope, SendLimit, counted_address, is_unlimited
from tianzhou.token_bucket import TokenBucket

CHECKED_FOR_ROOM: Final = 4
"""Number of the longest unused buckets that are checked when a new name needs one of a full table."""
ADVICE: Final = " ms; send less, or raise the limit by: tianzhou limit set"
"""The end of the remark of a refusal."""
_REST: Final = "\n"
"""Name of the bucket that names share while the table is full."""


class Buckets:
    """The tokens of one name under one limit: of messages, of bytes, or of both.

    Args:
        limit: the limit.
        now_s: monotonic time, seconds.

    Attributes:
        limit: the limit.
        key: key of the limit.
    """

    __slots__ = ("_head", "_head_name", "bytes", "key", "limit", "messages")

    def __init__(self, limit: SendLimit, now_s: float) -> None:
        self.limit = limit
        self.key = limit.key
        self.messages = TokenBucket(limit.rate, limit.burst, now_s) if limit.rate else None
        self.bytes = TokenBucket(limit.rate_bytes, limit.burst_bytes, now_s) if limit.rate_bytes else None
        self._head = self._head_name = ""

    def refusal_head(self, name: str) -> str:
        """Return the remark of a refusal up to the milliseconds; cache the last one, as most refusals repeat it."""
        if name != self._head_name:
            limit = self.limit
            sender = f"{limit.scope} {name}" + (f" (limit of {limit.scope} *)" if limit.name == DEFAULT else "")
            self._head = (
                f"[RATE_LIMIT]broker busy, start flow control for a while, {sender} is limited to {limit.text},"
                " next token in "
            )
            self._head_name = name
        return self._head

    def wait_s(self, count: int, size: int, now_s: float) -> float:
        """Return the seconds until messages of a size are granted; 0 when they are granted now."""
        wait_s = 0.0
        if self.messages is not None:
            wait_s = self.messages.wait_s(count, now_s)
        if self.bytes is not None:
            wait_s = max(wait_s, self.bytes.wait_s(size, now_s))
        return wait_s

    def take(self, count: int, size: int) -> None:
        """Take the tokens of messages of a size."""
        if self.messages is not None:
            self.messages.take(count)
        if self.bytes is not None:
            self.bytes.take(size)

    def is_full(self, now_s: float) -> bool:
        """Whether the buckets hold all their tokens."""
        return all(one is None or one.is_full(now_s) for one in (self.messages, self.bytes))

    def change(self, limit: SendLimit, now_s: float) -> Buckets:
        """Return buckets of a changed limit with the tokens of these."""
        new = Buckets(limit, now_s)
        if self.messages is not None and new.messages is not None:
            self.messages.change(limit.rate, limit.burst, now_s)
            new.messages = self.messages
        if self.bytes is not None and new.bytes is not None:
            self.bytes.change(limit.rate_bytes, limit.burst_bytes, now_s)
            new.bytes = self.bytes
        return new


class DefaultBuckets:
    """Buckets of a limit `*`, one for each name, up to a maximum.

    A full bucket is dropped when another name needs its place: a new one would be equal. While no place is free,
    further names share one bucket, so that names which a peer invents neither fill the memory nor escape the limit.

    Args:
        limit: the limit `*`.
    """

    def __init__(self, limit: SendLimit) -> None:
        self.limit = limit
        self._buckets: dict[str, Buckets] = {}

    def of(self, name: str, most: int, now_s: float) -> Buckets:
        """Return the buckets of a name, and note that they were used.

        Args:
            name: the name.
            most: maximum number of buckets.
            now_s: monotonic time, seconds.
        """
        found = self._buckets.pop(name, None)
        if found is None:
            if len(self._buckets) >= most and not self._make_room(now_s):
                name = _REST
                found = self._buckets.pop(_REST, None)
            found = found or Buckets(self.limit, now_s)
        self._buckets[name] = found  # at the end: the longest unused come first
        return found

    def _make_room(self, now_s: float) -> bool:
        oldest = [name for name, _ in zip(self._buckets, range(CHECKED_FOR_ROOM), strict=False)]
        full = [name for name in oldest if self._buckets[name].is_full(now_s)]
        for name in full:
            del self._buckets[name]
        return bool(full)

    def change(self, limit: SendLimit, now_s: float) -> None:
        """Change the limit; the buckets keep their tokens."""
        self.limit = limit
        self._buckets = {name: found.change(limit, now_s) for name, found in self._buckets.items()}


class LimitRefusal(NamedTuple):
    """A send that a limit refuses.

    Attributes:
        buckets: tokens of the limit that makes the send wait longest.
        name: the topic, group or client that it counts.
        wait_ms: milliseconds until the next tokens are available, at least 1.
    """

    buckets: Buckets
    name: str
    wait_ms: int

    @property
    def text(self) -> str:
        """The remark of the answer, in the words of RocketMQ's flow control."""
        return f"{self.buckets.refusal_head(self.name)}{self.wait_ms}{ADVICE}"


class ScopeBuckets:
    """The buckets of one kind of names: of topics, of groups or of clients.

    Attributes:
        named: buckets of limits by name.
        default: buckets of the limit `*`; None without one.
    """

    __slots__ = ("default", "named")

    def __init__(self) -> None:
        self.named: dict[str, Buckets] = {}
        self.default: DefaultBuckets | None = None

    def __bool__(self) -> bool:
        return bool(self.named) or self.default is not None

    def put(self, limit: SendLimit, before: ScopeBuckets, now_s: float) -> None:
        """Add a limit with its former tokens.

        Args:
            limit: the limit.
            before: buckets before the change of the table.
            now_s: monotonic time, seconds.
        """
        if limit.name == DEFAULT:
            self.default = before.default or DefaultBuckets(limit)
            if self.default.limit != limit:
                self.default.change(limit, now_s)
        else:
            buckets = before.named.get(limit.name) or Buckets(limit, now_s)
            self.named[limit.name] = buckets if buckets.limit == limit else buckets.change(limit, now_s)


class SendLimiter:
    """Grants or refuses sends.

    Args:
        table: the limits.
        is_system: whether a topic is one of the system: only a limit of its name counts it.
        bounds: limit of names that the limits `*` count one by one.
    """

    def __init__(self, table: SendLimitTable, is_system: Callable[[str], bool], bounds: Bounds | None = None) -> None:
        self._table = table
        self._is_system = is_system
        self._bounds = bounds or Bounds()
        self._version = -1
        self._topics, self._groups, self._clients = ScopeBuckets(), ScopeBuckets(), ScopeBuckets()
        self._has_named_topics_alone = True

    def covers(self, topic: str) -> bool:
        """Whether any limit may count sends to a topic."""
        table = self._table
        if not len(table) or is_unlimited(topic):
            return False
        return f"{LimitScope.TOPIC}:{topic}" in table.all() or (table.counts_all_topics and not self._is_system(topic))

    def refusal(
        self, topic: str, group: str, address: str, account: str, count: int, size: int, now_s: float
    ) -> LimitRefusal | None:
        """Take the tokens of a send, or return why it is refused.

        Args:
            topic: its topic.
            group: the producer group.
            address: IP address of the client.
            account: account of the client; empty without access control.
            count: number of its messages.
            size: bytes of its body.
            now_s: monotonic time, seconds.
        """
        if self._version != self._table.version:
            self.follow(now_s)
        matching = self._matching(topic, group, address, account, now_s)
        worst, longest_s = None, 0.0
        for one in matching:
            wait_s = one[1].wait_s(count, size, now_s)
            if wait_s > longest_s:
                worst, longest_s = one, wait_s
        if worst is not None:
            return LimitRefusal(worst[1], worst[0], math.ceil(longest_s * 1000))
        for one in matching:
            one[1].take(count, size)
        return None

    def _matching(self, topic: str, group: str, address: str, account: str, now_s: float) -> list[tuple[str, Buckets]]:
        if self._has_named_topics_alone:
            buckets = self._topics.named.get(topic)
            return [] if buckets is None else [(topic, buckets)]
        found: list[tuple[str, Buckets]] = []
        if is_unlimited(topic):
            return found
        system = self._is_system(topic)
        self._find(found, self._topics, (topic,), None if system else topic, now_s)
        if system:
            return found
        if self._groups:
            self._find(found, self._groups, (group,), group, now_s)
        if self._clients:
            # A client with an account is counted by it, wherever it sends from.
            self._find(found, self._clients, (account, address), account or counted_address(address), now_s)
        return found

    def _find(
        self,
        found: list[tuple[str, Buckets]],
        scope: ScopeBuckets,
        names: tuple[str, ...],
        other: str | None,
        now_s: float,
    ) -> None:
        """Add the limits of names; without any, the limit `*` for `other`, if that is not None."""
        own = [(name, buckets) for name in names if (buckets := scope.named.get(name)) is not None]
        found += own
        if not own and other is not None and scope.default is not None:
            found.append((other, scope.default.of(other, self._bounds.most(SEND_BUCKETS), now_s)))

    def follow(self, now_s: float) -> None:
        """Apply the table: a changed limit retains its tokens, and a new one begins with its burst.

        Args:
            now_s: monotonic time, seconds.
        """
        before = {
            LimitScope.TOPIC: self._topics, LimitScope.GROUP: self._groups, LimitScope.CLIENT: self._clients,
        }  # fmt: skip
        after = {scope: ScopeBuckets() for scope in before}
        for limit in self._table.all().values():
            after[limit.scope].put(limit, before[limit.scope], now_s)
        self._topics, self._groups, self._clients = after.values()
        self._has_named_topics_alone = not (self._topics.default or self._groups or self._clients)
        self._version = self._table.version
