"""Driver and JVM killed by SIGKILL while a query writes a lake table: at the end every row exists once."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from quick_start import environment

PROGRAM = Path(__file__).parent / "lake_program.py"
TRIES = 3
"""Spark gives a Python process ten seconds to report, which a busy machine may exceed; the query then starts again."""
PLACES = ("task", "before", "after")


def run(environ, store, topic, options, work):
    command = [sys.executable, str(PROGRAM), store, topic, json.dumps(options), str(work)]
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=600, check=False)


def options_of(kind, work):
    if kind == "iceberg":
        where = {"catalogUri": f"sqlite:///{work}/catalog.db", "warehouse": f"file://{work}/warehouse"}
        return {"tableFormat": kind, "table": "lake.orders", **where}
    return {"tableFormat": kind, "path": str(work / "table")}


def rounds(kind, places, server, topic, work):
    from tianzhou.spark.lake.formats import open_table, read_part
    from tianzhou.spark.lake.options import parse_lake

    options, sent, killed, environ = options_of(kind, work), 0, 0, environment(work)
    for place in [*places, None]:
        server.send(topic, range(sent, sent + 300))
        sent += 300
        if place is not None:
            (work / "plan").write_text(place)
        for _ in range(TRIES):
            done = run(environ, str(server.folder), topic, options, work)
            if done.returncode == (-9 if place else 0):
                break
        else:
            raise AssertionError((done.returncode, done.stderr[-3000:]))
        assert not (work / "plan").exists()
        killed += place is not None
    parsed = parse_lake(options)
    parts, schema = open_table(parsed).scan(), open_table(parsed).schema()
    found = Counter(int(row["n"]) for part in parts for b in read_part(parsed, part, schema) for row in b.to_pylist())
    assert killed == len(places)
    assert found == Counter(range(sent))


@pytest.mark.slow
def test_a_killed_driver_loses_and_doubles_nothing(server, topic, tmp_path):
    pytest.importorskip("deltalake")
    rounds("delta", ("before", "after"), server, topic, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_many_killed_drivers_lose_and_double_nothing(kind, server, topic, tmp_path):
    rounds(kind, (PLACES * 7)[:20], server, topic, tmp_path)
