"""Callables of the user around sends, consumption and the ends of transactions (client.md §20.1).

A hook is called with a context before something happens. When it returns a callable, that is called with the same
context afterwards, so what both have to know lives in a closure:

    def timing(context):
        began = time.monotonic()
        return lambda context: print(context.queue, context.result, time.monotonic() - began)

A hook of `stamp_hooks` is called with each message that is about to be sent and its unique key, once and before all
attempts; it returns properties that are stored with the message:

    def stamp(message, unique_key):
        return {"region": "eu"}

A hook of `filter_hooks` is called with what a pull has brought, and takes out of `context.messages` what its consumer
shall not get; such messages count as consumed:

    def mine(context):
        context.messages[:] = [m for m in context.messages if m.properties.get("region") == "eu"]

Hooks run in the event loop and have to be quick. What they raise is logged and changes nothing; only a hook of
`check_forbidden_hooks` raises to prevent the send.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tianzhou.errors import ClientError, TianzhouError
from tianzhou.model import ConsumeResult, Message, MessageExt, MessageQueue, SendResult, TransactionState, names
from tianzhou.remoting.callbacks import failure_of

_log = logging.getLogger(__name__)


class MessageKind(enum.IntEnum):
    """Kind of a message, by RocketMQ's numbers (wire.md §13)."""

    NORMAL = 0
    TRANSACTION_HALF = 1
    TRANSACTION_COMMIT = 2
    DELAY = 3
    ORDER = 4


class ConsumeOutcome(enum.IntEnum):
    """Outcome of a handler's call, by RocketMQ's numbers (wire.md §13)."""

    SUCCESS = 0
    TIME_OUT = 1
    EXCEPTION = 2
    RETURN_NULL = 3
    FAILED = 4


@dataclass(slots=True)
class SendContext:
    """One attempt to send.

    Attributes:
        group: the producer group.
        messages: what is sent; of a batch all, else one.
        queue: where to.
        address: the broker's `host:port`.
        kind: what the message is.
        oneway: whether no answer is awaited.
        body_bytes: length of the body as sent, compressed or as a batch.
        unique_keys: the message's unique key; of a batch all, joined by commas.
        result: how it went; None before, after a failure and for one-way sends.
        error: what went wrong.
    """

    group: str
    messages: Sequence[Message]
    queue: MessageQueue
    address: str
    kind: MessageKind
    oneway: bool
    body_bytes: int
    unique_keys: str
    result: SendResult | None = None
    error: BaseException | None = None


@dataclass(slots=True)
class HandlerCall:
    """One call of a consumer's handler, or what iteration or `poll` gives out at once.

    Attributes:
        group: the consumer group.
        messages: what the handler is given.
        queue: where they are from.
        outcome: how it ended; None before. Of what a poll returns nobody learns how it ends, so that is a success; what
            iteration gave out last is FAILED when the consumer stops before the next was requested.
        result: what the handler returned.
        error: what it raised.
        cpu_s: seconds of a processor that the handler took; None before the end, for calls that were not measured
            (after the first ones one in seven is), and for messages of iteration or `poll`.
    """

    group: str
    messages: Sequence[MessageExt]
    queue: MessageQueue
    outcome: ConsumeOutcome | None = None
    result: ConsumeResult | None = None
    error: BaseException | None = None
    cpu_s: float | None = None

    @property
    def success(self) -> bool:
        """Whether the messages count as consumed."""
        return self.outcome is ConsumeOutcome.SUCCESS


@dataclass(slots=True)
class FilterContext:
    """The messages of a pull, before the consumer gets them; their tags are those subscribed to.

    Attributes:
        group: the consumer group.
        queue: where they are from.
        messages: the messages; a hook takes out what is not wanted.
        unit_mode: whether the consumer works in unit mode.
    """

    group: str
    queue: MessageQueue
    messages: list[MessageExt]
    unit_mode: bool = False


@dataclass(slots=True)
class EndTransactionContext:
    """An END_TRANSACTION that is about to be sent.

    Attributes:
        group: the producer group.
        message: the message of the transaction; after a check, as the broker stored it.
        address: the broker's `host:port`.
        msg_id: the message's unique key.
        transaction_id: the broker's name for the transaction.
        state: the state that is sent.
        from_check: whether it answers a check.
    """

    group: str
    message: Message | MessageExt
    address: str
    msg_id: str
    transaction_id: str | None
    state: TransactionState
    from_check: bool


C = TypeVar("C")
T = TypeVar("T")
After = Callable[[C], Any]
Hook = Callable[[C], "After[C] | None"]
SendHook = Hook[SendContext]
ConsumeHook = Hook[HandlerCall]
EndTransactionHook = Hook[EndTransactionContext]
ForbiddenHook = Callable[[SendContext], Any]
FilterHook = Callable[[FilterContext], Any]
StampHook = Callable[[Message, str], "Mapping[str, str] | None"]
SharesChanged = Callable[[str, list[MessageQueue], list[MessageQueue]], None]
"""Called with a topic, all its queues, and those of this member, after the member's share has changed."""


@dataclass(slots=True)
class Hooks:
    """The hooks of a producer."""

    send: list[SendHook] = field(default_factory=list)
    forbidden: list[ForbiddenHook] = field(default_factory=list)
    end_transaction: list[EndTransactionHook] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.send or self.forbidden)


def begin(hooks: Iterable[Hook[C]], context: C) -> list[After[C]]:
    """Call what has to be called before; returns what has to be called after."""
    return [after for hook in hooks if (after := _guarded(hook, context)) is not None]


def _guarded(hook: Callable[..., T], *arguments: Any) -> T | None:
    """Call a hook and return its result. Log its failure and return None."""
    try:
        return hook(*arguments)
    except BaseException as error:  # noqa: BLE001 - a failing hook must not disturb the send or the handler
        _log.warning("hook %r failed", hook, exc_info=failure_of(error))
        return None


def end(afters: Iterable[After[C]], context: C) -> None:
    """Call what has to be called after."""
    for after in afters:
        _guarded(after, context)


def stamps(hooks: Iterable[StampHook], message: Message, unique_key: str) -> dict[str, str]:
    """The properties that hooks add to a message.

    Raises:
        ClientError: one of them has a name or value that is no text, or a name that is reserved.
    """
    added: dict[str, str] = {}
    for hook in hooks:
        if found := _guarded(hook, message, unique_key):
            _check_stamps(hook, found)
            added.update(found)
    return added


def _check_stamps(hook: StampHook, found: Mapping[str, str]) -> None:
    for name, value in found.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise ClientError(f"stamp_hooks: {hook!r} returned property {name!r}: {value!r}; both have to be text")
        if name in names.RESERVED:
            raise ClientError(
                f"stamp_hooks: {hook!r} returned property {name}, which is RocketMQ's own; choose another"
            )


def let_through(hooks: Iterable[FilterHook], context: FilterContext) -> list[MessageExt]:
    """The messages that all hooks leave in; one that raises has taken out what it had until then."""
    for hook in hooks:
        _guarded(hook, context)
    return context.messages


def check_forbidden(hooks: Iterable[ForbiddenHook], context: SendContext) -> None:
    """Ask the hooks that may prevent a send.

    Raises:
        ClientError: one of them raised.
    """
    for hook in hooks:
        try:
            hook(context)
        except TianzhouError:
            raise
        except BaseException as error:  # noqa: BLE001 - `SystemExit` of a hook must not end the event loop
            failure = failure_of(error)
            raise ClientError(
                f"check_forbidden_hooks: {hook!r} refused to send to {context.queue}: {failure}"
            ) from failure
