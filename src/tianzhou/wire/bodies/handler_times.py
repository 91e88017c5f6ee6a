"""Times of a consumer's handlers in its running info: entries of `userConsumerInfo` (wire.md §7.11). Pure.

RocketMQ leaves this table to its users, and its tools print it. An entry is `handler:TOPIC` with a text such as
`cpuMs=2.013 wallMs=20.104 messages=812 runsIn=threads`. Another entry, `cores`, has the cores that the member may use.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

HANDLER_PREFIX: Final = "handler:"
"""A topic's name cannot contain a colon, so no entry of a user's own has this form by accident."""
CORES: Final = "cores"
MAX_CORES: Final = 65_536
MAX_MS: Final = 1e12
"""Upper limit of a mean time in ms, and of a number of messages: a member may report anything."""


class RunsIn(enum.StrEnum):
    """Where a handler runs."""

    loop = "loop"
    threads = "threads"
    processes = "processes"


@dataclass(frozen=True, slots=True)
class HandlerTimes:
    """Mean times of a topic's handler, over the last hour.

    Attributes:
        cpu_ms: milliseconds of a processor for one message.
        wall_ms: milliseconds of a call for one message, waiting included.
        messages: number of messages that were measured.
        runs_in: where the handler runs.
    """

    cpu_ms: float
    wall_ms: float
    messages: int
    runs_in: RunsIn

    @property
    def io_ms(self) -> float:
        """Milliseconds that the handler waits for one message."""
        return max(0.0, self.wall_ms - self.cpu_ms)


def written(times: Mapping[str, HandlerTimes], cores: int) -> dict[str, str]:
    """Return the entries of `userConsumerInfo`.

    Args:
        times: by topic.
        cores: number of cores that the member may use.
    """
    entries = {
        f"{HANDLER_PREFIX}{topic}": (
            f"cpuMs={one.cpu_ms:.4f} wallMs={one.wall_ms:.4f} messages={one.messages} runsIn={one.runs_in}"
        )
        for topic, one in times.items()
    }
    return entries | {CORES: str(cores)} if entries else {}


def read(entries: Mapping[str, str]) -> dict[str, HandlerTimes]:
    """Return the handlers' times by topic; ignore entries of another form."""
    found = {}
    for name, text in entries.items():
        if name.startswith(HANDLER_PREFIX) and (times := _times(text)) is not None:
            found[name.removeprefix(HANDLER_PREFIX)] = times
    return found


def read_cores(entries: Mapping[str, str]) -> int | None:
    """Return the cores that a member may use; None when it does not report them."""
    text = entries.get(CORES, "")
    if not (text.isascii() and text.isdecimal() and len(text) <= len(str(MAX_CORES))):
        return None
    return int(text) if 0 < int(text) <= MAX_CORES else None


def renamed(entries: Mapping[str, str], rename: Callable[[str], str]) -> dict[str, str]:
    """Return the entries with topics renamed, as a namespace requires."""
    return {
        f"{HANDLER_PREFIX}{rename(name.removeprefix(HANDLER_PREFIX))}"
        if name.startswith(HANDLER_PREFIX)
        else name: text
        for name, text in entries.items()
    }


def merged(times: Iterable[HandlerTimes]) -> HandlerTimes | None:
    """Return the mean times of several members or topics, weighted by messages; None without measured messages."""
    measured = [one for one in times if one.messages]
    total = sum(one.messages for one in measured)
    if not total:
        return None
    most = max(measured, key=lambda one: one.messages)
    return HandlerTimes(
        sum(one.cpu_ms * one.messages for one in measured) / total,
        sum(one.wall_ms * one.messages for one in measured) / total,
        total,
        most.runs_in,
    )


def _times(text: str) -> HandlerTimes | None:
    values = dict(part.split("=", 1) for part in text.split() if "=" in part)
    try:
        cpu_ms, wall_ms = float(values["cpuMs"]), float(values["wallMs"])
        messages, runs_in = int(values["messages"]), RunsIn(values["runsIn"])
    except (KeyError, ValueError):
        return None
    # NaN is in no range, so the check rejects it.
    if not all(0 <= value <= MAX_MS for value in (cpu_ms, wall_ms, messages)):
        return None
    return HandlerTimes(cpu_ms, wall_ms, messages, runs_in)
