"""A token bucket, the rate limiter of producers and brokers (docs/adr/0031). Pure: the time is an argument."""

from __future__ import annotations

from math import inf
from typing import Final

ROUNDING: Final = 1e-6
"""Tolerance in tokens, because a refill of `seconds * rate` is some billionths below a whole number."""


class TokenBucket:
    """A bucket that contains up to `burst` tokens and gains `rate` tokens per second. It starts full.

    A full bucket grants a request for more tokens than it can contain. Its balance is then negative, so that the rate
    holds over time.

    Args:
        rate: tokens per second, above 0.
        burst: maximum number of tokens, above 0.
        now_s: monotonic time in seconds.
    """

    __slots__ = ("_at_s", "_tokens", "burst", "rate")

    def __init__(self, rate: float, burst: float, now_s: float) -> None:
        self.rate = rate
        self.burst = burst
        self._tokens = float(burst)
        self._at_s = now_s

    def wait_s(self, amount: float, now_s: float) -> float:
        """Return the seconds until the bucket grants `amount` tokens; 0 when it grants them now.

        Args:
            amount: number of tokens.
            now_s: monotonic time in seconds; an earlier time than the last one counts as the last one.
        """
        passed_s = now_s - self._at_s
        if passed_s > 0:
            self._tokens = min(self.burst, self._tokens + passed_s * self.rate)
            self._at_s = now_s
        missing = min(amount, self.burst) - self._tokens
        return missing / self.rate if missing > ROUNDING else 0.0

    def take(self, amount: float) -> None:
        """Take tokens at the time of the last `wait_s`. The balance may become negative.

        A caller that takes tokens before they exist reserves them, and later callers wait behind it.
        """
        self._tokens -= amount

    def put_back(self, amount: float) -> None:
        """Return reserved tokens that were not used."""
        self._tokens = min(self.burst, self._tokens + amount)

    def is_full(self, now_s: float) -> bool:
        """Whether a new bucket would hold no more tokens than this one."""
        return self.wait_s(inf, now_s) <= 0

    def change(self, rate: float, burst: float, now_s: float) -> None:
        """Change rate and burst. Tokens above the new burst are lost.

        Args:
            rate: new number of tokens per second.
            burst: new maximum number of tokens.
            now_s: monotonic time in seconds.
        """
        self.wait_s(0, now_s)
        self.rate, self.burst = rate, burst
        self._tokens = min(self._tokens, float(burst))
