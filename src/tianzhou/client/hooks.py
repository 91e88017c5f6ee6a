"""The user's hooks before and after sends, consumption and the ends of transactions (client.md §20.1).

A hook is called with a context before an operation. When it returns a callable, this is called with the same context
after the operation. A closure can share values between both:

    def timing(context):
        began = time.monotonic()
        return lambda context: print(context.queue, context.result, time.monotonic() - began)

A hook of `stamp_hooks` is called once per message, before all attempts to send it, with the message and its unique key.
It returns properties that are stored with the message:

    def stamp(message, unique_key):
        return {"region": "eu"}

A hook of `filter_hooks` is called with the messages of a pull. It removes messages from `context.messages` that the
consumer shall not get; they count as consumed:

    def mine(context):
        context.messages[:] = [m for m in context.messages if m.properties.get("region") == "eu"]

Hooks run in the event loop and have to be quick. Their errors are logged and have no effect, except that an error of a
`check_forbidden_hooks` hook prevents the send.
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
        messages: the messages; more than one only in a batch.
        queue: the target queue.
        address: the broker's `host:port`.
        kind: kind of the message.
        oneway: whether the send waits for no answer.
        body_bytes: length of the body as sent: compressed, or the encoding of a batch.
        unique_keys: the message's unique key; for a batch, all keys joined by commas.
        result: the result; None before the send, after a failure and for one-way sends.
        error: the error of a failed send.
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
    """One call of a consumer's handler, or the messages that iteration or `poll` returns together.

    Attributes:
        group: the consumer group.
        messages: the messages of the call.
        queue: their queue.
        outcome: the outcome; None before the end. It is always SUCCESS for `poll`, because the consumer cannot see the
            outcome. It is FAILED for the last message of an iteration when the consumer stops before the next one is
            requested.
        result: the value that the handler returned.
        error: the error that it raised.
        cpu_s: seconds of a processor in the handler; None before the end, for calls that were not measured (after the
            first calls, one in seven is), and for messages of iteration or `poll`.
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
    """The messages of a pull, before the consumer gets them. They match the subscription.

    Attributes:
        group: the consumer group.
        queue: their queue.
        messages: the messages; a hook removes unwanted ones.
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
"""Callback after a change of a member's share, with a topic, all its queues, and those of this member."""


@dataclass(slots=True)
class Hooks:
    """The hooks of a producer."""

    send: list[SendHook] = field(default_factory=list)
    forbidden: list[ForbiddenHook] = field(default_factory=list)
    end_transaction: list[EndTransactionHook] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.send or self.forbidden)


def begin(hooks: Iterable[Hook[C]], context: C) -> list[After[C]]:
    """Call the hooks before an operation, and return their callables for after it."""
    return [after for hook in hooks if (after := _guarded(hook, context)) is not None]


def _guarded(hook: Callable[..., T], *arguments: Any) -> T | None:
    """Call a hook and return its result. Log its failure and return None."""
    try:
        return hook(*arguments)
    except BaseException as error:  # noqa: BLE001 - a failing hook must not disturb the send or the handler
        _log.warning("hook %r failed", hook, exc_info=failure_of(error))
        return None


def end(afters: Iterable[After[C]], context: C) -> None:
    """Call the hooks' callables after an operation."""
    for after in afters:
        _guarded(after, context)


def stamps(hooks: Iterable[StampHook], message: Message, unique_key: str) -> dict[str, str]:
    """Return the properties that hooks add to a message.

    Raises:
        ClientError: a hook returned a name or value that is no text, or a reserved name.
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
    """Return the messages that no hook has removed. A hook that raises has removed those until its error."""
    for hook in hooks:
        _guarded(hook, context)
    return context.messages


def check_forbidden(hooks: Iterable[ForbiddenHook], context: SendContext) -> None:
    """Call the hooks that may prevent a send.

    Raises:
        ClientError: a hook raised an error.
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
