"""Consuming each message at most once: a decorator for handlers, and stores of processed ids.

    seen = SqliteIds("seen.db")

    @consumer.on("orders")
    @idempotent(seen, window_s=7 * 86_400)
    async def book(message): ...

A message queue delivers at least once: after a crash, a lost answer or a change of the group, it delivers a message
again. The decorator claims a message's id before the handler runs, and skips messages whose id is claimed.

The guarantees and their limits:

- Within the window, no handler run begins for an id after one has succeeded. A run that raises, or asks for a later
  delivery, releases the id, and the message is consumed again at the next delivery.
- A process that dies during a run leaves the id claimed. Without `lease_s` the message is then skipped: at most once,
  but perhaps never finished. With `lease_s` another run begins when the claim has reached this age: at least once, in
  this one case. `once` has both: it writes the id in the same transaction as the work itself.
- A message that is delivered again after the window is consumed again.
- All members of a group have to use one store. `MemoryIds` belongs to one process, and loses its ids when that ends.
- Two messages count as the same when their `default_id` is the same: the unique key, which the producer sets and
  repeats with each attempt, the keys and the body. Set `key` to use an id of your own.
"""

from __future__ import annotations

import enum
import functools
import inspect
import threading
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

from tianzhou.client.consumer.push.claimed_calls import ClaimedCall, key_of, parameter_names
from tianzhou.clock import Clock, SystemClock
from tianzhou.errors import ConfigError, DuplicateInProgress
from tianzhou.model import MessageExt
from tianzhou.remoting.callbacks import call_in_thread

H = TypeVar("H", bound=Callable[..., Any])


class Claim(enum.Enum):
    """The outcome of a claim."""

    GRANTED = enum.auto()
    RUNNING = enum.auto()
    DONE = enum.auto()


class ProcessedIds(Protocol):
    """A store of ids that are finished or being processed; times are milliseconds."""

    blocking: bool
    """Whether calls wait for a disk or a network; async handlers then make them in a thread."""

    def claim(self, key: str, now_ms: int, claim_ms: int) -> Claim:
        """Claim an id for `claim_ms` unless it is claimed or finished already; atomic for all users of the store."""
        ...

    def finish(self, key: str, now_ms: int, window_ms: int) -> None:
        """Mark the id as finished for `window_ms`."""
        ...

    def release(self, key: str) -> None:
        """Release the claim of an unfinished id, so that the next delivery may claim it."""
        ...


class MemoryIds:
    """Ids in the memory of this process.

    Args:
        most: maximum number of ids; the oldest ids above it are dropped, even within the window.
    """

    blocking = False

    def __init__(self, most: int = 1_000_000) -> None:
        if most < 1:
            raise ConfigError(f"MemoryIds: most is {most}; it has to be at least 1")
        self._most = most
        self._ids: dict[str, tuple[bool, int]] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._ids)

    def claim(self, key: str, now_ms: int, claim_ms: int) -> Claim:
        """See `ProcessedIds.claim`."""
        with self._lock:
            known = self._ids.get(key)
            if known is not None and known[1] > now_ms:
                return Claim.DONE if known[0] else Claim.RUNNING
            self._put(key, done=False, until_ms=now_ms + claim_ms)
            for _ in range(2):  # check two old ids for each new one, so expired ids are dropped without a search
                oldest = next(iter(self._ids))
                if self._ids[oldest][1] <= now_ms or len(self._ids) > self._most:
                    del self._ids[oldest]
            return Claim.GRANTED

    def finish(self, key: str, now_ms: int, window_ms: int) -> None:
        """See `ProcessedIds.finish`."""
        with self._lock:
            self._put(key, done=True, until_ms=now_ms + window_ms)

    def release(self, key: str) -> None:
        """See `ProcessedIds.release`."""
        with self._lock:
            self._ids.pop(key, None)

    def _put(self, key: str, *, done: bool, until_ms: int) -> None:
        self._ids.pop(key, None)  # so that it becomes the newest
        self._ids[key] = (done, until_ms)


def default_id(message: MessageExt) -> str:
    """Return the unique key, the checksum of the body, and the keys.

    The unique key alone is not enough, because Java's client since 5.0 gives one key to a whole batch.
    """
    return f"{message.msg_id}:{message.body_crc & 0xFFFFFFFF:08x}:{message.keys}"


