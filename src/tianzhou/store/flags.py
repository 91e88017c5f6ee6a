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
_REFUSES_UNITS: Final = _REFUSES_PUTS & ~(RunningFlag.DISK_FULL | RunningFlag.FENCED)


class RunningFlags:
    """The flags that are up, each with the text that producers are given.

    A failed disk does not come back by itself: nobody lowers NOT_WRITABLE but a restart. The others are lowered by
    those who raised them.
    """

    __slots__ = ("_texts",)

    def __init__(self) -> None:
        self._texts: dict[RunningFlag, str] = {}

    @property
    def bits(self) -> RunningFlag:
        """All flags that are up."""
        return RunningFlag(sum(self._texts))

    @property
    def readable(self) -> bool:
        """Whether reads are served."""
        return RunningFlag.NOT_READABLE not in self._texts

    @property
    def writable(self) -> bool:
        """Whether puts are accepted."""
        return not self.bits & _REFUSES_PUTS

    @property
    def queues_writable(self) -> bool:
        """Whether queues may be written: a full log disk and a fenced broker still let them catch up."""
        return not self.bits & _REFUSES_UNITS

    @property
    def refusal(self) -> str | None:
        """Why puts are refused: the text of the lowest flag that says so; None when they are accepted."""
        return next((text for flag, text in sorted(self._texts.items()) if flag & _REFUSES_PUTS), None)

    def put_up(self, flag: RunningFlag, text: str) -> bool:
        """Raise a flag.

        Args:
            flag: one flag.
            text: what is wrong, its value, the remedy.

        Returns:
            Whether it was down.
        """
        was_down = flag not in self._texts
        self._texts[flag] = text
        return was_down

    def take_down(self, flag: RunningFlag) -> bool:
        """Lower a flag; whether it was up."""
        return self._texts.pop(flag, None) is not None
