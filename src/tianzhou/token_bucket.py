"""A token bucket: the rate limit of producers and brokers (docs/adr/0031). Pure: the time is an argument."""

from __future__ import annotations

from math import inf
from typing import Final

ROUNDING: Final = 1e-6
"""Tokens that may be missing: a refill of `seconds * rate` ends a few billionths below a whole number."""


class TokenBucket:
    """A bucket that holds up to `burst` tokens and gains `rate` tokens a second. It is full at first.

    A request for more tokens than the bucket can hold is granted when the bucket is full. The bucket then owes the
    rest, so that the rate holds over time.

    Args:
        rate: tokens a second, above 0.
        burst: maximum number of tokens, above 0.
        now_s: monotonic time, seconds.
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
            now_s: monotonic time, seconds; an earlier time than before counts as the time before.
        """
        passed_s = now_s - self._at_s
        if passed_s > 0:
            self._tokens = min(self.burst, self._tokens + passed_s * self.rate)
            self._at_s = now_s
        missing = min(amount, self.burst) - self._tokens
        return missing / self.rate if missing > ROUNDING else 0.0

    def take(self, amount: float) -> None:
        """Take tokens, as of the time of the last `wait_s`; the bucket owes missing ones.

        A caller that takes tokens before they are there reserves them: later callers wait behind it.
        """
        self._tokens -= amount

    def put_back(self, amount: float) -> None:
        """Put back tokens that were reserved and not used."""
        self._tokens = min(self.burst, self._tokens + amount)

    def is_full(self, now_s: float) -> bool:
        """Whether a new bucket would hold no more tokens than this one."""
        return self.wait_s(inf, now_s) <= 0

    def change(self, rate: float, burst: float, now_s: float) -> None:
        """Change rate and burst; tokens above the new burst are lost.

        Args:
            rate: tokens a second from now on.
            burst: maximum number of tokens from now on.
            now_s: monotonic time, seconds.
        """
        self.wait_s(0, now_s)
        self.rate, self.burst = rate, burst
        self._tokens = min(self._tokens, float(burst))