def idempotent(
    ids: ProcessedIds,
    *,
    window_s: float = 86_400.0,
    key: Callable[[MessageExt], str] = default_id,
    scope: str = "",
    lease_s: float | None = None,
    clock: Clock | None = None,
) -> Callable[[H], H]:
    """Return a decorator that lets a handler consume each id at most once; the module has the guarantees.

    It works for async and sync handlers, of messages and of values (`body=`), single or in lists, with and without a
    context.

    Args:
        ids: the store: `MemoryIds`, `SqliteIds`, `RedisIds` or your own.
        window_s: seconds for which an id is stored after it was finished.
        key: returns a message's id.
        scope: prefix of each id. Use a different one for each use of a shared store, above all for each consumer group.
        lease_s: seconds after which an unfinished run counts as dead, and the id is processed again. Choose more than
            the longest run. With None, the id of a dead run is not processed again within the window.
        clock: source of time.

    Raises:
        ConfigError: a time is not positive.
    """
    if window_s <= 0 or (lease_s is not None and lease_s <= 0):
        raise ConfigError(f"idempotent: window_s is {window_s} and lease_s {lease_s}; both have to be above 0")
    guard = _Guard(ids, window_s, key, scope, lease_s, clock or SystemClock())

    def decorate(handler: H) -> H:
        wanted = parameter_names(handler)
        if inspect.iscoroutinefunction(handler):

            @functools.wraps(handler)
            async def consume(given: Any, *context: Any, **named: Any) -> Any:
                claimed = await guard.call(guard.claim, given, named)
                try:
                    argument, named = claimed.arguments(wanted)
                    result = await handler(argument, *context, **named) if claimed.fresh else None
                except BaseException:
                    await guard.call(guard.release, claimed)
                    raise
                await guard.call(guard.settle, claimed, result, *context, *claimed.context)
                return result

        else:

            @functools.wraps(handler)
            def consume(given: Any, *context: Any, **named: Any) -> Any:
                claimed = guard.claim(given, named)
                try:
                    argument, named = claimed.arguments(wanted)
                    result = handler(argument, *context, **named) if claimed.fresh else None
                except BaseException:
                    guard.release(claimed)
                    raise
                guard.settle(claimed, result, *context, *claimed.context)
                return result

        consume.needs_message = True  # type: ignore[attr-defined]  # also when the handler takes a value
        return consume  # type: ignore[return-value]

    return decorate


class _Guard:
    """The steps of `idempotent` before and after a handler, for async and sync handlers."""

    def __init__(
        self,
        ids: ProcessedIds,
        window_s: float,
        key: Callable[[MessageExt], str],
        scope: str,
        lease_s: float | None,
        clock: Clock,
    ) -> None:
        self._ids = ids
        self._window_ms = int(window_s * 1000)
        self._claim_ms = self._window_ms if lease_s is None else int(lease_s * 1000)
        self._leased = lease_s is not None
        self._key = key
        self._scope = scope
        self._now_ms = clock.now_ms

    async def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call one of the methods below, in a thread when the store may block."""
        if self._ids.blocking:
            return await call_in_thread(None, function, *arguments)
        return function(*arguments)

    def claim(self, argument: Any, named: Mapping[str, Any]) -> ClaimedCall:
        """Claim the ids of the messages of a handler call.

        Raises:
            DuplicateInProgress: another handler call is processing the only message.
            ClientError: a message has no key.
        """
        claimed = ClaimedCall(argument, named)
        now_ms = self._now_ms()
        try:
            for message in claimed.given:
                id_ = f"{self._scope}:{key_of(message, self._key)}"
                answer = self._ids.claim(id_, now_ms, self._claim_ms)
                if answer is Claim.GRANTED:
                    claimed.fresh.append(message)
                    claimed.ids.append(id_)
                elif answer is Claim.RUNNING and self._leased and id_ not in claimed.ids:
                    claimed.running = id_
        except BaseException:
            self.release(claimed)
            raise
        if claimed.running and not claimed.fresh:
            raise self._in_progress(claimed)
        return claimed

    def release(self, claimed: ClaimedCall) -> None:
        """Release all claimed ids."""
        for id_ in claimed.ids:
            self._ids.release(id_)

    def settle(self, claimed: ClaimedCall, result: Any, context: Any = None) -> None:
        """Mark the ids of consumed messages as finished, by the handler's result, and release the others.

        Raises:
            DuplicateInProgress: other handler calls are processing some messages of the list, so the list has to be
                delivered again.
        """
        done = claimed.count_done(result, context)
        now_ms = self._now_ms()
        for id_ in claimed.ids[:done]:
            self._ids.finish(id_, now_ms, self._window_ms)
        for id_ in claimed.ids[done:]:
            self._ids.release(id_)
        if claimed.running:
            raise self._in_progress(claimed)

    @staticmethod
    def _in_progress(claimed: ClaimedCall) -> DuplicateInProgress:
        return DuplicateInProgress(
            f"{claimed.running} is in work elsewhere, or was when its consumer died; it is looked at again later"
        )
