"""Bodies of Tianzhou's own requests about staged messages (docs/adr/0006)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

from tianzhou.wire.bodies.beans import Bean, list_of

STAGING_VERSION: Final = 1
"""Version of the protocol; a broker that does not know the request speaks none of it."""


@dataclass(slots=True)
class StagingState:
    """A broker's answer about staging, and about one writer (31001).

    Attributes:
        version: see `STAGING_VERSION`.
        broker_name: the broker's name.
        max_unit: longest unit it takes, bytes.
        coordinator: the broker that decides for the writer; None when the writer is not known here.
        decided: last batch that was decided here, -1 for none.
        published: last batch whose messages are all in their queues here, -1 for none.
        refusals: how many attempts of the writer were refused here; see `attempt_name`.
    """

    version: int = STAGING_VERSION
    broker_name: str = ""
    max_unit: int = 0
    coordinator: str | None = None
    decided: int = -1
    published: int = -1
    refusals: int = 0


def attempt_name(refusals: int, unique: str) -> str:
    """The name of an attempt, which says when it began.

    A coordinator keeps the last names it has refused, and refuses every attempt that began before older ones were.

    Args:
        refusals: what the coordinator had refused of the writer's attempts, see `StagingState`.
        unique: never used before.
    """
    return f"{refusals}~{unique}"


def refusals_before(attempt: str) -> int:
    """Number of the writer's attempts that had been refused when one began; 0 when its name does not say."""
    count, mark, _ = attempt.partition("~")
    return int(count) if mark and count.isascii() and count.isdecimal() else 0


@dataclass(slots=True)
class StagedAttempt:
    """An attempt of a task, and how many units it has staged at each broker."""

    name: str
    units: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class BatchDecision:
    """Decision which attempts make up a batch (31003, 31004): these and no others become visible, in this order.

    Attributes:
        writer: who writes; a streaming query, or a batch job by its key.
        batch: the number of the batch; a writer's batches are decided in ascending order.
        coordinator: name of the broker that takes the decision.
        attempts: the attempts.
    """

    writer: str
    batch: int
    coordinator: str
    attempts: list[StagedAttempt] = field(default_factory=list)

    @property
    def brokers(self) -> list[str]:
        """Names of the brokers that hold units of it, in order."""
        return sorted({broker for attempt in self.attempts for broker, count in attempt.units.items() if count})

    def names(self) -> Collection[str]:
        """The attempts' names."""
        return [attempt.name for attempt in self.attempts]


@dataclass(slots=True)
class AttemptList:
    """Attempts of one batch that somebody gives up (31005, 31006)."""

    writer: str
    batch: int
    coordinator: str
    attempts: list[str] = field(default_factory=list)


STATE: Final = Bean(StagingState)
ATTEMPT: Final = Bean(StagedAttempt)
DECISION: Final = Bean(BatchDecision, attempts=list_of(ATTEMPT.kind))
ATTEMPTS: Final = Bean(AttemptList)
