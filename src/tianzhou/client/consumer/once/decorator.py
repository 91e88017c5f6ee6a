"""Consuming each message once, together with a database: a decorator for handlers.

    ids = DatabaseIds(engine)

    @consumer.on("orders")
    @once(ids, scope="billing")
    def book(message, connection):
        connection.execute(...)

The id of a message is a row that is inserted in the transaction of the work, so both are committed or neither is.
The consequences (docs/adr/0030):

- A message that is delivered again finds the row and counts as consumed; the handler does not run. A message that is
  delivered elsewhere at the same time waits for the first transaction.
- A handler that raises, or asks for a later delivery, rolls back work and row. So does a process that dies. The message
  is delivered again.
- A row is stored for at least `window_s`. A message that comes after the row was deleted is consumed again.
- Only the statements on the handler's `connection` are part of the transaction. An e-mail that it sends is not.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from tianzhou.client.consumer.once.database_ids import DatabaseIds
from tianzhou.client.consumer.once.first_cache import FirstCache
from tianzhou.client.consumer.once.id_rows import AsyncIdRows, BlockingIdRows
from tianzhou.client.consumer.once.id_table import delete_ids, insert_ids, row_id
from tianzhou.client.consumer.once.transactions import run, run_async
from tianzhou.client.consumer.push.claimed_calls import ClaimedCall, key_of, parameter_names
from tianzhou.client.consumer.push.idempotence import ProcessedIds, default_id
from tianzhou.clock import Clock, SystemClock
from tianzhou.errors import ConfigError
from tianzhou.model import MessageExt
from tianzhou.remoting.callbacks import call_in_thread

H = TypeVar("H", bound=Callable[..., Any])

PARAMETER = "connection"
"""Name of the handler's parameter that gets the connection."""


def once(
    ids: DatabaseIds,
    *,
    key: Callable[[MessageExt], Any] = default_id,
    window_s: float = 7 * 86_400.0,
    scope: str = "",
    cache: ProcessedIds | None = None,
    clock: Clock | None = None,
) -> Callable[[H], H]:
    """Return a decorator that commits a handler's work and the id of its message in one transaction.

    The handler has a parameter `connection`, whose transaction it uses and does not end: SQLAlchemy's `Connection` or
    `AsyncConnection`, or the DB-API connection. It is a plain function, or `async def` with an `AsyncEngine`. It takes
    messages or values (`body=`), single or in lists, with and without a context.

    Args:
        ids: the rows of ids.
        key: returns the id of a message: a text that is the same in each delivery and differs between messages.
        window_s: minimum seconds for which a row is stored. Choose more than the broker's retention time.
        scope: text before each id. Give each handler that shares the table its own, above all each consumer group.
        cache: knows ids without a transaction: `MemoryIds`, `RedisIds`, `SqliteIds` or your own. It may fail or forget.
        clock: source of time.

    Raises:
        ConfigError: `window_s` is not positive, or the handler is of the wrong kind.
    """
    if window_s <= 0:
        raise ConfigError(f"once: window_s is {window_s}; it has to be above 0")
    if not isinstance(ids, DatabaseIds):
        raise ConfigError(
            f"once: ids is {ids!r}; it has to be DatabaseIds. Give other stores to @idempotent or to cache="
        )
    used_clock = clock or SystemClock()
    first = None if cache is None else FirstCache(cache, used_clock)
    rule = _Rule(ids.name, key, scope, int(window_s * 1000), first, used_clock)

    def decorate(handler: H) -> H:
        arguments = _Arguments(handler, wants_async=ids.rows.is_async)
        wrapped: Any
        if isinstance(ids.rows, AsyncIdRows):
            wrapped = _async_wrapper(handler, ids.rows, rule, arguments)
        else:
            wrapped = _blocking_wrapper(handler, ids.rows, rule, arguments)
        # Consumers read the signature, and pass no connection.
        wrapped.__signature__ = arguments.outer
        wrapped.needs_message = True  # also when the handler takes a value
        return wrapped  # type: ignore[no-any-return]

    return decorate


