"""`config/transactionMetrics` of 5.3.3 is read, and written back byte for byte."""

from __future__ import annotations

import tarfile
from pathlib import Path

from tianzhou.broker.transactions.transaction_metrics import TransactionMetrics
from tianzhou.wire.json_dialect import dumps, loads

FOLDER = Path(__file__).parents[1] / "golden" / "store"


def test_apaches_files_come_out_as_they_are() -> None:
    seen = 0
    counted: dict[tuple[str, str], int] = {}
    for path in sorted(FOLDER.glob("*.tar.xz")):
        with tarfile.open(path) as archive:
            for member in archive:
                if not member.isfile() or not member.name.endswith("config/transactionMetrics"):
                    continue
                content = archive.extractfile(member)
                assert content is not None
                text = content.read()
                metrics = TransactionMetrics()
                metrics.load(loads(text))
                assert dumps(metrics.to_json()) == text, path.name
                seen += 1
                counted |= {(path.name, topic): one.count for topic, one in metrics.gauges.items()}
    assert seen > 10
    assert counted, "some of them have transactions"
