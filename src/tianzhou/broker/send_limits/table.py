"""The table of limits of senders, and the numbers of messages that each limit has refused. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from tianzhou.errors import ConfigError, ProtocolError
from tianzhou.limits import SEND_LIMITS, Bounds
from tianzhou.model.send_limit import DEFAULT, LimitScope, SendLimit, decode_limit

MEMBER: Final = "sendLimitTable"
"""Member with the limits by key, in the state file and the answer to `READ_SEND_LIMITS`."""
RECENT_MS: Final = 60_000
"""Milliseconds for which a refusal counts as recent."""


class RefusedCount:
    """Refused messages of one limit.

    Attributes:
        count: number of messages since the start.
        last_ms: wall-clock time of the last refusal.
        name: the topic, group or client that was refused last.
    """

    __slots__ = ("count", "last_ms", "name")

    def __init__(self) -> None:
        self.count = self.last_ms = 0
        self.name = ""

    def add(self, count: int, name: str, now_ms: int) -> None:
        """Count refused messages."""
        self.count += count
        self.name, self.last_ms = name, now_ms


class SendLimitTable:
    """All limits of senders of this broker.

    Args:
        bounds: maximum number of limits.

    Attributes:
        version: number of changes of the table.
        counts_all_topics: whether a limit counts sends to topics that no limit names.
        refused: refused messages by key of the limit, without deleted limits.
        listeners: callbacks after each change.
    """

    def __init__(self, bounds: Bounds | None = None) -> None:
        self._bounds = bounds or Bounds()
        self._limits: dict[str, SendLimit] = {}
        self.version = 0
        self.counts_all_topics = False
        self.refused: dict[str, RefusedCount] = {}
        self.listeners: list[Callable[[], None]] = []

    def __len__(self) -> int:
        return len(self._limits)

    def all(self) -> Mapping[str, SendLimit]:
        """Return the limits by key; read-only."""
        return self._limits

    def put(self, limits: Iterable[SendLimit], *, bounded: bool = True) -> None:
        """Set limits; replace limits with the same key.

        Args:
            limits: the limits.
            bounded: whether the maximum applies; it does not apply to limits of the group's leader or the master.

        Raises:
            LimitExceeded: there are too many limits.
        """
        found = self._limits | {limit.key: limit for limit in limits}
        if bounded and len(found) > len(self._limits):
            self._bounds.check(SEND_LIMITS, len(found))
        self._replace(found)

    def delete(self, keys: Iterable[str]) -> None:
        """Delete limits; ignore keys without a limit."""
        gone = set(keys)
        self._replace({key: limit for key, limit in self._limits.items() if key not in gone})

    def _replace(self, limits: dict[str, SendLimit]) -> None:
        if limits == self._limits:
            return
        self._limits = limits
        self.version += 1
        self.counts_all_topics = any(
            limit.scope is not LimitScope.TOPIC or limit.name == DEFAULT for limit in limits.values()
        )
        self.refused = {key: found for key, found in self.refused.items() if key in limits}
        for listener in self.listeners:
            listener()

    def note_refusal(self, key: str, count: int, name: str, now_ms: int) -> None:
        """Count messages that a limit has refused.

        Args:
            key: key of the limit.
            count: number of messages.
            name: the topic, group or client that sent too much.
            now_ms: wall-clock time.
        """
        found = self.refused.get(key)
        if found is None:
            found = self.refused[key] = RefusedCount()
        found.add(count, name, now_ms)

    def recent(self, now_ms: int) -> dict[str, RefusedCount]:
        """Return the limits, by key, that have refused messages within the last `RECENT_MS`, the busiest first."""
        found = [(key, one) for key, one in self.refused.items() if now_ms - one.last_ms <= RECENT_MS]
        return dict(sorted(found, key=lambda one: -one[1].count))

    def to_json(self) -> dict[str, Any]:
        """Return the table as JSON values."""
        return {MEMBER: {key: limit.to_json() for key, limit in self._limits.items()}}

    def load(self, value: Mapping[str, Any]) -> None:
        """Load the limits of a state file.

        Raises:
            ProtocolError: a limit cannot be read.
        """
        self._replace(decode_limits(value))


def decode_limits(value: Mapping[str, Any]) -> dict[str, SendLimit]:
    """Return the limits of `SendLimitTable.to_json`, by key.

    Raises:
        ProtocolError: a limit cannot be read.
    """
    try:
        found = [decode_limit(str(key), one) for key, one in value[MEMBER].items()]
    except (ConfigError, AttributeError, KeyError, TypeError) as error:
        raise ProtocolError(f"{MEMBER}: {error}") from error
    return {limit.key: limit for limit in found}
