"""Mean times of brokers' answers to sends, and the choice of the fastest broker (`queue_selector="latency"`).

Pure: time is an argument, milliseconds of any monotonic clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

WEIGHT: Final = 0.2
"""Weight of a new answer in the mean, so that about the last ten answers count."""
REMEASURE_MS: Final = 5_000
"""Age in ms of a broker's latest answer from which the broker gets one send to measure it again."""
FAILURE_MS: Final = 10_000
"""Minimum ms that a failed send counts as, because a broker that rejects sends answers quickly."""


@dataclass(slots=True)
class _Answers:
    mean_ms: float | None = None
    answered_ms: float = 0
    chosen_ms: float = 0


class AnswerTimes:
    """The mean answer time of each broker."""

    def __init__(self) -> None:
        self._brokers: dict[str, _Answers] = {}

    def record(self, broker_name: str, latency_ms: float, now_ms: float, *, failed: bool = False) -> None:
        """Count an answer of a broker.

        Args:
            broker_name: the broker.
            latency_ms: time of the answer.
            now_ms: present time.
            failed: whether the broker rejected the send or did not answer.
        """
        answers = self._brokers.setdefault(broker_name, _Answers())
        if failed:
            latency_ms = max(latency_ms, FAILURE_MS)
        # After a failure, or a time without sends, the old mean does not describe the broker's present state.
        is_old = answers.mean_ms is None or now_ms - answers.answered_ms >= REMEASURE_MS
        if is_old or failed or (answers.mean_ms or 0) >= FAILURE_MS:
            answers.mean_ms = latency_ms
        else:
            answers.mean_ms = (1 - WEIGHT) * (answers.mean_ms or 0) + WEIGHT * latency_ms
        answers.answered_ms = now_ms

    def mean_ms(self, broker_name: str) -> float | None:
        """Return the mean time of a broker's answers in ms; None before the first."""
        answers = self._brokers.get(broker_name)
        return answers.mean_ms if answers is not None else None

    def choose(self, broker_names: Iterable[str], now_ms: float) -> str:
        """Return the broker with the lowest mean answer time, and record the choice.

        A broker without a recent answer gets one send, which measures it. Among equal brokers the first is returned.

        Args:
            broker_names: the brokers to choose from, at least one, in round-robin order.
            now_ms: present time.
        """
        names = list(dict.fromkeys(broker_names))
        name = next((one for one in names if self._is_due(one, now_ms)), None)
        if name is None:
            name = min(names, key=self._rank)
        self._brokers.setdefault(name, _Answers()).chosen_ms = now_ms
        return name

    def _is_due(self, broker_name: str, now_ms: float) -> bool:
        answers = self._brokers.get(broker_name)
        if answers is None:
            return True
        # A pending send measures the broker. Further ones would only wait for a slow broker.
        return now_ms - max(answers.answered_ms, answers.chosen_ms) >= REMEASURE_MS

    def _rank(self, broker_name: str) -> float:
        mean_ms = self.mean_ms(broker_name)
        return FAILURE_MS if mean_ms is None else mean_ms
