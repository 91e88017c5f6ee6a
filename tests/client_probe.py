"""Access of tests to the inside of our clients; see `store_probe` for the reason."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any


class ClientProbe:
    """The inside of a producer, a consumer or a staging client.

    Args:
        client: an async or a blocking client.
    """

    def __init__(self, client: Any) -> None:
        self._client = client

    async def look_for_brokers(self) -> None:
        """Probe now the brokers that the producer has marked unreachable."""
        await self._client._detector.detect()

    def is_reachable(self, broker: str) -> bool:
        """Whether the producer treats a broker as reachable."""
        return bool(self._client._faults.is_reachable(broker))

    @property
    def trace(self) -> Any:
        """The part of a producer that sends its traces.

        Raises:
            AssertionError: the producer is not traced.
        """
        assert self._client._trace is not None
        return self._client._trace

    @property
    def has_bare_stack(self) -> bool:
        """Whether a producer's sends pass through no optional layer."""
        return bool(self._client._stack.is_bare)

    @property
    def ask(self) -> Callable[..., Awaitable[Any]]:
        """The method with which a staging client sends a request to a broker."""
        ask: Callable[..., Awaitable[Any]] = self._client._ask
        return ask

    def ask_by(self, ask: Callable[..., Awaitable[Any]]) -> None:
        """Replace the function with which a staging client sends requests to brokers."""
        self._client._ask = ask

    def choose_by(self, choose: Callable[[str, int], Awaitable[str]]) -> None:
        """Replace the function with which a staging client chooses the coordinator of a writer's batches."""
        self._client._choose = choose

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine like the methods of a blocking client."""
        return self._client._run(work)
