"""Durations of requests: `rocketmq_rpc_latency` (broker.md §24).

Durations of sends and pulls are estimated from their counts and a hundred samples a second, because timing each would
cost more than a percent. All other requests are timed one by one. Pulls that wait for messages are excluded, because
their duration depends on the arrival of messages only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, Final

from tianzhou.errors import BrokerError
from tianzhou.metrics.families import Family, Histogram, Kind, SampledHistogram, Steps
from tianzhou.remoting.connection import Connection, Processor, Reply
from tianzhou.remoting.deferred_reply import DeferredReply
from tianzhou.wire.codes import RequestCode, ResponseCode, request_name
from tianzhou.wire.command import Command

BOUNDS_MS: Final = (1.0, 3.0, 5.0, 7.0, 10.0, 100.0, 1_000.0, 2_000.0, 3_000.0)
EXECUTION_BOUNDS_MS: Final = (10.0, 100.0, 1_000.0, 3_000.0, 5_000.0)
SAMPLE_EVERY_S: Final = 0.01
SENDS: Final = frozenset(map(int, (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2)))
PULLS: Final = frozenset(map(int, (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)))
_CREATIONS: Final = {
    int(RequestCode.UPDATE_AND_CREATE_TOPIC): "topic",
    int(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP): "consumer_group",
}
_SENT: Final = ("send_message", "success")
_PULLED: Final = ("pull_message", "success")
_LABELS: Final = ("protocol_type", "request_code", "response_code", "is_long_polling", "result")
_Outcome = tuple[str, str]


class RequestTimes:
    """Histograms of request durations by request and response code.

    Args:
        monotonic: returns monotonic seconds.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._exact: dict[_Outcome, Histogram] = {}
        self._created: dict[tuple[str, str], Histogram] = {}
        self._sends = SampledHistogram(BOUNDS_MS)
        self._pulls = SampledHistogram(BOUNDS_MS)

    def note_send(self, ms: float) -> None:
        """Add a sample of a send."""
        self._sends.note(_SENT, ms)

    def note_pull(self, ms: float) -> None:
        """Add a sample of a pull that returned messages."""
        self._pulls.note(_PULLED, ms)

    def observe(self, table: dict[int, Processor]) -> None:
        """Time the requests of a table of handlers, which is changed in place.

        Args:
            table: handlers by request code.
        """
        for code, handle in list(table.items()):
            if code in PULLS:
                self._sample_next(table, code, handle, self._pulls)
            elif code == RequestCode.SEND_BATCH_MESSAGE:
                self._sample_next(table, code, handle, self._sends)
            elif code not in SENDS:
                table[code] = self._timed(code, handle)

    def _sample_next(
        self, table: dict[int, Processor], code: int, handle: Processor, samples: SampledHistogram
    ) -> None:
        name = request_name(code).lower()

        def serve(connection: Connection, command: Command) -> Reply | Awaitable[Reply]:
            # Restore the handler, so that requests until the next sample have no extra cost.
            table[code] = handle
            asyncio.get_running_loop().call_later(SAMPLE_EVERY_S, self._sample_next, table, code, handle, samples)
            began = self._monotonic()
            reply = handle(connection, command)
            if isinstance(reply, Command | bytes | tuple):
                samples.note((name, "success"), (self._monotonic() - began) * 1000)
            return reply

        table[code] = serve

    def _timed(self, code: int, handle: Processor) -> Processor:
        name = request_name(code).lower()
        created = _CREATIONS.get(code, "")

        def note(began: float, response: int) -> None:
            ms = (self._monotonic() - began) * 1000
            key = name, _response_name(response)
            if (found := self._exact.get(key)) is None:
                found = self._exact[key] = Histogram(BOUNDS_MS)
            found.note(ms)
            if created:
                status = created, "success" if response == ResponseCode.SUCCESS else "failure"
                if (found := self._created.get(status)) is None:
                    found = self._created[status] = Histogram(EXECUTION_BOUNDS_MS)
                found.note(ms)

        def serve(connection: Connection, command: Command) -> Reply | Awaitable[Reply]:
            began = self._monotonic()
            try:
                reply = handle(connection, command)
            except BrokerError as error:
                note(began, error.code)
                raise
            if isinstance(reply, Coroutine):
                return _Timed(reply, lambda response: note(began, response))
            if not isinstance(reply, DeferredReply) and not isinstance(reply, Awaitable):
                note(began, _code_of(reply))
            return reply

        return serve

    def steps(self, sends: int, pulls: int) -> Steps:
        """Yield the families with present values.

        Args:
            sends: requests that put messages, since the start.
            pulls: pulls that were answered, since the start.
        """
        self._sends.advance(sends)
        self._pulls.advance(pulls)
        latency = Family(
            "rocketmq_rpc_latency", Kind.HISTOGRAM, "Milliseconds of requests; sends and pulls are estimated.", _LABELS
        )
        for table in (self._sends.histograms, self._pulls.histograms, self._exact):
            for (request, response), histogram in sorted(table.items()):
                latency.add(histogram.copy(), "remoting", request, response, "false", "success")
        yield latency
        for what in _CREATIONS.values():
            family = Family(
                f"rocketmq_{what}_create_execution_time", Kind.HISTOGRAM,
                f"Milliseconds that requests to create a {what} took.", ("invocation_status", "is_system"),
            )  # fmt: skip
            for (created, status), histogram in self._created.items():
                if created == what:
                    family.add(histogram.copy(), status, "false")
            yield family


class _Timed(Coroutine[Any, Any, Reply]):
    """A coroutine whose duration is noted at its end; closing it before its start closes the inner coroutine."""

    def __init__(self, inner: Coroutine[Any, Any, Reply], note: Callable[[int], None]) -> None:
        self._inner = inner
        self._note = note

    def __await__(self) -> Generator[Any, Any, Reply]:
        try:
            reply = yield from self._inner.__await__()
        except BrokerError as error:
            self._note(error.code)
            raise
        self._note(_code_of(reply))
        return reply

    def send(self, value: Any) -> Any:
        """See `Coroutine`."""
        return self._inner.send(value)

    def throw(self, *arguments: Any) -> Any:
        """See `Coroutine`."""
        return self._inner.throw(*arguments)

    def close(self) -> None:
        """See `Coroutine`."""
        self._inner.close()


def _code_of(reply: Reply) -> int:
    return reply.code if isinstance(reply, Command) else int(ResponseCode.SUCCESS)


def _response_name(code: int) -> str:
    try:
        return ResponseCode(code).name.lower()
    except ValueError:
        return str(code)