class _Rule:
    """The rule of `once`: which messages count as the same, and for how long.

    Args:
        table: name of the table of ids.
        key: returns the id of a message.
        scope: text before each id.
        window_ms: milliseconds for which a row is stored.
        cache: the cache; None without one.
        clock: source of time.
    """

    def __init__(
        self,
        table: str,
        key: Callable[[MessageExt], Any],
        scope: str,
        window_ms: int,
        cache: FirstCache | None,
        clock: Clock,
    ) -> None:
        self.cache = cache
        self.now_ms = clock.now_ms
        self._table = table
        self._key = key
        self._scope = scope
        self._window_ms = window_ms

    def open(self, argument: Any, named: Mapping[str, Any]) -> _Call:
        """Return a call with the ids of its messages.

        Raises:
            ClientError: a message has no key.
        """
        call = ClaimedCall(argument, named)
        ids = [row_id(self._scope, key_of(message, self._key)) for message in call.given]
        return _Call(call, ids, self.now_ms() + self._window_ms, self._table)


class _Call:
    """A handler's call with the row ids of its messages.

    Attributes:
        claimed: the arguments of the call.
        until_ms: when rows of this call expire, milliseconds since the epoch.
        unknown: ids to insert.
    """

    def __init__(self, claimed: ClaimedCall, ids: list[str], until_ms: int, table: str) -> None:
        self.claimed = claimed
        self.until_ms = until_ms
        self.unknown = dict.fromkeys(ids)
        self._ids = ids
        self._prefix = f"{table}/"
        self._expiries_ms: dict[str, int] = {}

    def names_in_cache(self) -> list[str]:
        """Return the cache's names of the ids. They begin with the table's name, because tables may have equal ids."""
        return [self._prefix + id_ for id_ in self.unknown]

    def drop(self, known: Iterable[str]) -> None:
        """Drop ids that the cache knows as processed."""
        for name in known:
            del self.unknown[name.removeprefix(self._prefix)]

    def claim(self, known: Mapping[str, int]) -> None:
        """Note the ids that were inserted.

        Args:
            known: ids that were there already, with their time of expiry.
        """
        self._expiries_ms.update(known)
        fresh = [id_ for id_ in self.unknown if id_ not in known]
        waiting = set(fresh)
        for message, id_ in zip(self.claimed.given, self._ids, strict=True):
            if id_ in waiting:  # the first of several messages with this id
                waiting.remove(id_)
                self.claimed.fresh.append(message)
                self.claimed.ids.append(id_)

    def settle(self, result: Any, context: tuple[Any, ...]) -> tuple[int, list[str]]:
        """Return the number of consumed messages, and the ids of fresh messages that will be delivered again."""
        done = self.claimed.count_done(result, *(context or self.claimed.context)[:1])
        self._expiries_ms.update(dict.fromkeys(self.claimed.ids[:done], self.until_ms))
        return done, self.claimed.ids[done:]

    def committed(self) -> dict[str, int]:
        """Return all ids whose rows are committed, by the cache's names, with their time of expiry."""
        return {self._prefix + id_: until_ms for id_, until_ms in self._expiries_ms.items()}


