"""Where a slave's log and its master's part: how far back to look, and what of the slave's end has to go. Pure.

A master that lost the end of its log with the power, or a master that comes back as the slave of the one that took its
place, leaves a slave with bytes that its master does not have. Both logs are equal up to one point and differ behind
it. A connection compares forward from one place only, so that point is looked for in stretches: 64 KiB before the end,
then sixteen times as far back, and so on.

Equal bytes alone prove little, as large bodies may be alike. A whole record proves it: it says where it is, when it was
stored, and what its body adds up to.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Final

from tianzhou.errors import StoreError
from tianzhou.store.settings import StoreSettings

OVERLAP: Final = 64 << 10
"""Bytes before the log's end that are compared before anything is appended."""
_FURTHER: Final = 16
"""How many times as far back each look goes."""


@dataclass(frozen=True, slots=True)
class Parting:
    """What one connection has found out.

    Attributes:
        first: from where on the logs were compared.
        at: up to there they are equal, and not further; the place before `first` where the master's log ends, when it
            does not reach to `first`.
        master_begins: whether `at` is where the master's log begins, and what is before it is not known.
    """

    first: int
    at: int
    master_begins: bool = False


class CutRefused(StoreError):
    """A slave that may not cut its log by itself.

    Args:
        at: log offset up to which the logs agree.
        end: log offset where the slave's log ends.
        why: the reason, for a slave that has no more to say.
    """

    def __init__(self, at: int, end: int, why: str) -> None:
        super().__init__(why)
        self.at = at
        self.end = end


class Agreement:
    """Looks for the point up to which the logs agree, over several connections.

    Args:
        settings: of the store. `haSlaveCutMax` is how much of its end a slave cuts off by itself. With
            `durability=zero-loss` the slave cuts nothing by itself.
    """

    def __init__(self, settings: StoreSettings) -> None:
        self._settings = settings
        self._back = OVERLAP
        self._least = 0

    def first(self, begin: int, end: int) -> int:
        """From where on the next connection compares.

        Args:
            begin: where the slave's log begins.
            end: where it ends.
        """
        # A report of 0 asks for the beginning; who has the first byte compares from the second on.
        return max(begin, end - self._back, self._least, 1)

    def cut(
        self, begin: int, end: int, parting: Parting, *, proved: bool, limit_bytes: int | None = None
    ) -> int | None:
        """Where to cut the slave's log; None when the next connection has to look further back.

        Args:
            begin: where the slave's log begins.
            end: where it ends.
            parting: what the last connection has found.
            proved: whether a whole record is among what is equal.
            limit_bytes: bytes that the slave may cut; None for what the settings say, see `cut_limit_bytes`.

        Raises:
            CutRefused: the logs agree up to a record, and more than `limit_bytes` would have to go.
            StoreError: nothing agrees, or what is between the logs is gone; an operator has to decide.
        """
        at = parting.at
        limit_bytes = cut_limit_bytes(self._settings, allowed=False) if limit_bytes is None else limit_bytes
        if parting.master_begins:
            if at > end:
                raise StoreError(
                    f"the master's log begins at {at}, this slave's ends at {end}: what is between is gone; empty the "
                    "slave's store folder"
                )
            if self._least < at:
                self._least = at
                return None
        if proved and at > parting.first:
            if end - at > limit_bytes:
                raise CutRefused(at, end, self._too_much(f"agrees with its master's up to {at}", end - at))
            return at
        lowest = max(begin, self._least, 1)
        if parting.first <= lowest:
            raise StoreError(
                f"this slave's log differs from its master's from {at} on, and has no record, from {lowest} on, that "
                "is there: they never were of one group, or the master lost everything; empty the slave's store "
                "folder, or make it the master"
            )
        # A master whose log ends before the place that was asked for has said where to look.
        self._back = max(self._back * _FURTHER, end - min(at, parting.first) + OVERLAP)
        least = end - min(at, parting.first)
        # With durability=zero-loss the search goes on, so that the operator learns how much only this slave has.
        if least > limit_bytes and not self._settings.cuts_nothing:
            raise StoreError(self._too_much(f"differs from its master's at {min(at, parting.first)}", least))
        return None

    def _too_much(self, what: str, size: int) -> str:
        return (
            f"this slave's log {what}: {size} bytes at least would have to be cut off, "
            f"haSlaveCutMax={self._settings.ha_slave_cut_max}; raise it, empty the slave's store folder, or make it "
            "the master"
        )


def cut_limit_bytes(settings: StoreSettings, *, allowed: bool) -> int:
    """Return how many bytes of its end a slave may cut off.

    Args:
        settings: of the slave's store.
        allowed: whether an operator has allowed the next cut.
    """
    if allowed:
        return sys.maxsize
    return 0 if settings.cuts_nothing else settings.ha_slave_cut_max
