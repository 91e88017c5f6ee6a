"""Two brokers with a root each and one folder for the log: the second is refused, and the first loses no message."""

from __future__ import annotations

from pathlib import Path

from processes import Tianzhou

from waiting import until


def broker(folder: Path, name: str, log: Path) -> Tianzhou:
    """Start a broker whose log is in a given folder.

    Args:
        folder: folder of the broker's other files.
        name: name of the broker.
        log: the folder of the log.
    """
    path = folder / f"{name}.conf"
    path.write_text(
        f"brokerName={name}\nstorePathRootDir={folder / name}\nstorePathCommitLog={log}\nbrokerIP1=127.0.0.1\n"
        "bindAddress=127.0.0.1\nlistenPort=0\nnamesrvAddr=127.0.0.1:1\n"
    )
    return Tianzhou(folder, "broker", "-c", path)


def test_the_second_broker_on_a_log_folder_learns_who_has_it(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with broker(tmp_path, "broker-a", log) as first:
        until((tmp_path / "broker-a" / "abort").exists)
        with broker(tmp_path, "broker-b", log) as second:
            assert second.wait() == 2
        said = second.out + second.err
        assert f"the commit-log folder {log} is in use by process {first.pid}" in said
        assert "storePathCommitLog" in said
        assert list(log.iterdir()) == []
