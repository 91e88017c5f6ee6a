"""A row on its way to a topic, and the error that names it."""

from __future__ import annotations

from dataclasses import dataclass

from tianzhou.errors import TianzhouError
from tianzhou.model import Message


class RowNotSent(TianzhouError):
    """A row could not be made a message, or its message was not acknowledged.

    At least once, what went before it was sent; exactly once, nothing of the batch will be seen.
    """


@dataclass(slots=True)
class Outgoing:
    """A message, and the queue a row wants it in."""

    message: Message
    queue_id: int | None


def not_sent(index: int, partition: int, error: BaseException) -> RowNotSent:
    """The error for a row.

    Args:
        index: which row of the task, from 0.
        partition: the task's partition.
        error: why.
    """
    result = RowNotSent(f"row {index} of partition {partition}: {error}")
    result.__cause__ = error
    return result
