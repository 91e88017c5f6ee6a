"""A consumer of a missing topic logs that once, and once more when the topic exists."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from tianzhou.testing import AsyncCluster, run_virtual

pytestmark = pytest.mark.runner.with_args(run_virtual)


@pytest.mark.parametrize("kind", ["push_consumer", "pull_consumer"])
async def test_a_topic_that_does_not_exist_is_named_once_and_again_when_it_does(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tianzhou.client.cluster.missing_topics")

    def said() -> list[tuple[str, str]]:
        return [
            (one.levelname, one.getMessage())
            for one in caplog.records
            if one.name == "tianzhou.client.cluster.missing_topics"
        ]

    async with AsyncCluster(virtual=True) as cluster:
        consumer: Any = getattr(cluster, kind)("billing")
        await cluster.create_topic("invoices")
        for topic in ("orders", "invoices"):
            consumer.subscribe(topic)
        async with consumer:
            await asyncio.sleep(120)
            text = (
                f"topic orders does not exist, say name servers {cluster.namesrv_addr}:"
                " group billing gets nothing of it until it is created"
            )
            assert said() == [("WARNING", text)]
            await cluster.create_topic("orders")
            await asyncio.sleep(5)
            assert said()[1:] == [("INFO", "topic orders exists now")]
