"""The state of the store: RocketMQ's running flags, and the reason of each (store.md §9.2)."""

from __future__ import annotations

from enum import IntFlag
from typing import Final


class RunningFlag(IntFlag):
    """Reasons to refuse requests; the bits are RocketMQ's."""

    NOT_READABLE = 1
    NOT_WRITABLE = 2
    QUEUE_ERROR = 4
    INDEX_ERROR = 8
    DISK_FULL = 16
    FENCED = 32
    QUEUE_DISK_FULL = 64


_REFUSES_PUTS: Final = ~RunningFlag.NOT_READABLE


class RunningFlags:
    """The raised flags, each with its text for producers.

    A failed disk does not recover by itself, so only a restart lowers NOT_WRITABLE. The other flags are lowered by the
    parts that raised them.

    Args:
        closed: why the store refuses puts before it is opened; None when it is open.

    Attributes:
        refusal: why puts are refused: that the store is not open, or else the text of the lowest flag that refuses
            them; None when they are accepted.
    """

    __slots__ = ("_closed", "_texts", "refusal")

    def __init__(self, closed: str | None = None) -> None:
        self._texts: dict[RunningFlag, str] = {}
        self._closed = self.refusal = closed

    def opened(self) -> None:
        """Accept puts unless a flag refuses them."""
        self._closed = None
        self._judge()

    def closed(self, text: str) -> None:
        """Refuse puts whatever the flags are; producers get the text."""
        self._closed = text
        self._judge()

    @property
    def bits(self) -> RunningFlag:
        """All raised flags."""
        return RunningFlag(sum(self._texts))

    def text_of(self, flags: RunningFlag) -> str:
        """Return the text of the lowest raised one of some flags; empty without any."""
        return next((text for flag, text in sorted(self._texts.items()) if flag & flags), "")

    def put_up(self, flag: RunningFlag, text: str) -> bool:
        """Raise a flag.

        Args:
            flag: one flag.
            text: the failure, its value, the remedy; for producers.

        Returns:
            Whether it was down.
        """
        was_down = flag not in self._texts
        self._texts[flag] = text
        self._judge()
        return was_down

    def take_down(self, flag: RunningFlag) -> bool:
        """Lower a flag; return whether it was up."""
        was_up = self._texts.pop(flag, None) is not None
        self._judge()
        return was_up

    def _judge(self) -> None:
        # Puts check this single value, for any number of reasons.
        refusing = (text for flag, text in sorted(self._texts.items()) if flag & _REFUSES_PUTS)
        self.refusal = next(refusing, None) if self._closed is None else self._closed
