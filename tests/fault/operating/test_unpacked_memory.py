"""Memory of commands that read messages with a decompressed size far above the sent size."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import environment, serve

from tianzhou import sync
from tianzhou.model import Message

LIMIT_MB = 300
UNPACKED_BYTES = 64 << 20
MESSAGES = 20
# The peak of a child that this small process starts: a child of the tests' process would inherit the peak of the tests.
MEASURE = """
import resource, subprocess, sys
done = subprocess.run(sys.argv[2:], stdout=open(sys.argv[1], "wb"), stderr=subprocess.PIPE, text=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024, done.returncode, done.stderr)
"""


@pytest.fixture(scope="module")
def namesrv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("server")
    with serve(folder) as server:
        address = server.ready()["namesrv"]
        with sync.Producer("P", address, max_message_size=2 * UNPACKED_BYTES) as producer, sync.Admin(address) as admin:
            admin.topics.create("zeros", read_queue_nums=1, write_queue_nums=1)
            for _ in range(MESSAGES):
                producer.send(Message("zeros", bytes(UNPACKED_BYTES)))
        yield address


@pytest.mark.parametrize(
    "words",
    [
        ["consume", "zeros", "--from-beginning", "--max", "1"],
        ["consume", "zeros", "--from-beginning", "--max", "1", "-o", "json"],
        ["consume", "zeros", "--from-beginning", "--group", "G", "--max", "2"],
        ["message", "query", "zeros", "--limit", "4"],
    ],
    ids=["text", "json", "group", "query"],
)
def test_messages_that_unpack_to_64_mib_are_read_in_300_mb(namesrv: str, tmp_path: Path, words: list[str]) -> None:
    output = tmp_path / "output"
    command = [sys.executable, "-c", MEASURE, output, sys.executable, "-m", "tianzhou", *words, "--namesrv", namesrv]
    found = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=240, check=True)
    peak_mb, code, said = found.stdout.split(" ", 2)
    print(f"{' '.join(words)}: {peak_mb} MB at most")
    assert (code, int(peak_mb) <= LIMIT_MB) == ("0", True), (peak_mb, said)
    assert output.stat().st_size > 0
