"""A decorator for methods that run on the event loop of their object, whichever loop awaits them."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from tianzhou.supervision import run_owned_threadsafe
from tianzhou.testing.options import NotReached
from tianzhou.testing.virtual_loop import VirtualLoop

P = ParamSpec("P")
R = TypeVar("R")


class Resident(Protocol):
    """An object that lives on one event loop."""

    @property
    def home(self) -> asyncio.AbstractEventLoop:
        """The event loop on which the object lives."""
        ...


S = TypeVar("S", bound=Resident)


def at_home(
    method: Callable[Concatenate[S, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, R]]:
    """Run a method on the loop of its object, whichever loop awaits it."""

    @functools.wraps(method)
    async def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        __tracebackhide__ = True
        home = self.home
        work = method(self, *args, **kwargs)
        if isinstance(home, VirtualLoop):
            work = home.spending(work)
        try:
            if asyncio.get_running_loop() is home:
                return await work
            return await asyncio.wrap_future(run_owned_threadsafe(work, home))
        except NotReached as error:
            raise error.with_traceback(None) from None  # the test's line shows the place, the text shows the cause

    return call
