"""Coroutines that await an inner coroutine, and close it when they end before their first step."""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine, Generator
from typing import Any, TypeVar

T = TypeVar("T")


class ChainedCoroutine(Coroutine[Any, Any, T]):
    """A coroutine that awaits an inner coroutine.

    A coroutine that is cancelled or closed before its first step never reaches its `await`. It drops the inner
    coroutine, and Python warns that the inner coroutine was never awaited. This class closes the inner coroutine then.

    Args:
        outer: coroutine that awaits `inner`.
        inner: the awaitable that `outer` awaits. Only a coroutine is closed.
    """

    __slots__ = ("__qualname__", "_inner", "_outer")

    def __init__(self, outer: Coroutine[Any, Any, T], inner: object) -> None:
        self._outer = outer
        self._inner = inner
        self.__qualname__ = getattr(outer, "__qualname__", type(outer).__name__)  # for the text of a task

    def __await__(self) -> Generator[Any, Any, T]:
        return self._outer.__await__()

    def send(self, value: Any) -> Any:
        """Resume the outer coroutine; see `Coroutine.send`."""
        return self._outer.send(value)

    def throw(self, *arguments: Any) -> Any:
        """Raise an exception in the outer coroutine; see `Coroutine.throw`."""
        try:
            return self._outer.throw(*arguments)
        except BaseException:
            close_unstarted(self._inner)
            raise

    def close(self) -> None:
        """Close both coroutines."""
        self._outer.close()
        close_unstarted(self._inner)


def close_unstarted(awaited: Awaitable[Any] | object) -> None:
    """Close a coroutine that will not be awaited, so that Python does not warn about it.

    Args:
        awaited: a coroutine; other objects and ended coroutines are left unchanged.
    """
    if isinstance(awaited, Coroutine):
        awaited.close()
