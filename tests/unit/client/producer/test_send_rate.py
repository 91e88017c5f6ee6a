"""A producer's own rate: sends wait for tokens, and raise before sending when the time limit ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tianzhou import Message, SendStatus
from tianzhou.client.producer.options import ProducerOptions
from tianzhou.client.producer.rate_limit import SendRate, with_rate
from tianzhou.client.producer.send_request import SINGLE, PreparedMessage, SendRequest
from tianzhou.errors import ConfigError, RateLimited
from tianzhou.testing import AsyncCluster, Cluster, run_virtual
from waiting import until_async


def in_cluster(main: Callable[[AsyncCluster], Awaitable[None]]) -> None:
    """Run a test with a cluster in virtual time."""

    async def whole() -> None:
        async with AsyncCluster(virtual=True) as cluster:
            await cluster.create_topic("orders", 1)
            await main(cluster)

    run_virtual(whole())


def now_s() -> float:
    return asyncio.get_running_loop().time()


@pytest.mark.parametrize("producers", [1, 100])
@pytest.mark.parametrize("rate", [10, 1_000, 100_000])
def test_the_rate_holds_with_any_number_of_senders(rate: int, producers: int) -> None:
    sent: list[float] = []

    async def send(request: SendRequest) -> None:
        sent.append(now_s())

    async def main() -> None:
        began_s = now_s()
        # A burst that matches the steps in which senders resume.
        limited = with_rate(send, SendRate(ProducerOptions(send_rate=rate, send_burst=max(rate // 10, 1)), now_s))
        request = SendRequest(PreparedMessage("orders", SINGLE, "K", 0, 0, 0, "", b"body"), 60_000)

        async def sender() -> None:
            while now_s() - began_s < seconds:
                await limited(request)
                if not len(sent) % 100:
                    await asyncio.sleep(0)

        await asyncio.gather(*(sender() for _ in range(producers)))
        burst = max(rate // 10, 1)
        assert sum(at_s == began_s for at_s in sent) == burst
        in_time = sum(at_s - began_s <= seconds for at_s in sent)
        assert in_time - burst == pytest.approx(seconds * rate, rel=0.02)

    seconds = 10.0 if rate < 10_000 else 0.2
    run_virtual(main())


def test_a_send_waits_for_its_token_and_others_wait_behind_it() -> None:
    async def main(cluster: AsyncCluster) -> None:
        async with cluster.producer("shop", send_rate=10, send_burst=2) as producer:
            began_s, order = now_s(), []

            async def send(number: int) -> None:
                await producer.send(Message("orders", b"%d" % number))
                order.append((number, round(now_s() - began_s, 1)))

            await asyncio.gather(*map(send, range(5)))
            assert order == [(0, 0.0), (1, 0.0), (2, 0.1), (3, 0.2), (4, 0.3)]

    in_cluster(main)


def test_a_send_without_a_token_in_time_raises_and_sends_nothing() -> None:
    async def main(cluster: AsyncCluster) -> None:
        async with cluster.producer("shop", send_rate=1, send_burst=1, send_msg_timeout_ms=500) as producer:
            await producer.send(Message("orders", b"first"))
            began_s = now_s()
            with pytest.raises(RateLimited, match=r"nothing was sent: send_rate 1 \(burst 1\) .* within 500 ms"):
                await producer.send(Message("orders", b"refused"))
            assert now_s() - began_s == pytest.approx(0.5)
            with pytest.raises(RateLimited):
                await producer.send_oneway(Message("orders", b"refused"))
            # The failed send took no token from later sends.
            await producer.send(Message("orders", b"second"))
            assert now_s() - began_s == pytest.approx(1.0)
            with pytest.raises(RateLimited, match="within 10 ms"):
                await producer.send(Message("orders", b"refused"), timeout_ms=10)
        assert [one.body for one in await cluster.messages("orders")] == [b"first", b"second"]

    in_cluster(main)


def test_a_cancelled_send_gives_its_token_back() -> None:
    async def main(cluster: AsyncCluster) -> None:
        async with cluster.producer("shop", send_rate=1, send_burst=1) as producer:
            await producer.send(Message("orders", b"first"))
            began_s = now_s()
            waiting = asyncio.ensure_future(producer.send(Message("orders", b"cancelled")))
            await asyncio.sleep(0.1)
            waiting.cancel()
            await asyncio.wait([waiting])
            await producer.send(Message("orders", b"second"))
            assert now_s() - began_s == pytest.approx(1.0)

    in_cluster(main)


def test_batches_oneway_sends_and_bytes_count() -> None:
    async def main(cluster: AsyncCluster) -> None:
        async with cluster.producer("shop", send_rate=10, send_burst=10) as producer:
            began_s = now_s()
            await producer.send_batch([Message("orders", b"x")] * 9)
            await producer.send_oneway(Message("orders", b"x"))
            assert now_s() == began_s
            await producer.send_oneway(Message("orders", b"x"))
            assert now_s() - began_s == pytest.approx(0.1)
            await producer.send_batch([Message("orders", b"x")] * 5, timeout_ms=1_000)
            assert now_s() - began_s == pytest.approx(0.6)
            results = await producer.send_batch([Message("orders", b"x" * 100)] * 10, split=True, max_bytes=500)
            assert len(results) == 10
            assert now_s() - began_s == pytest.approx(1.6)
        async with cluster.producer("shop", send_rate_bytes=1_000, send_burst_bytes=500) as producer:
            began_s = now_s()
            for _ in range(7):
                await producer.send(Message("orders", b"x" * 100))
            assert now_s() - began_s == pytest.approx(0.2)
            # When the bucket is full, more than the burst is sent, and later sends wait for the difference.
            await producer.send(Message("orders", b"x" * 1_500))
            await producer.send(Message("orders", b"x" * 500))
            assert now_s() - began_s == pytest.approx(0.2 + 0.5 + 1.5)

    in_cluster(main)


def test_messages_that_are_batched_by_themselves_count_each() -> None:
    async def main(cluster: AsyncCluster) -> None:
        async with cluster.producer("shop", send_rate=10, send_burst=5, auto_batch=True) as producer:
            began_s = now_s()
            for _ in range(3):
                await asyncio.gather(*(producer.send(Message("orders", b"x")) for _ in range(5)))
            assert now_s() - began_s == pytest.approx(1.0, abs=0.05)

    in_cluster(main)


def test_what_the_outbox_sends_counts_and_waits_for_as_long_as_it_takes(tmp_path: Path) -> None:
    async def main(cluster: AsyncCluster) -> None:
        options: dict[str, Any] = {"send_rate": 2, "send_burst": 1, "send_msg_timeout_ms": 1_000}
        async with cluster.producer("shop", outbox=tmp_path / "outbox", **options) as producer:
            await producer.send(Message("orders", b"direct"))
            await cluster.brokers["broker-a"].stop()
            stored = [await producer.send(Message("orders", b"%d" % number)) for number in range(6)]
            assert {one.status for one in stored} == {SendStatus.KEPT_IN_OUTBOX}
            await cluster.brokers["broker-a"].start()
            began_s = now_s()
            await until_async(lambda: producer.outbox is not None and not producer.outbox.pending, within_s=60)
            # The six messages exceeded the burst, so the next send waits.
            await producer.send(Message("orders", b"last"), timeout_ms=5_000)
            assert now_s() - began_s >= 3.0
            assert producer.outbox is not None
            assert producer.outbox.refused == 0
        bodies = [one.body for one in await cluster.messages("orders")]
        assert bodies == [b"direct", *(b"%d" % number for number in range(6)), b"last"]

    in_cluster(main)


def test_blocking_producers_have_the_same_limit() -> None:
    with Cluster() as cluster:
        cluster.create_topic("orders", 1)
        with cluster.producer("shop", send_rate=0.1, send_burst=2, send_msg_timeout_ms=100) as producer:
            producer.send(Message("orders", b"1"))
            assert producer.send_async(Message("orders", b"2")).result(5).status is SendStatus.SEND_OK
            with pytest.raises(RateLimited):
                producer.send(Message("orders", b"refused"))
            with pytest.raises(RateLimited):
                producer.send_async(Message("orders", b"refused")).result(5)
        assert [one.body for one in cluster.messages("orders")] == [b"1", b"2"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"send_rate": 0}, "send_rate is 0; it has to be 0.001 to"),
        ({"send_rate": "fast"}, "it has to be a number"),
        ({"send_rate": 5, "send_burst": 0}, "send_burst is 0"),
        ({"send_burst": 5}, "without send_rate"),
        ({"send_burst_bytes": 5}, "without send_rate_bytes"),
        ({"send_rate_bytes": float("nan")}, "send_rate_bytes is nan"),
    ],
)
def test_a_rate_that_is_none_is_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        ProducerOptions(**options)
