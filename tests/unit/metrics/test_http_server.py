"""The metrics server and peers that are slow, many, wrong or hostile."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tianzhou.errors import ConfigError
from tianzhou.limits import METRICS_CONNECTIONS, METRICS_REQUEST, Bounds
from tianzhou.metrics import http_server
from tianzhou.metrics.http_request import BadRequest, Request, parse_head
from tianzhou.metrics.http_server import MetricsServer
from tianzhou.metrics.readiness import Readiness


async def two_pieces() -> AsyncIterator[bytes]:
    yield b"tianzhou_x 1\n"
    yield b"tianzhou_y 2\n"


def server(**changes: Any) -> MetricsServer:
    values: dict[str, Any] = {
        "host": "127.0.0.1", "port": 0, "page": two_pieces, "ready": Readiness, "allowed": lambda ip, who: 200,
        "monotonic": time.monotonic,
    }  # fmt: skip
    return MetricsServer(**values | changes)


async def exchange(one: MetricsServer, request: bytes) -> tuple[int, dict[str, str], bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", one.port)
    try:
        writer.write(request)
        answer = await asyncio.wait_for(reader.read(), 10)
    finally:
        writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    return int(first.split()[1]), dict(line.split(": ", 1) for line in lines), body


def get(path: str, more: str = "", method: str = "GET") -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: x\r\n{more}\r\n".encode()


async def served(request: bytes, **changes: Any) -> tuple[int, dict[str, str], bytes]:
    one = server(**changes)
    await one.start()
    try:
        return await exchange(one, request)
    finally:
        await one.close()


async def test_the_page() -> None:
    status, head, body = await served(get("/metrics?x=1"))
    assert (status, body) == (200, b"tianzhou_x 1\ntianzhou_y 2\n")
    assert head["Content-Type"].startswith("text/plain; version=0.0.4")
    assert head["Content-Length"] == str(len(body))


async def test_head_has_no_body() -> None:
    status, head, body = await served(get("/metrics", method="HEAD"))
    assert (status, head["Content-Length"], body) == (200, "26", b"")


async def test_probes() -> None:
    status, _, body = await served(get("/healthz"), allowed=lambda ip, who: 403)
    assert (status, body) == (200, b"ok\n")
    status, _, body = await served(get("/readyz"))
    assert (status, json.loads(body)) == (200, {"ready": True, "reasons": []})
    not_ready = Readiness(("the disk is full",), {"role": "master"})
    status, _, body = await served(get("/readyz"), ready=lambda: not_ready)
    assert (status, json.loads(body)) == (503, {"ready": False, "reasons": ["the disk is full"], "role": "master"})
    # A visitor without access gets the status, without the reason.
    status, _, body = await served(get("/readyz"), ready=lambda: not_ready, allowed=lambda ip, who: 401)
    assert (status, json.loads(body)) == (503, {"ready": False})


async def test_credentials_are_asked_for() -> None:
    def allowed(ip: str, who: tuple[str, str] | None) -> int:
        assert ip == "127.0.0.1"
        return 401 if who is None else 200 if who == ("ann", "pa:ss") else 403

    status, head, _ = await served(get("/metrics"), allowed=allowed)
    assert status == 401
    assert head["WWW-Authenticate"].startswith("Basic")
    for secret, expected in (("ann:pa:ss", 200), ("ann:other", 403)):
        encoded = base64.b64encode(secret.encode()).decode()
        status, _, _ = await served(get("/metrics", f"Authorization: Basic {encoded}\r\n"), allowed=allowed)
        assert status == expected


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (get("/"), 404),
        (get("/metrics/"), 404),
        (get("/metrics", method="POST"), 405),
        (b"\x16\x03\x01\x00\xa5 \r\n\r\n", 400),
        (b"GET /metrics\r\n\r\n", 400),
        (b"GET http://x/metrics HTTP/1.1\r\n\r\n", 400),
        (b"PRI * HTTP/2.0\r\n\r\n", 505),
        (b"GET /metrics HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (get("/metrics", "a: b\r\n" * 200), 431),
    ],
)
async def test_what_is_no_request_for_a_page_gets_its_status(request_: bytes, status: int) -> None:
    assert (await served(request_))[0] == status


@pytest.mark.over_limit("maxMetricsRequestBytes")
async def test_a_long_head_is_refused_and_counted() -> None:
    bounds = Bounds()
    status, _, _ = await served(get("/metrics", f"X: {'x' * METRICS_REQUEST.default}\r\n"), bounds=bounds)
    assert status == 431
    assert bounds.refusals.counts["maxMetricsRequestBytes"] == 1


@pytest.mark.over_limit("maxMetricsConnections")
async def test_further_connections_are_closed_at_once() -> None:
    bounds = Bounds()
    one = server(bounds=bounds)
    await one.start()
    idle = [await asyncio.open_connection("127.0.0.1", one.port) for _ in range(METRICS_CONNECTIONS.default)]
    await asyncio.sleep(0.05)
    reader, writer = await asyncio.open_connection("127.0.0.1", one.port)
    try:
        assert await asyncio.wait_for(reader.read(), 5) == b""
        assert bounds.refusals.counts["maxMetricsConnections"] == 1
        idle.pop()[1].close()
        await asyncio.sleep(0.05)
        assert (await exchange(one, get("/healthz")))[0] == 200
    finally:
        for _, open_writer in [*idle, (reader, writer)]:
            open_writer.close()
        await one.close()


async def test_who_sends_slowly_or_reads_slowly_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "HEAD_TIMEOUT_S", 0.1)
    monkeypatch.setattr(http_server, "ANSWER_TIMEOUT_S", 0.3)

    async def large() -> AsyncIterator[bytes]:
        for _ in range(64):
            yield b"x" * 1_000_000

    one = server(page=large)
    await one.start()
    try:
        assert (await exchange(one, b"GET /met"))[0] == 408
        reader, writer = await asyncio.open_connection("127.0.0.1", one.port, limit=1024)
        writer.write(get("/metrics"))
        await asyncio.sleep(0.1)
        # Other peers are served while this one does not read.
        assert (await exchange(one, get("/healthz")))[0] == 200
        await asyncio.sleep(0.4)
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(64_000_000)
        writer.close()
    finally:
        await one.close()


async def test_a_page_is_made_once_for_all_who_ask_and_not_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    # On a busy machine, the requests may be further apart than the page's cache time.
    monkeypatch.setattr("tianzhou.metrics.http_server.FRESH_S", 3600.0)
    made = 0

    async def page() -> AsyncIterator[bytes]:
        nonlocal made
        made += 1
        await asyncio.sleep(0.05)
        yield b"x 1\n"

    one = server(page=page)
    await one.start()
    try:
        answers = await asyncio.gather(*(exchange(one, get("/metrics")) for _ in range(8)))
        assert {status for status, _, _ in answers} == {200}
        assert (await exchange(one, get("/metrics")))[0] == 200
        assert made == 1
    finally:
        await one.close()


async def test_a_page_that_cannot_be_made_is_an_error_and_tried_again() -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"x 1\n"
        raise ValueError("a defect")

    one = server(page=broken)
    await one.start()
    try:
        for _ in range(2):
            assert (await exchange(one, get("/metrics")))[0] == 500
    finally:
        await one.close()


async def test_a_port_that_is_taken_is_an_error_with_words() -> None:
    one = server()
    await one.start()
    try:
        with pytest.raises(ConfigError, match=r"metricsPromExporterPort"):
            await server(port=one.port).start()
    finally:
        await one.close()


def test_heads() -> None:
    assert parse_head(b"GET /metrics?a=b HTTP/1.1\r\n\r\n") == Request("/metrics")
    assert parse_head(b"GET / HTTP/1.0\r\nAuthorization: Bearer x\r\n\r\n").credentials is None
    assert parse_head(b"GET / HTTP/1.0\r\nauthorization: basic !!\r\n\r\n").credentials is None
    with pytest.raises(BadRequest):
        parse_head(b"\r\n\r\n")
