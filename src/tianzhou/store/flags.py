"""What the store is in a state to do: RocketMQ's running flags, and why each is up (store.md §9.2)."""

from __future__ import annotations

from enum import IntFlag
from typing import Final


class RunningFlag(IntFlag):
    """Reasons to refuse something; the bits are RocketMQ's."""

    NOT_READABLE = 1
    NOT_WRITABLE = 2
    QUEUE_ERROR = 4
    INDEX_ERROR = 8
    DISK_FULL = 16
    FENCED = 32
    QUEUE_DISK_FULL = 64


_REFUSES_PUTS: Final = ~RunningFlag.NOT_READABLE


class RunningFlags:
    """The flags that are up, each with the text that producers are given.

    A failed disk does not come back by itself: nobody lowers NOT_WRITABLE but a restart. The others are lowered by
    those who raised them.

    Args:
        closed: why the store takes nothing before it is opened; None when it is open.

    Attributes:
        refusal: why puts are refused: that the store is not open, or else the text of the lowest flag that says so;
            None when they are accepted.
    """

    __slots__ = ("_closed", "_texts", "refusal")

    def __init__(self, closed: str | None = None) -> None:
        self._texts: dict[RunningFlag, str] = {}
        self._closed = self.refusal = closed

    def opened(self) -> None:
        """The store takes puts unless a flag refuses them."""
        self._closed = None
        self._judge()

    def closed(self, text: str) -> None:
        """The store takes no puts whatever the flags are; producers are given the text."""
        self._closed = text
        self._judge()

    @property
    def bits(self) -> RunningFlag:
        """All flags that are up."""
        return RunningFlag(sum(self._texts))

    def text_of(self, flags: RunningFlag) -> str:
        """Return the text of the lowest flag that is up of these; empty when none is."""
        return next((text for flag, text in sorted(self._texts.items()) if flag & flags), "")

    def put_up(self, flag: RunningFlag, text: str) -> bool:
        """Raise a flag.

        Args:
            flag: one flag.
            text: what is wrong, its value, the remedy; producers get it.

        Returns:
            Whether it was down.
        """
        was_down = flag not in self._texts
        self._texts[flag] = text
        self._judge()
        return was_down

    def take_down(self, flag: RunningFlag) -> bool:
        """Lower a flag; whether it was up."""
        was_up = self._texts.pop(flag, None) is not None
        self._judge()
        return was_up

    def _judge(self) -> None:
        # One value that puts look at, however many reasons there are.
        refusing = (text for flag, text in sorted(self._texts.items()) if flag & _REFUSES_PUTS)
        self.refusal = next(refusing, None) if self._closed is None else self._closed
