"""The layer that limits a producer to its own rate: a send waits for its tokens (docs/adr/0031)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from math import inf
from typing import TypeVar

from tianzhou.client.producer.options import ProducerOptions
from tianzhou.client.producer.send_request import SendRequest
from tianzhou.errors import RateLimited
from tianzhou.token_bucket import TokenBucket

T = TypeVar("T")


class SendRate:
    """The tokens of a producer. Sends get them first come, first served.

    Args:
        options: the producer's options.
        monotonic: returns the seconds of a clock.
    """

    def __init__(self, options: ProducerOptions, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._messages = bucket(options.send_rate, options.send_burst, monotonic())
        self._bytes = bucket(options.send_rate_bytes, options.send_burst_bytes, monotonic())

    async def acquire(self, request: SendRequest, limit_ms: float) -> float:
        """Wait until a send has its tokens, and return the milliseconds that it waited.

        Args:
            request: the send.
            limit_ms: maximum number of milliseconds to wait.

        Raises:
            RateLimited: the tokens would not be free in time; the send took none.
        """
        prepared, now_s = request.prepared, self._monotonic()
        count, size = max(len(prepared.messages), 1), len(prepared.body)
        wanted = [(one, amount) for one, amount in ((self._messages, count), (self._bytes, size)) if one is not None]
        wait_s = max(one.wait_s(amount, now_s) for one, amount in wanted)
        if not wait_s:
            for one, amount in wanted:
                one.take(amount)
            return 0.0
        if wait_s * 1000 >= limit_ms:
            # Wait before raising, because a caller that retries at once would use a whole processor.
            await asyncio.sleep(limit_ms / 1000)
            raise RateLimited(
                f"nothing was sent: {self._described()} left no room for a send to topic {prepared.topic} within "
                f"{limit_ms:.0f} ms, the next room is {wait_s:.3f} s after its begin; send less, or raise the limit"
            )
        # The tokens are reserved before the wait, so that later sends wait behind this one.
        for one, amount in wanted:
            one.take(amount)
        try:
            await asyncio.sleep(wait_s)
        except BaseException:
            for one, amount in wanted:
                one.put_back(amount)
            raise
        return (self._monotonic() - now_s) * 1000

    def _described(self) -> str:
        named = (("send_rate", self._messages), ("send_rate_bytes", self._bytes))
        return " and ".join(
            f"{name} {one.rate:.12g} (burst {one.burst:.12g})" for name, one in named if one is not None
        )


def bucket(rate: float | None, burst: float | None, now_s: float) -> TokenBucket | None:
    """Return the bucket of an option and its burst; None without the option."""
    return None if rate is None else TokenBucket(rate, max(1.0, rate) if burst is None else burst, now_s)


def with_rate(
    send: Callable[[SendRequest], Awaitable[T]], rate: SendRate, *, unlimited: bool = False
) -> Callable[[SendRequest], Awaitable[T]]:
    """Return a layer that waits for the tokens of a send first; the wait counts to the timeout of the send.

    Args:
        send: the layer below.
        rate: the tokens.
        unlimited: whether a send waits as long as necessary, and has its whole timeout afterwards.
    """

    async def send_in_turn(request: SendRequest) -> T:
        waited_ms = await rate.acquire(request, inf if unlimited else request.timeout_ms)
        if waited_ms and not unlimited:
            # The tokens came in time, so try the send even if little time is left.
            request = request._replace(timeout_ms=max(request.timeout_ms - waited_ms, 1.0))
        return await send(request)

    return send_in_turn
