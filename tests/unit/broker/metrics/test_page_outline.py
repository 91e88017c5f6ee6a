"""Names, help, types and labels on a broker's page are the recorded ones: dashboards and alarms know them."""

from __future__ import annotations

import os
import re
from pathlib import Path

from broker_bench import OpenBench

from tianzhou.metrics.exposition import pieces

GOLDEN = Path(__file__).with_name("broker-page.txt")
RECORD = "TIANZHOU_RECORD_ANSWERS"
"""The environment variable with which this test writes the file."""


def outline(page: str) -> str:
    """Return the lines about families, and each form of a sample once: its name and the names of its labels."""
    found: dict[str, None] = {}
    for line in page.splitlines():
        if line.startswith("#"):
            found[line] = None
            continue
        name, _, labels = line.partition("{")
        names = re.findall(r'(?:^|",)(\w+)="', labels)
        found[f"{name.split(' ')[0]}{{{','.join(names)}}}"] = None
    return "\n".join(found) + "\n"


async def test_the_page_has_the_recorded_families(broker: OpenBench) -> None:
    async with broker(metrics_exporter_type="PROM", metrics_prom_exporter_port=0, metrics_label="region:eu") as bench:
        peer = bench.peer()
        await peer.heartbeat("c", "T", producer="P")
        await peer.create_topic("T")
        await peer.send("T")
        metrics = bench.parts.metrics
        metrics.observe({})
        await metrics.start(None)
        try:
            assert metrics.exporter is not None
            families = await metrics.exporter.collector.families()
            page = b"".join(pieces(families, metrics.exporter.collector.common)).decode()
        finally:
            await metrics.close()
    if os.environ.get(RECORD):
        GOLDEN.write_text(outline(page), encoding="utf-8")
    assert outline(page) == GOLDEN.read_text(encoding="utf-8")
