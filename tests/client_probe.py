"""Questions that tests ask about the inside of our clients; see `store_probe` for the reason."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any


class ClientProbe:
    """The inside of a producer or a consumer.

    Args:
        client: the client, of the async or the blocking classes.
    """

    def __init__(self, client: Any) -> None:
        self._client = client

    async def look_for_brokers(self) -> None:
        """Have a producer probe now the brokers that it has found unreachable."""
        await self._client._detector.detect()

    def is_reachable(self, broker: str) -> bool:
        """Whether a producer takes a broker for reachable."""
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

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine as the methods of a blocking client do."""
        return self._client._run(work)
