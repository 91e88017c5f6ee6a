"""Unsupported clients are identified, and the log names each kind once, with a remedy."""

from __future__ import annotations

import logging

import pytest
from connection_bench import Bench, run_bench

from tianzhou.remoting.unserved import Unserved
from tianzhou.wire.codes import ResponseCode
from tianzhou.wire.command import Command

pytestmark = pytest.mark.runner.with_args(run_bench)


async def test_a_pop_consumer_is_answered_each_time_and_named_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        unserved = Unserved("broker")
        bench = Bench(unserved.answer)
        bench.feed(*(Command(200050, opaque=number) for number in range(3)), Command(4711, opaque=3))
        assert [(c.opaque, c.code) for c in bench.sent()] == [
            (number, ResponseCode.REQUEST_CODE_NOT_SUPPORTED) for number in range(4)
        ]
    pop, unknown = (record.getMessage() for record in caplog.records)
    assert pop.startswith("10.1.2.3:4567 asks this broker for POP_MESSAGE (200050), which is not served: POP consumers")
    assert "use push or pull consumers" in pop
    assert unknown.startswith("10.1.2.3:4567 asks this broker for request 4711 (4711), which is not served")


async def test_who_mistakes_a_broker_for_a_name_server_is_named_as_such(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        Bench(Unserved("broker").answer).feed(Command(206, opaque=1))
    assert "it is served by a name server; this broker's address was given as one's" in caplog.text


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            "RocketMQ 5 client over gRPC, which is not served; use a remoting client",
        ),
        (b"PRI ", "RocketMQ 5 client over gRPC"),
        (b"GET / HTTP/1.1\r\n\r\n", "this is HTTP, which is not served on this port"),
        (b"AMQP\x00\x00\x09\x01", "this is AMQP, which is not served"),
        (b"\x16\x03\x01\x02\x00", "connect without TLS"),
        (b"\xff\xff\xff\xff", "frame length -1"),
    ],
)
async def test_peers_of_other_protocols_are_distinguished(
    data: bytes, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        bench = Bench(Unserved("broker").answer)
        bench.transport.feed(data)
        assert bench.connection.closed
    assert text in caplog.text


async def test_a_host_that_comes_back_a_thousand_times_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        bench = Bench(Unserved("broker").answer)
        for _ in range(1000):
            bench.again().feed(b"PRI * HTTP/2.0\r\n\r\n")
    assert 1 <= len(caplog.records) <= 20
