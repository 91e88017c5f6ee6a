"""Arguments of handlers with `body=`: the values of bodies, and the message if the handler has a parameter for it."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

from tianzhou.client.bodies import BodyDecoder, decoder_of
from tianzhou.client.consumer.push.retry_policy import Fate, NextStep
from tianzhou.errors import ClientError, ConfigError, UndecodableBody
from tianzhou.model import MessageExt

Undecodable: TypeAlias = Literal["dead_letter", "retry", "skip"]
"""Treatment of a message whose body cannot be decoded: it becomes a dead letter at once, is retried like a failed
message, or counts as consumed. Each case is logged with topic, queue offset, message id and reason."""

AT_ONCE: Mapping[str, NextStep] = {"dead_letter": NextStep(Fate.DEAD_LETTER), "skip": NextStep(Fate.DROP)}
"""Next steps that do not depend on a retry policy."""


class NotCalled(UndecodableBody):
    """A handler was not called, because bodies of its messages cannot be decoded.

    Args:
        message: text of the first error.
        reasons: reasons by queue offset.
    """

    def __init__(self, message: str, reasons: Mapping[int, str]) -> None:
        self.reasons = reasons
        super().__init__(message, reason=next(iter(reasons.values()), ""))


def split(messages: list[MessageExt], failure: NotCalled) -> tuple[list[MessageExt], list[MessageExt]]:
    """Return the messages whose bodies can be decoded, and the others."""
    good = [message for message in messages if message.queue_offset not in failure.reasons]
    return good, [message for message in messages if message.queue_offset in failure.reasons]


def first_alike(messages: list[MessageExt], failure: NotCalled) -> list[MessageExt]:
    """Return the first messages that all can be decoded, or all cannot."""
    run = itertools.groupby(messages, lambda message: message.queue_offset in failure.reasons)
    return list(next(run)[1])


@dataclass(frozen=True, slots=True)
class TypedBody:
    """How the handler of a topic is called.

    Attributes:
        decoder: decodes the values.
        undecodable: treatment of messages whose bodies cannot be decoded.
        in_lists: whether the handler gets lists.
        message_name: the parameter that gets the message, or the list of messages; None without one.
        wants_context: whether a parameter is named `context`.
    """

    decoder: BodyDecoder
    undecodable: Undecodable
    in_lists: bool
    message_name: str | None
    wants_context: bool

    def arguments(self, messages: list[MessageExt], context: Any) -> tuple[Any, dict[str, Any]]:
        """Return the handler's first argument, and its arguments by name.

        Raises:
            NotCalled: some bodies cannot be decoded.
        """
        values: list[Any] = []
        reasons: dict[int, str] = {}
        first = ""
        for message in messages:
            try:
                values.append(self.decoder(message))
            except UndecodableBody as error:
                first = first or str(error)
                reasons[message.queue_offset] = error.reason
        if reasons:
            raise NotCalled(first, reasons)
        named: dict[str, Any] = {}
        if self.message_name is not None:
            named[self.message_name] = messages if self.in_lists else messages[0]
        if self.wants_context:
            named["context"] = context
        return (values if self.in_lists else values[0]), named


def typed_body(
    topic: str,
    handler: Callable[..., Any],
    body: Any,
    undecodable: Undecodable | None,
    *,
    in_lists: bool,
    resends: bool,
) -> TypedBody:
    """Return how to call a handler that takes values.

    Args:
        topic: the handler's topic.
        handler: takes the value first, and `message` (`messages` with lists) and `context` if it has such parameters.
        body: type of the values, see `tianzhou.client.decode_body`.
        undecodable: treatment of messages whose bodies cannot be decoded; None for the default.
        in_lists: whether the handler gets lists.
        resends: whether messages can be delivered again and become dead letters.

    Raises:
        ClientError: the handler cannot be called in this way.
        ConfigError: bodies cannot be decoded to `body`, or RocketMQ does not support `undecodable` here.
    """
    if undecodable not in (None, *get_args(Undecodable)):
        raise ConfigError(
            f"undecodable is {undecodable!r}; use one of {', '.join(map(repr, get_args(Undecodable)))} (topic {topic})"
        )
    if undecodable not in (None, "skip") and not resends:
        raise ConfigError(
            f"undecodable={undecodable!r} of topic {topic}: a broadcast message is not delivered again and cannot "
            "become a dead letter; use 'skip'"
        )
    if undecodable is None:
        undecodable = "dead_letter" if resends else "skip"
    message_name, wants_context = _named(topic, handler, "messages" if in_lists else "message")
    return TypedBody(decoder_of(body), undecodable, in_lists, message_name, wants_context)


def _named(topic: str, handler: Callable[..., Any], message_name: str) -> tuple[str | None, bool]:
    try:
        parameters = list(inspect.signature(handler).parameters.values())
    except (TypeError, ValueError):  # some builtins have no signature
        return None, False
    places = [p for p in parameters if p.kind in {p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.VAR_POSITIONAL}]
    if not places:
        raise ClientError(
            f"the handler {_name(handler)} of topic {topic} takes nothing; it gets the body's value first"
        )
    rest = {p.name: p for p in parameters if p is not places[0]}
    known = {message_name, "context"}
    for name, parameter in rest.items():
        by_name = parameter.kind in {parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD}
        optional = parameter.default is not parameter.empty or parameter.kind in {
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
        }
        if not optional and not (by_name and name in known):
            raise ClientError(
                f"the handler {_name(handler)} of topic {topic} wants {name}; with body it gets the value first, and "
                f"{message_name} and context where it names them"
            )
    needs_message = message_name in rest or getattr(handler, "needs_message", False)
    return (message_name if needs_message else None), "context" in rest


def _name(handler: Callable[..., Any]) -> str:
    return str(getattr(handler, "__qualname__", repr(handler)))
