"""The options of a test cluster, and the resolution of its waits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

LETTERS = "abcdefghij"
WAIT_STEPS = 64


class NotReached(AssertionError):
    """The error of a wait of a test that has timed out; the text has the progress."""


@dataclass(frozen=True)
class ClusterOptions:
    """The options of a test cluster.

    Attributes:
        virtual: whether time advances only by the rules of `docs/howto/test-your-consumers.md`; otherwise it is real.
        brokers: number of masters, `broker-a`, `broker-b` and so on.
        folder: folder of the stores, which stays afterwards; by default a temporary folder.
        memory: whether the temporary folder is in memory where the system supports that.
        settings: of every broker and its store, by RocketMQ's keys: `{"transactionCheckInterval": 5000}`.
    """

    virtual: bool = False
    brokers: int = 1
    folder: Path | None = None
    memory: bool = True
    settings: Mapping[str, object] = field(default_factory=dict)


def in_seconds(span: timedelta | float) -> float:
    """Return a span in seconds."""
    return span.total_seconds() if isinstance(span, timedelta) else span
