"""Garbage collection of server processes: long-lived objects are excluded from it.

Python's collector traverses all objects whenever their number has grown by a quarter. With ten thousand connections and
queues each traversal stops a server for a tenth of a second, and there are many while clients connect. Nearly all of
these objects live as long as the server, and are freed without the collector when they end. The same holds for the
modules that a command imports: their traversal took a tenth of the command's time.

A frozen object that becomes garbage in a cycle stays in memory until the next whole collection. So objects are frozen
repeatedly only in servers whose objects end without cycles: name servers and brokers. Pages of the console are cycles,
so its process freezes only the objects of its start.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Final, Self

OLDEST: Final = 2
WHOLE_S: Final = 3600.0
"""Seconds after which the next full collection traverses frozen objects as well."""
WHOLE_BYTES: Final = 256 << 20
"""Growth of the process's private memory after which the next full collection traverses frozen objects as well.

It limits the garbage among frozen objects. Ten thousand connections use less memory.
"""
_SELDOM: Final = 20_000
"""Number of new objects that starts a collection before a server has started; Python's default is 700."""
_USUAL: Final = gc.get_threshold()


def collect_seldom() -> None:
    """Collect new objects 30 times less often, until a server has started."""
    gc.set_threshold(_SELDOM, *_USUAL[1:])


class FrozenObjects:
    """A context in which each object is traversed once, and again only in a whole collection.

    A whole collection traverses frozen objects as well. It happens with the first full collection after `WHOLE_S`, or
    after the private memory has grown by `WHOLE_BYTES`. There is one collector in a process, so the process must be a
    server and nothing else.

    Args:
        monotonic: returns the seconds of a monotonic clock.
        memory: returns a number of bytes, or None if the system does not provide it; by default the private memory of
            this process.
        has_garbage: whether objects of this server end in cycles while it runs. Then only the objects of its start are
            frozen.
    """

    def __init__(
        self,
        monotonic: Callable[[], float] = time.monotonic,
        memory: Callable[[], int | None] | None = None,
        *,
        has_garbage: bool = False,
    ) -> None:
        if memory is None:
            from tianzhou.metrics.process import private_bytes

            memory = private_bytes
        self._monotonic = monotonic
        self._memory = memory
        self._has_garbage = has_garbage
        self._whole_at = monotonic() + WHOLE_S
        self._whole_above = (memory() or 0) + WHOLE_BYTES
        self._is_whole = False

    def __enter__(self) -> Self:
        gc.freeze()
        if not self._has_garbage:
            gc.callbacks.append(self._collecting)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._has_garbage:
            gc.callbacks.remove(self._collecting)
        gc.unfreeze()

    def started(self) -> None:
        """Freeze the objects of the start, and restore Python's default frequency for new objects."""
        gc.freeze()
        gc.set_threshold(*_USUAL)

    def _collecting(self, phase: str, about: Mapping[str, Any]) -> None:
        if about["generation"] != OLDEST:
            return
        if phase == "stop":
            gc.freeze()
            if self._is_whole:
                self._is_whole = False
                self._whole_above = (self._memory() or 0) + WHOLE_BYTES
        elif self._monotonic() >= self._whole_at or (self._memory() or 0) >= self._whole_above:
            self._whole_at = self._monotonic() + WHOLE_S
            self._is_whole = True
            gc.unfreeze()
