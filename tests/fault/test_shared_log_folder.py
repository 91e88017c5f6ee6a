"""Two brokers with a root each and one folder for the log: the second is refused, and the first loses nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from processes import environment

from waiting import until


def configured(folder: Path, name: str, log: Path) -> list[str | Path]:
    path = folder / f"{name}.conf"
    path.write_text(
        f"brokerName={name}\nstorePathRootDir={folder / name}\nstorePathCommitLog={log}\nbrokerIP1=127.0.0.1\n"
        "bindAddress=127.0.0.1\nlistenPort=0\nnamesrvAddr=127.0.0.1:1\n"
    )
    return [sys.executable, "-m", "tianzhou", "broker", "-c", path]


def test_the_second_broker_on_a_log_folder_learns_who_has_it(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with subprocess.Popen(
        configured(tmp_path, "broker-a", log), env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as first:
        try:
            until((tmp_path / "broker-a" / "abort").exists)
            second = subprocess.run(
                configured(tmp_path, "broker-b", log), env=environment(), capture_output=True, text=True, timeout=60
            )
            assert second.returncode == 2
            assert f"the commit-log folder {log} is in use by process {first.pid}" in second.stdout + second.stderr
            assert "storePathCommitLog" in second.stdout + second.stderr
            assert list(log.iterdir()) == []
        finally:
            first.terminate()
            first.wait(30)
