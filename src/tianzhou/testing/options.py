"""What a test cluster is like, and how closely it waits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

LETTERS = "abcdefghij"
WAIT_STEPS = 64


class NotReached(AssertionError):
    """What a test waited for did not happen in time; the text says how far it came."""


@dataclass(frozen=True)
class ClusterOptions:
    """What a test cluster is like.

    Attributes:
        virtual: time passes only as `docs/howto/test-your-consumers.md` says; else it is real.
        brokers: how many masters, `broker-a`, `broker-b` and so on.
        folder: where the stores are, kept afterwards; by default a folder that is removed in the end.
        memory: whether that folder is in memory where the system has such a place.
        settings: of every broker and its store, by RocketMQ's keys: `{"transactionCheckInterval": 5000}`.
    """

    virtual: bool = False
    brokers: int = 1
    folder: Path | None = None
    memory: bool = True
    settings: Mapping[str, object] = field(default_factory=dict)


def in_seconds(span: timedelta | float) -> float:
    """A span as seconds."""
    return span.total_seconds() if isinstance(span, timedelta) else span
