"""The search for the offset up to which a slave's log and its master's agree, and the cut of the slave's log. Pure.

A slave's log can end with bytes that its master does not have: the master lost the end of its log in a power failure,
or an old master returns as the slave of its successor. Both logs are equal up to one offset and differ from there on.
One connection compares forward from one offset only. So the search goes back in steps: 64 KiB before the end, then
sixteen times as far back, and so on.

Equal bytes alone prove little, because large bodies may be alike. A whole record proves agreement: it contains its log
offset, its store time and the CRC of its body.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Final

from tianzhou.errors import StoreError
from tianzhou.store.settings import StoreSettings

OVERLAP: Final = 64 << 10
"""Bytes before the log's end that a connection compares before it appends."""
_FURTHER: Final = 16
"""Factor by which each step of the search extends the distance from the log's end."""


@dataclass(frozen=True, slots=True)
class Parting:
    """The result of the comparison on one connection.

    Attributes:
        first: log offset from which the logs were compared.
        at: log offset up to which the logs are equal. When the master's log ends before `first`, the offset of that
            end.
        master_begins: whether the master's log begins at `at`, so that the bytes before it are unknown.
    """

    first: int
    at: int
    master_begins: bool = False


class CutRefused(StoreError):
    """The error of a slave that may not cut its log by itself.

    Args:
        at: log offset up to which the logs agree.
        end: log offset where the slave's log ends.
        why: reason, for the log line of a slave that adds no reason of its own.
    """

    def __init__(self, at: int, end: int, why: str) -> None:
        super().__init__(why)
        self.at = at
        self.end = end


class Agreement:
    """Searches for the offset up to which the logs agree, over several connections.

    Args:
        settings: of the store. `haSlaveCutMax` is the number of bytes that a slave cuts off its end by itself. With
            `durability=zero-loss` the slave cuts nothing by itself.
    """

    def __init__(self, settings: StoreSettings) -> None:
        self._settings = settings
        self._back = OVERLAP
        self._least = 0

    def first(self, begin: int, end: int) -> int:
        """Return the log offset from which the next connection compares.

        Args:
            begin: log offset where the slave's log begins.
            end: log offset where it ends.
        """
        # A report of 0 requests the log's beginning, so a slave with records compares from its second byte.
        return max(begin, end - self._back, self._least, 1)

    def cut(
        self, begin: int, end: int, parting: Parting, *, proved: bool, limit_bytes: int | None = None
    ) -> int | None:
        """Return the log offset at which to cut the slave's log; None when the next connection must look further back.

        Args:
            begin: log offset where the slave's log begins.
            end: log offset where it ends.
            parting: result of the last connection.
            proved: whether the equal bytes contain a whole record.
            limit_bytes: bytes that the slave may cut; None for the limit of the settings, see `cut_limit_bytes`.

        Raises:
            CutRefused: the logs agree up to a record, and the cut would exceed `limit_bytes`.
            StoreError: no record agrees, or the master has deleted the records between the logs; an operator must
                decide.
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
        # A master whose log ends before the requested offset has sent the offset of that end.
        self._back = max(self._back * _FURTHER, end - min(at, parting.first) + OVERLAP)
        least = end - min(at, parting.first)
        # With durability=zero-loss the search continues, so that the operator learns how much only this slave has.
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
