"""Machines that are not made for a broker, and streams that stand still."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from ill_clusters import ill, names

from tianzhou.admin.cluster import BrokerStatus
from tianzhou.doctor import diagnose
from tianzhou.doctor.illnesses import host, spark
from tianzhou.doctor.looks.host import see_host, see_secret_files
from tianzhou.doctor.looks.spark import see_checkpoint
from tianzhou.doctor.observations import BrokerSeen, HostSeen, SparkSeen
from tianzhou.errors import ConfigError
from tianzhou.testing import AsyncCluster

GIB = 1024**3
DAY_MS = 86_400_000


def found(seen: HostSeen | SparkSeen) -> set[str]:
    family = host.findings(seen) if isinstance(seen, HostSeen) else spark.findings(seen)
    return {one.name for one in family}


@pytest.mark.parametrize(
    ("name", "seen"),
    [
        ("open-files-limit-low", HostSeen(open_files=1024)),
        ("max-map-count-low", HostSeen(max_map_count=65_530)),
        ("swap-eager", HostSeen(swap_total=GIB, swappiness=60)),
        ("transparent-huge-pages", HostSeen(huge_pages="always")),
        ("little-memory", HostSeen(memory_total=GIB)),
        ("read-ahead-high", HostSeen(store="/s", read_ahead_kb=4096)),
        ("io-scheduler", HostSeen(store="/s", scheduler="bfq")),
        ("little-disk-left", HostSeen(store="/s", disk_total=100, disk_free=20)),
        ("store-filesystem", HostSeen(store="/s", filesystem="nfs4")),
        ("store-in-memory", HostSeen(store="/s", filesystem="tmpfs")),
        ("store-read-only", HostSeen(store="/s", mount_options=frozenset({"ro"}))),
        ("interpreter-not-optimised", HostSeen(optimised=False)),
        ("interpreter-debug-build", HostSeen(debug_build=True, optimised=False)),
        ("pure-mode", HostSeen(hot_mode="pure")),
    ],
)
def test_what_a_machine_lacks(name: str, seen: HostSeen) -> None:
    assert found(seen) == {name}


def test_a_machine_that_is_well() -> None:
    assert found(HostSeen(open_files=655_350, max_map_count=655_360, swap_total=0, swappiness=60, huge_pages="never",
                          memory_total=16 * GIB, store="/s", filesystem="xfs", scheduler="none", read_ahead_kb=128,
                          disk_total=100, disk_free=60, optimised=True)) == set()  # fmt: skip


def test_a_machine_is_read_from_its_files(tmp_path: Path) -> None:
    files = {
        "proc/sys/vm/max_map_count": "65530\n",
        "proc/sys/vm/swappiness": "60\n",
        "proc/meminfo": "MemTotal:       1048576 kB\nMemAvailable:    524288 kB\nSwapTotal:       1024 kB\n",
        "sys/kernel/mm/transparent_hugepage/enabled": "[always] madvise never\n",
        "proc/self/mountinfo": "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 8:17 / "
        f"{tmp_path} rw,noatime shared:1 - tmpfs /dev/sdb1 rw\n",
        "sys/dev/block/8:17/queue/scheduler": "none [bfq] mq-deadline\n",
        "sys/dev/block/8:17/queue/read_ahead_kb": "4096\n",
        "sys/dev/block/8:17/queue/rotational": "1\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    seen = see_host(tmp_path / "not" / "there" / "yet", root=tmp_path)
    assert (seen.max_map_count, seen.swappiness, seen.swap_total) == (65_530, 60, 1024 * 1024)
    assert (seen.memory_total, seen.huge_pages) == (GIB, "always")
    assert (seen.filesystem, seen.scheduler, seen.read_ahead_kb, seen.rotational) == ("tmpfs", "bfq", 4096, True)
    assert {"max-map-count-low", "swap-eager", "transparent-huge-pages", "little-memory", "io-scheduler",
            "read-ahead-high", "store-in-memory"} <= found(seen)  # fmt: skip
    assert see_host(root=tmp_path / "nothing").max_map_count is None


async def test_this_machine_can_be_looked_at(tmp_path: Path) -> None:
    report = await diagnose(None, "host", str(tmp_path))
    assert (report.subject, report.could_look, json.dumps(report.as_json())[:1]) == ("host", True, "{")
    with pytest.raises(ConfigError, match="needs a cluster"):
        await diagnose(None, "access")
    with pytest.raises(ConfigError, match="expected one of cluster, group"):
        await diagnose(None, "nonsense")


def test_files_with_secrets_of_brokers_on_this_machine(tmp_path: Path) -> None:
    file = tmp_path / "plain_acl.yml"
    file.touch()
    file.chmod(0o640)
    config = {"brokerConfigPath": str(tmp_path / "broker.conf")}
    here = BrokerSeen(BrokerStatus("c", "broker-a", 0, "127.0.0.1:10911"), config)
    elsewhere = BrokerSeen(BrokerStatus("c", "broker-b", 0, "192.0.2.1:10911"), config)
    assert [(one.path, one.mode) for one in see_secret_files([here])] == [(str(file), 0o640)]
    assert see_secret_files([elsewhere]) == []


# --- Spark


def checkpoint(folder: Path, ends: dict[str, int], *, batch: int = 3, committed: int = 3, age_ms: int = 0) -> Path:
    """A checkpoint folder as a query leaves it."""
    (folder / "offsets").mkdir(parents=True)
    (folder / "commits").mkdir()
    offset = json.dumps({"end": ends, "from": dict.fromkeys(ends, 0)})
    file = folder / "offsets" / str(batch)
    file.write_text(f'v1\n{{"batchWatermarkMs":0}}\n{offset}\n')
    (folder / "commits" / str(committed)).write_text("v1\n{}\n")
    stamp = file.stat().st_mtime - age_ms / 1000
    os.utime(file, (stamp, stamp))
    return folder


def test_checkpoints_of_streams(tmp_path: Path) -> None:
    async def make(cluster: AsyncCluster) -> None:
        await cluster.create_topic("orders", 2)
        for _ in range(6):
            await cluster.send("orders", "x")

        async def about(name: str, ends: dict[str, int], **options: int) -> set[str]:
            found = await names(cluster, "spark", str(checkpoint(tmp_path / name, ends, **options)))
            return found - {"java-missing", "pyspark-missing"}

        queues = {"orders@broker-a:0": 3, "orders@broker-a:1": 3}
        assert await about("well", queues) == set()
        assert await about("beyond", {**queues, "orders@broker-a:1": 99}) == {"checkpoint-beyond-end"}
        assert await about("gone", {"deleted@broker-a:0": 3}) == {"checkpoint-topic-gone"}

    ill(make)


def test_streams_that_stand_still(tmp_path: Path) -> None:
    seen = see_checkpoint(checkpoint(tmp_path / "c", {"orders@broker-a:0": 10}, batch=4, committed=3))
    (queue,) = seen.ends
    stuck = SparkSeen(seen.planned_ms + DAY_MS, "4.3.0", 21, checkpoint=seen)
    assert found(stuck) == {"batch-not-finished"}
    done = replace(seen, committed=4, known=True)
    here = SparkSeen(seen.planned_ms, "4.3.0", 21)
    assert found(replace(here, checkpoint=replace(done, bounds={queue: (40, 50)}))) == {"checkpoint-data-lost"}
    assert found(replace(here, checkpoint=replace(done, bounds={queue: (0, 5_000)}))) == {"stream-behind"}
    assert found(replace(here, checkpoint=replace(done, bounds={queue: (0, 12)}))) == set()


def test_what_spark_needs() -> None:
    assert found(SparkSeen(0, "", 0, "none was found")) == {"pyspark-missing", "java-missing"}
    assert found(SparkSeen(0, "3.5.1", 11)) == {"pyspark-too-old", "java-missing"}


def test_folders_that_are_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_text('v1\n{}\n{"topic":{"0":5}}\n')
    for folder in (tmp_path / "gone", tmp_path):
        assert found(SparkSeen(0, "4.3.0", 21, checkpoint=see_checkpoint(folder))) == {"checkpoint-unreadable"}
