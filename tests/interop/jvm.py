"""Questions to a program of ours that runs with Apache's client, in a JVM of its own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import toolchain


def ask_java(program: str, version: str, lines: list[str], home: Path) -> list[str]:
    """Send input lines to a program, and return one answer line for each.

    Args:
        program: Its class, in `java/src`.
        version: Of Apache's client.
        lines: The input lines.
        home: A folder it may write to.
    """
    try:
        classpath = toolchain.java_client(version)
        java = toolchain.tool("java")
    except toolchain.ToolchainMissingError as error:
        pytest.skip(str(error))
    command = [
        java,
        "-Xmx256m",
        *toolchain.SHORT_LIVED,
        "-Dfile.encoding=UTF-8",
        f"-Duser.home={home}",
    ]
    result = subprocess.run(
        [*command, "-cp", classpath, program],
        input="".join(f"{line}\n" for line in lines).encode(),
        capture_output=True,
        timeout=120,
        check=True,
        cwd=home,
        env=toolchain.environment(),
    )
    answers = result.stdout.decode().splitlines()
    assert len(answers) == len(lines), result.stderr.decode()[-2000:]
    return answers
