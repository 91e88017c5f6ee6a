"""Rates of a consumer in each topic, over the last minute and hour (client.md §17.3). Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tianzhou.wire.bodies.clients import ConsumeStatus
from tianzhou.wire.bodies.handler_times import HandlerTimes, RunsIn

MINUTE_SAMPLES = 7
MINUTE_STEP_S = 10.0
HOUR_SAMPLES = 7
HOUR_STEP_S = 600.0
MEASURED_FIRST = 32
"""Number of a handler's first calls that are all measured, so that its times are known soon."""
MEASURED_EVERY = 7
"""Interval of measured calls after the first ones: one of this many."""


@dataclass(slots=True)
class TopicRates:
    """Counters of one topic; the code that pulls and consumes adds to them.

    Attributes:
        pulls: number of answered pulls.
        pull_ms: their total duration, ms.
        pulled: number of pulled messages.
        calls: number of handler calls.
        call_ms: their total duration, ms.
        consumed: number of consumed messages.
        failed: number of messages that were not consumed.
        timed: number of messages whose handler calls were measured.
        cpu_ms: milliseconds of a processor in these calls together.
        wall_ms: duration of these calls together, ms.
    """

    pulls: int = 0
    pull_ms: float = 0.0
    pulled: int = 0
    calls: int = 0
    call_ms: float = 0.0
    consumed: int = 0
    failed: int = 0
    timed: int = 0
    cpu_ms: float = 0.0
    wall_ms: float = 0.0

    @property
    def is_due(self) -> bool:
        """Whether to measure the next handler call: each of the first ones, then one of several.

        Reading the processor's clock costs about as much as a step of a coroutine.
        """
        return self.calls < MEASURED_FIRST or self.calls % MEASURED_EVERY == 0

    def time(self, messages: int, cpu_s: float, wall_s: float) -> None:
        """Add the times of a handler.

        Args:
            messages: number of messages it was called with.
            cpu_s: seconds of a processor.
            wall_s: seconds from begin to end.
        """
        self.timed += messages
        self.cpu_ms += cpu_s * 1000
        self.wall_ms += wall_s * 1000

    def called(self, seconds: float) -> None:
        """Count a handler call and its duration in seconds."""
        self.calls += 1
        self.call_ms += seconds * 1000


class _History:
    """A topic's counters, and their former values in the last minute and hour, with the times."""

    def __init__(self, now_s: float) -> None:
        self.rates = TopicRates()
        self._minute = deque([(now_s, TopicRates())], MINUTE_SAMPLES)
        self._hour = deque([(now_s, TopicRates())], HOUR_SAMPLES)

    def sample(self, now_s: float) -> None:
        for samples, step_s in ((self._minute, MINUTE_STEP_S), (self._hour, HOUR_STEP_S)):
            if now_s - samples[-1][0] >= step_s:
                samples.append((now_s, replace(self.rates)))

    def status(self, now_s: float) -> ConsumeStatus:
        now, (minute_s, minute), (_, hour) = self.rates, self._minute[0], self._hour[0]
        seconds = max(now_s - minute_s, 1.0)
        consume_ms = _mean(now.call_ms - minute.call_ms, now.calls - minute.calls)
        return ConsumeStatus(
            pull_rt=_mean(now.pull_ms - minute.pull_ms, now.pulls - minute.pulls),
            pull_tps=(now.pulled - minute.pulled) / seconds,
            consume_rt=consume_ms or _mean(now.call_ms - hour.call_ms, now.calls - hour.calls),
            consume_ok_tps=(now.consumed - minute.consumed) / seconds,
            consume_failed_tps=(now.failed - minute.failed) / seconds,
            consume_failed_msgs=now.failed - hour.failed,
        )

    def times(self, runs_in: RunsIn) -> HandlerTimes | None:
        now, (_, hour) = self.rates, self._hour[0]
        messages = now.timed - hour.timed
        if not messages:
            return None
        cpu_ms, wall_ms = (now.cpu_ms - hour.cpu_ms) / messages, (now.wall_ms - hour.wall_ms) / messages
        # The compiled loop measures a run of calls as a whole, including its own work between two calls.
        return HandlerTimes(cpu_ms, max(cpu_ms, wall_ms), messages, runs_in)


def _mean(total: float, count: int) -> float:
    return total / count if count else 0.0


class ConsumeRates:
    """The counters of all topics.

    Args:
        now_s: the present, seconds of a monotonic clock.
    """

    def __init__(self, now_s: float) -> None:
        self._began_s = now_s
        self._topics: dict[str, _History] = {}

    def _history(self, topic: str) -> _History:
        history = self._topics.get(topic)
        if history is None:
            history = self._topics[topic] = _History(self._began_s)
        return history

    def of(self, topic: str) -> TopicRates:
        """Return a topic's counters."""
        return self._history(topic).rates

    def sample(self, now_s: float) -> None:
        """Store the present values of the counters; call it every few seconds."""
        for history in self._topics.values():
            history.sample(now_s)

    def status(self, topic: str, now_s: float) -> ConsumeStatus:
        """Return a topic's figures for the running info: rates of the last minute, failures of the last hour."""
        return self._history(topic).status(now_s)

    def times(self, runs_in: Mapping[str, RunsIn]) -> dict[str, HandlerTimes]:
        """Return the mean times of the handlers that were called in the last hour, by topic.

        Args:
            runs_in: where the handler of a topic runs.
        """
        found = ((topic, self._history(topic).times(kind)) for topic, kind in sorted(runs_in.items()))
        return {topic: times for topic, times in found if times is not None}

    @property
    def consumed(self) -> int:
        """Number of messages consumed, of all topics."""
        return sum(history.rates.consumed for history in self._topics.values())

    @property
    def failed(self) -> int:
        """Number of messages not consumed, of all topics."""
        return sum(history.rates.failed for history in self._topics.values())
