"""Bodies of Tianzhou's own requests about staged messages (docs/adr/0006)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

from tianzhou.wire.bodies.beans import Bean, list_of

STAGING_VERSION: Final = 1
"""Version of the protocol. A broker that does not know the request does not support staging."""


@dataclass(slots=True)
class StagingState:
    """A broker's state of staging, and of one writer (31001).

    Attributes:
        version: see `STAGING_VERSION`.
        broker_name: the broker's name.
        max_unit: maximum size of a unit in bytes.
        coordinator: the broker that decides for the writer; None when this broker does not know the writer.
        decided: last batch that was decided here; -1 for none.
        published: last batch whose messages are all in their queues here; -1 for none.
        refusals: number of the writer's attempts that this broker refused; see `attempt_name`.
    """

    version: int = STAGING_VERSION
    broker_name: str = ""
    max_unit: int = 0
    coordinator: str | None = None
    decided: int = -1
    published: int = -1
    refusals: int = 0


def attempt_name(refusals: int, unique: str) -> str:
    """Return the name of an attempt, which includes the number of refusals at its start.

    A coordinator stores the names of the latest refused attempts. It also refuses every attempt that started before an
    older refusal.

    Args:
        refusals: number of the writer's attempts that the coordinator had refused, see `StagingState`.
        unique: text that was never used before.
    """
    return f"{refusals}~{unique}"


def refusals_before(attempt: str) -> int:
    """Return the number of refusals when an attempt started; 0 when its name does not contain the number."""
    count, mark, _ = attempt.partition("~")
    return int(count) if mark and count.isascii() and count.isdecimal() else 0


@dataclass(slots=True)
class StagedAttempt:
    """An attempt of a task, and the number of units that it staged at each broker."""

    name: str
    units: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class BatchDecision:
    """The attempts that make up a batch (31003, 31004): only these become visible, in this order.

    Attributes:
        writer: name of the writer: a streaming query, or the key of a batch job.
        batch: the number of the batch; a writer's batches are decided in ascending order.
        coordinator: name of the broker that stores the decision.
        attempts: the attempts.
    """

    writer: str
    batch: int
    coordinator: str
    attempts: list[StagedAttempt] = field(default_factory=list)

    @property
    def brokers(self) -> list[str]:
        """Names of the brokers that hold units of the batch, in alphabetical order."""
        return sorted({broker for attempt in self.attempts for broker, count in attempt.units.items() if count})

    def names(self) -> Collection[str]:
        """Return the attempts' names."""
        return [attempt.name for attempt in self.attempts]


@dataclass(slots=True)
class AttemptList:
    """Attempts of one batch to settle (31005) or to discard (31006)."""

    writer: str
    batch: int
    coordinator: str
    attempts: list[str] = field(default_factory=list)


STATE: Final = Bean(StagingState)
ATTEMPT: Final = Bean(StagedAttempt)
DECISION: Final = Bean(BatchDecision, attempts=list_of(ATTEMPT.kind))
ATTEMPTS: Final = Bean(AttemptList)
