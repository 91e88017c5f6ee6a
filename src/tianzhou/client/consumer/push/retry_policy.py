"""Decisions about messages that were not consumed: whether and when they are redelivered (client.md §13, §14). Pure."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from tianzhou.client.validation import check_number
from tianzhou.errors import ConfigError

DELAY_LEVELS_S: Final = (
    1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1_200, 1_800, 3_600, 7_200,
)  # fmt: skip
"""The pauses of RocketMQ's delay levels 1, 2, … in seconds, by the default of `messageDelayLevel` (broker.md §12)."""

SHORTEST_REST_S: Final = 0.01
LONGEST_REST_S: Final = 30.0
"""Minimum and maximum pause of a queue that is consumed in order, seconds (client.md §14)."""

MOST_ATTEMPTS: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Policy for messages that a handler does not consume; `retry=` of `PushConsumer.on` and `subscribe`.

    A concurrent consumer sends a message back to its broker, which delivers it again after one of its delay levels.
    Only the pauses of these levels are possible. With `orderly` the message waits in this process, in front of its
    queue, for 10 ms to 30 s.

    Args:
        max_attempts: maximum calls of the handler for one message, including the first; None for the consumer's
            `max_reconsume_times`.
        delays_s: the pauses after the first failure, the second, and so on, in seconds; the last one repeats. A single
            number is the pause after each failure. None for RocketMQ's pauses: 10 s, 30 s, 1 min and so on, and with
            `orderly` the consumer's `suspend_current_queue_time_ms`.
        dead_letter: whether a message becomes a dead letter of its group after the last attempt. With False it is
            dropped with a log line.
        levels_s: the pauses of the brokers' `messageDelayLevel`, when it differs from RocketMQ's default.

    Raises:
        ConfigError: a value is out of its range.
    """

    max_attempts: int | None = None
    delays_s: Sequence[float] | float | None = None
    dead_letter: bool = True
    levels_s: Sequence[float] = DELAY_LEVELS_S

    def __post_init__(self) -> None:
        if self.max_attempts is not None:
            check_number("max_attempts", self.max_attempts, 1, MOST_ATTEMPTS)
            if not isinstance(self.max_attempts, int):
                raise ConfigError(f"max_attempts is {self.max_attempts}; it has to be a whole number")
        if self.delays_s is not None:
            delays_s = (self.delays_s,) if isinstance(self.delays_s, int | float) else tuple(self.delays_s)
            object.__setattr__(self, "delays_s", delays_s)
            if not delays_s:
                raise ConfigError("delays_s is empty; give one pause at least, or None for RocketMQ's own")
            for delay_s in delays_s:
                check_number("delays_s", delay_s, 0)
        object.__setattr__(self, "levels_s", tuple(self.levels_s))
        if not self.levels_s:
            raise ConfigError("levels_s is empty; give the pauses of the brokers' messageDelayLevel")
        for level_s in self.levels_s:
            check_number("levels_s", level_s, 0)

    @classmethod
    def exponential(
        cls,
        max_attempts: int,
        *,
        first_s: float = 10,
        factor: float = 2,
        longest_s: float = DELAY_LEVELS_S[-1],
        dead_letter: bool = True,
        levels_s: Sequence[float] = DELAY_LEVELS_S,
    ) -> RetryPolicy:
        """Return a policy whose pauses grow, each rounded up to a delay level.

        Args:
            max_attempts: as in the class.
            first_s: the pause after the first failure, in seconds.
            factor: ratio of each pause to the pause before.
            longest_s: maximum pause in seconds; at most 30 with `orderly`.
            dead_letter: as in the class.
            levels_s: as in the class.

        Raises:
            ConfigError: a value is out of its range, or all delay levels are longer than `longest_s`.
        """
        check_number("first_s", first_s, SHORTEST_REST_S)
        check_number("factor", factor, 1)
        check_number("longest_s", longest_s, first_s)
        usable = sorted(level_s for level_s in levels_s if level_s <= longest_s)
        if not usable:
            raise ConfigError(f"longest_s is {longest_s}; the shortest delay level is {min(levels_s):g} s")
        delays_s: list[float] = []
        wanted_s = first_s
        while not delays_s or delays_s[-1] < usable[-1]:
            if len(delays_s) >= max_attempts or (delays_s and factor == 1):
                break
            delays_s.append(next((level_s for level_s in usable if level_s >= wanted_s), usable[-1]))
            wanted_s *= factor
        return cls(max_attempts=max_attempts, delays_s=delays_s, dead_letter=dead_letter, levels_s=levels_s)

    def delay_s(self, attempt: int) -> float | None:
        """Return the pause in seconds after a failed attempt, counted from 1; None for the default pause."""
        delays_s = self.delays_s
        if not isinstance(delays_s, tuple):
            return None
        pause_s: float = delays_s[min(attempt, len(delays_s)) - 1]
        return pause_s

    def delay_level(self, attempt: int) -> int:
        """Return the delay level after a failed attempt, counted from 1; 0 lets the broker choose."""
        delay_s = self.delay_s(attempt)
        return tuple(self.levels_s).index(delay_s) + 1 if delay_s in self.levels_s else 0


def check_policy(policy: RetryPolicy, topic: str, *, orderly: bool, is_broadcast: bool) -> None:
    """Check that RocketMQ supports a policy.

    Args:
        policy: the policy.
        topic: topic of the messages.
        orderly: whether the consumer consumes in order.
        is_broadcast: whether each member of the group gets all messages.

    Raises:
        ConfigError: RocketMQ does not support it; the error names the possible values.
    """
    where = f"the retry policy of topic {topic}"
    if is_broadcast and not orderly:
        raise ConfigError(
            f"{where}: a broadcast message is not delivered again, as no broker knows who has it; consume with "
            "orderly=True, where it is tried again in place, or leave retry out"
        )
    if is_broadcast and policy.dead_letter:
        raise ConfigError(f"{where}: a broadcast message cannot become a dead letter; set dead_letter=False")
    delays_s = policy.delays_s if isinstance(policy.delays_s, tuple) else ()
    for delay_s in delays_s:
        if orderly and not SHORTEST_REST_S <= delay_s <= LONGEST_REST_S:
            raise ConfigError(
                f"{where}: delays_s has {delay_s:g} s; a queue that is consumed in order rests {SHORTEST_REST_S:g} to "
                f"{LONGEST_REST_S:g} s, as all behind the message waits"
            )
        if not orderly and delay_s not in policy.levels_s:
            shorter = [level_s for level_s in policy.levels_s if level_s < delay_s]
            longer = [level_s for level_s in policy.levels_s if level_s > delay_s]
            near = [*sorted(shorter)[-1:], *sorted(longer)[:1]]
            raise ConfigError(
                f"{where}: delays_s has {delay_s:g} s, and RocketMQ has delay levels only; take "
                f"{' or '.join(f'{level_s:g}' for level_s in near)} s, or RetryPolicy.exponential, which rounds up. "
                "levels_s is for brokers with another messageDelayLevel"
            )


class Fate(enum.Enum):
    """Treatment of a message that was not consumed."""

    AGAIN = enum.auto()
    DEAD_LETTER = enum.auto()
    DROP = enum.auto()


class NextStep(NamedTuple):
    """The next step for one message.

    Attributes:
        fate: treatment of the message.
        delay_level: delay level of the redelivery by its broker; 0 lets the broker choose.
        rest_ms: pause of its queue for an orderly consumer; None for the consumer's default.
        max_times: maximum number of redeliveries, for the broker.
    """

    fate: Fate
    delay_level: int = 0
    rest_ms: int | None = None
    max_times: int = 0


def next_step(policy: RetryPolicy, reconsume_times: int, max_times: int, wanted_level: int = 0) -> NextStep:
    """Return the next step for a message that was not consumed.

    Args:
        policy: the policy of its handler.
        reconsume_times: number of redeliveries before this attempt.
        max_times: maximum number of redeliveries, when the policy has none.
        wanted_level: the delay level that the handler set for this time; -1 for the dead letters, 0 for none.
    """
    attempt = reconsume_times + 1
    if policy.max_attempts is not None:
        max_times = policy.max_attempts - 1
    if wanted_level < 0:
        return NextStep(Fate.DEAD_LETTER)
    if reconsume_times >= max_times:
        return NextStep(Fate.DEAD_LETTER if policy.dead_letter else Fate.DROP)
    delay_s = policy.delay_s(attempt)
    rest_ms = None if delay_s is None else round(delay_s * 1000)
    return NextStep(Fate.AGAIN, wanted_level or policy.delay_level(attempt), rest_ms, max_times)