class _Arguments:
    """The handler's parameters, with the position at which the connection is inserted.

    Attributes:
        outer: the handler's signature without the connection.
        names: names of the handler's parameters.

    Raises:
        ConfigError: the handler has no such parameter, or it is async with a blocking database, or plain with an async
            one.
    """

    def __init__(self, handler: Callable[..., Any], *, wants_async: bool) -> None:
        name = getattr(handler, "__qualname__", repr(handler))
        if inspect.iscoroutinefunction(handler) != wants_async:
            raise ConfigError(
                f"once: the handler {name} is a plain function and DatabaseIds has an AsyncEngine; write `async def`, "
                "or give an Engine"
                if wants_async
                else f"once: the handler {name} is async and would block the event loop while the database works; give "
                "DatabaseIds an AsyncEngine of SQLAlchemy, or write a plain function, which runs in a thread"
            )
        try:
            signature = inspect.signature(handler)
        except (TypeError, ValueError):
            signature = inspect.Signature()
        parameters = list(signature.parameters.values())
        found = signature.parameters.get(PARAMETER)
        if found is None:
            raise ConfigError(
                f"once: the handler {name} has no parameter named {PARAMETER}, so its work cannot be in the id's "
                f"transaction; write def {getattr(handler, '__name__', 'handler')}(message, {PARAMETER})"
            )
        self.names = parameter_names(handler)
        self.outer = signature.replace(parameters=[one for one in parameters if one is not found])
        positional = found.kind in {found.POSITIONAL_ONLY, found.POSITIONAL_OR_KEYWORD}
        self._place = parameters.index(found) if positional else None

    def of(self, call: ClaimedCall, context: tuple[Any, ...], connection: Any) -> tuple[list[Any], dict[str, Any]]:
        """Return the handler's arguments by position and by name.

        Args:
            call: the call, with the fresh messages.
            context: the consumer's context, when it is an argument by position.
            connection: the connection of the transaction.
        """
        argument, named = call.arguments(self.names)
        places = [argument, *context]
        if self._place is not None and self._place <= len(places):
            places.insert(self._place, connection)
        else:
            named[PARAMETER] = connection
        return places, named


def _blocking_wrapper(
    handler: Callable[..., Any], rows: BlockingIdRows, rule: _Rule, arguments: _Arguments
) -> Callable[..., Any]:
    @functools.wraps(handler)
    def consume(given: Any, *context: Any, **named: Any) -> Any:
        call = rule.open(given, named)
        if rule.cache is not None:
            call.drop(rule.cache.done(call.names_in_cache()))
        if not call.unknown:
            return None
        result, done = None, 0
        table = rows.table(rule.now_ms())
        with rows.begin() as transaction:
            call.claim(run(insert_ids(table, call.unknown, call.until_ms), transaction.execute))
            if call.claimed.fresh:
                places, by_name = arguments.of(call.claimed, context, transaction.connection)
                result = handler(*places, **by_name)
                done, again = call.settle(result, context)
                if done:
                    run(delete_ids(table, again), transaction.execute)
                    transaction.commit()
        if rule.cache is not None:
            rule.cache.note(call.committed())
        rows.purge_if_due(done, rule.now_ms())
        return result

    return consume


def _async_wrapper(
    handler: Callable[..., Any], rows: AsyncIdRows, rule: _Rule, arguments: _Arguments
) -> Callable[..., Any]:
    async def ask(function: Callable[..., Any], argument: Any) -> Any:
        if rule.cache is not None and rule.cache.blocking:
            return await call_in_thread(None, function, argument)
        return function(argument)

    @functools.wraps(handler)
    async def consume(given: Any, *context: Any, **named: Any) -> Any:
        call = rule.open(given, named)
        if rule.cache is not None:
            call.drop(await ask(rule.cache.done, call.names_in_cache()))
        if not call.unknown:
            return None
        result, done = None, 0
        table = await rows.table(rule.now_ms())
        async with rows.begin() as transaction:
            call.claim(await run_async(insert_ids(table, call.unknown, call.until_ms), transaction.execute))
            if call.claimed.fresh:
                places, by_name = arguments.of(call.claimed, context, transaction.connection)
                result = await handler(*places, **by_name)
                done, again = call.settle(result, context)
                if done:
                    await run_async(delete_ids(table, again), transaction.execute)
                    await transaction.commit()
        if rule.cache is not None:
            await ask(rule.cache.note, call.committed())
        await rows.purge_if_due(done, rule.now_ms())
        return result

    return consume
