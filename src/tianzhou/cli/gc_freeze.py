"""What lives long is not looked through for garbage again and again.

Python's collector looks through everything there is whenever a quarter has been added. With ten thousand connections
and queues that holds a server up for a tenth of a second, again and again while they come. Nearly all of that lives for
as long as the server does, and what ends goes by itself, without the collector. So it is with what a command imports: a
tenth of its time went into looking through that.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Final, Self

OLDEST: Final = 2
WHOLE_S: Final = 3600.0
"""What is garbage in a ring, and was not when it was looked at first, goes after so long at the earliest."""
_SELDOM: Final = 20_000
"""Objects that are there more than at the last look; by default Python looks after 700."""
_USUAL: Final = gc.get_threshold()


def collect_seldom() -> None:
    """Have the collector look at what is made a thirtieth as often, until a server has started."""
    gc.set_threshold(_SELDOM, *_USUAL[1:])


class FrozenObjects:
    """While it is entered, each object is looked at once, and not again for an hour.

    It is for a process that is a server and nothing else: the collector is one for all.

    Args:
        monotonic: seconds.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._whole_at = monotonic() + WHOLE_S

    def __enter__(self) -> Self:
        gc.freeze()
        gc.callbacks.append(self._collecting)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        gc.callbacks.remove(self._collecting)
        gc.unfreeze()

    def started(self) -> None:
        """Look at what the start has made no more, and at what comes from now on as often as Python does."""
        gc.freeze()
        gc.set_threshold(*_USUAL)

    def _collecting(self, phase: str, about: Mapping[str, Any]) -> None:
        if about["generation"] != OLDEST:
            return
        if phase == "stop":
            gc.freeze()
        elif self._monotonic() >= self._whole_at:
            self._whole_at = self._monotonic() + WHOLE_S
            gc.unfreeze()
