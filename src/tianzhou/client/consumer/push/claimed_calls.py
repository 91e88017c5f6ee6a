"""The call of a handler whose message ids are claimed in a store of processed ids."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from tianzhou.errors import ClientError
from tianzhou.model import ConsumeResult, MessageExt

_AGAIN = frozenset(
    {ConsumeResult.RECONSUME_LATER, ConsumeResult.SUSPEND_CURRENT_QUEUE_A_MOMENT, ConsumeResult.ROLLBACK}
)


class ClaimedCall:
    """The arguments of a handler's call, and the ids claimed for it.

    Args:
        argument: the message, or its value; a list of them for handlers that get lists.
        named: the arguments by name; a handler of values always gets `message` or `messages`.

    Attributes:
        given: the messages of the call.
        fresh: the messages that the handler shall consume, in the order of `given`.
        ids: the ids of `fresh`.
        running: an id that another handler call is processing; empty without one.
    """

    __slots__ = ("_argument", "_in_lists", "_named", "fresh", "given", "ids", "running")

    def __init__(self, argument: Any, named: Mapping[str, Any]) -> None:
        messages = named.get("messages", named.get("message", argument))
        self._argument = argument
        self._named = named
        self._in_lists = isinstance(messages, list)
        self.given: list[MessageExt] = messages if self._in_lists else [messages]
        self.fresh: list[MessageExt] = []
        self.ids: list[str] = []
        self.running = ""

    @property
    def context(self) -> tuple[Any, ...]:
        """The context, when it was passed by name."""
        return (self._named["context"],) if "context" in self._named else ()

    def arguments(self, wanted: frozenset[str]) -> tuple[Any, dict[str, Any]]:
        """Return the handler's first argument without messages that are not fresh, and its arguments by name.

        Args:
            wanted: names of the handler's parameters.
        """
        named = {name: value for name, value in self._named.items() if name in wanted}
        if not self._in_lists:
            return self._argument, named
        if "messages" not in self._named:
            return self.fresh, named
        fresh = {id(message) for message in self.fresh}
        values = [value for value, message in zip(self._argument, self.given, strict=True) if id(message) in fresh]
        return values, named | ({"messages": self.fresh} if "messages" in wanted else {})

    def count_done(self, result: Any, context: Any = None) -> int:
        """Return the number of fresh messages that are consumed, by the handler's result and its `ack_index`.

        The consumer counts `ack_index` in its own list of messages, so it is changed to include the duplicates.

        Args:
            result: the handler's result.
            context: the handler's context; None without one.
        """
        done = len(self.ids)
        ack_index = getattr(context, "ack_index", None)
        if result in _AGAIN:
            return 0
        if ack_index is not None and self.fresh:
            done = min(max(ack_index + 1, 0), done)
            if done < len(self.fresh):
                first = self.fresh[done]
                context.ack_index = next(i for i, message in enumerate(self.given) if message is first) - 1
            else:
                context.ack_index = None
        return done


def parameter_names(handler: Callable[..., Any]) -> frozenset[str]:
    """Return the names of a handler's parameters; none for a builtin without a signature."""
    try:
        return frozenset(inspect.signature(handler).parameters)
    except (TypeError, ValueError):
        return frozenset()


def key_of(message: MessageExt, key: Callable[[MessageExt], Any]) -> str:
    """Return the key of a message.

    Raises:
        ClientError: the message has no key. All such messages would count as the same one, and only the first would be
            processed.
    """
    found = key(message)
    if found is None or found == "":
        raise ClientError(
            f"message {message.msg_id} of topic {message.topic}: key= returned {found!r}, so that all such messages "
            "would count as one; return a text that differs between messages, or leave key= out"
        )
    return str(found)
