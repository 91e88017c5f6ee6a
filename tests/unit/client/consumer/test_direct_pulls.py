"""Direct pulls over real sockets, at a broker that runs a test's script."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tianzhou._hot import pull_reply
from tianzhou.client.consumer.pull.direct_pulls import DirectPulls
from tianzhou.client.consumer.pull.queue_pull import QueuePull
from tianzhou.errors import BrokerError, ProtocolError, RequestTimeout
from tianzhou.model import MessageQueue, PullStatus
from tianzhou.remoting.client import RemotingClient
from tianzhou.remoting.signing import signing
from tianzhou.wire.codes import ResponseCode
from tianzhou.wire.command import Command, encode, split

QUEUE = MessageQueue("orders", "broker-a", 3)
MOST = 1 << 24


class Requests:
    """The requests on one connection of the broker."""

    def __init__(self, accepted: socket.socket) -> None:
        self._socket = accepted
        self._data = b""
        self._come: list[Command] = []
        self.send = accepted.sendall

    def next(self, count: int) -> list[Command]:
        """Return the next `count` requests; fewer when the client closes the connection."""
        while len(self._come) < count and (piece := self._socket.recv(65_536)):
            self._data += piece
            more, after = split(self._data, 0, len(self._data), MOST)
            self._come, self._data = self._come + more, self._data[after:]
        come, self._come = self._come[:count], self._come[count:]
        return come


Script = Callable[[Requests], Any]


class Broker:
    """A listening broker that runs one script for each connection."""

    def __init__(self, *scripts: Script) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.connections = 0
        self._scripts = scripts
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        for script in self._scripts:
            try:
                accepted, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            with accepted:
                script(Requests(accepted))

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(10)


def instance(address: str | None, **options: Any) -> Any:
    """Return the parts of a client instance that direct pulls use."""
    return SimpleNamespace(remoting=RemotingClient(**options), routes=SimpleNamespace(readable=lambda *_: address))


@pytest.fixture
def serve() -> Iterator[Callable[..., tuple[Broker, DirectPulls]]]:
    ends: list[Callable[[], None]] = []

    def start(*scripts: Script, timeout_ms: float = 10_000, **options: Any) -> tuple[Broker, DirectPulls]:
        broker = Broker(*scripts)
        pulls = DirectPulls(instance(broker.address, **options), "group", timeout_ms)
        ends.extend([pulls.close, broker.close])
        return broker, pulls

    yield start
    for end in ends:
        end()


def found(request: Command, body: bytes = b"", following: int | None = None) -> bytes:
    """Return a reply with records."""
    offset = request.header.queue_offset
    following = offset + len(body) if following is None else following
    return b"".join(pull_reply(request.opaque, 0, "FOUND", following, 0, 1000, 0, 0, 0, body))


def asks(*offsets: int, most: int = 32) -> list[QueuePull]:
    return [QueuePull(QUEUE, offset, most) for offset in offsets]


def collected(pulls: DirectPulls, *offsets: int) -> list[tuple[int, bytes]] | None:
    """Return the next offset and records of each pull."""
    asked = pulls.send(asks(*offsets))
    answers = None if asked is None else pulls.collect(asked)
    return None if answers is None else [(raw.next_offset, bytes(body)) for raw, body in answers]


def in_turn(requests: Requests) -> None:
    while come := requests.next(1):
        requests.send(found(come[0], b"r" * come[0].header.max_msg_nums))


def test_pulls_go_out_at_once_and_are_answered_in_their_order(serve: Any) -> None:
    seen: list[Command] = []

    def backwards(requests: Requests) -> None:
        seen.extend(requests.next(3))
        for request in reversed(seen):
            requests.send(found(request, b"%d" % request.header.queue_offset, request.header.queue_offset + 1))

    broker, pulls = serve(backwards)
    assert collected(pulls, 10, 20, 30) == [(11, b"10"), (21, b"20"), (31, b"30")]
    header = seen[0].header
    assert (header.consumer_group, header.topic, header.queue_id, header.max_msg_nums) == ("group", "orders", 3, 32)
    assert (header.sys_flag, header.subscription, header.expression_type) == (4, "*", "TAG")
    assert broker.connections == 1


def test_one_connection_serves_run_after_run(serve: Any) -> None:
    broker, pulls = serve(in_turn)
    for _ in range(3):
        assert collected(pulls, 0, 5) == [(32, b"r" * 32), (37, b"r" * 32)]
    assert broker.connections == 1


def test_more_messages_than_asked_and_fewer_are_as_they_come(serve: Any) -> None:
    def script(requests: Requests) -> None:
        first, second = requests.next(2)
        requests.send(found(first, b"x" * 3_000_000, 500) + found(second, b"", 7))

    _, pulls = serve(script)
    assert collected(pulls, 0, 5) == [(500, b"x" * 3_000_000), (7, b"")]


def test_a_reply_cut_anywhere_is_put_together(serve: Any) -> None:
    def script(requests: Requests) -> None:
        (request,) = requests.next(1)
        for byte in found(request, b"records"):
            requests.send(bytes([byte]))

    _, pulls = serve(script)
    assert collected(pulls, 0) == [(7, b"records")]


def test_what_else_a_broker_sends_is_passed_over(serve: Any) -> None:
    def script(requests: Requests) -> None:
        (request,) = requests.next(1)
        requests.send(encode(Command(40, request.opaque, fields={"consumerGroup": "group"})))
        requests.send(encode(Command(0, request.opaque + 1000, 1)))
        requests.send(found(request, b"records"))

    _, pulls = serve(script)
    assert collected(pulls, 0) == [(7, b"records")]


def test_replies_that_nobody_came_for_are_dropped(serve: Any) -> None:
    broker, pulls = serve(in_turn)
    early = pulls.send(asks(100, 200))
    assert collected(pulls, 5) == [(37, b"r" * 32)]
    assert pulls.collect(early) is None
    assert broker.connections == 1


def test_statuses_without_records(serve: Any) -> None:
    def script(requests: Requests) -> None:
        (request,) = requests.next(1)
        requests.send(b"".join(pull_reply(request.opaque, 19, "OFFSET_OVERFLOW_ONE", 9, 4, 9, 0, 0, 0, b"")))

    _, pulls = serve(script)
    ((raw, body),) = pulls.collect(pulls.send(asks(9)))
    assert (raw.status, raw.next_offset, raw.min_offset, raw.max_offset, bytes(body)) == (
        PullStatus.NO_NEW_MSG, 9, 4, 9, b"",
    )  # fmt: skip


def test_a_refusal_is_an_error_and_the_connection_stays(serve: Any) -> None:
    def script(requests: Requests) -> None:
        first, second = requests.next(2)
        requests.send(found(first, b"records") + encode(second.reply(17, "topic[orders] not exist")))
        in_turn(requests)

    broker, pulls = serve(script)
    with pytest.raises(BrokerError, match="not exist") as caught:
        collected(pulls, 0, 5)
    assert caught.value.code == 17
    assert collected(pulls, 0) == [(32, b"r" * 32)]
    assert broker.connections == 1


def test_an_answer_that_makes_no_sense(serve: Any) -> None:
    _, pulls = serve(lambda requests: requests.send(found(requests.next(1)[0], b"x", 9_000_000)))
    with pytest.raises(ProtocolError, match="though the queue ends at 1000"):
        collected(pulls, 0)


def goes_away(requests: Requests) -> None:
    first, second = requests.next(2)
    requests.send(found(first, b"x") + encode(second.reply(ResponseCode.GO_AWAY, "stops")))


def is_lost(requests: Requests) -> None:
    first, _ = requests.next(2)
    requests.send(found(first, b"x") + found(first, b"y" * 1000)[:500])


def talks_nonsense(requests: Requests) -> None:
    requests.next(2)
    requests.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    requests.next(1)


def announces_too_much(requests: Requests) -> None:
    requests.next(2)
    requests.send((MOST + 1).to_bytes(4, "big") + b"\0\0\0\4")
    requests.next(1)


def ends_at_once(requests: Requests) -> None:
    """Close the connection without a reply."""


@pytest.mark.parametrize("trouble", [goes_away, is_lost, talks_nonsense, announces_too_much, ends_at_once])
def test_trouble_is_left_to_the_other_way_and_the_next_pulls_are_made_anew(serve: Any, trouble: Script) -> None:
    broker, pulls = serve(trouble, in_turn)
    assert collected(pulls, 0, 5) is None
    assert collected(pulls, 0) == [(32, b"r" * 32)]
    assert broker.connections == 2


def test_pulls_sent_before_the_connection_was_lost_are_not_waited_for(serve: Any) -> None:
    _, pulls = serve(ends_at_once, in_turn)
    early = pulls.send(asks(0))
    assert collected(pulls, 0) is None or early is None
    assert collected(pulls, 0) == [(32, b"r" * 32)]
    assert early is None or pulls.collect(early) is None


def test_a_broker_that_does_not_answer_in_time(serve: Any) -> None:
    broker, pulls = serve(lambda requests: requests.next(2), in_turn, timeout_ms=50)
    with pytest.raises(RequestTimeout, match=r"127.0.0.1:\d+ does not answer pulls within 50 ms"):
        collected(pulls, 0)
    assert broker.connections == 1


def test_requests_are_signed(serve: Any) -> None:
    seen: list[Command] = []

    def script(requests: Requests) -> None:
        seen.extend(requests.next(2))
        requests.send(b"".join(found(request, b"r") for request in seen))

    _, pulls = serve(script, hooks=[signing("somebody", "secret")])
    assert collected(pulls, 0, 1) == [(1, b"r"), (2, b"r")]
    assert [request.header.access_key for request in seen] == ["somebody"] * 2
    assert all(request.header.signature for request in seen)


def test_what_is_not_for_direct_pulls() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    nobody = f"127.0.0.1:{listener.getsockname()[1]}"
    listener.close()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for stub in (instance(None), instance(nobody), instance(nobody, tls=tls)):
        assert DirectPulls(stub, "group").send(asks(0)) is None
